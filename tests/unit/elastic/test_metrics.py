"""The metrics: counters of a simulated fleet, gauges of a snapshot, and the cost of a scrape."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.builders import a_plan
from support.cluster_states import BUSY, NOW, WAKING, instance, job, living, node, refusal, sight
from support.fleet import Fleet

from gpucluster.elastic.abilities import Dependency, Loss
from gpucluster.elastic.events import (
    BootFailed,
    Entry,
    GpuFaulted,
    Interrupted,
    InterruptionKind,
    StraysSeen,
    TerminationRefused,
    UnknownState,
)
from gpucluster.elastic.inspect.metrics import LeaseStatus, Meter
from gpucluster.elastic.inspect.metrics.counters import COUNTERS, fault_of, xid_of
from gpucluster.elastic.inspect.metrics.gauges import GAUGES, Since
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import fold
from gpucluster.plan.messages import ControllerWatch
from gpucluster.plan.model import Budget

Shown = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def shown(meter: Meter) -> Shown:
    families = text_string_to_metric_families(meter.text().decode())
    return {
        (s.name.removeprefix("gpucluster_"), tuple(sorted(s.labels.items()))): s.value
        for family in families
        for s in family.samples
    }


def of(meter: Meter, name: str, **labels: str) -> float | None:
    return shown(meter).get((name, tuple(sorted(labels.items()))))


def meter_of(moment: ClusterSnapshot, lease: LeaseStatus | None = None) -> Meter:
    return Meter(lambda: moment, lambda: lease or LeaseStatus(holder="head/1"))


def test_events_of_a_cluster_are_counted_and_timed(tmp_path: Path) -> None:
    f = Fleet(a_plan(("idle: 5m", "idle: 1m")), tmp_path)
    f.model.set_capacity(zone="us-east-2a", free=0)
    meter = Meter(
        lambda: ClusterSnapshot(
            plan=f.plan,
            bindings=f.bindings,
            observation=f.reconciler.observation,
            memory=f.journal.memory,
            now=f.now,
        ),
        LeaseStatus,
    )
    f.journal.watch = meter.count
    one = f.slurm.submit(2, lasts=30)
    f.until(lambda: one.state == "RUNNING", 400)
    f.run(5)
    assert of(meter, "instances", pool="h200", market="spot", machine="p5en.48xlarge", zone="us-east-2b") == 2
    assert of(meter, "nodes", pool="h200", state="up") == 2
    assert of(meter, "node_rows", pool="h200", row="busy") == 2
    f.until(lambda: one.state == "COMPLETED" and not f.living(), 1000)
    f.run(60)
    assert (
        of(meter, "launched_total", pool="h200", market="spot", machine="p5en.48xlarge", zone="us-east-2b")
        == 2
    )
    assert (
        of(
            meter,
            "refusals_total",
            market="spot",
            machine="p5en.48xlarge",
            zone="us-east-2a",
            fault="no-capacity",
        )
        == 1
    )
    assert of(meter, "terminations_total") == 2
    for stage in ("launch", "boot", "register", "join"):
        count = of(meter, "stage_seconds_count", stage=stage)
        assert count in (1, 2), stage
    assert of(meter, "stage_seconds_count", stage="start") == 1
    assert (
        of(meter, "instances", pool="h200", market="spot", machine="p5en.48xlarge", zone="us-east-2b") is None
    )
    assert of(meter, "nodes", pool="h200", state="up") == 0


def test_gauges_show_cost_limits_and_waiting_jobs() -> None:
    plan = replace(
        a_plan(), budget=Budget(monthly=100_000_000, warn_at=80_000_000, stop_scaling_at=95_000_000)
    )
    moment = sight(
        plan,
        *living("h200-2a-1", "h200-2a-2", ago=7200.0),
        *refusal(2, ("h200-2b-1",), 50.0, "InsufficientInstanceCapacity"),
        (700.0, StraysSeen(instances=("i-9",))),
        nodes=(node("h200-2a-1", BUSY), node("h200-2a-2", BUSY), node("h200-2b-1", WAKING)),
        jobs=(
            job(40, "h200-2a-1", "h200-2a-2"),
            job(42, reason="Priority"),
            job(43, reason="QOSMaxGRESPerUser", submitted_at=NOW - 900),
        ),
        instances=(instance(0, 7200.0), instance(1, 7200.0), instance(9, 800.0)),
        halted="launches are stopped, by down",
    )
    meter = meter_of(moment)
    assert of(meter, "info", cluster="burst", holder="head/1") == 1
    assert of(meter, "jobs_waiting", cause="halted") == 1
    assert of(meter, "jobs_waiting", cause="limit") == 1
    assert of(meter, "jobs_waiting_seconds", cause="limit") == 900
    assert of(meter, "halted") == 1
    assert of(meter, "stray_instances") == 1
    assert of(meter, "stray_instance_seconds") == 700
    assert of(meter, "spend_rate_usd_per_hour") == 52
    assert of(meter, "spend_month_usd") == pytest.approx(103.96, abs=0.01)
    assert of(meter, "budget_usd", line="stop") == 95
    assert of(meter, "offer_refused", offer="spot/p5en.48xlarge/us-east-2b") == 1
    assert of(meter, "view_age_seconds", of="slurm") == 0


def test_unhealthy_nodes_that_stay_are_counted() -> None:
    words = "gpucluster: [health] unhealthy, and not drained: gpu.ecc"
    nodes = [
        node("h200-2a-1", "IDLE CLOUD", comment=words),
        node("h200-2a-2", "IDLE CLOUD", comment="rack 4"),
    ]
    assert of(meter_of(sight(a_plan(), nodes=nodes)), "nodes_unhealthy", pool="h200") == 1


def test_missing_view_has_the_largest_age_and_no_values() -> None:
    moment = sight(a_plan())
    blind = replace(moment, observation=replace(moment.observation, slurm=None))
    meter = meter_of(blind, LeaseStatus(held=False))
    assert of(meter, "view_age_seconds", of="slurm") == float("inf")
    assert of(meter, "lease_held") == 0
    assert of(meter, "nodes", pool="h200", state="off") is None
    assert of(meter, "stray_instances") is None


def test_interruptions_faults_and_unknown_states_are_counted() -> None:
    moment = sight(a_plan(), *living("h200-2a-1"))
    meter = meter_of(moment)
    events = (
        Interrupted(slot="h200-2a-1", instance="i-0", kind=InterruptionKind.SPOT, words="w"),
        GpuFaulted(slot="h200-2a-1", instance="i-0", xid=79, device="d", count=1, severity="isolate"),
        UnknownState(slot="h200-2a-1", states=("FUTURE", "IDLE")),
        BootFailed(slot="h200-2a-1", instance="i-0", words="w", pool="h200"),
    )
    entries = [Entry(at=NOW, event=event) for event in events]
    meter.count(entries, moment.memory, fold(moment.memory, entries))
    assert of(meter, "interruptions_total", kind="spot") == 1
    assert of(meter, "xids_total", xid="79", severity="isolate") == 1
    assert of(meter, "unknown_states_total") == 1
    assert of(meter, "boot_failures_total", pool="h200") == 1


def test_ages_grow_between_scrapes_and_end_with_the_state() -> None:
    since = Since()
    assert since.ages("x", ["a"], 100.0) == {"a": 0.0}
    assert since.ages("x", ["a", "b"], 130.0) == {"a": 30.0, "b": 0.0}
    assert since.ages("x", ["b"], 140.0) == {"b": 10.0}
    assert since.ages("x", ["a"], 150.0) == {"a": 0.0}
    assert since.ages("x", ["a"], 90.0) == {"a": 0.0}, "the clock went back"
    assert since.ages("y", ["a"], 99.0) == {"a": 0.0}, "another kind"


def test_waiting_time_continues_through_requeues() -> None:
    """Slurm sets the submit time anew at each requeue (24.11, seen)."""
    first = sight(a_plan(), jobs=(job(41, submitted_at=NOW - 5),))
    assert first.observation.slurm
    moments = [first]
    meter = Meter(lambda: moments[0], LeaseStatus)
    assert of(meter, "jobs_waiting_seconds", cause="scheduling") == 5
    again = replace(first.observation.slurm.jobs[0], submitted_at=NOW + 3595)
    moments[0] = replace(
        first,
        now=NOW + 3600,
        observation=replace(first.observation, slurm=replace(first.observation.slurm, jobs=(again,))),
    )
    assert of(meter, "jobs_waiting_seconds", cause="scheduling") == 3600


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("InsufficientInstanceCapacity", "no-capacity"),
        ("VcpuLimitExceeded (You have requested more)", "quota"),
        ("UnauthorizedOperation (not you)", "configuration"),
        ("does not boot: i-1", "other"),
        ("", "other"),
    ],
)
def test_refusal_is_counted_by_its_class(words: str, fault: str) -> None:
    assert fault_of(words) == fault


@pytest.mark.parametrize(("number", "label"), [(79, "79"), (10**9, "other"), (-5, "other")])
def test_only_xids_of_the_table_are_labels(number: int, label: str) -> None:
    assert xid_of(number) == label


def test_metric_names_are_valid_and_labels_are_few() -> None:
    for name in (*GAUGES, *COUNTERS):
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
    assert all(name.endswith("_total") for name in COUNTERS)
    assert not any(name.endswith("_total") for name in GAUGES)
    assert all(len(gauge.labels) <= 4 for gauge in GAUGES.values())


def test_failure_counters_start_at_zero() -> None:
    """A storm or six boots that fail in one turn began their series at its end, and `increase` saw nothing: no alert."""
    meter = meter_of(sight(a_plan()))
    assert of(meter, "boot_failures_total", pool="h200") == 0
    assert of(meter, "breaker_trips_total", pool="h200") == 0
    assert of(meter, "interruptions_total", kind="spot") == 0


def test_notice_with_a_moved_end_is_counted_once() -> None:
    first = Interrupted(
        slot="h200-2a-1", instance="i-0", kind=InterruptionKind.SPOT, words="x", ends_at=NOW + 120
    )
    moved = replace(first, ends_at=NOW + 60, source="node")
    before = sight(a_plan(), *living("h200-2a-1")).memory
    meter = meter_of(sight(a_plan()))
    for event in (first, moved):
        entries = (Entry(at=NOW, event=event),)
        after = fold(before, entries)
        meter.count(entries, before, after)
        before = after
    assert of(meter, "interruptions_total", kind="spot") == 1


def test_silent_queue_is_shown() -> None:
    """A deleted queue was only a line of the daemon's log."""
    assert of(meter_of(sight(a_plan())), "queue_silent_seconds") == 0
    lost = {Dependency.QUEUE: Loss(since=NOW - 90, words="QueueDoesNotExist: no")}
    assert of(meter_of(sight(a_plan(), lost=lost)), "queue_silent_seconds") == 90


def test_waiting_tasks_of_an_array_are_jobs() -> None:
    """An array of 2,000 tasks counted as one waiting job."""
    jobs = (job(41, reason="Dependency", tasks=2000), job(42, reason="Dependency", submitted_at=NOW - 900))
    meter = meter_of(sight(a_plan(), jobs=jobs))
    assert of(meter, "jobs_waiting", cause="dependency") == 2001
    assert of(meter, "jobs_waiting_seconds", cause="dependency") == 900


def test_silence_and_restarts_of_slurmctld_are_shown() -> None:
    """The agent's watchdog writes them; restarts of an earlier day do not count."""
    quiet = meter_of(sight(a_plan()))
    assert (of(quiet, "slurmctld_silent_seconds"), of(quiet, "slurmctld_restarts_day")) == (0, 0)
    watch = ControllerWatch(silent_since=NOW - 90, restarts=(NOW - 86_401, NOW - 100))
    meter = meter_of(replace(sight(a_plan()), controller=watch))
    assert (of(meter, "slurmctld_silent_seconds"), of(meter, "slurmctld_restarts_day")) == (90, 1)


def test_instance_that_cannot_be_terminated_is_counted() -> None:
    refused = TerminationRefused(
        instances=("i-0",), words="UnauthorizedOperation: no", until=NOW + 60, refused=True
    )
    throttled = replace(refused, instances=("i-1",), refused=False)
    assert of(meter_of(sight(a_plan(), (5.0, refused), (5.0, throttled))), "instances_end_refused") == 1
