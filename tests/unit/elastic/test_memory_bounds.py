"""The daemon's memory does not grow with time: what a plan no longer has, and what is over, is dropped."""

from dataclasses import replace

import pytest
from support.builders import a_plan
from support.cluster_states import NOW, living, node, sight

from gpucluster.elastic.decide import decide
from gpucluster.elastic.events import (
    DrainsSeen,
    Entry,
    Event,
    IncarnationOver,
    InstanceAdopted,
    InstanceGone,
    Interrupted,
    InterruptionKind,
    NodeNeeded,
    OrderGiven,
    SlotsForgotten,
    StateLingers,
    UnknownState,
    Verb,
)
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.memory.incarnations import MONTHS
from gpucluster.elastic.memory.interruptions import STORM_S
from gpucluster.elastic.model import RecordEvents
from gpucluster.plan.model import Market

PLAN = a_plan()
MONTH_S = 31 * 86400.0
REMOVED = "old-2a-1"


def forgotten(*events: Event) -> list[str]:
    """The slots that a pass forgets after these events."""
    moment = sight(PLAN, *((60.0, event) for event in events), nodes=(node("h200-2a-1"),))
    actions = decide(moment.plan, moment.bindings, moment.observation, moment.memory, moment.now)
    found = [entry.event for a in actions if isinstance(a, RecordEvents) for entry in a.entries]
    return [event.slots for event in found if isinstance(event, SlotsForgotten)]


NEEDED = NodeNeeded(slot=REMOVED, incarnation=1, jobs=())


@pytest.mark.parametrize(
    ("events", "dropped"),
    [
        ((NEEDED, IncarnationOver(slot=REMOVED)), [REMOVED]),
        ((DrainsSeen(drained="old-2a-[1-2]"),), ["old-2a-[1-2]"]),
        ((UnknownState(slot=REMOVED, states=("NEW",)),), [REMOVED]),
        ((StateLingers(slot=REMOVED, phase="stuck", bound_s=60.0),), [REMOVED]),
        ((NodeNeeded(slot="h200-2a-1", incarnation=1, jobs=()), IncarnationOver(slot="h200-2a-1")), []),
        ((), []),
    ],
)
def test_slots_of_removed_pools_are_forgotten(events: tuple[Event, ...], dropped: list[str]) -> None:
    """Memory kept each slot that any plan ever had, with its drains."""
    assert forgotten(*events) == dropped
    memory = fold(Memory(), (Entry(at=NOW, event=event) for event in events))
    after = fold(memory, (Entry(at=NOW, event=SlotsForgotten(slots=slots)) for slots in dropped))
    assert not dropped or after == Memory()


def test_removed_slot_with_an_instance_is_kept() -> None:
    """Its cost counts when it ends, and until then only memory knows it."""
    moment = sight(PLAN, *living(REMOVED, ago=600.0))
    actions = decide(moment.plan, moment.bindings, moment.observation, moment.memory, moment.now)
    found = [entry.event for a in actions if isinstance(a, RecordEvents) for entry in a.entries]
    assert not [event for event in found if isinstance(event, SlotsForgotten) and REMOVED in event.slots]


def test_order_for_a_removed_slot_stays() -> None:
    order = OrderGiven(verb=Verb.POOL_PAUSE, target="old", by="ada")
    memory = fold(Memory(), [Entry(at=NOW, event=e) for e in (order, SlotsForgotten(slots="old"))])
    assert memory.orders.keys() == {"old"}


def adopted(number: int, price: int = 3_600_000) -> InstanceAdopted:
    return InstanceAdopted(
        slot="a-1",
        instance=f"i-{number}",
        machine=f"m{number}",
        market=Market.SPOT,
        price=price,
        zone="us-east-2a",
    )


def test_spend_of_old_months_is_dropped() -> None:
    """The spend had one more month each month, for ever."""
    memory = Memory()
    for number in range(3 * MONTHS):
        at = NOW + number * MONTH_S
        gone = InstanceGone(slot="a-1", instance=f"i-{number}")
        memory = fold(memory, (Entry(at=at, event=adopted(number)), Entry(at=at + 3600.0, event=gone)))
    assert len(memory.spent) == MONTHS
    assert set(memory.spent.values()) == {3_600_000}


def test_reclaims_of_other_offers_are_dropped_with_their_storm() -> None:
    """Times of an offer stayed until the same offer was reclaimed again: a machine type that is gone never is."""
    memory = Memory()
    for number in range(50):
        at = NOW + number * (STORM_S + 1.0)
        taken = Interrupted(slot="a-1", instance=f"i-{number}", kind=InterruptionKind.SPOT, words="taken")
        memory = fold(memory, (Entry(at=at, event=adopted(number)), Entry(at=at, event=taken)))
    assert len(memory.taken) == 1
    assert replace(memory, taken={}).incarnations.keys() == {"a-1"}
