"""The first sentence of a report: the worst that an edit does, in at most 120 characters. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence

from gpucluster.gitops.effects import UNAFFECTED
from gpucluster.gitops.model import Diff
from gpucluster.gitops.report import words
from gpucluster.gitops.severity import Severity, says

LONGEST = 120
_LOSSES = (Severity.LOST, Severity.ENDED, Severity.BLOCKED)
_USUAL = dict(UNAFFECTED.lines())
_BY_WORTH = ("data", "running jobs", "queued jobs", "sessions")


def opening(diff: Diff) -> str:
    """Return the sentence without a full stop."""
    return shortened(next(_worst_first(diff)))


def _worst_first(diff: Diff) -> Iterator[str]:
    if diff.whole_effect:
        yield diff.whole_effect.removesuffix(".")
    lines = {} if diff.effects is None else dict(diff.effects.lines())
    if diff.effects is not None and diff.effects.refused:
        yield diff.effects.refused
    yield from _losses(lines)
    yield from words.starts(diff)
    for subject, what in lines.items():
        yield from (one for one in _clauses(subject, what) if one != f"{subject} {_USUAL[subject]}")
    if diff.effect:
        yield diff.effect.removesuffix(".")
    yield from _without_jobs(diff)


def _losses(lines: Mapping[str, str]) -> Iterator[str]:
    for severity in _LOSSES if lines else ():
        for subject in _BY_WORTH:
            yield from (one for one in _clauses(subject, lines[subject]) if says(severity, one))


def _without_jobs(diff: Diff) -> Iterator[str]:
    if diff.access:
        yield _who_gets_in([one.path for one in diff.access])
    if words.costs_differ(diff):
        known = diff.cost_before.most.exact and diff.cost_after.most.exact
        yield words.cost(diff) if known else "the cost of a month changes, and a part of it has no price"
    if diff.spec or diff.consequences or diff.resources:
        yield "jobs, sessions and data stay as they are"
    if diff.differs:
        yield "rendered files differ; the spec does not"
    yield "both revisions describe the same cluster"


def _who_gets_in(paths: Sequence[str]) -> str:
    """Return as many of the paths as fit, and the count of the rest."""
    texts = (_named(paths, most) for most in range(len(paths), 0, -1))
    return next((text for text in texts if len(text) <= LONGEST), _named(paths, 1))


def _named(paths: Sequence[str], most: int) -> str:
    rest = f" and {len(paths) - most} more" if most < len(paths) else ""
    return f"who gets in changes: {', '.join(paths[:most])}{rest}"


def _clauses(subject: str, what: str) -> Iterator[str]:
    """Yield what is said of all of a subject, then what is said of its parts."""
    first, *parts = what.split("; ")
    yield f"{subject} {first}"
    for part in parts:
        joined = part.startswith(("also ", "they "))
        yield f"{subject} {first}; {part}" if joined else f"{subject}: {part}"


def shortened(text: str) -> str:
    """Return whole clauses of the text if they say enough, else its first words."""
    if len(text) <= LONGEST:
        return text
    ends = [found.start() for found in re.finditer(r"; |: |\. ", text) if found.start() <= LONGEST]
    if ends and ends[-1] > LONGEST // 3:
        return text[: ends[-1]]
    return f"{text[: LONGEST - 1].rpartition(' ')[0]}…"
