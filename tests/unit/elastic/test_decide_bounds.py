"""The boundaries of the rules of decide: the last value on each side, and each part of a condition alone."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from support.builders import a_plan
from support.cluster_states import NOW, OFF, UP, WAKING, ask, instance, job, living, node, sight
from support.launches import launch_spec

from gpucluster.cloud.port import InstanceState
from gpucluster.elastic.decide import decide, facts, interruptions, jobs
from gpucluster.elastic.decide.evacuation import EVACUATION_TABLE, FRESH_S, EvacuationContext, next_due
from gpucluster.elastic.decide.jobs import forgotten_jobs
from gpucluster.elastic.decide.node_context import NodeContext
from gpucluster.elastic.decide.node_context import SharedContext as ContextOf
from gpucluster.elastic.decide.node_table import ROWS, UNMOVED_S
from gpucluster.elastic.decide.offers import all_offers
from gpucluster.elastic.decide.world import LISTED_S, World, owned, slots_of
from gpucluster.elastic.events import (
    BootFailed,
    DaemonStarted,
    Entry,
    Event,
    GpuFaulted,
    InstanceAdopted,
    Interrupted,
    InterruptionKind,
    JobForgotten,
    JobPlaced,
    JobReleased,
    JobRunning,
    LaunchDone,
    LaunchDropped,
    LaunchRequested,
    NodeNeeded,
    NodeUnneeded,
    NodeUp,
    OfferRefused,
    PowerUpMarkStays,
    TerminationRequested,
    TerminationSeen,
)
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import Interruption, Memory, fold
from gpucluster.elastic.model import Action, LaunchGang, MarkDown, PowerDown, PowerUp, ReceivedReport, Undrain
from gpucluster.plan.messages import Beat, GpuFault, NodePhase, NodeReport, Notice, NoticeKind
from gpucluster.plan.model import JobHeartbeat, Termination

PLAN = a_plan()
A1, A2, A3, B1 = "h200-2a-1", "h200-2a-2", "h200-2a-3", "h200-2b-1"
BUSY = "ALLOCATED CLOUD"
Ago = tuple[float, Event]


def world(moment: ClusterSnapshot) -> World:
    assert moment.world
    return moment.world


def acts(moment: ClusterSnapshot) -> tuple[Action, ...]:
    return decide(moment.plan, moment.bindings, moment.observation, moment.memory, moment.now)


def names(events: Iterable[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


# --- evacuation ------------------------------------------------------------------------------------------------
K = InterruptionKind
TERMINATION = Termination(lead_s=20, grace_s=30)


@pytest.mark.parametrize(
    ("what", "kind", "ends_in", "ordered_ago", "times"),
    [
        ("a long notice leaves the lead", K.SPOT, 120.0, None, (0.0, 100.0)),
        ("a notice of twice the lead leaves the lead", K.SPOT, 40.0, None, (0.0, 20.0)),
        ("a short notice leaves half of its time", K.SPOT, 30.0, None, (0.0, 15.0)),
        ("an end in the past leaves nothing", K.SPOT, -5.0, None, (0.0, -5.0)),
        ("a spot notice without a time ends after two minutes", K.SPOT, None, None, (0.0, 100.0)),
        ("a fault leaves the grace", K.FAULT, None, None, (0.0, 30.0)),
        ("a replacement waits for the job", K.REPLACE, None, None, (None, None)),
        ("a replacement that is ordered now leaves the grace", K.REPLACE, None, 0.0, (0.0, 30.0)),
        ("an older order counts from the interruption", K.REPLACE, None, 60.0, (0.0, 30.0)),
        ("maintenance leaves the lead and signals a grace before it", K.MAINTENANCE, 900.0, None, (850.0, 880.0)),
        ("maintenance without a time signals and requeues nothing", K.MAINTENANCE, None, None, (None, None)),
        ("maintenance that an operator does not await", K.MAINTENANCE, 900.0, 0.0, (0.0, 30.0)),
        ("a hint signals and requeues nothing", K.REBALANCE, None, None, (None, None)),
    ],
)  # fmt: skip
def test_times_of_the_signal_and_the_requeue(
    what: str, kind: InterruptionKind, ends_in: float | None, ordered_ago: float | None, times: tuple[float | None, ...]
) -> None:  # fmt: skip
    ends = None if ends_in is None else NOW + ends_in
    moment = EvacuationContext(
        Interruption(kind=kind, since=NOW, words="w", ends_at=ends),
        TERMINATION,
        None if ordered_ago is None else NOW - ordered_ago,
    )
    found = [rule(moment) for rule in (EVACUATION_TABLE[kind].signal_at, EVACUATION_TABLE[kind].requeue_at)]
    assert [None if at is None else at - NOW for at in found] == [*times], what


def interrupted(kind: InterruptionKind, ago: float, ends_in: float | None, slot: str = A1) -> tuple[Ago, ...]:
    ends = None if ends_in is None else NOW + ends_in
    return (*living(slot), (ago, Interrupted(slot=slot, instance="i-0", kind=kind, words="w", ends_at=ends, source="node")))  # fmt: skip


LEAD_AND_GRACE = float(PLAN.pools[0].termination.lead_s + PLAN.pools[0].termination.grace_s)


@pytest.mark.parametrize(
    ("what", "events", "due"),
    [
        ("no interruption", living(A1), None),
        ("a fresh one", interrupted(K.MAINTENANCE, FRESH_S - 1, 9000.0), 0.0),
        ("an old one without a time", interrupted(K.MAINTENANCE, FRESH_S, None), None),
        ("a far end", interrupted(K.MAINTENANCE, FRESH_S, 9000.0), 9000.0 - LEAD_AND_GRACE),
        ("a signal within ten minutes", interrupted(K.MAINTENANCE, 9000.0, LEAD_AND_GRACE + FRESH_S - 1), 0.0),
        ("a signal in ten minutes", interrupted(K.MAINTENANCE, 9000.0, LEAD_AND_GRACE + FRESH_S), FRESH_S),
        ("a fresh hint", interrupted(K.REBALANCE, 1.0, None), None),
    ],
)  # fmt: skip
def test_time_of_the_next_step_of_an_evacuation(what: str, events: tuple[Ago, ...], due: float | None) -> None:  # fmt: skip
    moment = sight(PLAN, *events, nodes=[node(A1, BUSY)], jobs=[job(41, A1)], instances=[instance(0)])
    assert next_due(world(moment)) == (float("inf") if due is None else NOW + due), what


@pytest.mark.parametrize(
    ("what", "idle", "more"),
    [("no idle node", (), 1), ("one idle node, which is enough", (A2,), 0), ("more idle nodes", (A2, A3), 0)],
)
def test_number_of_replacements_equals_the_lack_of_the_requeued_job(
    what: str, idle: tuple[str, ...], more: int
) -> None:
    nodes = [node(A1, BUSY), *(node(slot, UP, last_busy=NOW) for slot in idle)]
    moment = sight(
        PLAN,
        *living(A1, *idle),
        (1.0, Interrupted(slot=A1, instance="i-0", kind=K.SPOT, words="w", ends_at=NOW + 119, source="node")),
        nodes=nodes,
        jobs=[job(41, A1)],
        instances=[instance(n) for n in range(1 + len(idle))],
    )
    found = [slot for a in acts(moment) if isinstance(a, PowerUp) for slot in a.slots]
    assert len(found) == more, what


# --- launches without an outcome, jobs, terminations ---------------------------------------------------------------
@pytest.mark.parametrize(
    ("what", "ago", "states", "dropped"),
    [
        ("five minutes are not over", 300.0, OFF, False),
        ("five minutes are over", 301.0, OFF, True),
        ("a young request, although no slot powers up", 10.0, OFF, False),
        ("one of its slots still powers up", 900.0, WAKING, False),
    ],
)
def test_request_without_instances_is_dropped(what: str, ago: float, states: str, dropped: bool) -> None:
    request = LaunchRequested(request=ask(1, A1, A2))
    found = list(facts.launch_events(world(sight(PLAN, (ago, request), nodes=[node(A1, states)]))))
    assert found == ([LaunchDropped(request="r1")] if dropped else []), what


PLACED = JobPlaced(job=41, slots=(A1, A2), submitted_at=NOW - 300)
RUNS = job(41, A1, A2)


NEEDED = (NodeNeeded(slot=A1, incarnation=1, jobs=(41,)), NodeNeeded(slot=A2, incarnation=1, jobs=(41,)))
CAME_UP = NodeUp(slot=A1, pool="h200")


@pytest.mark.parametrize(
    ("what", "events", "states", "began"),
    [
        ("one of its nodes never came up", (PLACED, *NEEDED, CAME_UP), OFF, False),
        ("it still boots", (PLACED, *NEEDED, CAME_UP), WAKING, False),
        ("all came up, and one has gone", (PLACED, *NEEDED, CAME_UP, NodeUp(slot=A2, pool="h200")), OFF, True),
        ("the last one came up since the last pass", (PLACED, *NEEDED, CAME_UP), "IDLE+CLOUD", True),
        ("it ran", (PLACED, *NEEDED, JobRunning(job=41)), OFF, True),
        ("nobody saw the power-up", (PLACED,), OFF, True),
        ("the daemon was away meanwhile", (PLACED, *NEEDED, DaemonStarted()), OFF, True),
        ("the daemon was away before", (DaemonStarted(), PLACED, *NEEDED), OFF, False),
    ],
)  # fmt: skip
def test_job_that_leaves_its_nodes_has_begun_unless_one_never_came_up(
    what: str, events: tuple[Event, ...], states: str, began: bool
) -> None:
    moment = sight(PLAN, *((60.0, event) for event in events), nodes=[node(A2, states)], jobs=(job(41),))
    assert list(facts.job_events(world(moment))) == [JobReleased(job=41, began=began)], what


@pytest.mark.parametrize(
    ("unbegun", "restarts", "begun"),
    [((), 3, 3), ((0, 1), 2, 0), ((0, 1), 3, 1), ((0, 1, 3), 4, 1), ((0, 1, 3), 3, 1), ((1,), 0, 0)],
)
def test_runs_that_began_are_the_restarts_without_the_starts_that_did_not(
    unbegun: tuple[int, ...], restarts: int, begun: int
) -> None:
    """`unbegun`: Slurm's count at each start that never began."""
    events = [
        event for at in unbegun for event in (replace(PLACED, restarts=at), JobReleased(job=41, began=False))
    ]
    memory = fold(Memory(epoch="e"), [Entry(at=NOW, event=event) for event in events])
    assert memory.runs_begun(41, restarts) == begun
    assert memory.runs_begun(42, restarts) == restarts
    assert fold(memory, [Entry(at=NOW, event=JobForgotten(job=41))]).unbegun == {}


def test_count_of_starts_is_forgotten_with_its_job() -> None:
    events = (PLACED, JobReleased(job=41, began=False))
    listed = sight(PLAN, *((60.0, event) for event in events), jobs=(job(41),))
    assert list(forgotten_jobs(world(listed))) == []
    assert list(forgotten_jobs(world(sight(PLAN, *((60.0, e) for e in events))))) == [JobForgotten(job=41)]


@pytest.mark.parametrize(
    ("what", "known", "listed", "found"),
    [
        ("it is new and starts", (), (job(41, A1, A2, starts=True),), ["JobPlaced"]),
        ("it is new and runs", (), (RUNS,), ["JobPlaced", "JobRunning"]),
        ("it starts, as known", (PLACED,), (job(41, A1, A2, starts=True),), []),
        ("it runs now", (PLACED,), (RUNS,), ["JobRunning"]),
        ("it runs, as known", (PLACED, JobRunning(job=41)), (RUNS,), []),
        ("it runs on other slots", (PLACED, JobRunning(job=41)), (job(41, A1, A3),), ["JobPlaced", "JobRunning"]),
        ("it is gone", (PLACED, JobRunning(job=41)), (), ["JobReleased"]),
        ("it waits again", (PLACED, JobRunning(job=41)), (job(41),), ["JobReleased"]),
    ],
)  # fmt: skip
def test_events_of_a_job(what: str, known: tuple[Event, ...], listed: tuple, found: list[str]) -> None:  # type: ignore[type-arg]
    moment = sight(PLAN, *((60.0, event) for event in known), jobs=listed)
    assert names(facts.job_events(world(moment))) == found, what


@pytest.mark.parametrize(
    ("what", "ago", "state", "seen"),
    [
        ("it is not listed, and five minutes are not over", 300.0, None, False),
        ("it is not listed, and five minutes are over", 300.5, None, True),
        ("it is listed as running", 900.0, InstanceState.RUNNING, False),
        ("it is listed as terminated", 1.0, InstanceState.TERMINATED, True),
    ],
)
def test_end_of_a_termination(what: str, ago: float, state: InstanceState | None, seen: bool) -> None:
    listed = [] if state is None else [instance(9, state=state)]
    moment = sight(PLAN, (ago, TerminationRequested(instances=("i-9",), words="w")), instances=listed)
    found = [e for e in facts.instance_events(world(moment)) if isinstance(e, TerminationSeen)]
    assert found == ([TerminationSeen(instances=("i-9",))] if seen else []), what


@pytest.mark.parametrize(
    ("what", "reason", "found"),
    [
        ("the cloud ended it", "Server.SpotInstanceTermination", ["Interrupted", "InstanceGone"]),
        ("a person ended it", "Client.UserInitiatedShutdown", ["InstanceGone"]),
        ("it is not listed any more", None, ["InstanceGone"]),
    ],
)
def test_only_the_clouds_list_shows_that_a_spot_instance_was_reclaimed(
    what: str, reason: str | None, found: list[str]
) -> None:
    listed = [] if reason is None else [instance(0, state=InstanceState.TERMINATED, reason=reason)]
    moment = sight(PLAN, *living(A1), nodes=[node(A1, "DOWN CLOUD")], instances=listed)
    cloud = moment.observation.cloud
    assert cloud is not None
    seen = replace(moment.observation, cloud=replace(cloud, absent_since={"i-0": NOW - 9000}))
    assert names(facts.instance_events(world(replace(moment, observation=seen)))) == found, what


def test_node_with_an_instance_does_not_adopt_another_of_its_address() -> None:
    stray = instance(9, address=A1)
    nodes = [node(A1, UP), node(A2, UP)]
    moment = sight(PLAN, *living(A1), nodes=nodes, instances=[instance(0), stray])
    assert not list(facts.adoptions(world(moment)))
    moment = sight(PLAN, *living(A1), nodes=nodes, instances=[instance(0), replace(stray, address=A2)])
    assert [e.slot for e in facts.adoptions(world(moment)) if isinstance(e, InstanceAdopted)] == [A2]


# --- gangs -------------------------------------------------------------------------------------------------------
BOOT_S = float(PLAN.pools[0].boot_timeout_s)


@pytest.mark.parametrize(
    ("what", "since", "failed", "words"),
    [
        ("no failed boot in the whole time", BOOT_S, 0, None),
        ("one failed boot just before the end of the time", BOOT_S - 1, 1, None),
        ("one failed boot at the end of the time", BOOT_S, 1, "tried once:"),
        ("two failed boots", 100.0, 2, None),
        ("two failed boots at the end of the time", BOOT_S, 2, "tried 2 times:"),
        ("three failed boots", 100.0, 3, "tried 3 times:"),
    ],
)
def test_gang_is_given_up_after_three_boots_or_the_boot_timeout(
    what: str, since: float, failed: int, words: str | None
) -> None:
    events: list[Ago] = [(since, NodeNeeded(slot=A1, incarnation=1, jobs=(41,)))]
    for number in range(1, failed + 1):
        events += [
            (50.0, LaunchRequested(request=ask(number, A1))),
            (40.0, LaunchDone(request=f"r{number}", instances=(f"i-{number}",))),
            (30.0, BootFailed(slot=A1, instance=f"i-{number}", words="no GPU")),
        ]
    ended = [instance(n, state=InstanceState.TERMINATED) for n in range(1, failed + 1)]
    moment = sight(PLAN, *events, nodes=[node(A1, WAKING)], jobs=[job(41, A1, starts=True)], instances=ended)
    down = [a.reason for a in acts(moment) if isinstance(a, MarkDown)]
    assert len(down) == (words is not None), (what, down)
    assert all(str(words) in reason for reason in down), (what, down)


@pytest.mark.parametrize(("waking", "repeated"), [((A1, A2), True), ((A2,), True), ((), False)])
def test_lost_request_is_repeated_while_one_of_its_slots_powers_up(
    waking: tuple[str, ...], repeated: bool
) -> None:
    needed = [(60.0, NodeNeeded(slot=slot, incarnation=1, jobs=(41,))) for slot in (A1, A2)]
    moment = sight(
        PLAN, *needed, (50.0, LaunchRequested(request=ask(1, A1, A2))), nodes=[node(s, WAKING) for s in waking]
    )  # fmt: skip
    repeats = [a for a in acts(moment) if isinstance(a, LaunchGang) and a.repeat]
    assert bool(repeats) is repeated


@pytest.mark.parametrize(("since", "down"), [(BOOT_S - 1, False), (BOOT_S, True)])
def test_gang_that_slurm_does_not_requeue_is_given_up_at_its_boot_timeout(since: float, down: bool) -> None:
    moment = sight(
        PLAN,
        (since, NodeNeeded(slot=A1, incarnation=1, jobs=(41,))),
        nodes=[node(A1, WAKING)],
        jobs=[job(41, A1, starts=True, requeueable=False)],
    )
    offers = all_offers(world(moment))["h200", "us-east-2a"]
    refused = [Entry(at=NOW, event=OfferRefused(key=o.key, words="ICE", until=NOW + 60)) for o in offers]
    moment = replace(moment, memory=fold(moment.memory, refused))
    assert bool([a for a in acts(moment) if isinstance(a, MarkDown)]) is down


# --- blocked slots ---------------------------------------------------------------------------------------------
def half_open(nodes: Iterable[object] = (), size: int = 3) -> list[str]:
    """The slots that are undrained after all refusals expired, while a job of `size` nodes waits."""
    shown = {name: node(name, f"{OFF} DRAIN", reason="gpucluster: no h200") for name in slots_of(PLAN)}
    shown |= {n.name: n for n in nodes}  # type: ignore[attr-defined]
    moment = sight(PLAN, nodes=shown.values(), jobs=[job(41, node_count=size)])
    keys = {offer.key for some in all_offers(world(moment)).values() for offer in some}
    refused = [Entry(at=NOW - 60, event=OfferRefused(key=key, words="ICE", until=NOW - 1)) for key in sorted(keys)]  # fmt: skip
    moment = replace(moment, memory=fold(moment.memory, refused))
    return [slot for a in acts(moment) if isinstance(a, Undrain) for slot in a.slots]


@pytest.mark.parametrize(
    ("what", "nodes", "count"),
    [
        ("all nodes are off", (), 3),
        ("one node is idle", (node(A1, UP, last_busy=NOW),), 2),
        ("a gang starts in one of the two zones", (node(B1, WAKING),), 0),
    ],
)
def test_number_of_undrained_slots_equals_the_lack_of_the_testing_job(
    what: str, nodes: tuple, count: int
) -> None:  # type: ignore[type-arg]
    assert len(half_open(nodes)) == count, what


# --- interruptions ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("what", "taken_ago", "alive", "refused"),
    [
        ("one of one", (10.0,), 1, False),
        ("two of four are half", (10.0, 20.0), 4, True),
        ("two of five are less than half", (10.0, 20.0), 5, False),
        ("three are a storm in any pool", (10.0, 20.0, 30.0), 16, True),
        ("the third is too long ago", (10.0, 20.0, PLAN.times.storm_s), 16, False),
    ],
)
def test_offer_is_refused_after_a_storm(
    what: str, taken_ago: tuple[float, ...], alive: int, refused: bool
) -> None:
    moment = sight(PLAN, *living(*(f"h200-2a-{n}" for n in range(1, alive + 1))))
    spec = launch_spec(zone="us-east-2a")
    key = f"spot/{spec.machine}/us-east-2a"
    taken = {key: tuple(NOW - ago for ago in taken_ago)}
    moment = replace(moment, memory=replace(moment.memory, taken=taken))
    found = [e.key for e in interruptions.spot_storms(world(moment)) if isinstance(e, OfferRefused)]
    assert found == ([key] if refused else []), what


def report(*notices: Notice, heartbeats: tuple[Beat, ...] = ()) -> ReceivedReport:
    said = NodeReport(
        instance_id="i-0", nonce="n", boot_id="b", phase=NodePhase.UP, incarnation=1, steps=(), notices=notices,
        heartbeats=heartbeats, watched=True, clock=NOW,
    )  # fmt: skip
    return ReceivedReport(report=said, at=NOW, since=NOW - 60)


def maintenance(ends_in: float) -> Notice:
    return Notice(kind=NoticeKind.MAINTENANCE, at=NOW + ends_in, words="system-reboot")


@pytest.mark.parametrize(
    ("what", "known", "said", "found"),
    [
        ("the same notice again", interrupted(K.MAINTENANCE, 60.0, 9000.0), (maintenance(9000.0),), []),
        ("a second later is the same", interrupted(K.MAINTENANCE, 60.0, 9000.0), (maintenance(9001.0),), []),
        ("two seconds later is another time", interrupted(K.MAINTENANCE, 60.0, 9000.0), (maintenance(9002.0),), ["Interrupted"]),
        ("it is no longer listed", interrupted(K.MAINTENANCE, 0.5, 9000.0), (), ["InterruptionOver"]),
        ("a spot notice stays", interrupted(K.SPOT, 60.0, 90.0), (), []),
        ("a second event, beside a spot notice", interrupted(K.MAINTENANCE, 60.0, 9000.0), (Notice(kind=NoticeKind.SPOT, at=NOW + 120.0), maintenance(9000.0)), ["Interrupted"]),
        ("maintenance beside a hint", interrupted(K.MAINTENANCE, 60.0, 9000.0), (Notice(kind=NoticeKind.REBALANCE, at=None), maintenance(9000.0)), []),
    ],
)  # fmt: skip
def test_events_of_a_notice(what: str, known: tuple[Ago, ...], said: tuple[Notice, ...], found: list[str]) -> None:  # fmt: skip
    moment = sight(PLAN, *known, nodes=[node(A1, BUSY)], instances=[instance(0)], reports={"i-0": report(*said)})  # fmt: skip
    assert names(interruptions.interruption_events(world(moment))) == found, what


# --- heartbeats of jobs --------------------------------------------------------------------------------------------
WATCHED = replace(PLAN, pools=(replace(PLAN.pools[0], job_heartbeat=JobHeartbeat(after_s=100, requeue=True)),))  # fmt: skip


@pytest.mark.parametrize(
    ("what", "heartbeats", "stopped"),
    [
        ("a beat just within the limit", (Beat(job=41, uid=1000, at=NOW - 99),), False),
        ("a beat at the limit", (Beat(job=41, uid=1000, at=NOW - 100),), True),
        ("the later of two beats counts", (Beat(job=41, uid=1000, at=NOW - 110), Beat(job=41, uid=1000, at=NOW - 10)), False),
        ("a beat at the start of the job", (Beat(job=41, uid=1000, at=NOW - 120),), True),
        ("a beat of an earlier run", (Beat(job=41, uid=1000, at=NOW - 121),), False),
        ("a beat of another job", (Beat(job=42, uid=1000, at=NOW - 110),), False),
        ("a beat of another user", (Beat(job=41, uid=7, at=NOW - 110),), False),
        ("a beat in the future counts as now", (Beat(job=41, uid=1000, at=NOW + 500),), False),
    ],
)  # fmt: skip
def test_job_counts_as_stalled_after_its_heartbeat_limit(
    what: str, heartbeats: tuple[Beat, ...], stopped: bool
) -> None:
    moment = sight(
        WATCHED,
        *living(A1),
        nodes=[node(A1, BUSY)],
        jobs=[job(41, A1, user_id=1000)],
        reports={"i-0": report(heartbeats=heartbeats)},
    )
    assert names(jobs.heartbeat_events(world(moment))) == (["HeartbeatStopped"] if stopped else []), what
    if heartbeats[0].at > NOW:
        assert jobs.next_heartbeat_due(world(moment)) == NOW + 100, what


def test_one_pool_with_heartbeats_is_enough() -> None:
    """Regression of a change that no test found: the jobs were watched only if each pool has heartbeats."""
    beside = replace(PLAN.pools[0], name="h100", slots=())
    moment = sight(
        replace(WATCHED, pools=(*WATCHED.pools, beside)),
        *living(A1),
        nodes=[node(A1, BUSY)],
        jobs=[job(41, A1, user_id=1000)],
        reports={"i-0": report(heartbeats=(Beat(job=41, uid=1000, at=NOW - 100),))},
    )
    assert names(jobs.heartbeat_events(world(moment))) == ["HeartbeatStopped"]


@pytest.mark.parametrize(("length", "kept"), [(120, 120), (121, 120)])
def test_address_of_a_faulty_device_is_shortened(length: int, kept: int) -> None:
    """The address is a node's own word: a neighbour could write a long one into the journal."""
    fault = GpuFault(xid=79, device="d" * length, count=1, last_at=NOW, text="")
    said = report()
    moment = sight(
        PLAN, *living(A1), nodes=[node(A1, BUSY)], instances=[instance(0)],
        reports={"i-0": replace(said, report=replace(said.report, faults=(fault,)))},
    )  # fmt: skip
    (found,) = [e for e in interruptions.interruption_events(world(moment)) if isinstance(e, GpuFaulted)]
    assert len(found.device) == kept


@pytest.mark.parametrize(("ago", "found"), [(LISTED_S - 0.1, ()), (LISTED_S, ("i-0",))])
def test_instance_is_looked_up_by_id_when_it_must_be_listed(ago: float, found: tuple[str, ...]) -> None:
    events = ((ago, NodeNeeded(slot=A1, incarnation=1, jobs=(41,))), (ago, LaunchRequested(request=ask(1, A1))), (ago, LaunchDone(request="r1", instances=("i-0",))))  # fmt: skip
    assert owned(sight(PLAN, *events).memory, NOW) == found


# --- reports, and Slurm's power-up mark -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("phase", "found"),
    [(None, []), (NodePhase.BOOTING, ["NodeRegistered"]), (NodePhase.UP, ["NodeRegistered"]), (NodePhase.FAILED, [])],
)  # fmt: skip
def test_first_report_of_an_agent_registers_its_node(phase: NodePhase | None, found: list[str]) -> None:
    events = living(A1)[:-2]  # neither registered nor up
    said = report()
    reports = {} if phase is None else {"i-0": replace(said, report=replace(said.report, phase=phase))}
    moment = sight(
        PLAN, *events, nodes=[node(A1, WAKING)], instances=[instance(0)], jobs=[job(41, A1, starts=True)], reports=reports
    )  # fmt: skip
    assert names(facts.instance_events(world(moment))) == found


@pytest.mark.parametrize(
    ("what", "states", "stays"),
    [
        ("off, without the mark", OFF, None),
        ("up, with the mark", f"{UP} POWER_UP", True),
        ("powering up, where the mark is usual", f"{WAKING} POWER_UP", None),
    ],
)
def test_power_up_mark_that_stays_is_recorded(what: str, states: str, stays: bool | None) -> None:
    moment = sight(PLAN, *living(A1), nodes=[node(A1, states)], instances=[instance(0)])
    found = [(e.slot, e.stays) for e in facts.power_up_events(world(moment)) if isinstance(e, PowerUpMarkStays)]  # fmt: skip
    assert found == ([] if stays is None else [(A1, stays)]), what


# --- the node table --------------------------------------------------------------------------------------------------
TIMES = PLAN.times
PASS_S = 2 * TIMES.reconcile_s
OFF_S = PASS_S + TIMES.suspend_timeout_s + UNMOVED_S


@pytest.mark.parametrize(
    ("row", "bound"),
    [
        ("off", None),
        ("off-grace", TIMES.orphan_grace_s + OFF_S),
        ("off-order-over", PASS_S),
        ("off-spare", PLAN.pools[0].boot_timeout_s + 2 * UNMOVED_S),
        ("off-instance", OFF_S),
        ("ending", TIMES.suspend_timeout_s + UNMOVED_S),
        ("down-off-pending", UNMOVED_S),
        ("idle", PLAN.pools[0].idle_s + OFF_S),
    ],
)
def test_bound_of_a_state_in_seconds(row: str, bound: float | None) -> None:
    moment = sight(PLAN, nodes=[node(A1)])
    (found,) = [one.bound(NodeContext.of(ContextOf(world(moment)), A1)) for one in ROWS if one.name == row]
    assert found == bound


@pytest.mark.parametrize(
    ("what", "events", "past"),
    [
        ("no incarnation", (), False),
        ("it is needed", living(A1), False),
        ("just within the grace", (*living(A1), (TIMES.orphan_grace_s - 0.1, NodeUnneeded(slot=A1))), False),
        ("the grace is over", (*living(A1), (TIMES.orphan_grace_s, NodeUnneeded(slot=A1))), True),
    ],
)
def test_grace_of_a_node_that_nothing_needs(what: str, events: tuple[Ago, ...], past: bool) -> None:
    moment = sight(PLAN, *events, nodes=[node(A1)])
    assert NodeContext.of(ContextOf(world(moment)), A1).past_grace is past, what


@pytest.mark.parametrize(("left", "powered_down"), [(1.0, False), (0.0, True)])
def test_idle_node_is_powered_down_at_its_idle_time(left: float, powered_down: bool) -> None:
    at = NOW - PLAN.pools[0].idle_s + left
    moment = sight(PLAN, *living(A1, ago=9000.0), nodes=[node(A1, UP, last_busy=at)], instances=[instance(0)])
    assert bool([a for a in acts(moment) if isinstance(a, PowerDown)]) is powered_down


@pytest.mark.parametrize(
    ("what", "phase", "incarnation", "failed"),
    [
        ("slurmd of this incarnation is up", NodePhase.UP, 2, False),
        ("only the slurmd of an earlier incarnation was up", NodePhase.UP, 1, True),
        ("slurmd of this incarnation is not up yet", NodePhase.BOOTING, 2, True),
    ],
)
def test_boot_on_an_interrupted_instance_fails_unless_slurmd_is_up(
    what: str, phase: NodePhase, incarnation: int, failed: bool
) -> None:
    said = report()
    again = (50.0, NodeNeeded(slot=A1, incarnation=2, jobs=(42,)))
    moment = sight(
        PLAN,
        *interrupted(K.SPOT, 5.0, 115.0),
        again,
        nodes=[node(A1, WAKING)],
        jobs=[job(42, A1, starts=True)],
        instances=[instance(0)],
        reports={"i-0": replace(said, report=replace(said.report, phase=phase, incarnation=incarnation))},
    )
    assert names(interruptions.unusable_boots(world(moment))) == (["BootFailed"] if failed else []), what
