"""How many unhealthy nodes are replaced in an hour: a false alarm replaces no pool over and over."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from support.cluster_states import NOW, UP, job, node
from support.worlds.scene import A1, A2, A3, A4, B1, SMALL, TWO, pool_with, scene, up

from gpucluster.cloud.bundle_status import Published
from gpucluster.elastic.abilities import Dependency, Loss
from gpucluster.elastic.decide import decide
from gpucluster.elastic.events import (
    Entry,
    InstanceGone,
    InterruptionKind,
    OrderGiven,
    ReplacementBegan,
    Verb,
)
from gpucluster.elastic.inspect import overview
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why import text, why
from gpucluster.elastic.memory import Interruption, fold
from gpucluster.elastic.model import Drain, MarkDown, RecordEvents, Requeue, Signal
from gpucluster.plan.model import SlurmOnAws
from gpucluster.slurm.values import SlurmJob, SlurmNode

HOUR = 3600.0
UNHEALTHY = "gpucluster: [health] gpu.ecc: GPU 3 has 2 uncorrectable ECC errors"
TWO_AN_HOUR = pool_with(SMALL, replacements_per_hour=2)
ALL = (A1, A2, A3, A4, B1)


def unhealthy(slot: str, *, reason: str = UNHEALTHY, by: str = "root", ago: float = 1000.0) -> SlurmNode:
    return node(slot, f"{UP} DRAIN", reason=reason, reason_by=by, reason_at=NOW - ago)


def of(nodes: Iterable[SlurmNode], plan: SlurmOnAws = TWO_AN_HOUR) -> ClusterSnapshot:
    nodes = tuple(nodes)
    return scene(plan, nodes, (), {one.name: up(one.name, 5000) for one in nodes})


def passed(moment: ClusterSnapshot) -> tuple[list[str], ClusterSnapshot]:
    """The slots that this pass sets down, and the moment with what the daemon remembers of the pass."""
    actions = decide(moment.plan, moment.bindings, moment.observation, moment.memory, moment.now)
    entries = [entry for a in actions if isinstance(a, RecordEvents) for entry in a.entries]
    down = [slot for a in actions if isinstance(a, MarkDown) for slot in a.slots]
    return down, replace(moment, memory=fold(moment.memory, entries))


def later(moment: ClusterSnapshot, seconds: float, *gone: str) -> ClusterSnapshot:
    """The moment without the replaced nodes, `seconds` later."""
    instances = {slot: moment.memory.incarnations[slot].instance for slot in gone}
    ended = [Entry(at=moment.now, event=InstanceGone(slot=s, instance=i or "")) for s, i in instances.items()]
    slurm, cloud = moment.observation.slurm, moment.observation.cloud
    assert slurm is not None
    assert cloud is not None
    rest = {name: one for name, one in slurm.nodes.items() if name not in gone}
    now = moment.now + seconds
    seen = replace(moment.observation, slurm=replace(slurm, at=now, nodes=rest), cloud=replace(cloud, at=now))
    return replace(moment, observation=seen, now=now, memory=fold(moment.memory, ended))


def test_no_hour_has_more_replacements_than_the_limit() -> None:
    """Before, each idle time took as many as checks keep drained: twelve times as many in an hour with an idle time of 5 minutes."""
    moment = of(unhealthy(slot, ago=1000.0 - n) for n, slot in enumerate(ALL))
    replaced: list[tuple[float, str]] = []
    for _ in range(65):
        down, moment = passed(moment)
        replaced += [(moment.now - NOW, slot) for slot in down]
        moment = later(moment, 120.0, *down)
    assert [slot for _, slot in replaced] == list(ALL), "the longest drained ones go first"
    times = [at for at, _ in replaced]
    assert times[:2] == [0.0, 0.0]
    assert all(next_one - one >= HOUR for one, next_one in zip(times, times[2:], strict=False))
    assert times[2] - times[0] <= HOUR + 120.0, "the limit ends with its hour"


def test_a_replacement_that_slurm_has_not_begun_is_not_counted_twice() -> None:
    moment = of([unhealthy(A1), unhealthy(A2), unhealthy(A3)])
    down, moment = passed(moment)
    assert down == [A1, A2]
    assert passed(later(moment, 10.0))[0] == [A1, A2]
    down, after = passed(later(moment, 2 * HOUR))
    assert down == [A1, A2, A3]
    assert len(after.memory.replaced["h200"]) == 1


def test_the_next_instance_of_a_slot_is_counted_anew() -> None:
    down, moment = passed(of([unhealthy(A1)], pool_with(SMALL, replacements_per_hour=1)))
    assert down == [A1]
    gone = later(moment, 60.0, A1)
    again = replace(
        gone,
        observation=moment.observation,
        memory=replace(gone.memory, incarnations={A1: up(A1, 500)}),
        now=gone.now,
    )
    assert gone.memory.incarnations[A1].replaced_at is None
    assert passed(again)[0] == []


@pytest.mark.parametrize(
    ("reason", "by", "limited"),
    [
        (UNHEALTHY, "root", True),
        ("Prolog error", "slurm", True),  # a program of ours that is wrong everywhere
        ("Epilog error", "slurm", True),
        (
            "Low RealMemory (reported:100 < 100.00% of configured:200)",
            "slurm",
            False,
        ),  # the offer is refused, so no other one comes
        ("Kill task failed", "root", True),  # each node of a cancelled gang may have it
        ("Kill task failed (JobId=12 StepId=batch)", "root", True),
    ],
)
def test_the_limit_counts_faults_that_a_wrong_program_can_report(reason: str, by: str, limited: bool) -> None:
    moment = of([unhealthy(A1, reason=reason, by=by)])
    known = replace(moment.memory, replaced={"h200": (NOW - 10.0, NOW - 20.0)})
    assert (passed(replace(moment, memory=known))[0] == []) is limited


def test_a_cancelled_gang_is_not_replaced_at_once() -> None:
    """slurmstepd of each of its nodes sends the same drain, and nobody replaced even one: it came from root."""
    moment = of(unhealthy(slot, reason="Kill task failed", by="root") for slot in ALL)
    down, _ = passed(moment)
    assert down == list(ALL[:2])


def test_a_gang_is_one_event_and_leaves_a_turn_to_other_faults() -> None:
    """A cancelled gang, whose drains came first, would have used up each hour of its pool before another fault had its turn."""
    gang = [unhealthy(slot, reason="Kill task failed", by="root", ago=2000.0) for slot in (A1, A2, A3)]
    moment = of([*gang, unhealthy(A4, reason="Prolog error", by="slurm"), unhealthy(B1, ago=900.0)])
    assert passed(moment)[0] == [A1, A4]


@pytest.mark.parametrize(
    ("reasons", "apart", "first"),
    [
        (("Kill task failed", "Kill task failed"), 59.0, [A1, B1]),  # one event: the second node waits
        (("Kill task failed", "Kill task failed"), 61.0, [A1, A2]),  # two events
        (("Kill task failed", "SlurmdSpoolDir is full"), 0.0, [A1, A2]),
        (("Kill task failed (JobId=1 StepId=0)", "Kill task failed (JobId=1 StepId=0)"), 0.0, [A1, B1]),
        (("Kill task failed (JobId=1 StepId=0)", "Kill task failed (JobId=2 StepId=0)"), 0.0, [A1, A2]),
        (("Kill task failed (JobId=1 StepId=batch)", "Kill task failed (JobId=1 StepId=0)"), 0.0, [A1, B1]),
        (
            ("Kill task failed (JobId=1 StepId=0+1)", "Kill task failed (JobId=1 StepId=extern)"),
            59.0,
            [A1, B1],
        ),
        ((UNHEALTHY, UNHEALTHY), 0.0, [A1, A2]),  # a check of each node
    ],
)
def test_nodes_with_one_reason_in_one_minute_are_one_event(
    reasons: tuple[str, str], apart: float, first: list[str]
) -> None:
    one, other = reasons
    nodes = [unhealthy(A1, reason=one, ago=2000.0), unhealthy(A2, reason=other, ago=2000.0 - apart)]
    assert passed(of([*nodes, unhealthy(B1, reason="SlurmdSpoolDir is full", ago=900.0)]))[0] == first


def test_gang_whose_nodes_name_other_steps_is_one_event() -> None:
    """Batch step, extern step and the steps of a job have a monitor each (26.05): a gang was three events, with three replacements."""
    steps = zip((A1, A2, A3, A4), ("batch", "0", "0", "extern"), strict=True)
    moment = of(unhealthy(slot, reason=f"Kill task failed (JobId=5 StepId={step})") for slot, step in steps)
    for slot in (A1, A2, A3, A4):
        shown = text(why(moment, slot), moment.now)
        assert "Slurm drained 4 nodes for this in the same minute (h200-2a-[1-4]): one event" in shown


def test_why_names_the_nodes_of_the_event() -> None:
    moment = of(unhealthy(slot, reason="Kill task failed", by="root") for slot in (A1, A2, A3))
    shown = text(why(moment, A2), moment.now)
    assert "Slurm drained 3 nodes for this in the same minute (h200-2a-[1-3]): one event" in shown
    alone = of([unhealthy(A1, reason="Kill task failed", by="root")])
    assert "one event" not in text(why(alone, A1), alone.now)


def test_each_pool_has_its_own_limit_and_times_of_another_clock_do_not_count() -> None:
    moment = of([unhealthy(A1)], pool_with(TWO, replacements_per_hour=1))
    for others in ({"h100": (NOW,)}, {"h200": (NOW - HOUR,)}, {"h200": (NOW + 10.0,)}):
        assert passed(replace(moment, memory=replace(moment.memory, replaced=others)))[0] == [A1], others
    last = {"h200": (NOW - HOUR + 1,)}
    assert passed(replace(moment, memory=replace(moment.memory, replaced=last)))[0] == []


def test_a_job_or_an_order_to_keep_uses_up_no_replacement() -> None:
    moment = of([unhealthy(A1), unhealthy(A2), unhealthy(A3)], pool_with(SMALL, replacements_per_hour=1))
    keep = OrderGiven(verb=Verb.NODE_KEEP, target=A2, by="alice", until=NOW + 9000)
    kept = replace(moment, memory=fold(moment.memory, [Entry(at=NOW, event=keep)]))
    slurm = kept.observation.slurm
    assert slurm is not None
    busy = replace(slurm, nodes={**slurm.nodes, A1: unhealthy(A1)}, jobs=(job(1, A1),))
    assert passed(replace(kept, observation=replace(kept.observation, slurm=busy)))[0] == [A3]


def test_an_order_replaces_a_node_that_the_limit_keeps() -> None:
    moment = of([unhealthy(A1)])
    full = replace(moment, memory=replace(moment.memory, replaced={"h200": (NOW, NOW)}))
    assert passed(full)[0] == []
    order = OrderGiven(verb=Verb.NODE_REPLACE, target=A1, by="alice")
    assert passed(replace(full, memory=fold(full.memory, [Entry(at=NOW, event=order)])))[0] == [A1]


def test_why_says_until_when_an_unhealthy_node_stays() -> None:
    moment = of([unhealthy(A1)])
    full = replace(moment, memory=replace(moment.memory, replaced={"h200": (NOW - 600.0, NOW - 60.0)}))
    shown = text(why(full, A1), NOW)
    assert "it stays drained: its pool has had its most replacements of an hour: gpu.ecc: GPU 3" in shown
    assert "in 50 min: pool h200 may replace another instance: at most 2 an hour" in shown
    assert f"`gpucluster node replace {A1} -c burst` replaces it now" in shown
    assert "may replace another" not in text(why(moment, A1), NOW)


def test_status_names_the_unhealthy_nodes_that_the_limit_keeps() -> None:
    moment = of([unhealthy(A1), unhealthy(A2, reason="Prolog error", by="slurm"), unhealthy(A3, ago=10.0)])
    full = replace(moment, memory=replace(moment.memory, replaced={"h200": (NOW - 600.0, NOW - 60.0)}))
    shown = overview.text(overview.overview(full, "", Published()), NOW)
    line = "h200-2a-[1-2]: unhealthy, and not replaced: at most 2 an hour, the next 14:50:00 UTC, in 50 min"
    assert f"  limit     {line}" in shown
    lost = {Dependency.CONTROL: Loss(since=NOW - 60, words="no")}
    blind = replace(full, observation=replace(full.observation, lost=lost))
    shown = overview.text(overview.overview(blind, "", Published()), NOW)
    assert f"  limit     {line.partition(', the next')[0]}\n" in shown
    assert "not replaced" not in overview.text(overview.overview(moment, "", Published()), NOW)


# --- GPU faults -------------------------------------------------------------------------------------
XID = "one of its GPUs failed: XID 79 on 0000:53:00.0 (reset)"


def faulty(*slots: str, jobs: tuple[SlurmJob, ...] = (), drained: bool = True) -> ClusterSnapshot:
    """Nodes whose agents reported a GPU fault, the first slot's first."""
    nodes = (
        unhealthy(s, reason=f"gpucluster: [evacuation] {XID}", by="slurm") if drained else node(s, UP)
        for s in slots
    )
    return scene(
        TWO_AN_HOUR,
        tuple(nodes),
        jobs,
        {
            slot: replace(
                up(slot, 5000),
                interruption=Interruption(
                    kind=InterruptionKind.FAULT, since=NOW - 900.0 + n, words=XID, source="node"
                ),
            )
            for n, slot in enumerate(slots)
        },
    )


def test_no_hour_has_more_evacuations_for_gpu_faults_than_the_limit() -> None:
    """Before, one wrong driver update that reports a fault on each node ended each instance of the pool, again and again."""
    down, after = passed(faulty(*ALL))
    assert down == [A1, A2]
    assert [slot for slot in ALL if after.memory.incarnations[slot].replaced_at is not None] == [A1, A2]


def test_health_checks_and_gpu_faults_share_the_limit() -> None:
    moment = faulty(A1, A2)
    known = replace(moment.memory, replaced={"h200": (NOW - 10.0,)})
    assert passed(replace(moment, memory=known))[0] == [A1]


def test_the_jobs_of_a_faulty_node_that_the_limit_keeps_leave_it() -> None:
    moment = faulty(A1, A2, A3, jobs=(job(1, A1), job(2, A2), job(3, A3)), drained=False)
    actions = decide(moment.plan, moment.bindings, moment.observation, moment.memory, moment.now)
    assert {slot for a in actions if isinstance(a, Drain) for slot in a.slots} == {A1, A2, A3}
    assert {number for a in actions if isinstance(a, Signal) for number in a.jobs} == {1, 2, 3}
    assert {number for a in actions if isinstance(a, Requeue) for number in a.jobs} == {1, 2, 3}
    begun = [
        e.event.slot
        for a in actions
        if isinstance(a, RecordEvents)
        for e in a.entries
        if isinstance(e.event, ReplacementBegan)
    ]
    assert begun == [A1, A2]


def test_an_order_evacuates_a_faulty_node_that_the_limit_keeps() -> None:
    moment = faulty(A1)
    full = replace(moment, memory=replace(moment.memory, replaced={"h200": (NOW, NOW)}))
    assert passed(full)[0] == []
    order = OrderGiven(verb=Verb.NODE_REPLACE, target=A1, by="alice")
    assert passed(replace(full, memory=fold(full.memory, [Entry(at=NOW, event=order)])))[0] == [A1]


@pytest.mark.parametrize(
    ("kind", "source", "limited"),
    [
        (InterruptionKind.FAULT, "node", True),
        (InterruptionKind.REPLACE, "node", True),  # a milder XID: replaced when idle
        (InterruptionKind.REPLACE, "operator", False),
        (InterruptionKind.SPOT, "node", False),
        (InterruptionKind.BLOCK_END, "cloud", False),
        (InterruptionKind.MAINTENANCE, "node", False),
    ],
)
def test_notices_of_the_cloud_and_orders_have_no_limit(
    kind: InterruptionKind, source: str, limited: bool
) -> None:
    moment = faulty(A1)
    incarnation = moment.memory.incarnations[A1]
    notice = Interruption(kind=kind, since=NOW - 900.0, words="w", source=source)
    order = OrderGiven(verb=Verb.NODE_REPLACE, target=A1, by="alice")
    entries = [Entry(at=NOW, event=order)] if source == "operator" else []
    memory = replace(
        moment.memory,
        replaced={"h200": (NOW, NOW)},
        incarnations={A1: replace(incarnation, interruption=notice)},
    )
    assert (passed(replace(moment, memory=fold(memory, entries)))[0] == []) is limited


def test_why_and_status_name_a_faulty_node_that_the_limit_keeps() -> None:
    moment = faulty(A1)
    full = replace(moment, memory=replace(moment.memory, replaced={"h200": (NOW - 600.0, NOW - 60.0)}))
    shown = text(why(full, A1), NOW)
    assert "a GPU failed, and it stays drained: its pool has had its most replacements of an hour" in shown
    assert "in 50 min: pool h200 may replace another instance: at most 2 an hour" in shown
    assert f"`gpucluster node replace {A1} -c burst` replaces it now" in shown
    assert "state=resume" not in shown, "the daemon would drain it again"
    assert "is powered down when" not in shown
    seen = overview.text(overview.overview(full, "", Published()), NOW)
    assert f"{A1}: unhealthy, and not replaced: at most 2 an hour" in seen


def test_a_milder_fault_is_counted_when_the_jobs_have_ended() -> None:
    moment = faulty(A1, jobs=(job(1, A1),))
    milder = replace(
        moment.memory.incarnations[A1],
        interruption=Interruption(kind=InterruptionKind.REPLACE, since=NOW, words="w", source="node"),
    )
    slurm = moment.observation.slurm
    assert slurm is not None
    memory = replace(moment.memory, incarnations={A1: milder})
    busy = replace(
        slurm, nodes={A1: replace(slurm.nodes[A1], states=frozenset({"ALLOCATED", "CLOUD", "DRAIN"}))}
    )
    _, after = passed(replace(moment, memory=memory, observation=replace(moment.observation, slurm=busy)))
    assert after.memory.replaced == {}
    idle = replace(slurm, jobs=())
    _, after = passed(replace(moment, memory=memory, observation=replace(moment.observation, slurm=idle)))
    assert list(after.memory.replaced) == ["h200"]
