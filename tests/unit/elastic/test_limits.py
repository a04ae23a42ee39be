"""What stops launches, and that it says so: budget, breaker, pause. None ends what runs."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.builders import a_plan
from support.cluster_states import BUSY, NOW, OFF, WAKING, ask, instance, job, living, node, sight
from support.fleet import Fleet

from gpucluster.cloud.port import Instance
from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.limits import half_open, spent, stop_of
from gpucluster.elastic.decide.offers import Headroom, all_offers, why_none
from gpucluster.elastic.decide.world import World, slots_of
from gpucluster.elastic.events import (
    BootFailed,
    BreakerReset,
    BreakerTripped,
    BudgetCrossed,
    Entry,
    Event,
    LaunchDeferred,
    LaunchRequested,
    NodeNeeded,
    NodeUp,
    OrderGiven,
    Verb,
)
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.memory import Memory, OpenBreaker, fold
from gpucluster.elastic.model import Action, Block, LaunchGang, MarkDown, RecordEvents, Terminate, Undrain
from gpucluster.plan.messages import GpuFault
from gpucluster.plan.model import Breaker, Budget

USD = 1_000_000
PLAN = a_plan()
A1, A2 = "h200-2a-1", "h200-2a-2"
BUDGET = replace(
    PLAN, budget=Budget(monthly=250_000 * USD, warn_at=200_000 * USD, stop_scaling_at=225_000 * USD)
)
MONTH = "2026-11"


def world_of(moment: ClusterSnapshot) -> World:
    assert moment.world
    return moment.world


def acts(moment: ClusterSnapshot) -> tuple[Action, ...]:
    return decide(moment.plan, moment.bindings, moment.observation, moment.memory, moment.now)


def facts(moment: ClusterSnapshot, kind: type[Event]) -> list[Event]:
    found = [e.event for a in acts(moment) if isinstance(a, RecordEvents) for e in a.entries]
    return [e for e in found if isinstance(e, kind)]


def after(moment: ClusterSnapshot, *events: Event, ago: float = 0.0) -> ClusterSnapshot:
    return replace(moment, memory=fold(moment.memory, [Entry(at=NOW - ago, event=e) for e in events]))


def sentence(moment: ClusterSnapshot) -> str:
    world = world_of(moment)
    pool = moment.plan.pools[0]
    return why_none(world, Headroom(world), pool, "us-east-2a", all_offers(world)["h200", "us-east-2a"])


# --- budget ---------------------------------------------------------------------------------------------
def cost(amount: int, before: str = "", ended: str = MONTH) -> ClusterSnapshot:
    moment = sight(BUDGET, nodes=[node(A1, WAKING)], jobs=[job(1, A1, starts=True)])
    return replace(moment, memory=replace(moment.memory, spent={ended: amount * USD}, budget=before))


@pytest.mark.parametrize(
    ("amount", "before", "line"),
    [
        (0, "", None),
        (199_999, "", None),
        (200_000, "", "warn"),
        (210_000, f"{MONTH}/warn", None),
        (225_000, f"{MONTH}/warn", "stop"),
        (300_000, "", "stop"),
        (300_000, f"{MONTH}/stop", None),
        (210_000, f"{MONTH}/stop", "warn"),  # a higher budget, in the middle of the month
        (0, "2026-10/stop", "open"),  # a new month
        (0, "2026-10/open", "open"),
        (230_000, "2026-10/stop", "stop"),
    ],
)
def test_budget_line_is_crossed_once(amount: int, before: str, line: str | None) -> None:
    found = facts(cost(amount, before), BudgetCrossed)
    assert [(e.line, e.month) for e in found if isinstance(e, BudgetCrossed)] == [(line, MONTH)] * bool(line)


def test_spent_budget_stops_launches_until_a_date() -> None:
    moment = cost(225_001)
    assert not [a for a in acts(moment) if isinstance(a, LaunchGang)]
    moment = cost(225_001, f"{MONTH}/stop")
    assert sentence(moment) == (
        "no h200 in us-east-2a: budget: 225,000.00 USD of 250,000.00 USD of November are spent; "
        "launches stop until December 1 or a higher budget"
    )
    assert [a for a in acts(cost(210_000)) if isinstance(a, LaunchGang)], "a warning stops nothing"


def test_launches_go_on_when_the_budget_leaves() -> None:
    """As `diff` says of it."""
    stopped = cost(225_001, f"{MONTH}/stop")
    assert not [a for a in acts(stopped) if isinstance(a, LaunchGang)]
    assert [
        a
        for a in acts(replace(stopped, plan=replace(stopped.plan, budget=None)))
        if isinstance(a, LaunchGang)
    ]


def test_spent_budget_ends_no_running_node() -> None:
    busy = sight(BUDGET, *living(A1), nodes=[node(A1, BUSY)], jobs=[job(41, A1)], instances=[instance(0)])
    moment = replace(busy, memory=replace(busy.memory, spent={MONTH: 900_000 * USD}))
    assert not [a for a in acts(moment) if isinstance(a, MarkDown | Terminate)]


def test_month_after_december_is_january() -> None:
    december = datetime(2026, 12, 31, 12, tzinfo=UTC).timestamp()
    moment = replace(cost(0, "2026-12/stop"), now=december)
    assert moment.world
    assert "of December are spent; launches stop until January 1" in stop_of(moment.world, "h200")


def test_living_instances_count_from_their_launch_in_this_month() -> None:
    began = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
    moment = sight(BUDGET, *living(A1, ago=NOW - began + 7200.0))
    assert moment.world
    hours = (NOW - began) / 3600
    assert spent(moment.world) == pytest.approx(hours * 26 * USD, abs=2)


# --- breaker ----------------------------------------------------------------------------------------------
def failing(boots: int) -> ClusterSnapshot:
    """So many boots of the pool failed in a row; a job starts on a slot that lacks a machine."""
    moment = sight(PLAN, *living(A2), nodes=[node(A1, WAKING)], jobs=[job(1, A1, starts=True)])
    lives = {A2: replace(moment.memory.incarnations[A2], failed="i-0: step key: AccessDenied")}
    memory = replace(moment.memory, boots={"h200": boots}, incarnations=lives)
    gone = replace(instance(0))
    assert moment.observation.cloud
    return replace(
        moment,
        memory=memory,
        observation=replace(
            moment.observation, cloud=replace(moment.observation.cloud, instances={"i-0": gone})
        ),
    )


@pytest.mark.parametrize(("boots", "trips"), [(0, False), (5, False), (6, True), (9, True)])
def test_breaker_opens_after_consecutive_failed_boots(boots: int, trips: bool) -> None:
    found = facts(failing(boots), BreakerTripped)
    assert bool(found) is trips
    assert bool([a for a in acts(failing(boots)) if isinstance(a, LaunchGang)]) is not trips


def tripped(ago: float, boots: int = 6) -> ClusterSnapshot:
    moment = failing(boots)
    words = "6 boots failed in a row, the last: i-0: step key: AccessDenied"
    return after(moment, BreakerTripped(pool="h200", words=words, until=NOW - ago + 900), ago=ago)


def test_open_breaker_names_reason_and_end() -> None:
    moment = tripped(ago=60)
    assert not facts(moment, BreakerTripped)
    assert sentence(moment) == (
        "no h200 in us-east-2a: breaker: 6 boots failed in a row, the last: i-0: step key: AccessDenied; "
        "launches stop until 2026-11-17 14:14 UTC or until the pool is resumed"
    )


def test_one_more_failed_boot_opens_the_breaker_again() -> None:
    moment = tripped(ago=60)
    moment = replace(moment, memory=replace(moment.memory, boots={"h200": 7}))
    (event,) = facts(moment, BreakerTripped)
    assert isinstance(event, BreakerTripped)
    assert event.until == NOW + 900


def test_after_the_cooldown_one_gang_tests_and_the_others_wait() -> None:
    moment = tripped(ago=901)
    assert moment.world
    assert half_open(moment.world, "h200")
    waking = [node(n, WAKING) for n in (A1, "h200-2a-3")]
    jobs = [job(1, A1, starts=True), job(2, "h200-2a-3", starts=True)]
    assert moment.observation.slurm
    nodes = {**moment.observation.slurm.nodes, **{n.name: n for n in waking}, A2: node(A2, OFF)}
    slurm = replace(moment.observation.slurm, nodes=nodes, jobs=tuple(jobs))
    found = acts(replace(moment, observation=replace(moment.observation, slurm=slurm)))
    assert [a.request.jobs for a in found if isinstance(a, LaunchGang)] == [(1,)]
    assert not [a for a in found if isinstance(a, MarkDown)]


def test_node_that_comes_up_closes_the_breaker() -> None:
    moment = after(tripped(ago=901), NodeUp(slot=A2, pool="h200"))
    assert facts(moment, BreakerReset)
    assert stop_of(world_of(after(tripped(60), BreakerReset(pool="h200"))), "h200") == ""


def test_half_open_breaker_undrains_the_slots_of_one_job() -> None:
    drained = [node(n, OFF + " DRAIN", reason="gpucluster: breaker") for n in slots_of(PLAN)]
    moment = sight(PLAN, nodes=drained, jobs=[job(1, node_count=2), job(2, node_count=3)])
    hit = BreakerTripped(pool="h200", words="x", until=NOW - 1)
    moment = replace(moment, memory=replace(moment.memory, boots={"h200": 6}))
    moment = after(moment, hit, ago=901)
    found = acts(moment)
    assert [a.slots for a in found if isinstance(a, Undrain)] == [(A1, A2)]
    assert moment.observation.slurm
    idle = replace(
        moment, observation=replace(moment.observation, slurm=replace(moment.observation.slurm, jobs=()))
    )
    assert sum(len(a.slots) for a in acts(idle) if isinstance(a, Undrain)) == 32, "who comes first tries"


def test_bad_image_is_launched_only_a_few_times(tmp_path: Path) -> None:
    """clustermgtd's protected mode never tripped in 25.11, and the pool launched all night."""
    plan = a_plan()
    pool = replace(plan.pools[0], breaker=Breaker(boots=6, cooldown_s=900))
    f = Fleet(replace(plan, pools=(pool,)), tmp_path)
    f.broken = lambda _: "AccessDenied: the role may not read the secret"
    jobs = [f.slurm.submit(4, lasts=100) for _ in range(3)]
    f.run(3600)
    launched = sum(
        len(incarnation.instance or "") > 0 for incarnation in f.journal.memory.incarnations.values()
    )
    tries = len(f.cloud.launches)
    assert tries <= 3 + 4, f"{tries} launches in an hour, {launched} live"
    assert {j.state for j in jobs} <= {"PENDING", "CONFIGURING"}
    assert any("breaker: " in j.comment for j in jobs)
    f.broken = lambda _: None
    f.until(lambda: all(j.state == "COMPLETED" for j in jobs), 4000)
    assert not f.journal.memory.breakers


@pytest.mark.parametrize(
    ("what", "xid"),
    [("a GPU that must be reset", 79), ("a GPU that is replaced when it is idle", 63)],
)
def test_pool_whose_instances_all_report_a_gpu_fault_while_they_boot_is_launched_only_a_few_times(
    tmp_path: Path, what: str, xid: int
) -> None:
    """Regression: a fault before slurmd was up counted in no limit, and a wrong driver was launched all night."""
    f = Fleet(PLAN, tmp_path)
    f.steps_s = 30.0
    fault = GpuFault(xid=xid, device="0000:53:00", count=1, last_at=f.now, text=f"NVRM: Xid {xid}")

    def tells_a_fault(instance: Instance) -> bool:
        f.faults[instance.id] = (fault,)
        return False

    f.mute = tells_a_fault  # from its first report on
    job = f.slurm.submit(1, lasts=100)
    f.run(3600)
    assert len(f.cloud.launches) <= 10, what
    assert "breaker: 9 boots failed in a row" in job.comment
    assert f"one of its GPUs failed: XID {xid}" in job.comment
    f.mute = lambda _: False
    f.faults.clear()
    f.until(lambda: job.state == "COMPLETED", 4000)
    assert not f.journal.memory.breakers


# --- orders -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("verb", "words", "said"),
    [
        (Verb.POOL_PAUSE, "new driver", "paused by ada: new driver"),
        (Verb.POOL_PAUSE, "", "paused by ada"),
        (Verb.POOL_DRAIN, "move", "drained by ada: move"),
    ],
)
def test_paused_pool_launches_nothing_and_names_operator_and_reason(
    verb: Verb, words: str, said: str
) -> None:
    order = OrderGiven(verb=verb, target="h200", by="ada", words=words)
    moment = after(sight(PLAN, nodes=[node(A1, WAKING)], jobs=[job(1, A1, starts=True)]), order)
    found = acts(moment)
    assert not [a for a in found if isinstance(a, LaunchGang)]
    assert {a.reason for a in found if isinstance(a, Block)} == {
        f"gpucluster: no h200 in us-east-2{z}: {said}" for z in "ab"
    }
    resumed = after(moment, OrderGiven(verb=Verb.POOL_RESUME, target="h200", by="ada"))
    assert [a for a in acts(resumed) if isinstance(a, LaunchGang)]


@pytest.mark.parametrize("lost", [False, True])
def test_after_a_pause_throttled_calls_stop_and_lost_calls_are_repeated(tmp_path: Path, lost: bool) -> None:
    f = Fleet(PLAN, tmp_path)
    if lost:
        f.model.faults.lose_reply("RunInstances")
    else:
        f.model.faults.next_error("RunInstances", "RequestLimitExceeded", 2)
    job = f.slurm.submit(2)
    f.until(lambda: bool(f.journal.memory.launches), 30)
    f.journal.append(
        (
            Entry(
                at=f.now, event=OrderGiven(verb=Verb.POOL_PAUSE, target="h200", by="ada", words="new driver")
            ),
        )
    )
    f.run(120)
    assert not f.journal.memory.launches
    assert len(f.living()) == (2 if lost else 0)
    assert job.state == ("COMPLETED" if lost else "PENDING")
    assert lost or "paused by ada: new driver" in job.comment


def test_only_a_request_throttled_at_each_try_launched_nothing() -> None:
    asked, throttled = (
        LaunchRequested(request=ask(1, A1)),
        LaunchDeferred(request="r1", retry_at=NOW, words="x", pace_all=True),
    )
    lost = replace(throttled, pace_all=False)
    rows = [
        ((asked,), False),
        ((asked, throttled), True),
        ((asked, throttled, asked), False),
        ((asked, throttled, asked, throttled), True),
        ((asked, lost, asked, throttled), False),
        ((asked, asked, throttled), False),  # the daemon died over the first
    ]
    for events, nothing in rows:
        memory = fold(Memory(), [Entry(at=NOW, event=e) for e in events])
        assert memory.launches["r1"].came_to_nothing is nothing, events


def test_order_precedes_breaker_and_breaker_precedes_budget() -> None:
    moment = after(
        cost(300_000, f"{MONTH}/stop"),
        NodeNeeded(slot=A1, incarnation=1, jobs=(1,)),
        BootFailed(slot=A1, instance="", words="x", pool="h200"),
        BreakerTripped(pool="h200", words="x", until=NOW + 60),
    )
    assert stop_of(world_of(moment), "h200").startswith("breaker")
    paused = after(moment, OrderGiven(verb=Verb.POOL_PAUSE, target="h200", by="ada"))
    assert stop_of(world_of(paused), "h200").startswith("paused")


@pytest.mark.parametrize(("half_open_for", "is_reset"), [(449.0, False), (450.0, True)])
def test_half_open_breaker_without_refusals_is_reset_after_a_time(
    half_open_for: float, is_reset: bool
) -> None:
    """The pool was tested by one job at a time for ever, because the reset was only looked for beside refusals."""
    tripped = OpenBreaker(until=NOW - half_open_for, words="6 boots failed in a row", boots=6)
    known = Memory(epoch="e", boots={"h200": 6}, breakers={"h200": tripped})
    moment = replace(sight(PLAN, jobs=[job(1)]), memory=known)
    reset = [BreakerReset(pool="h200", by="no job tested the pool")] if is_reset else []
    assert facts(moment, BreakerReset) == reset
