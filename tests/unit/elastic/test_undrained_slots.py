"""A slot that was just undrained or resumed is not powered down: Slurm gets its scheduling time first.

Once a gang hung with five paid nodes up: the daemon undrained slots for it, and powered them down in the next pass, because
the job had waited for more than a minute and an undrained slot that is off is marked NOT_RESPONDING (24.11).
"""

from dataclasses import replace

import pytest
from hypothesis import given
from support.cluster_states import NOW, UP, burst, instance, job, living, node, sight
from support.recoveries import (
    DOWNS,
    DRAINS,
    RECOVERIES,
    SLOTS,
    ZONES,
    Recovery,
    passes,
    slots_in,
    stays_open,
)

from gpucluster.elastic.decide import decide
from gpucluster.elastic.decide.blocked import PROBE_S
from gpucluster.elastic.decide.node_table import NodeTable, row_for
from gpucluster.elastic.decide.world import SCHEDULES_S
from gpucluster.elastic.events import Interrupted, InterruptionKind, OrderGiven, PersonDrained, Verb
from gpucluster.elastic.memory import fold
from gpucluster.elastic.model import Block, MarkDown, PowerDown, RecordEvents, ResetDown, Undrain


@given(recovery=RECOVERIES)
def test_no_slot_is_opened_and_then_powered_down(recovery: Recovery) -> None:
    """20,000 more are in tests/simulated."""
    stays_open(recovery)


@pytest.mark.parametrize("waited", [30.0, 61.0, 90.0, 4000.0])
def test_slot_stays_open_for_a_job_that_waited_long(waited: float) -> None:
    """After a wait of 90 s one pass undrained and powered down; after 30 s it did not."""
    found = [actions for _, actions in passes(gang(waited))]
    assert slots_in(found[0], Undrain), "nothing was undrained: the scene shows nothing"
    assert not [slots for some in found for slots in slots_in(some, PowerDown, MarkDown)]


@pytest.mark.parametrize("state", range(len(DOWNS)), ids=[" ".join(down) for down in DOWNS])
def test_slot_stays_open_after_a_resume(state: int) -> None:
    """Slurm marks a resumed slot that is off NOT_RESPONDING. Two seconds later it was powered down, as if that mark was old."""
    recovery = replace(gang(90.0), drained=(), refused=frozenset(), down=((SLOTS[0], state),))
    found = list(passes(recovery))
    assert slots_in(found[0][1], ResetDown) == {SLOTS[0]}
    assert not [slots for _, some in found for slots in slots_in(some, PowerDown, MarkDown)]
    last, _ = found[-1]
    assert last.world is not None
    table = NodeTable(last.world)
    assert row_for(table.context(SLOTS[0])).text == "it was opened: Slurm has a minute to start a job on it"


def test_hinted_node_stays_up_after_its_drain_ends() -> None:
    """A node with a rebalance recommendation was powered down two seconds after an operator's `node undrain`, with a job waiting."""
    slot, plan = "h200-2a-1", burst()
    hint = Interrupted(slot=slot, instance="i-0", kind=InterruptionKind.REBALANCE, words="may be reclaimed")
    events = (
        (100.0, PersonDrained(slots=(slot,), reason="mine", by="ann")),
        (50.0, hint),
        (10.0, OrderGiven(verb=Verb.NODE_UNDRAIN, target=slot, by="bob")),
    )
    drained = node(slot, f"{UP} DRAIN", reason="mine", reason_by="ann", reason_at=NOW - 100)
    waits = job(7, node_count=1, reason="Resources", submitted_at=NOW - 10)
    s = sight(plan, *living(slot), *events, nodes=[drained], jobs=[waits], instances=[instance(0)])
    memory, slurm, ended = s.memory, s.observation.slurm, dict[float, bool]()
    for later in (0.0, 2.0, SCHEDULES_S + 3.0):
        assert slurm is not None
        shown = {slot: drained if not later else node(slot, UP)}
        seen = replace(s.observation, slurm=replace(slurm, at=NOW + later, nodes={**slurm.nodes, **shown}))
        found = decide(plan, s.bindings, seen, memory, NOW + later)
        memory = fold(memory, [e for a in found if isinstance(a, RecordEvents) for e in a.entries])
        ended[later] = any(isinstance(a, PowerDown) for a in found)
    assert ended == {0.0: False, 2.0: False, SCHEDULES_S + 3.0: True}


def test_marked_slot_is_powered_down_when_slurm_had_its_time() -> None:
    """The mark still goes: after a restart slurmctld would start no job on the slot."""
    ended_order = DRAINS.index(("gpucluster: [operator] kept", "slurm"))
    drained = tuple((slot, ended_order) for slot in SLOTS)
    recovery = replace(gang(90.0), drained=drained, refused=frozenset(), paces=(29.0, 29.0, 29.0, 29.0))
    found = list(passes(recovery))
    assert slots_in(found[0][1], Undrain) == set(SLOTS)
    ended = {s: snapshot.now for snapshot, some in found for s in slots_in(some, PowerDown)}
    assert ended.keys() == set(SLOTS)
    assert all(at >= NOW + SCHEDULES_S for at in ended.values())


def test_test_of_a_zone_that_began_late_is_not_cut_short() -> None:
    """A test of a zone changed to the next zone at a fixed time, also when it had just begun."""
    recovery = replace(gang(90.0), open_since=PROBE_S - 2, paces=(5.0, 5.0, 20.0))
    found = list(passes(recovery))
    opened = slots_in(found[0][1], Undrain)
    assert opened
    assert not [slots for _, some in found[1:] for slots in slots_in(some, Block) & opened]


def gang(waited: float) -> Recovery:
    """A gang of four waits for a zone whose refusal has just ended."""
    return Recovery(
        plan="small",
        drained=tuple((slot, 0) for slot in SLOTS),
        nodes_up=frozenset(),
        down=(),
        marked=frozenset(),
        interrupted=(),
        undrain_orders=frozenset(),
        refused=frozenset(ZONES),
        open_since=5.0,
        jobs=((waited, 4, "Resources"),),
        drained_pool=False,
        paces=(1.0, 5.0, 20.0, 29.0),
        marks=True,
    )
