"""Warnings that the spec accepts by id, with a reason. Errors cannot be accepted."""

from collections.abc import Iterable

from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.problem import Finding, Level
from gpucluster.spec.rules.findings import advice, error, or_none, parsed
from gpucluster.text import quoted


def accepted(spec: ClusterSpec, found: Iterable[Finding]) -> list[Finding]:
    """Return the findings that are not accepted, and the findings about `accept` itself."""
    findings = list(found)
    ids = {
        index: or_none(lambda index=index: spec.accept[index].id)
        for index in range(len(parsed(lambda: spec.accept)))
    }
    accepted_ids = {accepted_id for accepted_id in ids.values() if accepted_id is not None}
    left = [one for one in findings if one.level is Level.ERROR or one.id not in accepted_ids]
    return [
        *left,
        *(
            finding
            for index, accepted_id in ids.items()
            for finding in _about_accept(index, accepted_id, findings)
        ),
    ]


def _about_accept(index: int, accepted_id: object, findings: list[Finding]) -> list[Finding]:
    levels = {one.level for one in findings if one.id == accepted_id}
    if accepted_id is None or levels - {Level.ERROR}:
        return []
    if levels:
        message = f"{quoted(accepted_id)} is an error here; only warnings and advice can be accepted"
        return [error("accept", index, "id", id="not-acceptable", message=message)]
    message = f"no finding has the id {quoted(accepted_id)}: delete this entry"
    return [advice("accept", index, "id", id="accept-unused", message=message)]
