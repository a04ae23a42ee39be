"""The order of expectations: a check runs after those that it needs, and after its causes, because only a result that is there can block it. Pure."""

from collections.abc import Iterator, Sequence

from gpucluster.checks.check import need_of
from gpucluster.validate.expectation import Expectation


def needs_first(every: Sequence[Expectation]) -> tuple[Expectation, ...]:
    """Return the same expectations; one that another needs at the same target, or that may be its cause, comes before it."""
    known = {one.id: one for one in every}
    placed: dict[str, Expectation] = {}

    def place(one: Expectation) -> None:
        if one.id not in placed:
            for need in _needs(one):
                if need in known:
                    place(known[need])
            placed[one.id] = one

    for one in every:
        place(one)
    return tuple(placed.values())


def _needs(one: Expectation) -> Iterator[str]:
    """The ids of what it needs at its own target, and of its causes there."""
    for need in map(need_of, (*one.of.needs, *one.of.causes)):
        if not need.where:
            yield f"{need.check}[{one.target}]"
