"""Warnings that a person has judged: silenced by id, with the reason beside it; never an error."""

from collections.abc import Iterable

from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.problem import Finding, Level, quoted
from gpucluster.spec.rules.findings import advice, error, or_none, parsed


def accepted(spec: ClusterSpec, found: Iterable[Finding]) -> list[Finding]:
    """What is left to say, and what is wrong with the acceptances themselves."""
    told = list(found)
    ids = {
        index: or_none(lambda index=index: spec.accept[index].id)
        for index in range(len(parsed(lambda: spec.accept)))
    }
    silent = {wanted for wanted in ids.values() if wanted is not None}
    left = [one for one in told if one.level is Level.ERROR or one.id not in silent]
    return [*left, *(finding for index, wanted in ids.items() for finding in _judged(index, wanted, told))]


def _judged(index: int, wanted: object, told: list[Finding]) -> list[Finding]:
    levels = {one.level for one in told if one.id == wanted}
    if wanted is None or levels - {Level.ERROR}:
        return []
    if levels:
        says = f"{quoted(wanted)} is an error here, and errors are not accepted"
        return [error("accept", index, "id", id="not-acceptable", says=says)]
    says = f"nothing says {quoted(wanted)} any more: the line can go"
    return [advice("accept", index, "id", id="accept-unused", says=says)]
