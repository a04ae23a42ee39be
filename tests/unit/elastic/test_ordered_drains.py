"""`gpucluster node drain` and `undrain`: the drain is a person's, and an order is done when Slurm shows it."""

import pytest
from support.builders import a_plan
from support.cluster_states import NOW, OFF, UP, burst, instance, living, node, sight

from gpucluster.elastic.decide import decide
from gpucluster.elastic.events import Event, OrderCompleted, OrderGiven, Verb
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why import text, why
from gpucluster.elastic.model import Action, Drain, RecordEvents, Undrain
from gpucluster.elastic.order import OrderRequest, refusal
from gpucluster.slurm.drains import DrainOwner, drain_owner

A1, PLAN = "h200-2a-1", burst()
DRAIN = OrderGiven(verb=Verb.NODE_DRAIN, target=A1, by="ann", words="fan 3 is loud")
UNDRAIN = OrderGiven(verb=Verb.NODE_UNDRAIN, target=A1, by="ann")
KEEP = OrderGiven(verb=Verb.NODE_KEEP, target=A1, by="bob", until=NOW + 3600)
PERSONS = {"reason": "fan 3 is loud (by ann)", "reason_by": "slurm", "reason_at": NOW - 10}
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
    return [a for a in found if isinstance(a, Drain | Undrain)], done


SET, LIFT = Drain(slots=(A1,), reason="fan 3 is loud (by ann)"), Undrain(slots=(A1,), reason=" (by ann)")


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
    ],
)
def test_order_acts_until_slurm_shows_it(
    what: str, given: OrderGiven, states: str, reason: dict[str, object], actions: list[Action]
) -> None:
    done = [] if actions else [OrderCompleted(verb=given.verb, target=A1)]
    assert acts(given, states, reason) == (actions, done), what


def test_drain_stands_beside_a_keep() -> None:
    s = moment(DRAIN, UP, {})
    assert (s.memory.orders[A1].verb, s.memory.drain_orders[A1].verb) == (Verb.NODE_KEEP, Verb.NODE_DRAIN)
    assert "ann ordered node-drain: fan 3 is loud" in text(why(s, A1), s.now)
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
