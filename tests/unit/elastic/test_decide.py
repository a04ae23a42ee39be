"""`decide` row by row: one moment in, actions out."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from builders import a_plan
from fleet import some_bindings

from gpucluster.cloud.port import CloudError, Fault, Instance, InstanceState
from gpucluster.elastic.decide import decide, next_look, outcome
from gpucluster.elastic.decide.offers import closed, offers_in
from gpucluster.elastic.decide.world import World, slots_of
from gpucluster.elastic.events import (
    Adopted,
    BootFailed,
    CameUp,
    EndAsked,
    Entry,
    Event,
    Forgot,
    InstanceGone,
    LaunchAsked,
    LaunchDeferred,
    LaunchDone,
    LaunchRefused,
    Needed,
    Refused,
    Renewed,
    Unneeded,
)
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import (
    Action,
    Block,
    CloudView,
    Comment,
    Heard,
    LaunchGang,
    MarkDown,
    Observation,
    PowerDown,
    PowerUp,
    Remember,
    ResetDown,
    SlurmJob,
    SlurmNode,
    SlurmView,
    Terminate,
    Unblock,
)
from gpucluster.elastic.words import describe
from gpucluster.plan.messages import NodePhase, NodeReport
from gpucluster.plan.model import Market, Standby, there

PLAN = a_plan()
BINDINGS = some_bindings(PLAN)
NOW = 2_000_000.0
OFF, WAKING = "IDLE CLOUD POWERED_DOWN", "MIXED CLOUD NOT_RESPONDING POWERING_UP"
A1, A2, A3, B1 = "h200-2a-1", "h200-2a-2", "h200-2a-3", "h200-2b-1"


def node(name: str, states: str = OFF, **changes: object) -> SlurmNode:
    return replace(SlurmNode(name=name, states=frozenset(states.split()), address=name), **changes)  # type: ignore[arg-type]


def job(number: int, *nodes: str, **changes: object) -> SlurmJob:
    states = frozenset({"RUNNING", "CONFIGURING"} if nodes else {"PENDING"})
    plain = SlurmJob(
        id=number,
        states=states,
        nodes=nodes,
        node_count=len(nodes) or 1,
        partitions=("gpu",),
        requeueable=True,
        batch=True,
        priority=100 - number,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def instance(number: int, state: InstanceState = InstanceState.RUNNING, **changes: object) -> Instance:
    plain = Instance(
        id=f"i-{number}",
        state=state,
        zone="us-east-2a",
        machine="p5en.48xlarge",
        market=Market.SPOT,
        address=f"10.42.0.{number}",
        launched_at=NOW - 100,
        token=None,
        tags={"gpucluster:cluster": "burst", "gpucluster:role": "node", "gpucluster:pool": "h200"},
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def seen(
    nodes: Iterable[SlurmNode] = (),
    jobs: Iterable[SlurmJob] = (),
    instances: Iterable[Instance] = (),
    **more: object,
) -> Observation:
    """All other slots are off."""
    shown = {name: node(name) for name in slots_of(PLAN)} | {n.name: n for n in nodes}
    slurm = SlurmView(at=NOW, nodes=shown, jobs=tuple(jobs))
    cloud = CloudView(at=NOW, instances={i.id: i for i in instances})
    return replace(Observation(slurm=slurm, cloud=cloud), **more)  # type: ignore[arg-type]


def memory(*events: Event, at: float = NOW - 100) -> Memory:
    return fold(Memory(epoch="e"), [Entry(at=at, event=event) for event in events])


def launched(*slots: str, at: float = NOW - 100) -> Memory:
    """Slots that have i-1, i-2 ... from one spot request."""
    asked = [Needed(slot=slot, life=1, jobs=(1,)) for slot in slots]
    world = _world(seen(), memory(*asked))
    from gpucluster.elastic.decide.asks import Party, ask_for

    ask = ask_for(world, offers_in(world, PLAN.pools[0], "us-east-2a")[0], Party(slots=slots), 1)
    ids = tuple(f"i-{n}" for n in range(1, len(slots) + 1))
    return memory(*asked, LaunchAsked(ask=ask), LaunchDone(request="r1", instances=ids), at=at)


def _world(observation: Observation, known: Memory) -> World:
    assert observation.slurm
    assert observation.cloud
    return World.of(
        PLAN,
        BINDINGS,
        known,
        NOW,
        slurm=observation.slurm,
        cloud=observation.cloud,
        reports=observation.reports,
    )


def act(observation: Observation, known: Memory | None = None, now: float = NOW) -> tuple[Action, ...]:
    return decide(PLAN, BINDINGS, observation, known or memory(), now)


def only(kind: type[Action], actions: tuple[Action, ...]) -> list[Action]:
    return [a for a in actions if isinstance(a, kind)]


def facts(actions: tuple[Action, ...]) -> list[Event]:
    return [e.event for a in actions if isinstance(a, Remember) for e in a.entries]


def gangs(actions: tuple[Action, ...]) -> list[tuple[str, ...]]:
    return [a.ask.slots for a in actions if isinstance(a, LaunchGang)]


# --- gangs -----------------------------------------------------------------------------------------
def test_a_quiet_world_needs_nothing() -> None:
    assert act(seen()) == ()


def test_one_job_is_one_launch() -> None:
    waking = (node(A1, WAKING), node(A2, WAKING))
    assert gangs(act(seen(waking, [job(1, A1, A2)]))) == [(A1, A2)]


def test_a_node_that_slurm_has_only_just_allocated_counts_already() -> None:
    assert gangs(act(seen([node(A1, "ALLOCATED CLOUD POWERED_DOWN")], [job(1, A1)]))) == [(A1,)]


def test_het_components_are_one_gang() -> None:
    waking = (node(A1, WAKING), node(A2, WAKING))
    jobs = [job(5, A1, het_id=5), job(6, A2, het_id=5)]
    assert gangs(act(seen(waking, jobs))) == [(A1, A2)]


def test_two_jobs_are_one_launch_the_urgent_first() -> None:
    waking = (node(A1, WAKING), node(A2, WAKING))
    jobs = [job(1, A1), replace(job(2, A2), priority=500)]
    (launch,) = [a for a in act(seen(waking, jobs)) if isinstance(a, LaunchGang)]
    assert (launch.ask.slots, launch.ask.gangs, launch.ask.jobs) == ((A2, A1), (1, 1), (2, 1))


def test_a_shared_slot_is_launched_once_for_its_most_urgent_job() -> None:
    waking = (node(A1, WAKING), node(A2, WAKING), node(A3, WAKING))
    (launch,) = [a for a in act(seen(waking, [job(1, A1, A2), job(2, A2, A3)])) if isinstance(a, LaunchGang)]
    assert (launch.ask.slots, launch.ask.gangs) == ((A1, A2, A3), (2, 1))


def test_slots_powered_up_by_hand_are_gangs_of_one() -> None:
    waking = [node(n, "IDLE CLOUD NOT_RESPONDING POWERING_UP") for n in (A1, A2)]
    (launch,) = [a for a in act(seen(waking)) if isinstance(a, LaunchGang)]
    assert (launch.ask.slots, launch.ask.at_least) == ((A1, A2), 1)


def test_what_a_cancelled_job_left_is_powered_down_and_not_launched() -> None:
    waking = [node(A1, "IDLE CLOUD NOT_RESPONDING POWERING_UP")]
    actions = act(seen(waking), memory(Needed(slot=A1, life=1, jobs=(1,))))
    assert gangs(actions) == []
    assert [type(a) for a in actions if isinstance(a, MarkDown | PowerDown)] == [MarkDown, PowerDown]


def test_a_launch_under_way_is_repeated_identically_and_never_doubled() -> None:
    first = next(a for a in act(seen([node(A1, WAKING)], [job(1, A1)])) if isinstance(a, LaunchGang))
    known = memory(Needed(slot=A1, life=1, jobs=(1,)), LaunchAsked(ask=first.ask))
    again = only(LaunchGang, act(seen([node(A1, WAKING)], [job(1, A1)]), known))
    assert [(a.ask, a.repeat) for a in again if isinstance(a, LaunchGang)] == [(first.ask, True)]


def test_a_throttled_call_paces_every_launch() -> None:
    first = next(a for a in act(seen([node(A1, WAKING)], [job(1, A1)])) if isinstance(a, LaunchGang))
    deferred = LaunchDeferred(request="r1", retry_at=NOW + 5, words="x", pace_all=True)
    known = memory(Needed(slot=A1, life=1, jobs=(1,)), LaunchAsked(ask=first.ask), deferred)
    both = seen([node(A1, WAKING), node(A2, WAKING)], [job(1, A1), job(2, A2)])
    assert gangs(act(both, known)) == []
    assert len(gangs(act(both, known, NOW + 5))) == 2


def test_a_clock_that_goes_back_an_hour_pauses_no_launch_for_an_hour() -> None:
    first = next(a for a in act(seen([node(A1, WAKING)], [job(1, A1)])) if isinstance(a, LaunchGang))
    deferred = LaunchDeferred(request="r1", retry_at=NOW + 5, words="x", pace_all=True)
    known = memory(Needed(slot=A1, life=1, jobs=(1,)), LaunchAsked(ask=first.ask), deferred)
    both = seen([node(A1, WAKING), node(A2, WAKING)], [job(1, A1), job(2, A2)])
    assert len(gangs(act(both, known, NOW - 3600))) == 2


def test_a_living_instance_is_never_launched_over() -> None:
    waking = seen([node(A1, WAKING)], [job(1, A1)], [instance(1, InstanceState.PENDING)])
    assert gangs(act(waking, launched(A1))) == []


def test_an_id_that_the_list_does_not_show_yet_is_waited_for() -> None:
    assert gangs(act(seen([node(A1, WAKING)], [job(1, A1)]), launched(A1))) == []


def test_an_instance_that_ends_while_booting_is_a_failed_boot_and_launched_anew() -> None:
    ended = instance(1, InstanceState.SHUTTING_DOWN, reason="Server.SpotInstanceTermination")
    actions = act(seen([node(A1, WAKING)], [job(1, A1)], [ended]), launched(A1))
    assert [type(e) for e in facts(actions) if isinstance(e, BootFailed | InstanceGone)] == [
        BootFailed,
        InstanceGone,
    ]
    assert gangs(actions) == [(A1,)]


def test_an_old_instance_that_only_stops_is_ended_first() -> None:
    actions = act(seen([node(A1, WAKING)], [job(1, A1)], [instance(1, InstanceState.STOPPED)]), launched(A1))
    assert gangs(actions) == []
    assert [a.instances for a in actions if isinstance(a, Terminate)] == [("i-1",)]


def test_a_living_instance_serves_a_new_life() -> None:
    known = fold(launched(A1), [Entry(at=NOW - 50, event=Unneeded(slot=A1))])
    actions = act(seen([node(A1, WAKING)], [job(2, A1)], [instance(1)]), known)
    assert [(e.slot, e.life) for e in facts(actions) if isinstance(e, Needed)] == [(A1, 2)]
    assert gangs(actions) == []


@pytest.mark.parametrize(("since", "renewed"), [(NOW - 40, True), (NOW - 20, False)])
def test_a_slurmd_that_slurmctld_does_not_take_is_started_anew_after_a_while(
    since: float, renewed: bool
) -> None:
    said = NodeReport(instance_id="i-1", nonce="", boot_id="", phase=NodePhase.UP, life=1, steps=())
    heard = {"i-1": Heard(report=said, at=NOW, since=since)}
    actions = act(seen([node(A1, WAKING)], [job(1, A1)], [instance(1)], reports=heard), launched(A1))
    assert bool([e for e in facts(actions) if isinstance(e, Renewed)]) is renewed


@pytest.mark.parametrize(("free", "launches"), [(True, [(A1,), (B1,)]), (False, [])])
def test_a_job_in_two_pools_or_zones_is_launched_whole_or_not_at_all(
    free: bool, launches: list[tuple[str, ...]]
) -> None:
    """Parts were served one by one: the first was paid for while the second could not be had."""
    waking = (node(A1, WAKING), node(B1, WAKING))
    jobs = [job(5, A1, het_id=5), job(6, B1, het_id=5)]
    shut = () if free else tuple(f for f in _no_zone("us-east-2b"))
    actions = act(seen(waking, jobs), memory(*shut))
    assert sorted(gangs(actions)) == launches
    sent_back = [a.slots for a in actions if isinstance(a, MarkDown)]
    assert sent_back == ([] if free else [(B1,)])


def _no_zone(zone: str) -> Iterable[Refused]:
    offers = offers_in(_world(seen(), memory()), PLAN.pools[0], zone)
    return [Refused(key=key, words="ICE", until=NOW + 60) for key in sorted({o.key for o in offers})]


def test_a_room_that_only_one_part_of_a_job_fits_into_launches_none() -> None:
    waking = (node(A1, WAKING), node(B1, WAKING))
    jobs = [job(5, A1, het_id=5), job(6, B1, het_id=5)]
    plan = replace(PLAN, pools=(replace(PLAN.pools[0], max=1),))
    assert gangs(decide(plan, BINDINGS, seen(waking, jobs), memory(), NOW)) == []


# --- tokens ------------------------------------------------------------------------------------------
def test_a_token_differs_with_everything_that_makes_it_another_request() -> None:
    waking = seen([node(A1, WAKING)], [job(1, A1)])
    base = _ask(waking, memory())
    others = [
        _ask(waking, replace(memory(), epoch="f")),
        _ask(waking, replace(memory(), requests=1)),
        _ask(waking, memory(Refused(key=base.offer, words="no", until=NOW + 9))),
        _ask(seen([node(A2, WAKING)], [job(1, A2)]), memory()),
        _ask(seen([node(B1, WAKING)], [job(1, B1)]), memory()),
    ]
    tokens = {base.token, *(a.token for a in others)}
    assert len(tokens) == 6
    assert all(len(t) <= 64 and t.isascii() for t in tokens)
    assert _ask(waking, memory()) == base


def _ask(observation: Observation, known: Memory):
    return next(a.ask for a in act(observation, known) if isinstance(a, LaunchGang))


# --- faults --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fault", list(Fault))
def test_every_fault_has_its_next_move(fault: Fault) -> None:
    ask = _ask(seen([node(A1, WAKING)], [job(1, A1)]), memory())
    known = memory(Needed(slot=A1, life=1, jobs=()), LaunchAsked(ask=ask))
    event = outcome(PLAN.times, known, ask, CloudError(fault, "Code", "message\x1b"), NOW)
    want = {
        Fault.NO_CAPACITY: (ask.offer, NOW + PLAN.times.refusal_s, False),
        Fault.GONE: (ask.offer, NOW + PLAN.times.refusal_s, False),
        Fault.UNSUPPORTED: (ask.offer, NOW, True),
        Fault.QUOTA: ("source/h200/0", NOW + PLAN.times.refusal_max_s, False),
        Fault.CONFIGURATION: ("source/h200/0", NOW + PLAN.times.refusal_max_s, False),
        Fault.TOKEN: (None, NOW, False),
    }.get(fault)
    if want is None:
        assert isinstance(event, LaunchDeferred)
        assert event.pace_all is (fault is Fault.THROTTLED)
        return
    assert isinstance(event, LaunchRefused)
    assert (event.key, event.until, event.for_this_run) == want
    assert event.words.isprintable()


def test_refusals_in_a_row_are_remembered_longer_up_to_the_longest() -> None:
    ask = _ask(seen([node(A1, WAKING)], [job(1, A1)]), memory())
    known, waits = memory(), []
    for _ in range(8):
        event = outcome(PLAN.times, known, ask, CloudError(Fault.NO_CAPACITY, "ICE", ""), NOW)
        assert isinstance(event, LaunchRefused)
        waits.append(event.until - NOW)
        known = fold(known, [Entry(at=NOW, event=event)])
    assert waits[:3] == [120, 240, 480]
    assert waits[-1] == PLAN.times.refusal_max_s


# --- Slurm's odd states ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("states", "reason", "steps"),
    [
        ("DOWN CLOUD POWERED_DOWN", "ResumeTimeout reached", [ResetDown]),
        ("DOWN CLOUD POWERED_DOWN", "gpucluster: no h200", [ResetDown]),
        ("DOWN CLOUD POWERED_DOWN", "broken fan", []),
        ("DOWN CLOUD", "gpucluster: its instance is gone", [PowerDown]),
        ("DOWN CLOUD", "Not responding", [PowerDown]),
        ("DOWN CLOUD", "broken fan", []),
        ("DOWN CLOUD POWER_DOWN", "gpucluster: x", []),
        ("IDLE CLOUD", "", [MarkDown, PowerDown]),
        ("ALLOCATED CLOUD", "", [MarkDown, PowerDown]),
        ("ALLOCATED CLOUD NOT_RESPONDING", "", [MarkDown, PowerDown]),
        ("IDLE CLOUD DRAIN", "broken fan", []),
        ("IDLE CLOUD POWER_DOWN POWERED_DOWN", "", []),  # for a second on 24.11; see test_life
        ("IDLE CLOUD NOT_RESPONDING POWERING_UP POWER_DOWN", "", [MarkDown, PowerDown]),
        ("MIXED CLOUD NOT_RESPONDING POWERING_UP POWER_DOWN", "", []),
        ("IDLE CLOUD DRAIN POWERED_DOWN", "broken fan", []),
        ("IDLE CLOUD DRAIN POWERED_DOWN", "gpucluster: no h200", [Unblock]),
        ("IDLE CLOUD NOT_RESPONDING POWERED_DOWN", "", [PowerDown]),
        ("IDLE CLOUD POWERING_DOWN", "", []),
    ],
)
def test_a_slot_without_an_instance_is_brought_to_a_good_state(
    states: str, reason: str, steps: list[type[Action]]
) -> None:
    actions = act(seen([node(A1, states, reason=reason)]))
    assert [type(a) for a in actions if not isinstance(a, Remember)] == steps
    assert all(getattr(a, "slots", (A1,)) == (A1,) for a in actions if not isinstance(a, Remember))


@pytest.mark.parametrize(
    ("states", "reason", "by", "ago", "steps"),
    [
        ("IDLE CLOUD DRAIN", "Prolog error", "slurm", 301, [MarkDown, PowerDown]),
        ("IDLE CLOUD DRAIN INVALID_REG", "Low RealMemory (reported:1", "slurm", 301, [MarkDown, PowerDown]),
        ("IDLE CLOUD DRAIN", "gres/gpu count reported lower", "slurm", 301, [MarkDown, PowerDown]),
        ("IDLE CLOUD DRAIN", "Prolog error", "slurm", 299, []),  # somebody may want to look first
        ("MIXED CLOUD DRAIN", "Prolog error", "slurm", 9000, []),  # a job runs there
        ("IDLE CLOUD DRAIN COMPLETING", "Epilog error", "slurm", 9000, []),
        ("IDLE CLOUD DRAIN", "Prolog error", "root", 9000, []),  # a person who says it in Slurm's words
        ("IDLE CLOUD DRAIN", "broken fan", "slurm", 9000, []),
    ],
)
def test_a_node_that_slurm_itself_drained_is_replaced_and_a_persons_drain_stands(
    states: str, reason: str, by: str, ago: float, steps: list[type[Action]]
) -> None:
    """A node with a broken Prolog stood drained for ever: no job, no suspend, and its full price (seen on 24.11)."""
    here = node(A1, states, reason=reason, reason_by=by, reason_at=NOW - ago)
    known = fold(launched(A1), [Entry(at=NOW - 9000, event=CameUp(slot=A1))])
    actions = act(seen([here], instances=[instance(1)]), known)
    assert [type(a) for a in actions if not isinstance(a, Remember | Block)] == steps
    assert all("Slurm drained it" in a.reason for a in actions if isinstance(a, MarkDown))


@pytest.mark.parametrize(("by", "lifted"), [("slurm", True), ("root", False)])
def test_slurms_own_drain_of_a_slot_without_an_instance_is_lifted(by: str, lifted: bool) -> None:
    off = node(A1, OFF + " DRAIN", reason="Kill task failed", reason_by=by)
    assert bool(only(Unblock, act(seen([off])))) is lifted


def test_a_machine_that_is_less_than_slurm_conf_says_is_not_launched_again_and_again() -> None:
    states, words = "IDLE CLOUD DRAIN INVALID_REG", "Low RealMemory (reported:1 < 2)"
    here = [node(n, states, reason=words, reason_by="slurm", reason_at=NOW) for n in (A1, A2)]
    machines = [instance(1), instance(2)]
    known = launched(A1, A2)
    told = [e for e in facts(act(seen(here, instances=machines), known)) if isinstance(e, Refused)]
    assert [(e.key, e.until) for e in told] == [("spot/p5en.48xlarge/us-east-2a", NOW + PLAN.times.refusal_s)]
    again = act(seen(here, instances=machines), fold(known, [Entry(at=NOW, event=told[0])]))
    assert not [e for e in facts(again) if isinstance(e, Refused)]


def test_a_node_that_slurm_uses_and_no_journal_knows_is_adopted_not_ended() -> None:
    old = instance(9, launched_at=NOW - 9000)
    actions = act(seen([node(A1, "ALLOCATED CLOUD", address="10.42.0.9")], instances=[old]))
    assert [(e.slot, e.instance) for e in facts(actions) if isinstance(e, Adopted)] == [(A1, "i-9")]
    assert not only(Terminate, actions)
    assert not only(MarkDown, actions)


def test_what_is_adopted_counts_for_its_source_and_costs_its_price() -> None:
    template = next(t for t in PLAN.pools[0].templates if t.market is Market.ON_DEMAND)
    priced = replace(template, price=63_000_000)
    pool = replace(
        PLAN.pools[0], templates=tuple(priced if t == template else t for t in PLAN.pools[0].templates)
    )
    old = instance(9, launched_at=NOW - 9000, machine=template.machine, market=template.market)
    s = seen([node(A1, "ALLOCATED CLOUD", address="10.42.0.9")], instances=[old])
    actions = decide(replace(PLAN, pools=(pool,)), BINDINGS, s, Memory(epoch="e"), NOW)
    life = fold(Memory(), [Entry(at=NOW, event=e) for e in facts(actions)]).lives[A1]
    assert (life.source, life.price) == (template.source, 63_000_000)


# --- ends ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("states", "ends"),
    [
        ("IDLE CLOUD POWERING_DOWN", True),
        ("DOWN CLOUD POWERED_DOWN", True),
        ("IDLE CLOUD POWERED_DOWN", False),  # Slurm may only have forgotten: kept for the grace
        ("ALLOCATED CLOUD POWER_DOWN", False),
        ("ALLOCATED CLOUD", False),
    ],
)
def test_an_instance_ends_when_slurm_is_done_with_its_node(states: str, ends: bool) -> None:
    actions = act(seen([node(A1, states)], instances=[instance(1)]), launched(A1))
    assert bool(only(Terminate, actions)) is ends


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        ({"launched_at": NOW - 301}, True),
        ({"launched_at": NOW - 299}, False),
        ({"launched_at": NOW - 301, "tags": {}}, False),
        (
            {"launched_at": NOW - 301, "tags": {"gpucluster:cluster": "other", "gpucluster:role": "node"}},
            False,
        ),
        (
            {"launched_at": NOW - 301, "tags": {"gpucluster:cluster": "burst", "gpucluster:role": "head"}},
            False,
        ),
        ({"launched_at": NOW - 301, "state": InstanceState.TERMINATED}, False),
    ],
)
def test_only_old_strays_of_ours_are_ended(changes: dict[str, object], ends: bool) -> None:
    assert bool(only(Terminate, act(seen(instances=[replace(instance(7), **changes)])))) is ends  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", ["slurm", "cloud"])
def test_without_one_of_the_two_views_nothing_is_concluded(missing: str) -> None:
    blind = replace(seen([node(A1, "IDLE CLOUD POWERING_DOWN")], instances=[instance(1)]), **{missing: None})
    assert act(blind, launched(A1)) == ()
    assert next_look(PLAN, BINDINGS, blind, memory(), NOW) == PLAN.times.poll_s


# --- idle ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("states", "idle_for", "powered_down"),
    [
        ("IDLE CLOUD", 301, True),
        ("IDLE CLOUD", 299, False),
        ("ALLOCATED CLOUD", 9000, False),
        ("IDLE CLOUD COMPLETING", 9000, False),
        ("IDLE CLOUD DRAIN", 9000, False),
    ],
)
def test_a_node_is_powered_down_after_its_pools_idle_time(
    states: str, idle_for: float, powered_down: bool
) -> None:
    known = launched(A1, at=NOW - 10_000)
    known = fold(known, [])
    up = node(A1, states, last_busy=NOW - idle_for, reason="other" if "DRAIN" in states else "")
    lives = {A1: replace(known.lives[A1], up_at=NOW - 9500, idle_at=NOW - 9400)}
    actions = act(seen([up], instances=[instance(1)]), replace(known, lives=lives))
    assert bool(only(PowerDown, actions)) is powered_down


def test_when_all_is_quiet_the_next_look_is_when_the_first_node_is_due() -> None:
    known = launched(A1, at=NOW - 10_000)
    lives = {A1: replace(known.lives[A1], up_at=NOW - 9500, idle_at=NOW - 280, booted_at=1.0)}
    up = seen([node(A1, "IDLE CLOUD", last_busy=NOW - 280)], instances=[instance(1)])
    assert next_look(PLAN, BINDINGS, up, replace(known, lives=lives), NOW) == 20
    assert next_look(PLAN, BINDINGS, seen(), memory(), NOW) == PLAN.times.reconcile_s


def test_while_a_job_starts_the_next_look_is_soon() -> None:
    up = seen([node(A1, "ALLOCATED CLOUD")], [job(1, A1)])
    assert next_look(PLAN, BINDINGS, up, memory(), NOW) == PLAN.times.poll_s


# --- blocked -----------------------------------------------------------------------------------------------
def test_a_refusal_that_ran_out_is_kept_for_a_job_that_was_placed_after_its_nodes_were_read() -> None:
    """A probe once landed between the two readings: its zone was opened whole, and the memory of refusals was lost."""
    ripe = refused_everywhere(until=NOW - 1)
    assert ripe.refusals
    assert not [f for f in facts(act(seen(jobs=[job(1, A1)]), ripe)) if isinstance(f, Forgot)]
    assert [f for f in facts(act(seen(), ripe)) if isinstance(f, Forgot)]


def test_a_full_pool_that_powers_down_does_not_block_the_slots_that_it_lets_go() -> None:
    """All nodes of a full pool that went idle together were drained for 'max reached' until their instances were gone."""
    slots = tuple(f"h200-2a-{n}" for n in range(1, 17))
    ending = [node(slot, "IDLE CLOUD POWERING_DOWN") for slot in slots]
    actions = act(seen(ending, instances=[instance(n) for n in range(1, 17)]), launched(*slots))
    assert len(only(Terminate, actions)) == 1
    assert not [a for a in actions if isinstance(a, Block) and set(a.slots) & set(slots)]


def refused_everywhere(until: float) -> Memory:
    world = _world(seen(), memory())
    keys = {o.key for z in ("us-east-2a", "us-east-2b") for o in offers_in(world, PLAN.pools[0], z)}
    return memory(
        *(Refused(key=key, words="InsufficientInstanceCapacity", until=until) for key in sorted(keys))
    )


def test_what_cannot_be_had_is_blocked_with_the_words_of_each_offer() -> None:
    actions = only(Block, act(seen(jobs=[job(1)]), refused_everywhere(NOW + 60)))
    assert [len(a.slots) for a in actions if isinstance(a, Block)] == [16, 16]
    first = actions[0]
    assert isinstance(first, Block)
    assert first.reason == (
        "gpucluster: no h200 in us-east-2a: spot p5en.48xlarge InsufficientInstanceCapacity; "
        "spot p5e.48xlarge InsufficientInstanceCapacity; on-demand p5en.48xlarge InsufficientInstanceCapacity"
    )


def drained(reason: str = "gpucluster: no h200") -> list[SlurmNode]:
    return [node(name, OFF + " DRAIN", reason=reason) for name in slots_of(PLAN)]


def test_after_the_refusal_one_gangs_slots_are_lifted_in_one_zone() -> None:
    waiting = [job(3, node_count=2), job(4, node_count=5)]
    lifted = only(Unblock, act(seen(drained(), waiting), refused_everywhere(NOW - 1)))
    assert [a.slots for a in lifted if isinstance(a, Unblock)] == [(A1, A2)]


def test_after_the_refusal_all_is_lifted_when_nobody_waits() -> None:
    lifted = only(Unblock, act(seen(drained()), refused_everywhere(NOW - 1)))
    assert sum(len(a.slots) for a in lifted if isinstance(a, Unblock)) == 32


@pytest.mark.parametrize("reason", ["JobHeldUser", "Dependency"])
def test_a_held_job_is_no_reason_to_try(reason: str) -> None:
    lifted = only(Unblock, act(seen(drained(), [job(3, reason=reason)]), refused_everywhere(NOW - 1)))
    assert sum(len(a.slots) for a in lifted if isinstance(a, Unblock)) == 32


def test_slots_that_another_drained_are_neither_blocked_nor_lifted() -> None:
    actions = act(seen(drained("broken fan"), [job(3)]), refused_everywhere(NOW - 1))
    assert not only(Unblock, actions)
    assert not only(Block, act(seen(drained("broken fan"), [job(3)]), refused_everywhere(NOW + 60)))


def test_while_launches_are_stopped_a_gang_is_sent_back_and_every_slot_says_so() -> None:
    """After `down` wrote stop, gangs stayed CONFIGURING until ResumeTimeout, and were placed again, and so on."""
    words = "launches are stopped, by down"
    actions = act(seen([node(A1, WAKING)], [job(1, A1)], halted=words))
    assert gangs(actions) == []
    assert [a.slots for a in actions if isinstance(a, MarkDown)] == [(A1,)]
    blocks = [a for a in actions if isinstance(a, Block)]
    assert sorted(len(a.slots) for a in blocks) == [15, 16]
    assert {a.reason for a in blocks} == {f"gpucluster: no h200 in us-east-2{z}: {words}" for z in "ab"}


def test_what_is_unsupported_stays_so_when_its_sources_refusal_has_run_out() -> None:
    """The later of the two refusals hid the one that stands for this run."""
    offer = offers_in(_world(seen(), memory()), PLAN.pools[0], "us-east-2a")[0]
    ask = _ask(seen([node(A1, WAKING)], [job(1, A1)]), memory())
    never = outcome(PLAN.times, memory(), ask, CloudError(Fault.UNSUPPORTED, "Unsupported", ""), NOW - 50)
    known = memory(never, Refused(key="source/h200/0", words="quota", until=NOW - 1))
    assert closed(known, offer, NOW)


def test_a_success_forgets_its_sources_refusal_too() -> None:
    """After a quota was raised its source stayed half open: one gang at a time."""
    ask = _ask(seen([node(A1, WAKING)], [job(1, A1)]), memory())
    needed = Needed(slot=A1, life=1, jobs=(1,))
    quota = Refused(key="source/h200/0", words="quota", until=NOW - 1)
    known = memory(needed, quota, LaunchAsked(ask=ask), LaunchDone(request="r1", instances=("i-1",)))
    assert not known.refusals


# --- what is counted, and what is asked again ------------------------------------------------------------
@pytest.mark.parametrize(("asked_ago", "again"), [(5.0, False), (20.0, True)])
def test_a_termination_that_does_not_show_is_asked_for_again(asked_ago: float, again: bool) -> None:
    asked = Entry(at=NOW - asked_ago, event=EndAsked(instances=("i-1",), words=""))
    actions = act(
        seen([node(A1, "IDLE CLOUD POWERING_DOWN")], instances=[instance(1)]), fold(launched(A1), [asked])
    )
    assert bool(only(Terminate, actions)) is again


@pytest.mark.parametrize(("off_for", "ends"), [(290.0, False), (310.0, True)])
def test_an_instance_whose_slot_stays_off_ends_after_the_grace(off_for: float, ends: bool) -> None:
    off = seen(instances=[instance(1)])
    assert [e.slot for e in facts(act(off, launched(A1))) if isinstance(e, Unneeded)] == [A1]
    known = fold(launched(A1), [Entry(at=NOW - off_for, event=Unneeded(slot=A1))])
    assert bool(only(Terminate, act(off, known))) is ends


def test_a_launch_without_an_outcome_counts_against_max() -> None:
    ask = _ask(seen([node(A1, WAKING), node(A2, WAKING)], [job(1, A1, A2)]), memory())
    known = memory(
        Needed(slot=A1, life=1, jobs=(1,)), Needed(slot=A2, life=1, jobs=(1,)), LaunchAsked(ask=ask)
    )
    waking = seen([node(n, WAKING) for n in (A1, A2, A3)], [job(1, A1, A2), job(2, A3)])
    pool = replace(PLAN.pools[0], max=2)
    actions = decide(replace(PLAN, pools=(pool,)), BINDINGS, waking, known, NOW)
    assert [a.ask.slots for a in actions if isinstance(a, LaunchGang) and not a.repeat] == []
    assert any("max 2 reached" in a.reason for a in actions if isinstance(a, MarkDown))


def test_a_success_forgets_the_refusal_and_lifts_the_rest() -> None:
    known = refused_everywhere(NOW - 1)
    ask = _ask(seen([node(A1, WAKING)], [job(1, A1)]), known)
    done = (LaunchAsked(ask=ask), LaunchDone(request=ask.request, instances=("i-1",)))
    needed = Needed(slot=A1, life=1, jobs=(1,))
    after = fold(known, [Entry(at=NOW, event=e) for e in (needed, *done)])
    assert ask.offer not in after.refusals
    shown = [*drained(), node(A1, WAKING)]
    lifted = only(Unblock, act(seen(shown, [job(1, A1)], [instance(1)]), after))
    assert [len(a.slots) for a in lifted if isinstance(a, Unblock)] == [15]


def test_always_on_nodes_never_idle_out_and_are_powered_up_when_off() -> None:
    plan = a_plan(("{min: 0, max: 16}", "{min: 2, max: 16}"))
    known = launched(A1, at=NOW - 10_000)
    lives = {A1: replace(known.lives[A1], up_at=NOW - 9500, idle_at=NOW - 9400, booted_at=1.0)}
    up = seen([node(A1, "IDLE CLOUD", last_busy=NOW - 9000)], instances=[instance(1)])
    actions = decide(plan, BINDINGS, up, replace(known, lives=lives), NOW)
    assert [(type(a), getattr(a, "slots", ())) for a in actions] == [(PowerUp, (A2,))]


def test_an_always_on_slot_is_not_powered_up_into_the_block_of_the_same_moment() -> None:
    plan = a_plan(("{min: 0, max: 16}", "{min: 2, max: 16}"))
    actions = decide(plan, BINDINGS, seen(), refused_everywhere(NOW + 60), NOW)
    assert not only(PowerUp, actions)


SECOND = Standby(machine="m7i.large", zone="us-east-2b", address="10.42.32.11", state="/home")


@pytest.mark.parametrize(
    ("standby", "told"), [(SECOND, [Comment(jobs=(1,), reason="told", again=True)]), (None, [])]
)
def test_a_start_is_saved_at_once_where_a_second_head_would_start_it_anew(
    standby: Standby | None, told: list[Action]
) -> None:
    """It sent the batch script again: "Duplicate jobid", a drained node, and the job began from its start."""
    plan = replace(PLAN, head=replace(there(PLAN.head), standby=standby))
    nodes = (node(A1, "ALLOCATED CLOUD"), node(A2, "ALLOCATED CLOUD"))
    runs = [job(n, at, states=frozenset({"RUNNING"}), admin_comment="told") for n, at in ((1, A1), (2, A2))]
    known = launched(A1, A2)
    first = decide(plan, BINDINGS, seen(nodes, runs, [instance(1), instance(2)]), known, NOW)
    assert only(Comment, first) == told, "one change saves all"
    assert [describe(one) for one in only(Comment, first)] == ["have slurmctld save the start of job 1"][
        : len(told)
    ]
    assert [a for a in first if isinstance(a, Comment | Remember)][1:] == told, "it undoes no later word"
    known = fold(known, [Entry(at=NOW, event=event) for event in facts(first)])
    assert (
        only(Comment, decide(plan, BINDINGS, seen(nodes, runs, [instance(1), instance(2)]), known, NOW)) == []
    )
