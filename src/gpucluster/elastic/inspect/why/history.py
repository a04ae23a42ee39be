"""The journal's record of a job: its requests, and when Slurm gave it nodes."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpucluster.cloud import faults
from gpucluster.elastic.events import (
    Entry,
    JobPlaced,
    JobReleased,
    JobRunning,
    LaunchDeferred,
    LaunchRequest,
    LaunchRequested,
    NodeNeeded,
)

# class of the cloud's error code -> its meaning, and who must act
_MEANINGS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"SpotMaxPriceTooLow"}), "spot costs more there now than `max_price` allows"),
    (faults.NO_CAPACITY, "there is no free capacity now"),
    (faults.QUOTA, "a quota of the account is reached: raise it in Service Quotas"),
    (faults.CONFIGURATION, "the account or the configuration forbids it: a person must change that"),
    (faults.UNSUPPORTED, "it is not offered there"),
)


@dataclass(frozen=True, slots=True)
class Sent:
    """A launch that was requested."""

    at: float
    ask: LaunchRequest
    tries: int = 1
    deferred: str = ""  # the cloud's text, where it must be repeated


@dataclass(frozen=True, slots=True)
class Past:
    """A job's part of the journal; `submitted_at` is 0 if the journal has no event of the job."""

    submitted_at: float = 0.0
    placed_at: float = 0.0
    running_at: float = 0.0
    left_at: float = 0.0
    slots: tuple[str, ...] = ()
    starts: int = 0  # how often Slurm gave it nodes
    requests: tuple[Sent, ...] = ()


def meaning(words: str) -> str:
    """Return the meaning of an error code; empty if the text needs no explanation."""
    code = words.partition(" ")[0].rstrip(":;,")
    return next((text for codes, text in _MEANINGS if code in codes), "")


def past(job: int, entries: Iterable[Entry]) -> Past:
    """Read the whole journal once."""
    reader = _Reader(job)
    for entry in entries:
        reader.add(entry.at, entry.event)
    return reader.done()


class _Reader:
    def __init__(self, job: int) -> None:
        self._job = job
        self._past: Past = Past()
        self._slots: set[str] = set()
        self._asks: dict[str, Sent] = {}
        self._mine: list[str] = []

    def add(self, at: float, event: object) -> None:
        match event:
            case JobPlaced() | JobRunning() | JobReleased() if event.job == self._job:
                self._of_job(at, event)
            case NodeNeeded(slot=slot, jobs=jobs) if self._job in jobs:
                self._slots.add(slot)
            case LaunchRequested(request=ask):
                self._asked(at, ask)
            case LaunchDeferred(request=request, words=words) if request in self._asks:
                self._asks[request] = replace(self._asks[request], deferred=words)
            case _:
                pass

    def done(self) -> Past:
        return replace(
            self._past,
            requests=tuple(self._asks[request] for request in self._mine),
        )

    def _of_job(self, at: float, event: JobPlaced | JobRunning | JobReleased) -> None:
        old = self._past
        match event:
            case JobPlaced(slots=slots, submitted_at=submitted):
                self._slots |= set(slots)
                self._past = replace(
                    old,
                    submitted_at=old.submitted_at or submitted or at,
                    placed_at=at,
                    slots=slots,
                    starts=old.starts + 1,
                    running_at=0.0,
                    left_at=0.0,
                )
            case JobRunning():
                self._past = replace(old, running_at=at)
            case JobReleased():
                self._past = replace(old, left_at=at)
                self._slots.clear()

    def _asked(self, at: float, ask: LaunchRequest) -> None:
        known = self._asks.get(ask.id)
        if known is not None:
            self._asks[ask.id] = replace(known, tries=known.tries + 1)
            return
        self._asks[ask.id] = Sent(at, ask)
        if self._job in ask.jobs or self._slots & set(ask.slots):
            self._mine.append(ask.id)
