"""What the journal says of a job's asking: requests, the cloud's last answer to each offer, and how often it was sent back."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gpucluster.cloud import faults
from gpucluster.elastic.events import (
    Ask,
    Entry,
    JobLeft,
    JobPlaced,
    JobRunning,
    LaunchAsked,
    LaunchDeferred,
    LaunchDone,
    LaunchRefused,
    Needed,
    SentBack,
)

# a code of the cloud, by its class -> what it means, and who has to move
_MEANINGS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"SpotMaxPriceTooLow"}), "spot costs more there now than `max_price` allows"),
    (faults.NO_CAPACITY, "the cloud has none free there now"),
    (faults.QUOTA, "a quota of the account is reached: raise it in Service Quotas"),
    (faults.CONFIGURATION, "the account or our configuration forbids it: a person has to change that"),
    (faults.UNSUPPORTED, "it is not sold there"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The last word on an offer, and how often the same came since it last gave something."""

    at: float
    offer: str
    words: str
    times: int
    request: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A launch that was asked."""

    at: float
    ask: Ask
    tries: int = 1
    deferred: str = ""  # the cloud's words, where it must be repeated


@dataclass(frozen=True, slots=True)
class Past:
    """A job's part of the journal; `submitted_at` is 0 where the journal has nothing of it."""

    submitted_at: float = 0.0
    placed_at: float = 0.0
    running_at: float = 0.0
    left_at: float = 0.0
    slots: tuple[str, ...] = ()
    starts: int = 0  # how often Slurm gave it nodes
    sent_back_at: float = 0.0
    requests: tuple[Sent, ...] = ()
    answers: tuple[Answer, ...] = ()  # of every offer that ever refused and gave nothing since, oldest first


def meaning(words: str) -> str:
    """What a refusal's code means; empty for words that speak for themselves."""
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
        self._answers: dict[str, Answer] = {}

    def add(self, at: float, event: object) -> None:
        match event:
            case JobPlaced() | JobRunning() | JobLeft() if event.job == self._job:
                self._of_job(at, event)
            case Needed(slot=slot, jobs=jobs) if self._job in jobs:
                self._slots.add(slot)
            case SentBack(jobs=jobs) if self._job in jobs:
                self._past = replace(self._past, sent_back_at=at)
            case LaunchAsked(ask=ask):
                self._asked(at, ask)
            case LaunchDeferred(request=request, words=words) if request in self._asks:
                self._asks[request] = replace(self._asks[request], deferred=words)
            case LaunchDone(request=request) if request in self._asks:
                self._answers.pop(self._asks[request].ask.offer, None)
            case LaunchRefused(request=request, words=words, key=key) if key and request in self._asks:
                self._refused(at, self._asks[request].ask, words)
            case _:
                pass

    def done(self) -> Past:
        return replace(
            self._past,
            requests=tuple(self._asks[request] for request in self._mine),
            answers=tuple(sorted(self._answers.values(), key=lambda a: (a.at, a.offer))),
        )

    def _of_job(self, at: float, event: JobPlaced | JobRunning | JobLeft) -> None:
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
            case JobLeft():
                self._past = replace(old, left_at=at)
                self._slots.clear()

    def _asked(self, at: float, ask: Ask) -> None:
        known = self._asks.get(ask.request)
        if known is not None:
            self._asks[ask.request] = replace(known, tries=known.tries + 1)
            return
        self._asks[ask.request] = Sent(at, ask)
        if self._job in ask.jobs or self._slots & set(ask.slots):
            self._mine.append(ask.request)

    def _refused(self, at: float, ask: Ask, words: str) -> None:
        old = self._answers.get(ask.offer)
        self._answers[ask.offer] = Answer(at, ask.offer, words, (old.times if old else 0) + 1, ask.request)


def by_offer(some: Past) -> Mapping[str, Answer]:
    """The answers, by offer."""
    return {answer.offer: answer for answer in some.answers}
