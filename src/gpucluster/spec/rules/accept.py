"""Warnings that the spec accepts by id, with a reason. Errors cannot be accepted; what is about security has an end."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.people import Accept
from gpucluster.spec.problem import Finding, Level
from gpucluster.spec.rules.findings import advice, collect, error, or_none, parsed, warning
from gpucluster.text import quoted


@dataclass(frozen=True, slots=True, order=True)
class _Last:
    """The acceptance of a warning that lasts longest: its last day, and its place in `accept`."""

    until: date
    index: int


def accepted(spec: ClusterSpec, found: Iterable[Finding], today: date | None) -> list[Finding]:
    """Return the findings that are not accepted, and the findings about `accept` itself.

    `today`: a warning whose acceptance has ended before it is not accepted. None: no acceptance ends.
    """
    findings = list(found)
    entries = [spec.accept[index] for index in range(len(parsed(lambda: spec.accept)))]
    last = _last_of_each(entries)
    return [
        *(one for one in findings if one.level is Level.ERROR or one.id not in last),
        *(() if today is None else _shown_again(findings, entries, last, today)),
        *(one for index, entry in enumerate(entries) for one in collect(_about(index, entry, findings))),
    ]


def _last_of_each(entries: Sequence[Accept]) -> Mapping[str, _Last]:
    last: dict[str, _Last] = {}
    for index, entry in enumerate(entries):
        id_ = or_none(lambda entry=entry: entry.id)
        if id_ is not None:
            until = or_none(lambda entry=entry: entry.until) or date.max
            last[id_] = max(last.get(id_, _Last(date.min, 0)), _Last(until, index))
    return last


def _shown_again(
    findings: Iterable[Finding], entries: Sequence[Accept], last: Mapping[str, _Last], today: date
) -> Iterator[Finding]:
    for one in findings:
        end = last.get(one.id)
        if end is not None and end.until < today and one.level is not Level.ERROR:
            because = or_none(lambda index=end.index: entries[index].because) or "no reason"
            words = f"accepted until {end.until}, by accept[{end.index}]: {because}"
            yield replace(one, message=f"{one.message}; {words}", ended=True)


def _about(index: int, entry: Accept, findings: Iterable[Finding]) -> Iterator[Finding]:
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
    for untrue in dict.fromkeys(one.untrue for one in same if one.untrue is not None):
        if _has_any(entry.because, untrue.words):
            yield error("accept", index, "because", id="reason-untrue", message=untrue.fact)


def _has_any(text: str, words: Iterable[str]) -> bool:
    found = f" {' '.join(re.findall('[a-z]+', text.lower()))} "
    return any(f" {word} " in found for word in words)
