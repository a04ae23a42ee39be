"""Warnings that the spec accepts by id, with a reason. Errors cannot be accepted; what is about security has an end."""

from collections.abc import Iterable, Iterator

from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.people import Accept
from gpucluster.spec.problem import Finding, Level
from gpucluster.spec.rules.findings import advice, collect, error, or_none, parsed, warning
from gpucluster.text import quoted


def accepted(spec: ClusterSpec, found: Iterable[Finding]) -> list[Finding]:
    """Return the findings that are not accepted, and the findings about `accept` itself."""
    findings = list(found)
    entries = [(index, spec.accept[index]) for index in range(len(parsed(lambda: spec.accept)))]
    ids = {or_none(lambda entry=entry: entry.id) for _, entry in entries}
    return [
        *(one for one in findings if one.level is Level.ERROR or one.id not in ids),
        *(one for index, entry in entries for one in collect(_about(index, entry, findings))),
    ]


def _about(index: int, entry: Accept, findings: list[Finding]) -> Iterator[Finding]:
    same = [one for one in findings if one.id == entry.id]
    if not same:
        message = f"no finding has the id {quoted(entry.id)}: delete this entry"
        yield advice("accept", index, "id", id="accept-unused", message=message)
    elif all(one.level is Level.ERROR for one in same):
        message = f"{quoted(entry.id)} is an error here; only warnings and advice can be accepted"
        yield error("accept", index, "id", id="not-acceptable", message=message)
    elif any(one.security for one in same) and entry.until is None:
        message = (
            f"{quoted(entry.id)} is about security, so its acceptance needs an end: "
            "write `until: YYYY-MM-DD`, the last day of it"
        )
        yield warning("accept", index, id="accept-without-end", message=message)
