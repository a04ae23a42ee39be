"""What happened since the daemon started: launches, refusals, boots, troubles, and how long each stage took."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from gpucluster.catalog import xids
from gpucluster.cloud import faults
from gpucluster.elastic.events import (
    Booted,
    BootFailed,
    BreakerTripped,
    CameUp,
    EndAsked,
    Entry,
    GpuFaulted,
    JobPlaced,
    JobRunning,
    LaunchAsked,
    LaunchDeferred,
    LaunchDone,
    LaunchRefused,
    Ordered,
    Registered,
    SentBack,
    Signalled,
    Troubled,
    TroubleKind,
    Unknown,
)
from gpucluster.elastic.memory import Memory
from gpucluster.elastic.memory.launches import served

STAGES = (
    "launch",
    "boot",
    "register",
    "join",
    "start",
)  # asked -> launched -> booted -> registered -> up; placed -> running
BUCKETS_S = (1, 2, 5, 10, 20, 30, 60, 90, 120, 180, 300, 600, 1200, 1800)
TURN_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.3, 1, 3, 10)
# name without prefix -> (what it counts, labels); a counter ends in _total
COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "launch_requests_total": ("Requests to the cloud for machines, by how they ended.", ("outcome",)),
    "launched_total": ("Machines that the cloud gave.", ("pool", "market", "machine", "zone")),
    "refusals_total": ("Launches that the cloud refused, by what the caller must do next.", ("market", "machine", "zone", "fault")),
    "throttles_total": ("Calls that the API took back for a while.", ()),
    "boot_failures_total": ("Machines that did not become nodes.", ("pool",)),
    "ends_total": ("Machines whose end was asked for.", ()),
    "notices_total": ("Machines that are to be left, by why.", ("kind",)),
    "xids_total": ("Faults of GPUs that were news, by XID.", ("xid", "severity")),
    "jobs_signalled_total": ("Jobs whose batch script was told that a machine of theirs goes.", ()),
    "jobs_sent_back_total": ("Jobs that were requeued before a machine of theirs ended.", ()),
    "breaker_trips_total": ("Breakers that opened.", ("pool",)),
    "orders_total": ("Orders of operators.", ("verb",)),
    "unknown_states_total": ("States of nodes that no row of the table has.", ()),
}  # fmt: skip
_FAULTS = (
    ("no-capacity", faults.NO_CAPACITY),
    ("quota", faults.QUOTA),
    ("configuration", faults.CONFIGURATION),
    ("unsupported", faults.UNSUPPORTED),
    ("token", faults.TOKEN),
)


class Counted:
    """Counters and histograms in one registry, moved by events."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counters = {
            name: Counter(f"gpucluster_{name}", words, labels, registry=registry)
            for name, (words, labels) in COUNTERS.items()
        }
        for name, (_, labels) in COUNTERS.items():
            if not labels:
                self._counters[name].inc(0)
        for kind in TroubleKind:
            self._counters["notices_total"].labels(kind.value)
        self._stages = Histogram(
            "gpucluster_stage_seconds",
            "How long a stage took: launch, boot, register, join (a machine's), start (a job's).",
            ("stage",),
            buckets=BUCKETS_S,
            registry=registry,
        )
        for stage in STAGES:
            self._stages.labels(stage)
        self._turns = Histogram(
            "gpucluster_turn_seconds",
            "How long a turn of the daemon's loop took.",
            buckets=TURN_S,
            registry=registry,
        )
        self._placed: dict[int, float] = {}  # jobs that are on their way
        self._adds: Mapping[type, Callable[[float, Any, Memory, Memory], None]] = {
            LaunchAsked: self._asked,
            LaunchDone: self._done,
            LaunchRefused: self._refused,
            LaunchDeferred: self._deferred,
            Booted: lambda at, e, old, new: self._stage("boot", at, _life(new, e.slot, "launched_at")),
            Registered: lambda at, e, old, new: self._stage("register", at, _life(new, e.slot, "booted_at")),
            CameUp: lambda at, e, old, new: self._stage("join", at, _life(new, e.slot, "registered_at")),
            JobPlaced: self._job_placed,
            JobRunning: self._job_running,
            BootFailed: lambda at, e, old, new: self._count("boot_failures_total", e.pool),
            EndAsked: lambda at, e, old, new: self._count("ends_total", by=len(e.instances)),
            Troubled: self._troubled,
            GpuFaulted: lambda at, e, old, new: self._count("xids_total", xid_of(e.xid), e.severity),
            Signalled: lambda at, e, old, new: self._count("jobs_signalled_total", by=len(e.jobs)),
            SentBack: lambda at, e, old, new: self._count("jobs_sent_back_total", by=len(e.jobs)),
            BreakerTripped: lambda at, e, old, new: self._count("breaker_trips_total", e.pool),
            Ordered: lambda at, e, old, new: self._count("orders_total", e.verb.value),
            Unknown: lambda at, e, old, new: self._count("unknown_states_total", by=1 if e.states else 0),
        }

    def add(self, entry: Entry, before: Memory, after: Memory) -> None:
        """Count one event; `before` and `after` are of the whole batch that it came in."""
        add = self._adds.get(type(entry.event))
        if add is not None:
            add(entry.at, entry.event, before, after)

    def know(self, pools: Iterable[str]) -> None:
        """Show their failures from zero on: `increase` does not see a series that begins at six."""
        for pool in pools:
            self._counters["boot_failures_total"].labels(pool)
            self._counters["breaker_trips_total"].labels(pool)

    def turn(self, seconds: float) -> None:
        self._turns.observe(seconds)

    def _asked(self, at: float, event: LaunchAsked, before: Memory, after: Memory) -> None:
        if event.ask.request not in before.launches:
            self._count("launch_requests_total", "asked")

    def _done(self, at: float, event: LaunchDone, before: Memory, after: Memory) -> None:
        launch = before.launches.get(event.request)
        self._count("launch_requests_total", "done")
        if launch is None:
            return
        ask = launch.ask
        many = len(served(ask, len(event.instances)))
        self._count("launched_total", ask.pool, ask.market.value, ask.machine, ask.zone, by=many)
        self._stage("launch", at, launch.asked_at)

    def _refused(self, at: float, event: LaunchRefused, before: Memory, after: Memory) -> None:
        launch = before.launches.get(event.request)
        self._count("launch_requests_total", "refused")
        if launch is not None:
            ask = launch.ask
            self._count("refusals_total", ask.market.value, ask.machine, ask.zone, fault_of(event.words))

    def _deferred(self, at: float, event: LaunchDeferred, before: Memory, after: Memory) -> None:
        self._count("launch_requests_total", "deferred")
        if event.pace_all:
            self._count("throttles_total")

    def _troubled(self, at: float, event: Troubled, before: Memory, after: Memory) -> None:
        """An end that is moved is the same notice."""
        life = before.lives.get(event.slot)
        told = life.trouble if life is not None and life.instance == event.instance else None
        if told is None or told.kind is not event.kind:
            self._count("notices_total", event.kind.value)

    def _job_placed(self, at: float, event: JobPlaced, before: Memory, after: Memory) -> None:
        self._placed[event.job] = at

    def _job_running(self, at: float, event: JobRunning, before: Memory, after: Memory) -> None:
        self._stage("start", at, self._placed.pop(event.job, None))
        self._placed = {job: since for job, since in self._placed.items() if str(job) in after.jobs}

    def _count(self, name: str, *labels: str, by: float = 1) -> None:
        counter = self._counters[name]
        (counter.labels(*labels) if labels else counter).inc(by)

    def _stage(self, stage: str, at: float, began: float | None) -> None:
        if began:
            self._stages.labels(stage).observe(max(0.0, at - began))


def fault_of(words: str) -> str:
    """The class of a refusal, of which there are few; never the cloud's own text as a label."""
    code = words.partition(" ")[0].rstrip(":;,")
    return next((name for name, codes in _FAULTS if code in codes), "other")


def xid_of(number: int) -> str:
    """Of the table's, of which there are few; never any number that a node says."""
    return str(number) if xids.known(number) else "other"


def _life(memory: Memory, slot: str, field: str) -> float | None:
    life = memory.lives.get(slot)
    return getattr(life, field) if life is not None else None
