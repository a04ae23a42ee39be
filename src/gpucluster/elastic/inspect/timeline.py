"""`python -m gpucluster.elastic.inspect.timeline JOBID [--json]`, on the head: the moments of a job and their times.

It reads the journal of the daemon, and with accounting the job's records of slurmdbd: what held the job, and how each run of
it ended. Each moment has the ids that join it to others (request, instance, node) and the duration of its stage.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from gpucluster import shell
from gpucluster.elastic.events import (
    BootFailed,
    BreakerTripped,
    Entry,
    Event,
    GpuFaulted,
    HeartbeatResumed,
    HeartbeatStopped,
    HookCalled,
    InstanceGone,
    InstanceRunning,
    Interrupted,
    InterruptionOver,
    JobPlaced,
    JobReleased,
    JobRunning,
    JobsRequeued,
    JobsSignalled,
    LaunchDeferred,
    LaunchDone,
    LaunchRefused,
    LaunchRequest,
    LaunchRequested,
    NodeIdle,
    NodeNeeded,
    NodeRegistered,
    NodeUp,
    OrderGiven,
    TerminationRequested,
)
from gpucluster.elastic.inspect import head
from gpucluster.elastic.memory.launches import served
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.plan import codec
from gpucluster.slurm import job_records
from gpucluster.slurm.job_records import JobRecord
from gpucluster.slurm.states import JobState
from gpucluster.text import short, utc_minute

SACCT_S = 20.0


class Moment(StrEnum):
    """What happened to a job, its slots, its requests or its pools."""

    SUBMITTED = "submitted"
    PLACED = "placed"
    REQUESTED = "requested"
    REFUSED = "refused"
    DEFERRED = "deferred"
    LAUNCHED = "launched"
    BOOTED = "booted"
    REGISTERED = "registered"
    UP = "up"
    BOOT_FAILED = "boot-failed"
    RUNNING = "running"
    SIGNALLED = "signalled"
    REQUEUED = "requeued"
    RELEASED = "released"
    WAITED = "waited"
    PREEMPTED = "preempted"
    ENDED = "ended"
    IDLE = "idle"
    TERMINATING = "terminating"
    GONE = "gone"
    POWER_UP = "power-up"
    INTERRUPTED = "interrupted"
    GPU_FAULT = "gpu-fault"
    INTERRUPTION_OVER = "interruption-over"
    HEARTBEAT_STOPPED = "heartbeat-stopped"
    HEARTBEAT_RESUMED = "heartbeat-resumed"
    ORDERED = "ordered"
    BREAKER = "breaker"


# moment -> the moments that may start its stage (the last one counts), and whether they belong to the slot, the
# request's or the job's
BEGAN: Mapping[Moment, tuple[tuple[Moment, ...], str]] = {
    Moment.PLACED: ((Moment.SUBMITTED, Moment.RELEASED), "job"),
    Moment.REQUESTED: ((Moment.PLACED,), "job"),
    Moment.REFUSED: ((Moment.REQUESTED,), "request"),
    Moment.DEFERRED: ((Moment.REQUESTED,), "request"),
    Moment.LAUNCHED: ((Moment.REQUESTED,), "request"),
    Moment.BOOTED: ((Moment.LAUNCHED,), "slot"),
    Moment.REGISTERED: ((Moment.BOOTED, Moment.LAUNCHED), "slot"),
    Moment.UP: ((Moment.REGISTERED, Moment.BOOTED, Moment.LAUNCHED), "slot"),
    Moment.BOOT_FAILED: ((Moment.LAUNCHED,), "slot"),
    Moment.RUNNING: ((Moment.PLACED,), "job"),
    Moment.SIGNALLED: ((Moment.INTERRUPTED,), "slot"),
    Moment.REQUEUED: ((Moment.INTERRUPTED,), "slot"),
    Moment.RELEASED: ((Moment.RUNNING, Moment.PLACED), "job"),
    Moment.WAITED: ((Moment.SUBMITTED, Moment.RELEASED), "job"),
    Moment.PREEMPTED: ((Moment.RUNNING, Moment.PLACED), "job"),
    Moment.ENDED: ((Moment.RUNNING, Moment.PLACED), "job"),
    Moment.IDLE: ((Moment.RELEASED,), "job"),
    Moment.TERMINATING: ((Moment.IDLE, Moment.UP, Moment.LAUNCHED), "slot"),
    Moment.GONE: ((Moment.TERMINATING, Moment.LAUNCHED), "slot"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """One moment of a job; `slot`, `request` and `instance` are empty if they do not apply."""

    at: float
    what: Moment  # those in BEGAN have a stage
    slot: str = ""
    request: str = ""
    instance: str = ""
    detail: str = ""
    took_s: float | None = None  # since the start of its stage; None: it has none, or the start is unknown


def main(argv: Sequence[str] | None = None) -> int:
    """Print a job's moments, oldest first; exit 1 if the journal has none."""
    parser = head.parser("inspect.timeline")
    parser.add_argument("job", type=int)
    options = parser.parse_args(argv)

    def work() -> int:
        where = head.head_files(options)
        record = head.read_journal(where)
        events = timeline(options.job, record.entries, _records(options.job, where))
        if note := pruned_note(events, record.pruned_before):
            sys.stderr.write(f"note: {note}\n")
        if options.json:
            sys.stdout.write(json.dumps([codec.to_json(m) for m in events], indent=1) + "\n")
            return 0
        if not events:
            sys.stderr.write(
                f"error: the journal has no event of job {options.job}\n"
                f"  next: gpucluster why {options.job} -c {_cluster(where)}\n"
            )
            return 1
        sys.stdout.write("\n".join(lines(events)) + "\n")
        return 0

    return head.run(work)


def _records(job: int, where: head.HeadFiles) -> tuple[JobRecord, ...]:
    """The job's records, if the cluster has accounting. What is missing is said, and the journal's moments are shown."""
    try:
        if head.read_plan(where).slurm.accounting is None:
            return ()
        done = shell.run(job_records.show(job), env=job_records.IN_ENVIRONMENT, timeout_s=SACCT_S)
        return job_records.parse(job, done.stdout)
    except (GpuclusterError, ValueError) as error:
        sys.stderr.write(f"warning: without the records of accounting: {short(str(error))}\n")
        return ()


def _cluster(where: head.HeadFiles) -> str:
    """Return the name of this cluster. The timeline needs only the journal, so an unreadable plan is no error."""
    try:
        return head.read_plan(where).name
    except StateError:
        return "NAME"


def pruned_note(events: Sequence[TimelineEvent], pruned_before: float | None) -> str:
    """Return when the journal begins, if it may have had earlier events of the job: older events are pruned."""
    if pruned_before is None:
        return ""
    placed = any(one.what is Moment.PLACED for one in events)
    if placed and events[0].at >= pruned_before:
        return ""
    return f"older events are pruned: the journal begins at {utc_minute(pruned_before)}"


def lines(events: Sequence[TimelineEvent]) -> tuple[str, ...]:
    """Format for people: time since the first moment, duration of the stage, the moment, the ids."""
    first = events[0].at if events else 0.0
    return tuple(_line(found, first) for found in events)


def timeline(
    job: int, entries: Iterable[Entry], records: Iterable[JobRecord] = ()
) -> tuple[TimelineEvent, ...]:
    """Return the moments of one job: its own, those of its records, and those of its slots from its placement to their end."""
    story = _Story(job)
    for entry in entries:
        story.add(entry)
    return timed(sorted(_with_records(story.events, tuple(records)), key=_order))


def _with_records(events: Sequence[TimelineEvent], records: Sequence[JobRecord]) -> Iterator[TimelineEvent]:
    """Add what only accounting knows. The daemon does not see a run of a second, nor the submission before a requeue."""
    first = min((run.submitted_at for run in records if run.submitted_at), default=None)
    if first is not None:
        yield TimelineEvent(at=first, what=Moment.SUBMITTED)
    yield from (one for one in events if one.what != Moment.SUBMITTED or first is None)
    seen = [one.at for one in events if one.what == Moment.RUNNING]
    for run in records:
        yield from _recorded(run, seen)


def _recorded(run: JobRecord, seen: Sequence[float]) -> Iterator[TimelineEvent]:
    """The moments of one run; `seen` are the times at which the daemon saw the job run."""
    waited_until = run.started_at or run.ended_at
    if run.reason and waited_until:
        yield TimelineEvent(at=waited_until, what=Moment.WAITED, detail=f"the last reason was {run.reason}")
    end = run.ended_at + 1 if run.ended_at else math.inf
    if run.started_at and not any(run.started_at <= at < end for at in seen):
        yield TimelineEvent(at=run.started_at, what=Moment.RUNNING)
    if run.ended_at and run.state.startswith(JobState.PREEMPTED):
        yield TimelineEvent(at=run.ended_at, what=Moment.PREEMPTED, detail="for a job that comes first")
    elif run.ended_at:
        yield TimelineEvent(
            at=run.ended_at, what=Moment.ENDED, detail=f"{run.state}, exit code {run.exit_code}"
        )


def _order(found: TimelineEvent) -> float:
    """The time. That of a record has no fraction: an end may be up to a second later, after what the journal has."""
    return found.at + (0.999 if found.what in (Moment.PREEMPTED, Moment.ENDED) else 0.0)


def timed(events: Iterable[TimelineEvent]) -> tuple[TimelineEvent, ...]:
    """Return each moment with the duration of its stage."""
    last: dict[tuple[Moment, str], float] = {}  # (moment, slot, request or "") -> time
    done: list[TimelineEvent] = []
    for found in events:
        stages, by = BEGAN.get(found.what, ((), "job"))
        key = {"slot": found.slot, "request": found.request, "job": ""}[by]
        began = max((last[stage, key] for stage in stages if (stage, key) in last), default=None)
        done.append(replace(found, took_s=None if began is None else max(0.0, found.at - began)))
        for name in {found.slot, found.request, ""}:
            last[found.what, name] = found.at
    return tuple(done)


class _Story:
    def __init__(self, job: int) -> None:
        self._job = job
        self._slots: set[str] = set()  # the job's slots, until their instance is gone
        self._pools: set[str] = set()
        self._since_left: list[TimelineEvent] = []  # of its pools: they count if the job is requeued
        self._requests: dict[str, LaunchRequest] = {}
        self._instances: dict[str, str] = {}  # instance -> slot
        self._submitted = self._asked = self._over = False
        self.events: list[TimelineEvent] = []
        self._reads: Mapping[type, Callable[[float, Any], None]] = {
            HookCalled: self._hook,
            NodeNeeded: self._needed,
            **dict.fromkeys(
                (JobPlaced, JobRunning, JobReleased, HeartbeatStopped, HeartbeatResumed), self._of_job
            ),
            **dict.fromkeys((LaunchRequested, LaunchDone, LaunchRefused, LaunchDeferred), self._of_request),
            **dict.fromkeys(
                (InstanceRunning, NodeRegistered, NodeUp, BootFailed, NodeIdle, InstanceGone), self._of_slot
            ),
            **dict.fromkeys(
                (
                    Interrupted,
                    GpuFaulted,
                    JobsSignalled,
                    JobsRequeued,
                    InterruptionOver,
                    TerminationRequested,
                ),
                self._of_instance,
            ),
            **dict.fromkeys((OrderGiven, BreakerTripped), self._of_people),
        }

    def add(self, entry: Entry) -> None:
        self._learn(entry.event)
        read = self._reads.get(type(entry.event))
        if read is not None:
            read(entry.at, entry.event)

    def _learn(self, event: Event) -> None:
        """Note whose instance it is. An adopted instance, and one whose launch is pruned, has no launch in the journal."""
        slot, instance = getattr(event, "slot", ""), getattr(event, "instance", "")
        if slot and instance:
            self._instances.setdefault(instance, slot)

    def _hook(self, at: float, event: HookCalled) -> None:
        if event.kind == "resume" and self._job in event.jobs:
            self._asked = True
            self._add(event.called_at, Moment.POWER_UP, detail="hook")

    def _needed(self, at: float, event: NodeNeeded) -> None:
        if self._job in event.jobs and not self._asked:
            self._asked = True  # seen in Slurm before a hook's request, or without one
            self._add(at, Moment.POWER_UP, slot=event.slot)

    def _of_job(
        self, at: float, event: JobPlaced | JobRunning | JobReleased | HeartbeatStopped | HeartbeatResumed
    ) -> None:
        if event.job != self._job:
            return
        match event:
            case JobPlaced(slots=slots, submitted_at=submitted):
                if not self._submitted:
                    self._add(submitted or at, Moment.SUBMITTED)
                self._submitted, self._over = True, False
                self.events += self._since_left
                self._since_left = []
                self._slots = set(slots)
                self._add(at, Moment.PLACED, detail=",".join(slots))
            case JobRunning():
                self._add(at, Moment.RUNNING)
            case JobReleased():
                self._over = True
                self._add(at, Moment.RELEASED)
            case HeartbeatStopped(words=words):
                self._add(at, Moment.HEARTBEAT_STOPPED, detail=words)
            case HeartbeatResumed():
                self._add(at, Moment.HEARTBEAT_RESUMED)

    def _of_request(
        self, at: float, event: LaunchRequested | LaunchDone | LaunchRefused | LaunchDeferred
    ) -> None:
        if isinstance(event, LaunchRequested):
            self._request(at, event.request)
            return
        ask = self._requests.get(event.request)
        if ask is None:
            return
        match event:
            case LaunchDone(request=request, instances=ids):
                for slot, instance in zip(served(ask, len(ids)), ids, strict=False):
                    self._instances[instance] = slot
                    if slot in self._slots:
                        self._add(at, Moment.LAUNCHED, slot=slot, request=request, instance=instance)
            case LaunchRefused(request=request, words=words) if self._slots & set(ask.slots):
                self._add(at, Moment.REFUSED, request=request, detail=words)
            case LaunchDeferred(request=request, words=words) if self._slots & set(ask.slots):
                self._add(at, Moment.DEFERRED, request=request, detail=words)
            case _:
                pass

    def _request(self, at: float, ask: LaunchRequest) -> None:
        known = ask.id in self._requests
        self._requests[ask.id] = ask
        if self._slots & set(ask.slots) and not known:
            self._pools.add(ask.pool)
            what = f"{len(ask.slots)} x {ask.spec.market.value} {ask.spec.machine} in {ask.spec.zone}"
            self._add(at, Moment.REQUESTED, request=ask.id, detail=what)

    def _of_slot(
        self,
        at: float,
        event: InstanceRunning | NodeRegistered | NodeUp | BootFailed | NodeIdle | InstanceGone,
    ) -> None:
        slot = event.slot
        if slot not in self._slots:
            return
        match event:
            case InstanceRunning(instance=instance):
                self._add(at, Moment.BOOTED, slot=slot, instance=instance)
            case NodeRegistered(instance=instance):
                self._add(at, Moment.REGISTERED, slot=slot, instance=instance)
            case NodeUp():
                self._add(at, Moment.UP, slot=slot, instance=self._instance_of(slot))
            case BootFailed(instance=instance, words=words):
                self._add(at, Moment.BOOT_FAILED, slot=slot, instance=instance, detail=words)
            case NodeIdle():
                if self._over:
                    self._add(at, Moment.IDLE, slot=slot, instance=self._instance_of(slot))
            case InstanceGone(instance=instance):
                self._add(at, Moment.GONE, slot=slot, instance=instance)
                if self._over:
                    self._slots.discard(slot)

    def _of_instance(
        self,
        at: float,
        event: Interrupted
        | GpuFaulted
        | JobsSignalled
        | JobsRequeued
        | InterruptionOver
        | TerminationRequested,
    ) -> None:
        match event:
            case Interrupted(instance=i, kind=kind, words=words):
                self._on(at, Moment.INTERRUPTED, i, f"{kind.value}: {words}")
            case GpuFaulted(instance=i, xid=xid, device=device):
                self._on(at, Moment.GPU_FAULT, i, f"XID {xid} on {device}")
            case JobsSignalled(instance=i, jobs=jobs, signal=signal):
                if self._job in jobs:
                    self._on(at, Moment.SIGNALLED, i, signal)
            case JobsRequeued(instance=i, jobs=jobs):
                if self._job in jobs:
                    self._on(at, Moment.REQUEUED, i, "requeued")
            case InterruptionOver(instance=i, words=words):
                self._on(at, Moment.INTERRUPTION_OVER, i, words)
            case TerminationRequested(instances=ids, words=words):
                for i in ids:
                    self._on(at, Moment.TERMINATING, i, words)

    def _of_people(self, at: float, event: OrderGiven | BreakerTripped) -> None:
        match event:
            case OrderGiven(verb=verb, target=target, by=by, words=words):
                if target in self._slots or target in self._pools:
                    because = f": {words}" if words else ""
                    detail = f"{verb.value} {target} by {by}{because}"
                    if target in self._slots:
                        self._add(at, Moment.ORDERED, slot=target, detail=detail)
                    else:
                        self._add_of_pool(TimelineEvent(at=at, what=Moment.ORDERED, detail=detail))
            case BreakerTripped(pool=pool, words=words):
                if pool in self._pools:
                    self._add_of_pool(TimelineEvent(at=at, what=Moment.BREAKER, detail=f"{pool}: {words}"))

    def _add_of_pool(self, found: TimelineEvent) -> None:
        """Return whether a pool's event counts. After the job left, it counts only if the job was requeued."""
        (self._since_left if self._over else self.events).append(found)

    def _on(self, at: float, what: Moment, instance: str, detail: str) -> None:
        """Add an event of an instance of the job, or of the job alone, if it names no instance."""
        slot = self._instances.get(instance)
        if slot in self._slots or not instance:
            self._add(at, what, slot=slot or "", instance=instance, detail=detail)

    def _instance_of(self, slot: str) -> str:
        """Return the slot's last request, as the journal names it at the launch."""
        return next((i for i, s in reversed(self._instances.items()) if s == slot), "")

    def _add(
        self,
        at: float,
        what: Moment,
        *,
        slot: str = "",
        request: str = "",
        instance: str = "",
        detail: str = "",
    ) -> None:
        self.events.append(
            TimelineEvent(at=at, what=what, slot=slot, request=request, instance=instance, detail=detail)
        )


def _line(found: TimelineEvent, first: float) -> str:
    words = " ".join(w for w in (found.slot, found.request, found.instance, found.detail) if w)
    took = f"{found.took_s:8.2f} s" if found.took_s is not None else " " * 10
    return f"{found.at - first:9.2f} s  {took}  {found.what:17}  {words}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
