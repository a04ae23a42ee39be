"""Tables of sentences about events, the most severe row first. The first row that fits is used. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpucluster.gitops.model import Clause

E = TypeVar("E")  # the events


@dataclass(frozen=True, slots=True)
class Row(Generic[E]):
    """`total`: the words are about all of the subject, so nothing is said of a part of it.

    `requests`: the ids in `slurm.request_table` of what Slurm does to the jobs.
    """

    fits: Callable[[E], object]
    words: str
    total: bool = False
    requests: tuple[str, ...] = ()

    def with_notes(self, notes: tuple[str, ...]) -> str:
        """Return the words, followed by notes about parts of the subject."""
        return self.words if self.total else "; ".join((self.words, *notes))


def always(_: object) -> bool:
    return True


def first(rows: Sequence[Row[E]], events: E) -> Row[E]:
    """Return the first fitting row of a table whose last row fits always."""
    found = fitting(rows, events)
    if found is None:
        raise ValueError("the last row fits always")
    return found


def fitting(rows: Sequence[Row[E]], events: E) -> Row[E] | None:
    return next((row for row in rows if row.fits(events)), None)


def clauses(tables: Mapping[str, Sequence[Row[E]]], events: E) -> Iterator[Clause]:
    """Yield what is said of each subject, if it comes from the table of requests."""
    for subject, rows in tables.items():
        if (row := first(rows, events)).requests:
            yield Clause(subject=subject, text=row.words, rows=row.requests)
