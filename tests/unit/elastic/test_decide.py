"""`decide` row by row: one moment in, actions out."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from support.builders import a_plan
from support.cluster_states import node, world_of
from support.fleet import some_bindings

from gpucluster.cloud.port import CloudError, Fault, Instance, InstanceState
from gpucluster.elastic.decide import decide, event_of_error, next_look
from gpucluster.elastic.decide.offers import closed, offers_in
from gpucluster.elastic.decide.world import World, slots_of
from gpucluster.elastic.events import (
    BootFailed,
    Entry,
    Event,
    IncarnationRenewed,
    InstanceAdopted,
    InstanceGone,
    JobPlaced,
    JobReleased,
    LaunchDeferred,
    LaunchDone,
    LaunchRefused,
    LaunchRequested,
    NodeNeeded,
    NodeUnneeded,
    NodeUp,
    OfferRefused,
    RefusalsForgotten,
    StraysSeen,
    TerminationRequested,
)
from gpucluster.elastic.log_lines import describe
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import (
    Action,
    Block,
    CloudView,
    Comment,
    LaunchGang,
    MarkDown,
    Observation,
    PowerDown,
    PowerUp,
    ReceivedReport,
    RecordEvents,
    ResetDown,
    Terminate,
    Undrain,
)
from gpucluster.plan.messages import NodePhase, NodeReport
from gpucluster.plan.model import Market, SlurmOnAws, Standby
from gpucluster.slurm.values import SlurmJob, SlurmNode, SlurmView

PLAN = a_plan()
BINDINGS = some_bindings(PLAN)
NOW = 2_000_000.0
OFF, WAKING = "IDLE CLOUD POWERED_DOWN", "MIXED CLOUD NOT_RESPONDING POWERING_UP"
A1, A2, A3, B1 = "h200-2a-1", "h200-2a-2", "h200-2a-3", "h200-2b-1"


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
    asked = [NodeNeeded(slot=slot, incarnation=1, jobs=(1,)) for slot in slots]
    world = _world(seen(), memory(*asked))
    from gpucluster.elastic.decide.launches import LaunchBatch, new_request

    ask = new_request(world, offers_in(world, PLAN.pools[0], "us-east-2a")[0], LaunchBatch(slots=slots), 1)
    ids = tuple(f"i-{n}" for n in range(1, len(slots) + 1))
    return memory(*asked, LaunchRequested(request=ask), LaunchDone(request="r1", instances=ids), at=at)


def _world(observation: Observation, known: Memory) -> World:
    return world_of(PLAN, BINDINGS, observation, known, NOW)


def act(
    observation: Observation, known: Memory | None = None, now: float = NOW, plan: SlurmOnAws = PLAN
) -> tuple[Action, ...]:
    return decide(plan, BINDINGS, observation, known or memory(), now)


def only(kind: type[Action], actions: tuple[Action, ...]) -> list[Action]:
    return [a for a in actions if isinstance(a, kind)]


def facts(actions: tuple[Action, ...]) -> list[Event]:
    return [e.event for a in actions if isinstance(a, RecordEvents) for e in a.entries]


def gangs(actions: tuple[Action, ...]) -> list[tuple[str, ...]]:
    return [a.request.slots for a in actions if isinstance(a, LaunchGang)]


# --- gangs -----------------------------------------------------------------------------------------
def test_idle_cluster_has_no_actions() -> None:
    assert act(seen()) == ()


def test_one_job_is_one_launch() -> None:
    waking = (node(A1, WAKING), node(A2, WAKING))
    assert gangs(act(seen(waking, [job(1, A1, A2)]))) == [(A1, A2)]


def test_newly_allocated_node_is_launched() -> None:
    assert gangs(act(seen([node(A1, "ALLOCATED CLOUD POWERED_DOWN")], [job(1, A1)]))) == [(A1,)]


def test_het_components_are_one_gang() -> None:
    waking = (node(A1, WAKING), node(A2, WAKING))
    jobs = [job(5, A1, het_id=5), job(6, A2, het_id=5)]
    assert gangs(act(seen(waking, jobs))) == [(A1, A2)]


def test_two_jobs_are_one_launch_with_the_urgent_job_first() -> None:
    waking = (node(A1, WAKING), node(A2, WAKING))
    jobs = [job(1, A1), replace(job(2, A2), priority=500)]
    (launch,) = [a for a in act(seen(waking, jobs)) if isinstance(a, LaunchGang)]
    assert (launch.request.slots, launch.request.gangs, launch.request.jobs) == ((A2, A1), (1, 1), (2, 1))


def test_shared_slot_is_launched_once_for_its_most_urgent_job() -> None:
    waking = (node(A1, WAKING), node(A2, WAKING), node(A3, WAKING))
    (launch,) = [a for a in act(seen(waking, [job(1, A1, A2), job(2, A2, A3)])) if isinstance(a, LaunchGang)]
    assert (launch.request.slots, launch.request.gangs) == ((A1, A2, A3), (2, 1))


def test_slots_powered_up_by_hand_are_gangs_of_one() -> None:
    waking = [node(n, "IDLE CLOUD NOT_RESPONDING POWERING_UP") for n in (A1, A2)]
    (launch,) = [a for a in act(seen(waking)) if isinstance(a, LaunchGang)]
    assert (launch.request.slots, launch.request.smallest_gang) == ((A1, A2), 1)


def test_slots_of_a_cancelled_job_are_powered_down() -> None:
    waking = [node(A1, "IDLE CLOUD NOT_RESPONDING POWERING_UP")]
    actions = act(seen(waking), memory(NodeNeeded(slot=A1, incarnation=1, jobs=(1,))))
    assert gangs(actions) == []
    assert [type(a) for a in actions if isinstance(a, MarkDown | PowerDown)] == [MarkDown, PowerDown]


def test_launch_without_an_outcome_is_repeated_identically() -> None:
    first = next(a for a in act(seen([node(A1, WAKING)], [job(1, A1)])) if isinstance(a, LaunchGang))
    known = memory(NodeNeeded(slot=A1, incarnation=1, jobs=(1,)), LaunchRequested(request=first.request))
    again = only(LaunchGang, act(seen([node(A1, WAKING)], [job(1, A1)]), known))
    assert [(a.request, a.repeat) for a in again if isinstance(a, LaunchGang)] == [(first.request, True)]


def test_throttled_call_delays_every_launch() -> None:
    first = next(a for a in act(seen([node(A1, WAKING)], [job(1, A1)])) if isinstance(a, LaunchGang))
    deferred = LaunchDeferred(request="r1", retry_at=NOW + 5, words="x", pace_all=True)
    known = memory(
        NodeNeeded(slot=A1, incarnation=1, jobs=(1,)), LaunchRequested(request=first.request), deferred
    )
    both = seen([node(A1, WAKING), node(A2, WAKING)], [job(1, A1), job(2, A2)])
    assert gangs(act(both, known)) == []
    assert len(gangs(act(both, known, NOW + 5))) == 2


def test_clock_set_back_does_not_delay_launches() -> None:
    first = next(a for a in act(seen([node(A1, WAKING)], [job(1, A1)])) if isinstance(a, LaunchGang))
    deferred = LaunchDeferred(request="r1", retry_at=NOW + 5, words="x", pace_all=True)
    known = memory(
        NodeNeeded(slot=A1, incarnation=1, jobs=(1,)), LaunchRequested(request=first.request), deferred
    )
    both = seen([node(A1, WAKING), node(A2, WAKING)], [job(1, A1), job(2, A2)])
    assert len(gangs(act(both, known, NOW - 3600))) == 2


def test_slot_with_a_living_instance_is_not_launched() -> None:
    waking = seen([node(A1, WAKING)], [job(1, A1)], [instance(1, InstanceState.PENDING)])
    assert gangs(act(waking, launched(A1))) == []


def test_new_unlisted_instance_counts_as_living() -> None:
    assert gangs(act(seen([node(A1, WAKING)], [job(1, A1)]), launched(A1))) == []


def test_instance_that_ends_while_booting_is_a_failed_boot() -> None:
    ended = instance(1, InstanceState.SHUTTING_DOWN, reason="Server.SpotInstanceTermination")
    actions = act(seen([node(A1, WAKING)], [job(1, A1)], [ended]), launched(A1))
    assert [type(e) for e in facts(actions) if isinstance(e, BootFailed | InstanceGone)] == [
        BootFailed,
        InstanceGone,
    ]
    assert gangs(actions) == [(A1,)]


@pytest.mark.parametrize(
    "reason",
    [
        "Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state",
        "Client.InternalError: Client error on launch",
    ],
)
@pytest.mark.parametrize(
    ("key", "named"),
    [("alias/research", "the KMS key alias/research"), (None, "the account's default KMS key of EBS")],
)
def test_refused_kms_key_stops_launches_and_names_the_key(reason: str, key: str | None, named: str) -> None:
    """RunInstances accepts any key, and the instance ends at once (T51). A repeat would end the same way."""
    plan = replace(PLAN, aws=replace(PLAN.aws, kms_key=key))
    ended = instance(1, InstanceState.SHUTTING_DOWN, reason=reason)
    actions = act(seen([node(A1, WAKING)], [job(1, A1)], [ended]), launched(A1), plan=plan)
    refused = [e for e in facts(actions) if isinstance(e, OfferRefused)]
    assert {e.key for e in refused} == {
        f"source/{p.name}/{s.position}" for p in plan.pools for s in p.sources
    }
    assert {e.until for e in refused} == {NOW + plan.times.refusal_max_s}
    assert all(reason in e.words and named in e.words and "allow the head's role" in e.words for e in refused)
    assert any(isinstance(e, BootFailed) and named in e.words for e in facts(actions))
    assert gangs(actions) == []
    assert named in " ".join(a.reason for a in actions if isinstance(a, Comment | MarkDown))


def test_stopped_instance_is_terminated_before_the_next_launch() -> None:
    actions = act(seen([node(A1, WAKING)], [job(1, A1)], [instance(1, InstanceState.STOPPED)]), launched(A1))
    assert gangs(actions) == []
    assert [a.instances for a in actions if isinstance(a, Terminate)] == [("i-1",)]


def test_living_instance_serves_a_new_incarnation() -> None:
    known = fold(launched(A1), [Entry(at=NOW - 50, event=NodeUnneeded(slot=A1))])
    actions = act(seen([node(A1, WAKING)], [job(2, A1)], [instance(1)]), known)
    assert [(e.slot, e.incarnation) for e in facts(actions) if isinstance(e, NodeNeeded)] == [(A1, 2)]
    assert gangs(actions) == []


@pytest.mark.parametrize(("since", "renewed"), [(NOW - 40, True), (NOW - 30, True), (NOW - 29, False)])
def test_slurmd_starts_again_if_slurmctld_still_waits_for_a_boot(since: float, renewed: bool) -> None:
    said = NodeReport(instance_id="i-1", nonce="", boot_id="", phase=NodePhase.UP, incarnation=1, steps=())
    received = {"i-1": ReceivedReport(report=said, at=NOW, since=since)}
    actions = act(seen([node(A1, WAKING)], [job(1, A1)], [instance(1)], reports=received), launched(A1))
    found = [e.incarnation for e in facts(actions) if isinstance(e, IncarnationRenewed)]
    assert found == ([2] if renewed else [])


@pytest.mark.parametrize(("free", "launches"), [(True, [(A1,), (B1,)]), (False, [])])
def test_job_in_two_pools_or_zones_is_launched_whole_or_not_at_all(
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


def _no_zone(zone: str) -> Iterable[OfferRefused]:
    offers = offers_in(_world(seen(), memory()), PLAN.pools[0], zone)
    return [OfferRefused(key=key, words="ICE", until=NOW + 60) for key in sorted({o.key for o in offers})]


def test_headroom_for_one_part_of_a_job_launches_nothing() -> None:
    waking = (node(A1, WAKING), node(B1, WAKING))
    jobs = [job(5, A1, het_id=5), job(6, B1, het_id=5)]
    plan = replace(PLAN, pools=(replace(PLAN.pools[0], max=1),))
    assert gangs(decide(plan, BINDINGS, seen(waking, jobs), memory(), NOW)) == []


# --- tokens ------------------------------------------------------------------------------------------
def test_tokens_of_different_requests_differ() -> None:
    waking = seen([node(A1, WAKING)], [job(1, A1)])
    base = _ask(waking, memory())
    others = [
        _ask(waking, replace(memory(), epoch="f")),
        _ask(waking, replace(memory(), requests=1)),
        _ask(waking, memory(OfferRefused(key=base.offer_key, words="no", until=NOW + 9))),
        _ask(seen([node(A2, WAKING)], [job(1, A2)]), memory()),
        _ask(seen([node(B1, WAKING)], [job(1, B1)]), memory()),
    ]
    tokens = {base.token, *(a.token for a in others)}
    assert len(tokens) == 6
    assert all(len(t) <= 64 and t.isascii() for t in tokens)
    assert _ask(waking, memory()) == base


def _ask(observation: Observation, known: Memory):
    return next(a.request for a in act(observation, known) if isinstance(a, LaunchGang))


# --- faults --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fault", list(Fault))
def test_every_fault_has_an_event(fault: Fault) -> None:
    ask = _ask(seen([node(A1, WAKING)], [job(1, A1)]), memory())
    known = memory(NodeNeeded(slot=A1, incarnation=1, jobs=()), LaunchRequested(request=ask))
    event = event_of_error(PLAN.times, known, ask, CloudError(fault, "Code", "message\x1b"), NOW)
    want = {
        Fault.NO_CAPACITY: (ask.offer_key, NOW + PLAN.times.refusal_s, False),
        Fault.GONE: (ask.offer_key, NOW + PLAN.times.refusal_s, False),
        Fault.UNSUPPORTED: (ask.offer_key, NOW, True),
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


def test_consecutive_refusals_last_longer_up_to_a_limit() -> None:
    ask = _ask(seen([node(A1, WAKING)], [job(1, A1)]), memory())
    known, waits = memory(), []
    for _ in range(8):
        event = event_of_error(PLAN.times, known, ask, CloudError(Fault.NO_CAPACITY, "ICE", ""), NOW)
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
        ("IDLE CLOUD DRAIN POWERED_DOWN", "gpucluster: no h200", [Undrain]),
        ("IDLE CLOUD NOT_RESPONDING POWERED_DOWN", "", [PowerDown]),
        ("IDLE CLOUD POWERING_DOWN", "", []),
    ],
)
def test_slot_without_an_instance_is_repaired(states: str, reason: str, steps: list[type[Action]]) -> None:
    actions = act(seen([node(A1, states, reason=reason, reason_by="slurm" if reason else "")]))
    assert [type(a) for a in actions if not isinstance(a, RecordEvents)] == steps
    assert all(getattr(a, "slots", (A1,)) == (A1,) for a in actions if not isinstance(a, RecordEvents))


@pytest.mark.parametrize(
    ("states", "reason", "by", "ago", "steps"),
    [
        ("IDLE CLOUD DRAIN", "Prolog error", "slurm", 301, [MarkDown, PowerDown]),
        (
            "IDLE CLOUD DRAIN INVALID_REG",
            "Low RealMemory (reported:1 < 100.00% of configured:2)",
            "slurm",
            301,
            [MarkDown, PowerDown],
        ),
        (
            "IDLE CLOUD DRAIN",
            "gres/gpu count reported lower than configured (7 < 8)",
            "slurm",
            301,
            [MarkDown, PowerDown],
        ),
        ("IDLE CLOUD DRAIN", "Prolog error", "slurm", 299, []),  # somebody may want to look first
        ("MIXED CLOUD DRAIN", "Prolog error", "slurm", 9000, []),  # a job runs there
        ("IDLE CLOUD DRAIN COMPLETING", "Epilog error", "slurm", 9000, []),
        ("IDLE CLOUD DRAIN", "Prolog error", "root", 9000, []),  # a person who says it in Slurm's words
        ("IDLE CLOUD DRAIN", "Kill task failed", "root", 301, [MarkDown, PowerDown]),  # slurmstepd is root
        ("IDLE CLOUD DRAIN", "Kill task failed: looking", "root", 9000, []),
        ("IDLE CLOUD DRAIN", "broken fan", "slurm", 9000, []),
    ],
)
def test_node_drained_by_slurm_is_replaced_and_a_persons_drain_stays(
    states: str, reason: str, by: str, ago: float, steps: list[type[Action]]
) -> None:
    """A node with a broken Prolog stood drained for ever: no job, no suspend, and its full price (seen on 24.11)."""
    here = node(A1, states, reason=reason, reason_by=by, reason_at=NOW - ago)
    known = fold(launched(A1), [Entry(at=NOW - 9000, event=NodeUp(slot=A1))])
    actions = act(seen([here], instances=[instance(1)]), known)
    assert [type(a) for a in actions if not isinstance(a, RecordEvents | Block)] == steps
    assert all("Slurm drained it" in a.reason for a in actions if isinstance(a, MarkDown))


@pytest.mark.parametrize(("by", "lifted"), [("root", True), ("alice", False)])
def test_drain_by_slurm_of_a_slot_without_an_instance_is_removed(by: str, lifted: bool) -> None:
    off = node(A1, OFF + " DRAIN", reason="Kill task failed", reason_by=by)
    assert bool(only(Undrain, act(seen([off])))) is lifted


def test_offer_with_less_hardware_than_slurm_conf_is_refused() -> None:
    states, words = "IDLE CLOUD DRAIN INVALID_REG", "Low RealMemory (reported:1 < 2)"
    here = [node(n, states, reason=words, reason_by="slurm", reason_at=NOW) for n in (A1, A2)]
    machines = [instance(1), instance(2)]
    known = launched(A1, A2)
    told = [e for e in facts(act(seen(here, instances=machines), known)) if isinstance(e, OfferRefused)]
    assert [(e.key, e.until) for e in told] == [("spot/p5en.48xlarge/us-east-2a", NOW + PLAN.times.refusal_s)]
    again = act(seen(here, instances=machines), fold(known, [Entry(at=NOW, event=told[0])]))
    assert not [e for e in facts(again) if isinstance(e, OfferRefused)]


@pytest.mark.parametrize(
    ("states", "up"),
    [
        ("ALLOCATED CLOUD", True),
        ("ALLOCATED CLOUD NOT_RESPONDING", True),
        ("ALLOCATED CLOUD POWER_DOWN", True),
        ("ALLOCATED CLOUD POWER_DRAIN DRAIN", True),
        ("DOWN CLOUD NOT_RESPONDING", True),
        ("ALLOCATED CLOUD POWERING_DOWN", True),
        ("ALLOCATED CLOUD POWERING_UP NOT_RESPONDING", False),
        ("ALLOCATED CLOUD POWERING_UP POWER_DOWN", False),
        ("FUTURE CLOUD", False),
    ],
)
def test_instance_of_a_node_is_adopted_after_a_lost_journal(states: str, up: bool) -> None:
    """Only those of nodes that were up were adopted: the others were terminated while a job ran on them."""
    old = instance(9, launched_at=NOW - 9000)
    runs = job(1, A1, states=frozenset({"RUNNING"}))
    actions = act(seen([node(A1, states, address="10.42.0.9")], [runs], instances=[old]))
    adopted = [e for e in facts(actions) if isinstance(e, InstanceAdopted)]
    assert [(e.slot, e.instance, e.launched_at, e.up) for e in adopted] == [(A1, "i-9", NOW - 9000, up)]
    assert not only(Terminate, actions)
    assert not only(MarkDown, actions)


@pytest.mark.parametrize("states", ["IDLE CLOUD POWERED_DOWN", "DOWN CLOUD POWERED_DOWN"])
def test_node_that_is_powered_down_adopts_nothing(states: str) -> None:
    actions = act(seen([node(A1, states, address="10.42.0.9")], instances=[instance(9)]))
    assert not [e for e in facts(actions) if isinstance(e, InstanceAdopted)]


@pytest.mark.parametrize("stale", ["FUTURE CLOUD", "ALLOCATED CLOUD POWERING_UP"])
def test_instance_is_adopted_once_and_by_the_node_that_it_registered_as(stale: str) -> None:
    nodes = [node(A1, stale, address="10.42.0.9"), node(A2, "DOWN CLOUD", address="10.42.0.9")]
    actions = act(seen(nodes, instances=[instance(9)]))
    assert [e.slot for e in facts(actions) if isinstance(e, InstanceAdopted)] == [A2]


def test_adopted_instance_has_a_source_and_a_price() -> None:
    template = next(t for t in PLAN.pools[0].templates if t.market is Market.ON_DEMAND)
    priced = replace(template, price=63_000_000)
    pool = replace(
        PLAN.pools[0], templates=tuple(priced if t == template else t for t in PLAN.pools[0].templates)
    )
    old = instance(9, launched_at=NOW - 9000, machine=template.machine, market=template.market)
    s = seen([node(A1, "ALLOCATED CLOUD", address="10.42.0.9")], instances=[old])
    actions = decide(replace(PLAN, pools=(pool,)), BINDINGS, s, Memory(epoch="e"), NOW)
    incarnation = fold(Memory(), [Entry(at=NOW, event=e) for e in facts(actions)]).incarnations[A1]
    assert (incarnation.source, incarnation.price) == (template.source, 63_000_000)


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
def test_instance_is_terminated_after_its_node_is_powered_down(states: str, ends: bool) -> None:
    actions = act(seen([node(A1, states)], instances=[instance(1)]), launched(A1))
    assert bool(only(Terminate, actions)) is ends


@pytest.mark.parametrize(
    ("seen_for", "changes", "ends"),
    [
        (301, {}, True),
        (299, {}, False),
        (301, {"tags": {}}, False),
        (301, {"tags": {"gpucluster:cluster": "other", "gpucluster:role": "node"}}, False),
        (301, {"tags": {"gpucluster:cluster": "burst", "gpucluster:role": "head"}}, False),
        (301, {"state": InstanceState.TERMINATED}, False),
    ],
)
def test_only_old_stray_instances_of_this_cluster_are_terminated(
    seen_for: float, changes: dict[str, object], ends: bool
) -> None:
    known = fold(memory(), [Entry(at=NOW - seen_for, event=StraysSeen(instances=("i-7",)))])
    assert bool(only(Terminate, act(seen(instances=[replace(instance(7), **changes)]), known))) is ends  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", ["slurm", "cloud"])
def test_nothing_is_decided_without_both_views(missing: str) -> None:
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
def test_node_is_powered_down_after_the_idle_time_of_its_pool(
    states: str, idle_for: float, powered_down: bool
) -> None:
    known = launched(A1, at=NOW - 10_000)
    known = fold(known, [])
    up = node(A1, states, last_busy=NOW - idle_for, reason="other" if "DRAIN" in states else "")
    lives = {A1: replace(known.incarnations[A1], up_at=NOW - 9500, idle_at=NOW - 9400)}
    actions = act(seen([up], instances=[instance(1)]), replace(known, incarnations=lives))
    assert bool(only(PowerDown, actions)) is powered_down


def test_next_pass_is_when_the_first_idle_node_is_due() -> None:
    known = launched(A1, at=NOW - 10_000)
    lives = {A1: replace(known.incarnations[A1], up_at=NOW - 9500, idle_at=NOW - 280, booted_at=1.0)}
    up = seen([node(A1, "IDLE CLOUD", last_busy=NOW - 280)], instances=[instance(1)])
    assert next_look(PLAN, BINDINGS, up, replace(known, incarnations=lives), NOW) == 20
    assert next_look(PLAN, BINDINGS, seen(), memory(), NOW) == PLAN.times.reconcile_s


def test_next_pass_is_soon_while_a_job_starts() -> None:
    up = seen([node(A1, "ALLOCATED CLOUD")], [job(1, A1)])
    assert next_look(PLAN, BINDINGS, up, memory(), NOW) == PLAN.times.poll_s


# --- blocked -----------------------------------------------------------------------------------------------
def test_expired_refusal_stays_for_a_job_that_was_just_placed() -> None:
    """A probe once landed between the two readings: its zone was opened whole, and the memory of refusals was lost."""
    ripe = refused_everywhere(until=NOW - 1)
    assert ripe.refusals
    assert not [f for f in facts(act(seen(jobs=[job(1, A1)]), ripe)) if isinstance(f, RefusalsForgotten)]
    assert [f for f in facts(act(seen(), ripe)) if isinstance(f, RefusalsForgotten)]


def test_full_pool_does_not_block_slots_that_power_down() -> None:
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
        *(OfferRefused(key=key, words="InsufficientInstanceCapacity", until=until) for key in sorted(keys))
    )


def test_slots_without_capacity_are_blocked_with_the_reason_of_each_offer() -> None:
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


def test_after_the_refusal_slots_of_one_gang_are_undrained_in_one_zone() -> None:
    waiting = [job(3, node_count=2), job(4, node_count=5)]
    lifted = only(Undrain, act(seen(drained(), waiting), refused_everywhere(NOW - 1)))
    assert [a.slots for a in lifted if isinstance(a, Undrain)] == [(A1, A2)]


def test_after_the_refusal_all_slots_are_undrained_if_no_job_waits() -> None:
    lifted = only(Undrain, act(seen(drained()), refused_everywhere(NOW - 1)))
    assert sum(len(a.slots) for a in lifted if isinstance(a, Undrain)) == 32


@pytest.mark.parametrize("reason", ["JobHeldUser", "Dependency"])
def test_held_job_causes_no_test(reason: str) -> None:
    lifted = only(Undrain, act(seen(drained(), [job(3, reason=reason)]), refused_everywhere(NOW - 1)))
    assert sum(len(a.slots) for a in lifted if isinstance(a, Undrain)) == 32


def test_slots_drained_by_others_are_not_changed() -> None:
    actions = act(seen(drained("broken fan"), [job(3)]), refused_everywhere(NOW - 1))
    assert not only(Undrain, actions)
    assert not only(Block, act(seen(drained("broken fan"), [job(3)]), refused_everywhere(NOW + 60)))


def test_stopped_launches_requeue_the_gang_and_block_every_slot() -> None:
    """After `down` wrote stop, gangs stayed CONFIGURING until ResumeTimeout, and were placed again, and so on."""
    words = "launches are stopped, by down"
    actions = act(seen([node(A1, WAKING)], [job(1, A1)], halted=words))
    assert gangs(actions) == []
    assert [a.slots for a in actions if isinstance(a, MarkDown)] == [(A1,)]
    blocks = [a for a in actions if isinstance(a, Block)]
    assert sorted(len(a.slots) for a in blocks) == [15, 16]
    assert {a.reason for a in blocks} == {f"gpucluster: no h200 in us-east-2{z}: {words}" for z in "ab"}


def test_unsupported_offer_stays_refused_after_its_source_opens() -> None:
    """The later of the two refusals hid the one that stands for this run."""
    offer = offers_in(_world(seen(), memory()), PLAN.pools[0], "us-east-2a")[0]
    ask = _ask(seen([node(A1, WAKING)], [job(1, A1)]), memory())
    never = event_of_error(
        PLAN.times, memory(), ask, CloudError(Fault.UNSUPPORTED, "Unsupported", ""), NOW - 50
    )
    known = memory(never, OfferRefused(key="source/h200/0", words="quota", until=NOW - 1))
    assert closed(known, offer, NOW)


def test_success_removes_the_refusal_of_its_source() -> None:
    """After a quota was raised its source stayed half open: one gang at a time."""
    ask = _ask(seen([node(A1, WAKING)], [job(1, A1)]), memory())
    needed = NodeNeeded(slot=A1, incarnation=1, jobs=(1,))
    quota = OfferRefused(key="source/h200/0", words="quota", until=NOW - 1)
    known = memory(needed, quota, LaunchRequested(request=ask), LaunchDone(request="r1", instances=("i-1",)))
    assert not known.refusals


# --- what is counted, and what is asked again ------------------------------------------------------------
@pytest.mark.parametrize(("asked_ago", "again"), [(5.0, False), (20.0, True)])
def test_termination_without_effect_is_repeated(asked_ago: float, again: bool) -> None:
    asked = Entry(at=NOW - asked_ago, event=TerminationRequested(instances=("i-1",), words=""))
    actions = act(
        seen([node(A1, "IDLE CLOUD POWERING_DOWN")], instances=[instance(1)]), fold(launched(A1), [asked])
    )
    assert bool(only(Terminate, actions)) is again


@pytest.mark.parametrize(("off_for", "ends"), [(290.0, False), (310.0, True)])
def test_instance_of_a_powered_down_slot_is_terminated_after_the_grace(off_for: float, ends: bool) -> None:
    off = seen(instances=[instance(1)])
    assert [e.slot for e in facts(act(off, launched(A1))) if isinstance(e, NodeUnneeded)] == [A1]
    known = fold(launched(A1), [Entry(at=NOW - off_for, event=NodeUnneeded(slot=A1))])
    assert bool(only(Terminate, act(off, known))) is ends


def test_launch_without_an_outcome_counts_against_max() -> None:
    ask = _ask(seen([node(A1, WAKING), node(A2, WAKING)], [job(1, A1, A2)]), memory())
    known = memory(
        NodeNeeded(slot=A1, incarnation=1, jobs=(1,)),
        NodeNeeded(slot=A2, incarnation=1, jobs=(1,)),
        LaunchRequested(request=ask),
    )
    waking = seen([node(n, WAKING) for n in (A1, A2, A3)], [job(1, A1, A2), job(2, A3)])
    pool = replace(PLAN.pools[0], max=2)
    actions = decide(replace(PLAN, pools=(pool,)), BINDINGS, waking, known, NOW)
    assert [a.request.slots for a in actions if isinstance(a, LaunchGang) and not a.repeat] == []
    assert any("max 2 reached" in a.reason for a in actions if isinstance(a, MarkDown))


def test_success_removes_the_refusal_and_undrains_the_other_slots() -> None:
    known = refused_everywhere(NOW - 1)
    ask = _ask(seen([node(A1, WAKING)], [job(1, A1)]), known)
    done = (LaunchRequested(request=ask), LaunchDone(request=ask.id, instances=("i-1",)))
    needed = NodeNeeded(slot=A1, incarnation=1, jobs=(1,))
    after = fold(known, [Entry(at=NOW, event=e) for e in (needed, *done)])
    assert ask.offer_key not in after.refusals
    shown = [*drained(), node(A1, WAKING)]
    lifted = only(Undrain, act(seen(shown, [job(1, A1)], [instance(1)]), after))
    assert [len(a.slots) for a in lifted if isinstance(a, Undrain)] == [15]


def test_always_on_nodes_stay_up_and_are_powered_up_when_off() -> None:
    plan = a_plan(("{min: 0, max: 16}", "{min: 2, max: 16}"))
    known = launched(A1, at=NOW - 10_000)
    lives = {A1: replace(known.incarnations[A1], up_at=NOW - 9500, idle_at=NOW - 9400, booted_at=1.0)}
    up = seen([node(A1, "IDLE CLOUD", last_busy=NOW - 9000)], instances=[instance(1)])
    actions = decide(plan, BINDINGS, up, replace(known, incarnations=lives), NOW)
    assert [(type(a), getattr(a, "slots", ())) for a in actions] == [(PowerUp, (A2,))]


def test_always_on_slot_is_not_powered_up_in_the_pass_that_blocks_it() -> None:
    plan = a_plan(("{min: 0, max: 16}", "{min: 2, max: 16}"))
    actions = decide(plan, BINDINGS, seen(), refused_everywhere(NOW + 60), NOW)
    assert not only(PowerUp, actions)


SECOND = Standby(machine="m7i.large", zone="us-east-2b", address="10.42.32.11", state="/home")


@pytest.mark.parametrize("standby", [SECOND, None], ids=["two heads", "one head"])
def test_job_start_is_saved_at_once(standby: Standby | None) -> None:
    """Another slurmctld, or a killed one, sent the batch script again: "Duplicate jobid", a drained node, and the job began from its start."""
    plan = replace(PLAN, head=replace(PLAN.head, standby=standby))
    nodes = (node(A1, "ALLOCATED CLOUD"), node(A2, "ALLOCATED CLOUD"))
    runs = [job(n, at, states=frozenset({"RUNNING"}), admin_comment="told") for n, at in ((1, A1), (2, A2))]
    known, told = launched(A1, A2), [Comment(jobs=(1,), reason="told", again=True)]
    first = decide(plan, BINDINGS, seen(nodes, runs, [instance(1), instance(2)]), known, NOW)
    assert only(Comment, first) == told, "one change saves all"
    assert [describe(one) for one in only(Comment, first)] == ["have slurmctld save the start of job 1"]
    assert [a for a in first if isinstance(a, Comment | RecordEvents)][1:] == told, "it undoes no later word"
    known = fold(known, [Entry(at=NOW, event=event) for event in facts(first)])
    assert (
        only(Comment, decide(plan, BINDINGS, seen(nodes, runs, [instance(1), instance(2)]), known, NOW)) == []
    )


# --- rows beside the bound ----------------------------------------------------------------------------
def test_refusal_for_this_run_has_no_end() -> None:
    """Another is forgotten once its time is over and no job waits."""
    past = refused_everywhere(NOW - 10)
    assert [type(event) for event in facts(act(seen(), past))] == [RefusalsForgotten]
    of_this_run = {key: replace(one, for_this_run=True) for key, one in past.refusals.items()}
    assert facts(act(seen(), replace(past, refusals=of_this_run))) == []


def test_job_with_an_idle_node_gets_no_comment() -> None:
    refused = refused_everywhere(NOW + 1000)
    waiting = [job(1)]
    assert only(Comment, act(seen(jobs=waiting), refused))
    known = fold(launched(A1, at=NOW - 30), [Entry(at=NOW - 20, event=NodeUp(slot=A1, pool="h200"))])
    known = replace(known, refusals=refused.refusals)
    idle = seen([node(A1, "IDLE CLOUD")], waiting, [instance(1)])
    assert only(Comment, act(idle, known)) == []


def test_silence_counts_only_while_the_daemon_listens() -> None:
    waking, machines = [node(A1, WAKING)], [instance(1)]
    known = launched(A1, at=NOW - 500)
    failed = [e for e in facts(act(seen(waking, [job(1, A1)], machines), known)) if isinstance(e, BootFailed)]
    assert [event.words for event in failed] == ["i-1: its agent did not report within 400 s"]
    late = seen(waking, [job(1, A1)], machines, listening_since=NOW - 399)
    assert [e for e in facts(act(late, known)) if isinstance(e, BootFailed)] == []
    long_ago = seen(waking, [job(1, A1)], machines, listening_since=NOW - 400)
    assert [e for e in facts(act(long_ago, known)) if isinstance(e, BootFailed)]


@pytest.mark.parametrize(("drain", "ends"), [("", True), (" DRAIN", False)])
def test_node_that_a_person_drained_and_powered_up_is_not_set_down(drain: str, ends: bool) -> None:
    by_hand = node(A1, f"IDLE CLOUD NOT_RESPONDING POWERING_UP{drain}", reason="broken fan" if drain else "")
    known = fold(memory(NodeNeeded(slot=A1, incarnation=1, jobs=()), at=NOW - 2000), [])
    known = replace(known, refusals=refused_everywhere(NOW + 1000).refusals)
    assert bool(only(PowerDown, act(seen([by_hand]), known))) == ends


def test_failed_gang_refuses_its_offer_once() -> None:
    """A slow slurmctld lists the node as before, and each pass doubled the time of the refusal."""
    failed = replace(launched(A1).incarnations[A1], instance=None, failed="i-1: no mount", failed_boots=3)
    known = replace(launched(A1), incarnations={A1: failed})
    waking = seen([node(A1, WAKING)], [job(1, A1)])
    first = act(waking, known)
    assert [type(event) for event in facts(first)].count(OfferRefused) == 1
    after = fold(known, [Entry(at=NOW, event=event) for event in facts(first)])
    second = act(waking, after, NOW + 2)
    assert [event for event in facts(second) if isinstance(event, OfferRefused)] == []
    assert only(MarkDown, second) == only(MarkDown, first)


def test_slot_without_an_incarnation_or_instance_has_no_instance() -> None:
    world = _world(seen(instances=[instance(1)]), launched(A1))
    assert [world.instance(slot) for slot in (A1, A2)] == [instance(1), None]
    released = replace(launched(A1).incarnations[A1], instance=None)
    assert _world(seen(), replace(launched(A1), incarnations={A1: released})).instance(A1) is None


def test_events_of_jobs_that_ended_are_in_the_order_of_their_names() -> None:
    """The order was that of a set, so it differed from one daemon to the next."""
    placed = [JobPlaced(job=number, slots=(A1,), submitted_at=NOW) for number in range(11, 40)]
    released = [event for event in facts(act(seen(), memory(*placed))) if isinstance(event, JobReleased)]
    assert released == [JobReleased(job=number) for number in range(11, 40)]
