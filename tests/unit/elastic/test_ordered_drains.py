"""`gpucluster node drain` and `undrain`: the drain is a person's, and an order is done when Slurm shows it."""

from dataclasses import replace

import pytest
from support.builders import a_plan
from support.cluster_states import NOW, OFF, UP, burst, instance, job, living, node, sight

from gpucluster.elastic.abilities import Dependency, Loss
from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.offers import all_offers
from gpucluster.elastic.events import (
    Event,
    Interrupted,
    InterruptionKind,
    OrderCompleted,
    OrderGiven,
    PersonDrained,
    Verb,
)
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why import text, why
from gpucluster.elastic.memory import Refusal
from gpucluster.elastic.model import Action, Block, Drain, RecordEvents, ResetDown, Undrain
from gpucluster.elastic.order import OrderRequest, refusal
from gpucluster.plan.messages import HeldBundle
from gpucluster.slurm import drains
from gpucluster.slurm.drains import DrainOwner, drain_owner

A1, PLAN = "h200-2a-1", burst()
DRAIN = OrderGiven(verb=Verb.NODE_DRAIN, target=A1, by="ann", words="fan 3 is loud")
UNDRAIN = OrderGiven(verb=Verb.NODE_UNDRAIN, target=A1, by="ann")
KEEP = OrderGiven(verb=Verb.NODE_KEEP, target=A1, by="bob", until=NOW + 3600)
PERSONS = {"reason": "fan 3 is loud (by ann)", "reason_by": "slurm", "reason_at": NOW - 10}
KILLED = {"reason": "Kill task failed", "reason_by": "root", "reason_at": NOW - 10, "version": "24.11"}
DAEMONS = {"reason": "gpucluster: no h200", "reason_by": "slurm", "reason_at": NOW - 10}


def moment(order: Event, states: str, reason: dict[str, object]) -> ClusterSnapshot:
    return sight(
        PLAN,
        *living(A1),
        (20.0, KEEP),
        (10.0, order),
        nodes=[node(A1, states, **reason)],
        instances=[instance(0)],
    )


def acts(order: Event, states: str, reason: dict[str, object]) -> tuple[list[Action], list[Event]]:
    """The drains of the slot in this pass, and the orders that are done."""
    s = moment(order, states, reason)
    found = decide(s.plan, s.bindings, s.observation, s.memory, s.now)
    events = [entry.event for a in found if isinstance(a, RecordEvents) for entry in a.entries]
    done: list[Event] = [event for event in events if isinstance(event, OrderCompleted)]
    return [a for a in found if getattr(a, "slots", ()) == (A1,)], done


SET, LIFT = Drain(slots=(A1,), reason="fan 3 is loud (by ann)"), Undrain(slots=(A1,), reason=" (by ann)")
RESUME = ResetDown(slots=(A1,), reason=" (by ann)")


@pytest.mark.parametrize(
    ("what", "given", "states", "reason", "actions"),
    [
        ("it is up", DRAIN, UP, {}, [SET]),
        ("it is off", DRAIN, OFF, {}, [SET]),
        ("the daemon drained it", DRAIN, f"{UP} DRAIN", DAEMONS, [SET]),
        ("Slurm shows the drain", DRAIN, f"{UP} DRAIN", PERSONS, []),
        ("another person drained it", DRAIN, f"{UP} DRAIN", PERSONS | {"reason": "mine"}, []),
        ("a person drained it", UNDRAIN, f"{UP} DRAIN", PERSONS, [LIFT]),
        ("it is not drained", UNDRAIN, UP, {}, []),
        ("Slurm drained it", UNDRAIN, f"{UP} DRAIN", KILLED, []),
        ("a person let it fail", UNDRAIN, f"{UP} FAIL", PERSONS, [RESUME]),
    ],
)
def test_order_acts_until_slurm_shows_it(
    what: str, given: OrderGiven, states: str, reason: dict[str, object], actions: list[Action]
) -> None:
    done = [] if actions else [OrderCompleted(verb=given.verb, target=A1)]
    assert acts(given, states, reason) == (actions, done), what


NOTICES = tuple(kind for kind in InterruptionKind if kind is not InterruptionKind.REBALANCE)


@pytest.mark.parametrize("kind", NOTICES)
def test_undrained_node_that_ends_keeps_the_daemons_drain(kind: InterruptionKind) -> None:
    """It was undrained, and drained again in the next pass: Slurm could place a job on it between the two."""
    notice = Interrupted(
        slot=A1, instance=instance(0).id, kind=kind, words="a notice", ends_at=NOW + 900, source="queue"
    )
    shown = [node(A1, f"{UP} DRAIN", **PERSONS)]
    s = sight(PLAN, *living(A1), (20.0, notice), (10.0, UNDRAIN), nodes=shown, instances=[instance(0)])
    found = [a for a in decide(s.plan, s.bindings, s.observation, s.memory, s.now) if getattr(a, "slots", ()) == (A1,)]  # fmt: skip
    (drain,) = [a for a in found if isinstance(a, Drain | Undrain)]
    assert isinstance(drain, Drain)
    assert drain.reason.startswith("gpucluster: [evacuation] ")


def test_undrained_slot_that_a_held_bundle_removes_keeps_the_daemons_drain() -> None:
    held = HeldBundle(bundle="b" * 64, nodes=(A1,), waits_for="job 41")
    s = sight(PLAN, (10.0, UNDRAIN), nodes=[node(A1, f"{OFF} DRAIN", **PERSONS)], held=held)
    found = [a for a in decide(s.plan, s.bindings, s.observation, s.memory, s.now) if getattr(a, "slots", ()) == (A1,)]  # fmt: skip
    assert found == [Drain(slots=(A1,), reason=drains.reason(DrainOwner.BUNDLE, held.reason))]


def test_undrained_slot_without_capacity_is_blocked_directly_after() -> None:
    s = sight(PLAN, (10.0, UNDRAIN), nodes=[node(A1, f"{OFF} DRAIN", **PERSONS)], jobs=[job(7, node_count=1)])
    assert s.world is not None
    keys = {offer.key for offers in all_offers(s.world).values() for offer in offers}
    none = {key: Refusal(until=NOW + 60, times=1, words="none") for key in keys}
    s = replace(s, memory=replace(s.memory, refusals=none))
    found = decide(s.plan, s.bindings, s.observation, s.memory, s.now)
    assert [type(a) for a in found if A1 in getattr(a, "slots", ())][:2] == [Undrain, Block]


def test_drain_of_a_person_that_slurm_wrote_over_is_lifted() -> None:
    """`why` still called it a person's and recommended `node undrain`, which then did nothing."""
    persons = (60.0, PersonDrained(slots=(A1,), reason="fan 3 is loud (by ann)", by="slurm"))
    shown = [node(A1, f"{UP} DRAIN", **KILLED)]
    s = sight(PLAN, *living(A1), persons, (10.0, UNDRAIN), nodes=shown, instances=[instance(0)])
    found = decide(s.plan, s.bindings, s.observation, s.memory, s.now)
    assert LIFT in found
    events = [entry.event for a in found if isinstance(a, RecordEvents) for entry in a.entries]
    assert not [event for event in events if isinstance(event, OrderCompleted)]


@pytest.mark.parametrize(
    ("order", "states", "reason"),
    [(DRAIN, UP, {}), (UNDRAIN, f"{UP} DRAIN", PERSONS)],
    ids=["drain", "undrain"],
)
def test_why_says_once_what_is_done_for_the_order(
    order: OrderGiven, states: str, reason: dict[str, object]
) -> None:
    s = moment(order, states, reason)
    said = text(why(s, A1), s.now)
    assert said.count(", now: ") == 1, said
    assert ("gpucluster node undrain" in said) is (order is DRAIN), said
    assert f"state in Slurm: {'+'.join(sorted(states.split()))}" in said, said


LONG = {"reason_at": NOW - 4000, "version": "24.11"}
UNFIT = (
    ("Kill task failed", "root"),
    ("Prolog error", "slurm"),
    ("gpucluster: [health] gpu.count: 7 of 8", "slurm"),
    ("Low CPUs", "slurm"),
)


@pytest.mark.parametrize("lost", [(), (Dependency.EC2,), (Dependency.CONTROL,)], ids=str)
@pytest.mark.parametrize(("reason", "by"), [("", ""), *UNFIT])
def test_node_whose_drain_is_ordered_is_only_drained(
    lost: tuple[Dependency, ...], reason: str, by: str
) -> None:
    """The pass that sent the drain also replaced the node, or powered it down because it was idle for long enough."""
    states = f"{UP} DRAIN" if reason else UP
    shown = [node(A1, states, **LONG, reason=reason, reason_by=by, last_busy=NOW - 4000)]
    s = sight(PLAN, *living(A1), (10.0, DRAIN), nodes=shown, instances=[instance(0)])
    losses = {dependency: Loss(since=NOW - 60, words="no") for dependency in lost}
    observation = replace(
        s.observation, lost=losses, cloud=None if Dependency.EC2 in lost else s.observation.cloud
    )
    found = decide(s.plan, s.bindings, observation, s.memory, s.now)
    assert [a for a in found if not isinstance(a, RecordEvents)] == [SET]


@pytest.mark.parametrize("order", [DRAIN, UNDRAIN])
def test_order_of_a_node_that_slurm_does_not_list_waits(order: OrderGiven) -> None:
    """The daemon ended with a KeyError, and again at each start."""
    s = moment(order, UP, {})
    listed = s.observation.slurm
    assert listed is not None
    rest = replace(listed, nodes={name: one for name, one in listed.nodes.items() if name != A1})
    s = replace(s, observation=replace(s.observation, slurm=rest))
    found = decide(s.plan, s.bindings, s.observation, s.memory, s.now)
    assert not [a for a in found if A1 in getattr(a, "slots", ())]
    assert f"{A1}: is in the plan, but slurmctld does not list it" in text(why(s, A1), s.now)


def test_list_that_is_older_than_the_order_does_not_complete_it() -> None:
    """The drain had been sent, and the list of before it showed the state that the later undrain asked for."""
    s = moment(UNDRAIN, UP, {})
    assert s.observation.slurm is not None
    old = replace(s.observation, slurm=replace(s.observation.slurm, at=s.memory.drain_orders[A1].at - 1))
    found = decide(s.plan, s.bindings, old, s.memory, s.now)
    events = [entry.event for a in found if isinstance(a, RecordEvents) for entry in a.entries]
    assert not [event for event in events if isinstance(event, OrderCompleted)]


def test_drain_of_a_person_completes_the_order_while_ec2_is_lost() -> None:
    s = moment(DRAIN, f"{UP} DRAIN", {**PERSONS, "reason": "mine"})
    lost = {Dependency.EC2: Loss(since=NOW - 60, words="no")}
    found = decide(s.plan, s.bindings, replace(s.observation, lost=lost, cloud=None), s.memory, s.now)
    events = [entry.event for a in found if isinstance(a, RecordEvents) for entry in a.entries]
    assert OrderCompleted(verb=DRAIN.verb, target=A1) in events


def test_drain_stands_beside_a_keep() -> None:
    s = moment(DRAIN, UP, {})
    assert (s.memory.orders[A1].verb, s.memory.drain_orders[A1].verb) == (Verb.NODE_KEEP, Verb.NODE_DRAIN)
    shown = text(why(s, A1), s.now)
    assert "ann ordered node-drain: fan 3 is loud; slurmctld does not show it yet" in shown
    assert "the daemon drains it" in shown
    shown = moment(DRAIN, f"{UP} DRAIN", PERSONS)
    assert "drained by a person; only a person can resume it" in text(why(shown, A1), shown.now)


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("fan 3 is loud", False),
        ("Kill task failed", False),  # with the name it is no reason of Slurm's
        ("", True),
        ("gpucluster: no h200", True),
    ],
)
def test_reason_of_a_drain_is_a_persons(words: str, refused: bool) -> None:
    plan = a_plan()
    request = OrderRequest(verb=Verb.NODE_DRAIN, target=A1, words=words, by="ann")
    assert bool(refusal(plan, request)) is refused
    reason = f"{words} (by ann)"
    assert refused or drain_owner(reason, "slurm", drained=True, version="24.11") is DrainOwner.PERSON
