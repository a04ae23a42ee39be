"""`python -m gpucluster.elastic.timeline JOBID [--json]`, on the head: when each thing of a job happened.

Read from the journal of a running daemon; nothing is asked of Slurm or of the cloud. Each moment carries the ids that
join it to others: request, instance, node; and how long its stage took.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpucluster.elastic import head
from gpucluster.elastic.events import (
    Ask,
    Beats,
    BecameIdle,
    Booted,
    BootFailed,
    BreakerTripped,
    CameUp,
    EndAsked,
    Entry,
    GpuFaulted,
    Hangs,
    HookCalled,
    InstanceGone,
    JobLeft,
    JobPlaced,
    JobRunning,
    LaunchAsked,
    LaunchDeferred,
    LaunchDone,
    LaunchRefused,
    Needed,
    Ordered,
    Registered,
    SentBack,
    Signalled,
    Troubled,
    TroubleOver,
)
from gpucluster.elastic.memory.launches import served
from gpucluster.plan import codec

# what -> the moments that its stage may have begun with (the last of them), and whether they are the slot's, the
# request's or the job's
BEGAN: Mapping[str, tuple[tuple[str, ...], str]] = {
    "placed": (("submitted", "left"), "job"),
    "requested": (("placed",), "job"),
    "refused": (("requested",), "request"),
    "deferred": (("requested",), "request"),
    "launched": (("requested",), "request"),
    "booted": (("launched",), "slot"),
    "registered": (("booted", "launched"), "slot"),
    "up": (("registered", "booted", "launched"), "slot"),
    "boot-failed": (("launched",), "slot"),
    "running": (("placed",), "job"),
    "signalled": (("troubled",), "slot"),
    "sent-back": (("troubled",), "slot"),
    "left": (("running", "placed"), "job"),
    "idle": (("left",), "job"),
    "ending": (("idle", "up", "launched"), "slot"),
    "gone": (("ending", "launched"), "slot"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One event of a job's story; `slot`, `request` and `instance` are empty where they mean nothing."""

    at: float
    what: str  # a key of BEGAN, or submitted, asked, troubled, gpu-fault, trouble-over, hangs, beats, ordered, breaker
    slot: str = ""
    request: str = ""
    instance: str = ""
    detail: str = ""
    took_s: float | None = None  # since its stage began; None: it has none, or that is not known


def main(argv: Sequence[str] | None = None) -> int:
    """Print a job's moments, oldest first; exit 1 for people when the journal has none."""
    parser = head.parser("timeline")
    parser.add_argument("job", type=int)
    options = parser.parse_args(argv)

    def work() -> int:
        moments = timeline(options.job, head.journal(head.places(options)))
        if options.json:
            sys.stdout.write(json.dumps([codec.to_json(m) for m in moments], indent=1) + "\n")
            return 0
        if not moments:
            sys.stderr.write(
                f"error: the journal has nothing of job {options.job}\n  next: gpucluster why {options.job}\n"
            )
            return 1
        sys.stdout.write("\n".join(lines(moments)) + "\n")
        return 0

    return head.run(work)


def lines(moments: Sequence[Moment]) -> tuple[str, ...]:
    """For people: since the first moment, how long the stage took, what, and the ids."""
    first = moments[0].at if moments else 0.0
    return tuple(_line(moment, first) for moment in moments)


def timeline(job: int, entries: Iterable[Entry]) -> tuple[Moment, ...]:
    """The moments of one job: its own, and those of the slots from its placement to their end."""
    story = _Story(job)
    for entry in entries:
        story.add(entry)
    return timed(sorted(story.moments, key=lambda m: m.at))


def timed(moments: Iterable[Moment]) -> tuple[Moment, ...]:
    """Each with how long its stage took."""
    last: dict[tuple[str, str], float] = {}  # (what, slot, request or "") -> when
    done: list[Moment] = []
    for moment in moments:
        stages, by = BEGAN.get(moment.what, ((), "job"))
        key = {"slot": moment.slot, "request": moment.request, "job": ""}[by]
        began = max((last[stage, key] for stage in stages if (stage, key) in last), default=None)
        done.append(replace(moment, took_s=None if began is None else max(0.0, moment.at - began)))
        for name in {moment.slot, moment.request, ""}:
            last[moment.what, name] = moment.at
    return tuple(done)


class _Story:
    def __init__(self, job: int) -> None:
        self._job = job
        self._slots: set[str] = set()  # the job's, until their instance is gone
        self._pools: set[str] = set()
        self._since_left: list[Moment] = []  # of its pools: they matter if it comes back
        self._requests: dict[str, Ask] = {}
        self._instances: dict[str, str] = {}  # instance -> slot
        self._submitted = self._asked = self._over = False
        self.moments: list[Moment] = []
        self._reads: Mapping[type, Callable[[float, Any], None]] = {
            HookCalled: self._hook,
            Needed: self._needed,
            **dict.fromkeys((JobPlaced, JobRunning, JobLeft, Hangs, Beats), self._of_job),
            **dict.fromkeys((LaunchAsked, LaunchDone, LaunchRefused, LaunchDeferred), self._of_request),
            **dict.fromkeys(
                (Booted, Registered, CameUp, BootFailed, BecameIdle, InstanceGone), self._of_slot
            ),
            **dict.fromkeys(
                (Troubled, GpuFaulted, Signalled, SentBack, TroubleOver, EndAsked), self._of_instance
            ),
            **dict.fromkeys((Ordered, BreakerTripped), self._of_people),
        }

    def add(self, entry: Entry) -> None:
        read = self._reads.get(type(entry.event))
        if read is not None:
            read(entry.at, entry.event)

    def _hook(self, at: float, event: HookCalled) -> None:
        if event.kind == "resume" and self._job in event.jobs:
            self._asked = True
            self._say(event.called_at, "asked", detail="hook")

    def _needed(self, at: float, event: Needed) -> None:
        if self._job in event.jobs and not self._asked:
            self._asked = True  # seen in Slurm before any hook called, or without one
            self._say(at, "asked", slot=event.slot)

    def _of_job(self, at: float, event: JobPlaced | JobRunning | JobLeft | Hangs | Beats) -> None:
        if event.job != self._job:
            return
        match event:
            case JobPlaced(slots=slots, submitted_at=submitted):
                if not self._submitted:
                    self._say(submitted or at, "submitted")
                self._submitted, self._over = True, False
                self.moments += self._since_left
                self._since_left = []
                self._slots = set(slots)
                self._say(at, "placed", detail=",".join(slots))
            case JobRunning():
                self._say(at, "running")
            case JobLeft():
                self._over = True
                self._say(at, "left")
            case Hangs(words=words):
                self._say(at, "hangs", detail=words)
            case Beats():
                self._say(at, "beats")

    def _of_request(
        self, at: float, event: LaunchAsked | LaunchDone | LaunchRefused | LaunchDeferred
    ) -> None:
        if isinstance(event, LaunchAsked):
            self._request(at, event.ask)
            return
        ask = self._requests.get(event.request)
        if ask is None:
            return
        match event:
            case LaunchDone(request=request, instances=ids):
                for slot, instance in zip(served(ask, len(ids)), ids, strict=False):
                    self._instances[instance] = slot
                    if slot in self._slots:
                        self._say(at, "launched", slot=slot, request=request, instance=instance)
            case LaunchRefused(request=request, words=words) if self._slots & set(ask.slots):
                self._say(at, "refused", request=request, detail=words)
            case LaunchDeferred(request=request, words=words) if self._slots & set(ask.slots):
                self._say(at, "deferred", request=request, detail=words)
            case _:
                pass

    def _request(self, at: float, ask: Ask) -> None:
        known = ask.request in self._requests
        self._requests[ask.request] = ask
        if self._slots & set(ask.slots) and not known:
            self._pools.add(ask.pool)
            what = f"{len(ask.slots)} x {ask.market.value} {ask.machine} in {ask.zone}"
            self._say(at, "requested", request=ask.request, detail=what)

    def _of_slot(
        self, at: float, event: Booted | Registered | CameUp | BootFailed | BecameIdle | InstanceGone
    ) -> None:
        slot = event.slot
        if slot not in self._slots:
            return
        match event:
            case Booted(instance=instance):
                self._say(at, "booted", slot=slot, instance=instance)
            case Registered(instance=instance):
                self._say(at, "registered", slot=slot, instance=instance)
            case CameUp():
                self._say(at, "up", slot=slot, instance=self._instance_of(slot))
            case BootFailed(instance=instance, words=words):
                self._say(at, "boot-failed", slot=slot, instance=instance, detail=words)
            case BecameIdle():
                if self._over:
                    self._say(at, "idle", slot=slot, instance=self._instance_of(slot))
            case InstanceGone(instance=instance):
                self._say(at, "gone", slot=slot, instance=instance)
                if self._over:
                    self._slots.discard(slot)

    def _of_instance(
        self, at: float, event: Troubled | GpuFaulted | Signalled | SentBack | TroubleOver | EndAsked
    ) -> None:
        match event:
            case Troubled(instance=i, kind=kind, words=words):
                self._on(at, "troubled", i, f"{kind.value}: {words}")
            case GpuFaulted(instance=i, xid=xid, device=device):
                self._on(at, "gpu-fault", i, f"XID {xid} on {device}")
            case Signalled(instance=i, jobs=jobs, signal=signal):
                if self._job in jobs:
                    self._on(at, "signalled", i, signal)
            case SentBack(instance=i, jobs=jobs):
                if self._job in jobs:
                    self._on(at, "sent-back", i, "requeued")
            case TroubleOver(instance=i, words=words):
                self._on(at, "trouble-over", i, words)
            case EndAsked(instances=ids, words=words):
                for i in ids:
                    self._on(at, "ending", i, words)

    def _of_people(self, at: float, event: Ordered | BreakerTripped) -> None:
        match event:
            case Ordered(verb=verb, target=target, by=by, words=words):
                if target in self._slots or target in self._pools:
                    because = f": {words}" if words else ""
                    detail = f"{verb.value} {target} by {by}{because}"
                    if target in self._slots:
                        self._say(at, "ordered", slot=target, detail=detail)
                    else:
                        self._say_of_pool(Moment(at=at, what="ordered", detail=detail))
            case BreakerTripped(pool=pool, words=words):
                if pool in self._pools:
                    self._say_of_pool(Moment(at=at, what="breaker", detail=f"{pool}: {words}"))

    def _say_of_pool(self, moment: Moment) -> None:
        """What befalls a pool after the job left is no part of its story, unless it was requeued and comes back."""
        (self._since_left if self._over else self.moments).append(moment)

    def _on(self, at: float, what: str, instance: str, detail: str) -> None:
        slot = self._instances.get(instance)
        if slot in self._slots:
            self._say(at, what, slot=slot or "", instance=instance, detail=detail)

    def _instance_of(self, slot: str) -> str:
        """The latest; the journal names it at the launch."""
        return next((i for i, s in reversed(self._instances.items()) if s == slot), "")

    def _say(
        self, at: float, what: str, *, slot: str = "", request: str = "", instance: str = "", detail: str = ""
    ) -> None:
        self.moments.append(
            Moment(at=at, what=what, slot=slot, request=request, instance=instance, detail=detail)
        )


def _line(moment: Moment, first: float) -> str:
    words = " ".join(w for w in (moment.slot, moment.request, moment.instance, moment.detail) if w)
    took = f"{moment.took_s:8.2f} s" if moment.took_s is not None else " " * 10
    return f"{moment.at - first:9.2f} s  {took}  {moment.what:12}  {words}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
