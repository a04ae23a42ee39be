"""Counters since the daemon started: launches, refusals, boots, interruptions, and the duration of each stage."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from gpucluster.catalog import xids
from gpucluster.cloud import faults
from gpucluster.elastic.events import (
    BootFailed,
    BreakerTripped,
    Entry,
    GpuFaulted,
    InstanceRunning,
    Interrupted,
    InterruptionKind,
    JobPlaced,
    JobRunning,
    JobsRequeued,
    JobsSignalled,
    LaunchDeferred,
    LaunchDone,
    LaunchRefused,
    LaunchRequested,
    NodeRegistered,
    NodeUp,
    OrderGiven,
    TerminationRefused,
    TerminationRequested,
    UnknownState,
)
from gpucluster.elastic.memory import Memory
from gpucluster.elastic.memory.launches import served

STAGES = (
    "launch",
    "boot",
    "register",
    "join",
    "start",
)  # requested -> launched -> booted -> registered -> up; placed -> running
BUCKETS_S = (1, 2, 5, 10, 20, 30, 60, 90, 120, 180, 300, 600, 1200, 1800)
PASS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.3, 1, 3, 10)
# name without prefix -> (help text, labels); a counter ends in _total
COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "launch_requests_total": ("Launch requests by outcome.", ("outcome",)),
    "launched_total": ("Instances that were launched.", ("pool", "market", "machine", "zone")),
    "refusals_total": ("Launches that the cloud refused, by class of the error.", ("market", "machine", "zone", "fault")),
    "throttles_total": ("Calls that the API throttled.", ()),
    "boot_failures_total": ("Instances that did not become nodes.", ("pool",)),
    "terminations_total": ("Instances whose termination was requested.", ()),
    "terminations_refused_total": ("Terminations that EC2 refused or did not answer, by instance.", ("fault",)),
    "interruptions_total": ("Instances with an interruption, by its kind.", ("kind",)),
    "xids_total": ("New GPU faults, by XID.", ("xid", "severity")),
    "jobs_signalled_total": ("Jobs whose batch script was signalled because an instance ends.", ()),
    "jobs_requeued_total": ("Jobs that were requeued before an instance ended.", ()),
    "breaker_trips_total": ("Breakers that tripped.", ("pool",)),
    "orders_total": ("Orders of operators.", ("verb",)),
    "unknown_states_total": ("Node states without a row in the node table.", ()),
}  # fmt: skip
_FAULTS = (
    ("no-capacity", faults.NO_CAPACITY),
    ("quota", faults.QUOTA),
    ("configuration", faults.CONFIGURATION),
    ("unsupported", faults.UNSUPPORTED),
    ("token", faults.TOKEN),
)


class EventCounters:
    """Counters and histograms in one registry, updated by events."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counters = {
            name: Counter(f"gpucluster_{name}", words, labels, registry=registry)
            for name, (words, labels) in COUNTERS.items()
        }
        for name, (_, labels) in COUNTERS.items():
            if not labels:
                self._counters[name].inc(0)
        for kind in InterruptionKind:
            self._counters["interruptions_total"].labels(kind.value)
        self._stages = Histogram(
            "gpucluster_stage_seconds",
            "Duration of a stage: launch, boot, register, join (of an instance), start (of a job).",
            ("stage",),
            buckets=BUCKETS_S,
            registry=registry,
        )
        for stage in STAGES:
            self._stages.labels(stage)
        self._passes = Histogram(
            "gpucluster_pass_seconds",
            "Duration of one pass of the daemon.",
            buckets=PASS_S,
            registry=registry,
        )
        self._placed: dict[int, float] = {}  # jobs that are starting
        self._adds: Mapping[type, Callable[[float, Any, Memory, Memory], None]] = {
            LaunchRequested: self._asked,
            LaunchDone: self._done,
            LaunchRefused: self._refused,
            LaunchDeferred: self._deferred,
            InstanceRunning: lambda at, e, old, new: self._stage(
                "boot", at, _time_of(new, e.slot, "launched_at")
            ),
            NodeRegistered: lambda at, e, old, new: self._stage(
                "register", at, _time_of(new, e.slot, "booted_at")
            ),
            NodeUp: lambda at, e, old, new: self._stage("join", at, _time_of(new, e.slot, "registered_at")),
            JobPlaced: self._job_placed,
            JobRunning: self._job_running,
            BootFailed: lambda at, e, old, new: self._count("boot_failures_total", e.pool),
            TerminationRequested: lambda at, e, old, new: self._count(
                "terminations_total", by=len(e.instances)
            ),
            TerminationRefused: lambda at, e, old, new: self._count(
                "terminations_refused_total", fault_of(e.words), by=len(e.instances)
            ),
            Interrupted: self._troubled,
            GpuFaulted: lambda at, e, old, new: self._count("xids_total", xid_of(e.xid), e.severity),
            JobsSignalled: lambda at, e, old, new: self._count("jobs_signalled_total", by=len(e.jobs)),
            JobsRequeued: lambda at, e, old, new: self._count("jobs_requeued_total", by=len(e.jobs)),
            BreakerTripped: lambda at, e, old, new: self._count("breaker_trips_total", e.pool),
            OrderGiven: lambda at, e, old, new: self._count("orders_total", e.verb.value),
            UnknownState: lambda at, e, old, new: self._count(
                "unknown_states_total", by=1 if e.states else 0
            ),
        }

    def add(self, entry: Entry, before: Memory, after: Memory) -> None:
        """Count one event; `before` and `after` are memory around the whole batch of the event."""
        add = self._adds.get(type(entry.event))
        if add is not None:
            add(entry.at, entry.event, before, after)

    def create_series(self, pools: Iterable[str]) -> None:
        """Create the failure series at zero: `increase` misses a series that starts at a higher value."""
        for pool in pools:
            self._counters["boot_failures_total"].labels(pool)
            self._counters["breaker_trips_total"].labels(pool)

    def count_pass(self, seconds: float) -> None:
        self._passes.observe(seconds)

    def _asked(self, at: float, event: LaunchRequested, before: Memory, after: Memory) -> None:
        if event.request.id not in before.launches:
            self._count("launch_requests_total", "requested")

    def _done(self, at: float, event: LaunchDone, before: Memory, after: Memory) -> None:
        launch = before.launches.get(event.request)
        self._count("launch_requests_total", "done")
        if launch is None:
            return
        ask = launch.request
        many = len(served(ask, len(event.instances)))
        self._count(
            "launched_total", ask.pool, ask.spec.market.value, ask.spec.machine, ask.spec.zone, by=many
        )
        self._stage("launch", at, launch.asked_at)

    def _refused(self, at: float, event: LaunchRefused, before: Memory, after: Memory) -> None:
        launch = before.launches.get(event.request)
        self._count("launch_requests_total", "refused")
        if launch is not None:
            ask = launch.request
            self._count(
                "refusals_total",
                ask.spec.market.value,
                ask.spec.machine,
                ask.spec.zone,
                fault_of(event.words),
            )

    def _deferred(self, at: float, event: LaunchDeferred, before: Memory, after: Memory) -> None:
        self._count("launch_requests_total", "deferred")
        if event.pace_all:
            self._count("throttles_total")

    def _troubled(self, at: float, event: Interrupted, before: Memory, after: Memory) -> None:
        """A moved end belongs to the same notice."""
        incarnation = before.incarnations.get(event.slot)
        known = (
            incarnation.interruption
            if incarnation is not None and incarnation.instance == event.instance
            else None
        )
        if known is None or known.kind is not event.kind:
            self._count("interruptions_total", event.kind.value)

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
    """Return the class of a refusal. There are few classes; the cloud's text is never a label."""
    code = words.partition(" ")[0].rstrip(":;,")
    return next((name for name, codes in _FAULTS if code in codes), "other")


def xid_of(number: int) -> str:
    """Return the XID label. Only numbers of the table are labels, never other numbers of a node."""
    return str(number) if xids.known(number) else "other"


def _time_of(memory: Memory, slot: str, field: str) -> float | None:
    incarnation = memory.incarnations.get(slot)
    return getattr(incarnation, field) if incarnation is not None else None
