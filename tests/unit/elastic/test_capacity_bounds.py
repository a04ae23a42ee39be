"""The boundaries of blocked slots, headroom, gangs and replacements: the last value on each side of each rule."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from support.builders import a_plan
from support.cluster_states import NOW, OFF, UP, WAKING, ask, instance, job, living, node, sight

from gpucluster.cloud.port import Instance, InstanceState
from gpucluster.elastic.decide import decide, next_look
from gpucluster.elastic.decide.blocked import PoolZone
from gpucluster.elastic.decide.facts import unfit_machines
from gpucluster.elastic.decide.gangs import gangs
from gpucluster.elastic.decide.interruptions import SETTLED_S, interruption_events, spot_storms
from gpucluster.elastic.decide.jobs import MAX_RESTARTS, is_held_for
from gpucluster.elastic.decide.offers import Headroom, all_offers, choose, why_none
from gpucluster.elastic.decide.placement import SOON_S, Need, waiting
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import (
    Entry,
    Event,
    Interrupted,
    InterruptionKind,
    LaunchRequested,
    NodeNeeded,
    OfferRefused,
    OrderGiven,
    Verb,
)
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import Interruption, Placement, fold
from gpucluster.elastic.model import (
    Action,
    Block,
    Comment,
    JobRun,
    LaunchGang,
    MarkDown,
    PowerDown,
    PowerUp,
    ReceivedReport,
    RecordEvents,
    Requeue,
    Signal,
)
from gpucluster.plan.messages import NodePhase, NodeReport, Notice, NoticeKind
from gpucluster.plan.names import TAG_POOL, TAG_REQUEST
from gpucluster.slurm.values import SlurmJob, SlurmNode

PLAN = a_plan()
A1, A2, A3, B1 = "h200-2a-1", "h200-2a-2", "h200-2a-3", "h200-2b-1"
ZONE, BUSY = "us-east-2a", "ALLOCATED CLOUD"


def world(moment: ClusterSnapshot) -> World:
    assert moment.world
    return moment.world


def acts(moment: ClusterSnapshot) -> tuple[Action, ...]:
    return decide(moment.plan, moment.bindings, moment.observation, moment.memory, moment.now)


def after(moment: ClusterSnapshot, *events: Event) -> ClusterSnapshot:
    return replace(moment, memory=fold(moment.memory, [Entry(at=NOW, event=e) for e in events]))


def without_spot(*zones: str) -> tuple[OfferRefused, ...]:
    """Refusals of both spot offers of these zones: on-demand, with its own max, is left."""
    keys = (f"spot/{machine}/{zone}" for machine in ("p5en.48xlarge", "p5e.48xlarge") for zone in zones)
    return tuple(OfferRefused(key=key, words="no", until=NOW + 60) for key in keys)


# --- waiting jobs -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("what", "changes", "found"),
    [
        ("a pending job", {}, True),
        ("a running job", {"states": frozenset({"RUNNING"})}, False),
        ("the lowest priority", {"priority": 1}, True),
        ("a held job", {"priority": 0}, False),
        ("it may begin soon", {"begins_at": NOW + SOON_S}, True),
        ("it may begin later", {"begins_at": NOW + SOON_S + 1}, False),
        ("its user holds it", {"reason": "JobHeldUser"}, False),
        ("it waits for another job", {"reason": "Dependency"}, False),
        ("it waits for resources", {"reason": "Resources"}, True),
        ("its QOS limits the user's GPUs", {"reason": "QOSMaxGRESPerUser"}, False),
        ("its account has no GPUs left", {"reason": "AssocGrpGRES"}, False),
        ("the GPU-hours of the month are used", {"reason": "QOSGrpGRESMinutes"}, False),
    ],
)
def test_job_waits_for_capacity(what: str, changes: dict[str, object], found: bool) -> None:
    one = replace(job(41), **changes)  # type: ignore[arg-type]
    assert [j.id for j in waiting(world(sight(PLAN, jobs=[one])))] == [41] * found, what


def test_waiting_jobs_are_in_the_order_of_their_urgency() -> None:
    jobs = [job(3, priority=5), job(1, priority=5), job(2, priority=9)]
    assert [j.id for j in waiting(world(sight(PLAN, jobs=jobs)))] == [2, 1, 3]


# --- zones ------------------------------------------------------------------------------------------------------
def a_zone(idle: tuple[str, ...] = (), free: tuple[str, ...] = (), **changes: object) -> PoolZone:
    plain = PoolZone(
        pool=PLAN.pools[0], name=ZONE, slots=(A1, A2, A3), free=free, blocked=(), open_headroom=0, offer_limits=(),
        idle=idle, testing=False, offers=(), nodes={s: node(s) for s in (A1, A2, A3)},
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


def a_need(count: int) -> Need:
    world = sight(PLAN).world
    assert world is not None
    return Need.of(world, (job(41, node_count=count),))


@pytest.mark.parametrize(("size", "headroom"), [(1, 9), (2, 9), (3, 5), (4, 5), (5, 0)])
def test_headroom_of_offers_that_a_gang_of_a_size_may_test(size: int, headroom: int) -> None:
    assert a_zone(offer_limits=((9, 2), (5, 4), (0, 9))).test_headroom(size) == headroom


@pytest.mark.parametrize(
    ("what", "nodes", "zone", "closed"),
    [
        ("nothing is left", 1, a_zone(), True),
        ("just enough without a refusal", 2, a_zone(open_headroom=2), False),
        ("one too few", 3, a_zone(open_headroom=2), True),
        ("just enough for a test", 2, a_zone(offer_limits=((2, 2),)), False),
        ("one too few for a test", 2, a_zone(offer_limits=((1, 2),)), True),
        ("the refusal excludes its size", 2, a_zone(offer_limits=((9, 1),)), True),
        ("an idle node", 9, a_zone(idle=(A1,)), False),
        ("an unknown number counts as one", 0, a_zone(open_headroom=1), False),
        ("an unknown number, and nothing is left", 0, a_zone(), True),
    ],
)
def test_zone_cannot_serve_a_job(what: str, nodes: int, zone: PoolZone, closed: bool) -> None:
    assert zone.is_closed_for(a_need(nodes)) is closed, what


@pytest.mark.parametrize(
    ("what", "nodes", "zone", "lacks"),
    [
        ("all of its nodes", 2, a_zone(free=(A1, A2, A3)), (A1, A2)),
        ("one beside an idle node", 2, a_zone(idle=(A1,), free=(A2, A3)), (A2,)),
        ("none beside two idle nodes", 2, a_zone(idle=(A1, A2), free=(A3,)), ()),
        ("none beside three idle nodes", 2, a_zone(idle=(A1, A2, A3)), ()),
        ("just the free slots", 3, a_zone(free=(A1, A2, A3)), (A1, A2, A3)),
        ("more than the free slots", 3, a_zone(free=(A1, A2)), None),
    ],
)
def test_slots_that_a_job_lacks(what: str, nodes: int, zone: PoolZone, lacks: tuple[str, ...] | None) -> None:
    assert zone.lacks(a_need(nodes)) == lacks, what


@pytest.mark.parametrize(
    ("what", "zone", "serves"),
    [
        ("headroom for both", a_zone(free=(A1, A2), open_headroom=2), True),
        ("headroom for one", a_zone(free=(A1, A2), open_headroom=1), False),
        ("too few slots", a_zone(free=(A1,), open_headroom=9), False),
    ],
)
def test_zone_serves_a_job_of_two_nodes_without_a_test(what: str, zone: PoolZone, serves: bool) -> None:
    assert zone.serves(a_need(2)) is serves, what


@pytest.mark.parametrize(
    ("what", "size", "idle", "left"),
    [
        ("no job", 0, 0, 16),
        ("a job that fits the source", 4, 0, 16),
        ("a job above the source", 5, 0, 4),
        ("a job above the source that an idle node serves in part", 5, 1, 15),
    ],
)
def test_slots_above_the_headroom_are_blocked_if_a_job_wants_more(
    what: str, size: int, idle: int, left: int
) -> None:
    nodes = [node(A1, UP, last_busy=NOW)] * idle
    moment = sight(PLAN, nodes=nodes, jobs=[job(41, node_count=size)] if size else [])
    found = acts(after(moment, *without_spot("us-east-2a", "us-east-2b")))
    blocked = {s for a in found if isinstance(a, Block) for s in a.slots if s.startswith("h200-2a")}
    assert 16 - idle - len(blocked) == left, what


@pytest.mark.parametrize(("most", "size", "told"), [(1, 1, False), (1, 2, True), (2, 2, False), (2, 3, True)])
def test_job_above_the_headroom_of_every_zone_gets_a_comment(most: int, size: int, told: bool) -> None:
    plan = a_plan(("max: 4}", f"max: {most}}}"))
    moment = after(sight(plan, jobs=[job(41, node_count=size)]), *without_spot("us-east-2a", "us-east-2b"))
    assert bool([a for a in acts(moment) if isinstance(a, Comment)]) is told


# --- headroom -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("what", "events", "listed", "left"),
    [
        ("nothing runs", (), (), 16),
        ("two nodes run", living(A1, A2), (instance(0), instance(1)), 14),
        ("one of them has ended", living(A1, A2), (instance(0), instance(1, state=InstanceState.TERMINATED)), 15),
        ("one of them is stopped", living(A1, A2), (instance(0), instance(1, state=InstanceState.STOPPED)), 14),
        ("a launch of three without a result", ((5.0, LaunchRequested(request=ask(1, A1, A2, A3))),), (), 13),
        ("its instances are listed", ((5.0, LaunchRequested(request=ask(1, A1))),), (instance(9, token="t1"),), 15),
        ("its instances are listed by the tag", ((5.0, LaunchRequested(request=ask(1, A1))),), (instance(9, tags={TAG_POOL: "h200", TAG_REQUEST: "r1"}),), 15),
        ("a stray instance", (), (instance(9),), 15),
        ("a stray instance that has ended", (), (instance(9, state=InstanceState.TERMINATED),), 16),
        ("a stray instance of another pool", (), (instance(9, tags={TAG_POOL: "other"}),), 16),
        ("an instance without tags", (), (instance(9, tags={}),), 16),
    ],
)  # fmt: skip
def test_headroom_of_a_pool(
    what: str, events: tuple[tuple[float, Event], ...], listed: tuple[Instance, ...], left: int
) -> None:
    assert Headroom(world(sight(PLAN, *events, instances=listed))).of_pool("h200") == left, what


@pytest.mark.parametrize(
    ("what", "taken", "spot", "demand"),
    [("nothing", 0, 16, 4), ("some", 3, 13, 1), ("all of the source", 4, 12, 0), ("more", 5, 11, 0), ("all", 16, 0, 0)],
)  # fmt: skip
def test_headroom_of_an_offer_is_the_least_of_pool_and_source(
    what: str, taken: int, spot: int, demand: int
) -> None:
    now = world(sight(PLAN))
    headroom, offers = Headroom(now), all_offers(now)["h200", ZONE]
    headroom.take("h200", 1, taken)
    assert (headroom.of(offers[0]), headroom.of(offers[-1])) == (spot, demand), what
    headroom.take("h200", 1, -taken)
    assert (headroom.of(offers[0]), headroom.of(offers[-1])) == (16, 4), what


@pytest.mark.parametrize(
    ("what", "taken", "count", "found"),
    [
        ("just enough", 2, 2, ""),
        ("one too few", 3, 2, "max 4 leaves too few for 2"),
        ("nothing is left", 4, 1, "max 4 reached"),
    ],
)
def test_reason_of_a_source_at_its_max(what: str, taken: int, count: int, found: str) -> None:
    now = world(sight(PLAN))
    headroom, offers = Headroom(now), all_offers(now)["h200", ZONE]
    headroom.take("h200", 1, taken)
    assert headroom.lacks(offers[-1], count) == found, what
    assert headroom.lacks(offers[0], count) == "", "spot has no max"


@pytest.mark.parametrize(
    ("taken", "count", "found"),
    [(14, 2, ""), (15, 2, "max 16 leaves too few for 2"), (16, 1, "max 16 reached")],
)
def test_reason_of_a_pool_at_its_max(taken: int, count: int, found: str) -> None:
    headroom = Headroom(world(sight(PLAN)))
    headroom.take("h200", 0, taken)
    assert headroom.lacks_in(PLAN.pools[0], count) == found


@pytest.mark.parametrize(
    ("what", "events", "count", "machine"),
    [
        ("the first offer", (), 16, "p5en.48xlarge"),
        ("more than the pool's max", (), 17, None),
        ("the first is refused", without_spot(ZONE)[:1], 16, "p5e.48xlarge"),
        ("the first is refused for more", (replace(without_spot(ZONE)[0], size=3),), 2, "p5en.48xlarge"),
        ("the first is refused for that many", (replace(without_spot(ZONE)[0], size=3),), 3, "p5e.48xlarge"),
        ("the refusal is over", (replace(without_spot(ZONE)[0], until=NOW),), 16, "p5en.48xlarge"),
        ("on-demand is left", without_spot(ZONE), 4, "p5en.48xlarge"),
        ("on-demand has too few", without_spot(ZONE), 5, None),
    ],
)
def test_first_offer_with_headroom_and_without_a_refusal_is_chosen(
    what: str, events: tuple[Event, ...], count: int, machine: str | None
) -> None:
    now = world(after(sight(PLAN), *events))
    found = choose(now, Headroom(now), all_offers(now)["h200", ZONE], count)
    assert (found and found.spec.machine) == machine, what


@pytest.mark.parametrize(
    ("what", "events", "count", "sentence"),
    [
        ("nothing is known", (), 1, "no source has capacity left"),
        ("above max", (), 17, "max 16 leaves too few for 17"),
        (
            "refusals of spot, and too few on demand", without_spot(ZONE), 5,
            "spot p5en.48xlarge no; spot p5e.48xlarge no; on-demand p5en.48xlarge max 4 leaves too few for 5",
        ),
        ("a refusal of larger gangs", (replace(without_spot(ZONE)[0], size=2),), 1, "spot p5en.48xlarge no for 2 at once"),
        ("a refusal of one", (replace(without_spot(ZONE)[0], size=1),), 1, "spot p5en.48xlarge no"),
        ("a refusal that is over", (replace(without_spot(ZONE)[0], until=NOW),), 1, "spot p5en.48xlarge was refused (no), and one gang may test it now"),
    ],
)  # fmt: skip
def test_sentence_of_a_zone_without_capacity(
    what: str, events: tuple[Event, ...], count: int, sentence: str
) -> None:
    now = world(after(sight(PLAN), *events))
    found = why_none(now, Headroom(now), PLAN.pools[0], ZONE, all_offers(now)["h200", ZONE], count=count)
    assert found == f"no h200 in us-east-2a: {sentence}", what


# --- gangs ------------------------------------------------------------------------------------------------------
def needed(*slots: str) -> tuple[tuple[float, Event], ...]:
    return tuple((60.0, NodeNeeded(slot=slot, incarnation=1, jobs=())) for slot in slots)


@pytest.mark.parametrize(
    ("what", "events", "jobs", "found"),
    [
        ("by priority", needed(A1, A2), (job(1, A1, starts=True, priority=1), job(2, A2, starts=True, priority=9)), [(A2,), (A1,)]),
        ("then by number", needed(A1, A2), (job(2, A1, starts=True, priority=5), job(1, A2, starts=True, priority=5)), [(A2,), (A1,)]),
        ("a slot of two jobs is of the more urgent", needed(A1, A2), (job(1, A1, A2, starts=True, priority=1), job(2, A2, starts=True, priority=9)), [(A2,), (A1,)]),
        ("a slot without a job comes last", needed(A1, A2), (job(1, A2, starts=True),), [(A2,), (A1,)]),
        ("het components together, by the most urgent", needed(A1, A2, A3), (job(5, A1, starts=True, het_id=5, priority=1), job(6, A3, starts=True, het_id=5, priority=9), job(7, A2, starts=True, priority=4)), [(A1, A3), (A2,)]),
        ("a slot with a launch is no part", (*needed(A1, A2), (5.0, LaunchRequested(request=ask(1, A1)))), (job(1, A1, A2, starts=True),), [(A2,)]),
        ("a slot with an instance is no part", living(A1) + needed(A2), (job(1, A1, A2, starts=True),), [(A2,)]),
        ("a slot on which a job already runs is of no gang", needed(A1), (job(1, A1),), []),
    ],
)  # fmt: skip
def test_order_and_slots_of_gangs(
    what: str,
    events: tuple[tuple[float, Event], ...],
    jobs: tuple[SlurmJob, ...],
    found: list[tuple[str, ...]],
) -> None:
    slots = dict.fromkeys(e.slot for _, e in events if isinstance(e, NodeNeeded))
    used = {slot for one in jobs for slot in one.nodes}
    nodes = [node(s, WAKING if s in used else "IDLE CLOUD NOT_RESPONDING POWERING_UP") for s in slots]
    moment = sight(PLAN, *events, nodes=nodes, jobs=jobs)
    assert [gang.slots for gang in gangs(world(moment))] == found, what


@pytest.mark.parametrize(
    ("requeueable", "batch", "down"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_refused_gang_is_set_down_if_slurm_requeues_its_job(
    requeueable: bool, batch: bool, down: bool
) -> None:
    one = job(41, A1, starts=True, requeueable=requeueable, batch=batch)
    moment = sight(PLAN, *needed(A1), nodes=[node(A1, WAKING)], jobs=[one])
    found = acts(
        after(moment, *without_spot(ZONE), OfferRefused(key="source/h200/1", words="q", until=NOW + 9))
    )
    assert bool([a for a in found if isinstance(a, MarkDown)]) is down
    assert [a.jobs for a in found if isinstance(a, Comment)] == [(41,)]
    assert not [a for a in found if isinstance(a, LaunchGang)]


# --- replacements ---------------------------------------------------------------------------------------------
def leaves(*slots: str, ago: float = 1.0) -> tuple[tuple[float, Event], ...]:
    return tuple(
        (ago, Interrupted(slot=slot, instance=f"i-{n}", kind=InterruptionKind.SPOT, words="w", ends_at=NOW + 119, source="node"))
        for n, slot in enumerate(slots)
    )  # fmt: skip


def replaced(*nodes: SlurmNode, jobs: Iterable[SlurmJob] = (), running: tuple[str, ...] = (A1, A2)) -> int:
    """How many nodes are powered up for a job of two nodes that lose their instances, beside these nodes."""
    busy = [node(A1, BUSY), node(A2, BUSY)]
    extra = tuple(n.name for n in nodes if "POWERED_DOWN" not in n.states)
    moment = sight(
        PLAN, *living(A1, A2, *extra), *leaves(A1, A2), nodes=[*busy, *nodes], jobs=[job(41, *running), *jobs],
        instances=[instance(n) for n in range(2 + len(extra))],
    )  # fmt: skip
    return sum(len(a.slots) for a in acts(moment) if isinstance(a, PowerUp))


@pytest.mark.parametrize(
    ("what", "nodes", "count"),
    [
        ("no other node", (), 2),
        ("one idle node", (node(A3, UP, last_busy=NOW),), 1),
        ("one busy node", (node(A3, BUSY),), 2),
        ("one idle node in another zone", (node(B1, UP, last_busy=NOW),), 2),
        ("one drained node", (node(A3, f"{UP} DRAIN", reason="fan", last_busy=NOW),), 2),
        ("one booting node without a job", (node(A3, "IDLE CLOUD POWERING_UP NOT_RESPONDING"),), 1),
        ("all other slots of the zone but one are drained", tuple(node(f"h200-2a-{n}", f"{OFF} DRAIN", reason="fan") for n in range(4, 17)), 1),
    ],
)  # fmt: skip
def test_replacements_are_what_idle_and_booting_nodes_lack(
    what: str, nodes: tuple[SlurmNode, ...], count: int
) -> None:
    assert replaced(*nodes) == count, what


def test_booting_node_of_another_job_is_no_replacement() -> None:
    other = job(42, A3, starts=True)
    assert replaced(node(A3, "IDLE CLOUD POWERING_UP NOT_RESPONDING"), jobs=[other]) == 2


def test_job_that_loses_one_of_two_nodes_needs_one() -> None:
    moment = sight(
        PLAN, *living(A1, A2), *leaves(A1), nodes=[node(A1, BUSY), node(A2, BUSY)], jobs=[job(41, A1, A2)],
        instances=[instance(0), instance(1)],
    )  # fmt: skip
    assert sum(len(a.slots) for a in acts(moment) if isinstance(a, PowerUp)) == 1


@pytest.mark.parametrize(
    ("what", "starts", "signalled", "requeued"),
    [
        ("both components run", (), [(5,)], []),
        ("one component still starts", (6,), [], [(5,)]),
        ("both components start", (5, 6), [], [(5,)]),
    ],
)
def test_het_job_is_signalled_as_a_whole_and_requeued_while_it_starts(
    what: str, starts: tuple[int, ...], signalled: list[tuple[int, ...]], requeued: list[tuple[int, ...]]
) -> None:
    jobs = [job(n, slot, het_id=5, starts=n in starts) for n, slot in ((5, A1), (6, A2))]
    moment = sight(
        PLAN, *living(A1, A2), *leaves(A1, A2), nodes=[node(A1, BUSY), node(A2, BUSY)], jobs=jobs,
        instances=[instance(0), instance(1)],
    )  # fmt: skip
    found = acts(moment)
    assert [a.jobs for a in found if isinstance(a, Signal)] == signalled, what
    assert [a.jobs for a in found if isinstance(a, Requeue)] == requeued, what


def test_requeue_of_a_het_job_names_the_run_of_its_leader() -> None:
    """Slurm requeues the leader, which may be on a node that stays."""
    leader = job(5, A2, het_id=5)
    other = job(6, A1, het_id=5, starts=True, started_at=NOW - 60)
    moment = sight(
        PLAN, *living(A1, A2), *leaves(A1), nodes=[node(A1, BUSY), node(A2, BUSY)], jobs=[leader, other],
        instances=[instance(0), instance(1)],
    )  # fmt: skip
    assert [a.runs for a in acts(moment) if isinstance(a, Requeue)] == [(JobRun.of(leader),)]


# --- notices -----------------------------------------------------------------------------------------------------
def reported(ago: float, *notices: Notice, watched: bool = True) -> ReceivedReport:
    said = NodeReport(
        instance_id="i-0", nonce="n", boot_id="b", phase=NodePhase.UP, incarnation=1, steps=(), notices=notices,
        watched=watched, clock=NOW,
    )  # fmt: skip
    return ReceivedReport(report=said, at=NOW - ago, since=NOW - 900)


@pytest.mark.parametrize(
    ("what", "source", "since_ago", "said", "over"),
    [
        ("its source no longer reports it", "node", 60.0, reported(59.0), True),
        ("the report is of that moment", "node", 60.0, reported(60.0), False),
        ("the agent cannot read notices", "node", 60.0, reported(59.0, watched=False), False),
        ("from the queue, and the agent has had its time", "queue", SETTLED_S + 60, reported(59.0), True),
        ("from the queue, just at the end of that time", "queue", SETTLED_S + 60, reported(60.0), False),
    ],
)
def test_end_of_a_maintenance_notice(
    what: str, source: str, since_ago: float, said: ReceivedReport, over: bool
) -> None:
    event = Interrupted(
        slot=A1,
        instance="i-0",
        kind=InterruptionKind.MAINTENANCE,
        words="w",
        ends_at=NOW + 9000,
        source=source,
    )
    moment = sight(
        PLAN, *living(A1, ago=2000.0), (since_ago, event), nodes=[node(A1, BUSY)], instances=[instance(0)],
        reports={"i-0": said},
    )  # fmt: skip
    found = [type(e).__name__ for e in interruption_events(world(moment))]
    assert found == (["InterruptionOver"] if over else []), what


@pytest.mark.parametrize(
    ("what", "kind", "at", "ends"),
    [
        ("a time", NoticeKind.SPOT, NOW + 120, NOW + 120),
        ("no time", NoticeKind.SPOT, None, None),
        ("the year 1970", NoticeKind.SPOT, 0.0, None),
        ("one second later", NoticeKind.SPOT, 1.0, 1.0),
        ("the year 10000", NoticeKind.SPOT, 253_402_300_800.0, None),
        ("one second earlier", NoticeKind.SPOT, 253_402_300_799.0, 253_402_300_799.0),
        ("a hint has no end", NoticeKind.REBALANCE, NOW + 120, None),
    ],
)
def test_end_in_a_notice(what: str, kind: NoticeKind, at: float | None, ends: float | None) -> None:
    moment = sight(
        PLAN, *living(A1), nodes=[node(A1, BUSY)], instances=[instance(0)],
        reports={"i-0": reported(1.0, Notice(kind=kind, at=at))},
    )  # fmt: skip
    (found,) = [e for e in interruption_events(world(moment)) if isinstance(e, Interrupted)]
    assert found.ends_at == ends, what
    assert (" at " in found.words) is (ends is not None), what


@pytest.mark.parametrize(
    ("what", "launched_ago", "ordered_ago", "found"),
    [
        ("the instance is older than the order", 600.0, 10.0, True),
        ("it was launched at that moment", 600.0, 597.0, True),
        ("it is newer: it is the replacement", 600.0, 598.0, False),
    ],
)
def test_order_replaces_the_instance_of_that_time(
    what: str, launched_ago: float, ordered_ago: float, found: bool
) -> None:
    order = OrderGiven(verb=Verb.NODE_REPLACE, target=A1, by="ada", words="fan")
    events = sorted((*living(A1, ago=launched_ago), (ordered_ago, order)), key=lambda e: -e[0])
    moment = sight(PLAN, *events, nodes=[node(A1, BUSY)], instances=[instance(0)])
    said = [e.words for e in interruption_events(world(moment)) if isinstance(e, Interrupted)]
    assert said == (["to be replaced, by ada: fan"] if found else []), what


# --- the next pass ------------------------------------------------------------------------------------------------
TIMES = PLAN.times


@pytest.mark.parametrize(
    ("what", "idle_left", "wait"),
    [
        ("soon", TIMES.poll_s + 1, TIMES.poll_s + 1),
        ("sooner than a poll", TIMES.poll_s - 1, TIMES.poll_s),
        ("later than a full pass", TIMES.reconcile_s + 9, TIMES.reconcile_s),
    ],
)
def test_next_pass_is_at_the_end_of_an_idle_time(what: str, idle_left: float, wait: float) -> None:
    busy = NOW - PLAN.pools[0].idle_s + idle_left
    moment = sight(
        PLAN, *living(A1, ago=9000.0), nodes=[node(A1, UP, last_busy=busy)], instances=[instance(0)]
    )
    memory = fold(moment.memory, [e for a in acts(moment) if isinstance(a, RecordEvents) for e in a.entries])
    found = next_look(moment.plan, moment.bindings, moment.observation, memory, NOW)
    assert found == pytest.approx(wait), what


# --- faults of offers ------------------------------------------------------------------------------------------------
LOW = {"reason": "Low RealMemory", "reason_by": "slurm", "reason_at": NOW}
KEY = f"spot/p5en.48xlarge/{ZONE}"


def unfit(nodes: tuple[SlurmNode, ...], *events: Event) -> list[str]:
    """The keys of the offers that are refused because of these nodes."""
    count = len(nodes)
    listed = [instance(n) for n in range(count)]
    moment = after(sight(PLAN, *living(*(n.name for n in nodes)), nodes=nodes, instances=listed), *events)
    return [e.key for e in unfit_machines(world(moment)) if isinstance(e, OfferRefused)]


BAD = node(A1, f"{UP} DRAIN INVALID_REG", **LOW)


@pytest.mark.parametrize(
    ("what", "nodes", "events", "found"),
    [
        ("one of one", (BAD,), (), [KEY]),
        ("one of two", (BAD, node(A2, UP)), (), [KEY]),
        ("two of one offer", (BAD, replace(BAD, name=A2)), (), [KEY]),
        ("none", (node(A1, UP),), (), []),
        ("the offer is refused already", (BAD,), (OfferRefused(key=KEY, words="w", until=NOW + 1),), []),
        ("its refusal ends now", (BAD,), (OfferRefused(key=KEY, words="w", until=NOW),), [KEY]),
    ],
)
def test_offer_of_an_instance_with_too_little_hardware_is_refused(
    what: str, nodes: tuple[SlurmNode, ...], events: tuple[Event, ...], found: list[str]
) -> None:
    assert unfit(nodes, *events) == found, what


@pytest.mark.parametrize(
    ("what", "others", "refused"),
    [
        ("two of four instances of the offer", (), True),
        ("instances of another offer do not count", (B1, "h200-2b-2", "h200-2b-3"), True),
        ("two of five", ("h200-2a-5",), False),
    ],
)
def test_storm_counts_the_instances_of_its_offer(what: str, others: tuple[str, ...], refused: bool) -> None:
    here = (A1, A2, A3, "h200-2a-4", *(s for s in others if "2a" in s))
    there = tuple(s for s in others if "2b" in s)
    moment = sight(PLAN, *living(*here), *(living(*there, number=2) if there else ()))
    moment = replace(moment, memory=replace(moment.memory, taken={KEY: (NOW - 10, NOW - 20)}))
    assert bool([e for e in spot_storms(world(moment)) if isinstance(e, OfferRefused)]) is refused, what


@pytest.mark.parametrize(
    ("what", "kind", "breaks", "signalled", "held"),
    [
        ("the fifth run with a fault", InterruptionKind.FAULT, MAX_RESTARTS - 1, False, False),
        ("the sixth run", InterruptionKind.FAULT, MAX_RESTARTS, False, True),
        ("the fifth run, which is counted", InterruptionKind.FAULT, MAX_RESTARTS, True, False),
        ("the sixth run, which is counted", InterruptionKind.FAULT, MAX_RESTARTS + 1, True, True),
        ("another kind of interruption", InterruptionKind.SPOT, MAX_RESTARTS + 1, True, False),
    ],
)
def test_job_is_held_after_more_than_five_runs_with_gpu_faults(
    what: str, kind: InterruptionKind, breaks: int, signalled: bool, held: bool
) -> None:
    moment = sight(PLAN, *living(A1), nodes=[node(A1, BUSY)], jobs=[job(41, A1)], instances=[instance(0)])
    placed = {"41": Placement(slots=(A1,), running=True, signalled=signalled)}
    moment = replace(moment, memory=replace(moment.memory, breaks={"41": breaks}, jobs=placed))
    found = is_held_for(world(moment), job(41, A1), Interruption(kind=kind, since=NOW, words="w"))
    assert found is held, what


# --- marks of Slurm -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("what", "jobs", "off"),
    [
        ("no job waits", (), True),
        (
            "a job waits for resources since a minute",
            (job(41, reason="Resources", submitted_at=NOW - 60),),
            True,
        ),
        ("since less than a minute", (job(41, reason="Resources", submitted_at=NOW - 59),), False),
        ("it may begin since less than a minute", (job(41, reason="Resources", begins_at=NOW - 59),), False),
        ("it waits for other jobs", (job(41, reason="Priority"),), False),
        ("it waits in a partition without the pool", (job(41, partitions=("cpu",)),), True),
    ],
)
def test_mark_of_a_powered_down_node_is_removed_if_no_job_can_start_there(
    what: str, jobs: tuple[SlurmJob, ...], off: bool
) -> None:
    moment = sight(PLAN, nodes=[node(A1, f"{OFF} NOT_RESPONDING")], jobs=jobs)
    assert [a.slots for a in acts(moment) if isinstance(a, PowerDown)] == ([(A1,)] if off else []), what
