"""Instances that EC2 refuses to terminate: when they are requested again, and what happens to their slots."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import a_plan
from support.cluster_states import NOW, instance, job, living, node, sight
from support.fleet import Fleet

from gpucluster.cloud.port import CloudError, Fault, Instance, InstanceState
from gpucluster.elastic.decide import decide, event_of_refused_end
from gpucluster.elastic.decide.refused_ends import FIRST_S, LONGEST_S, WORDS
from gpucluster.elastic.events import Entry, NodeUnneeded, TerminationRefused
from gpucluster.elastic.inspect.snapshot import ClusterSnapshot
from gpucluster.elastic.inspect.why import text, why
from gpucluster.elastic.memory import Memory, fold
from gpucluster.elastic.model import Drain, Terminate, Undrain
from gpucluster.plan import names
from gpucluster.slurm.values import SlurmJob

PLAN = a_plan()
A1, A2 = "h200-2a-1", "h200-2a-2"
DENIED = CloudError(Fault.CONFIGURATION, "UnauthorizedOperation", "You are not authorized")


@pytest.fixture
def f(tmp_path: Path) -> Fleet:
    return Fleet(PLAN, tmp_path)


def retag(f: Fleet, machine: str, role: str) -> None:
    f.model.change(machine, f.now, lambda i: replace(i, tags={**i.tags, names.TAG_ROLE: role}))


def ends(f: Fleet, machine: str) -> int:
    return sum(name == "terminate" and machine in str(ids) for name, ids in f.cloud.calls)


def idle_pair(f: Fleet) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Two nodes whose job has ended, and their instances."""
    found = f.slurm.submit(2, lasts=60.0)
    f.until(lambda: found.state == "RUNNING", 120)
    slots = tuple(found.nodes)
    machines = tuple(f.journal.memory.incarnations[slot].instance or "" for slot in slots)
    f.until(lambda: found.state == "COMPLETED", 200)
    return slots, machines


def test_refused_termination_is_repeated_rarely_and_its_slot_takes_no_job(f: Fleet) -> None:
    """It was repeated twice a second (266 log lines in four minutes), and the slot went to new jobs."""
    (slot, other), (machine, neighbour) = idle_pair(f)
    retag(f, machine, "changed by a person")
    f.until(lambda: "POWERED_DOWN" in f.slurm.nodes[slot].flags, 900)
    f.run(600)
    assert 3 <= ends(f, machine) <= 9
    assert ends(f, neighbour) <= 3
    assert f.model.describe((neighbour,), f.now)[0].state is not InstanceState.RUNNING
    assert f.slurm.nodes[slot].reason.startswith(
        f"gpucluster: [termination] {machine} cannot be terminated: Unauth"
    )
    assert f.slurm.nodes[other].reason == ""
    launched = len(f.cloud.launches)
    more = f.slurm.submit(8, lasts=60.0)
    f.until(lambda: more.state == "COMPLETED", 900)
    assert slot not in more.nodes
    assert all(slot not in str(call.tags) for call in f.cloud.launches[launched:])
    incarnation = f.journal.memory.incarnations[slot]
    assert incarnation.instance == machine, "the slot belongs to the instance as long as that lives"

    retag(f, machine, names.ROLE_NODE)
    f.until(lambda: f.journal.memory.incarnations[slot].instance is None, LONGEST_S + 60)
    f.until(lambda: "DRAIN" not in f.slurm.nodes[slot].flags, 60)
    assert f.journal.memory.refused_ends == {}


def test_unlisted_instance_of_a_slot_is_found_by_its_id(f: Fleet) -> None:
    """Without its tags the instance was not listed: five minutes later its slot had a second one."""
    (slot, _), (machine, _) = idle_pair(f)
    retag(f, machine, "changed by a person")
    f.run(900)
    assert f.journal.memory.incarnations[slot].instance == machine
    assert machine in {i.id for i in f.cloud.instances(PLAN.name, (machine,))}
    assert machine not in {i.id for i in f.cloud.instances(PLAN.name)}


@pytest.mark.parametrize(
    ("fault", "refused"), [(Fault.CONFIGURATION, True), (Fault.THROTTLED, False), (Fault.LOST, False)]
)
def test_pause_doubles_up_to_its_bound(fault: Fault, refused: bool) -> None:
    memory, waits = Memory(), []
    for _ in range(8):
        event = event_of_refused_end(memory, ("i-1",), CloudError(fault, "Code", "words " * 500), NOW)
        assert (event.refused, len(event.words) <= WORDS) == (refused, True)
        waits.append(event.until - NOW)
        memory = fold(memory, (Entry(at=NOW, event=event),))
    assert waits == [min(FIRST_S * 2**n, LONGEST_S) for n in range(8)]


def test_each_instance_of_a_refused_call_is_requested_alone_at_once() -> None:
    event = event_of_refused_end(Memory(), ("i-0", "i-1"), DENIED, NOW)
    assert event.until == NOW
    moment = held(A1, A2, event=event, ago=0.0)
    found = actions(moment, Terminate)
    assert [a.instances for a in found] == [("i-0",), ("i-1",)]


def held(
    *slots: str,
    states: str = "IDLE CLOUD POWERED_DOWN",
    event: TerminationRefused | None = None,
    ago: float = 5.0,
    **changes: object,
):
    """Powered-down slots with living instances that cannot be terminated."""
    ids = tuple(f"i-{n}" for n in range(len(slots)))
    event = event or TerminationRefused(
        instances=ids, words="UnauthorizedOperation: no", until=NOW + 10, refused=True
    )
    return sight(
        PLAN,
        *living(*slots, ago=2000.0),
        *((1900.0, NodeUnneeded(slot=s)) for s in slots),
        (ago, event),
        nodes=tuple(node(s, states, **changes) for s in slots),
        instances=tuple(instance(n, 2000.0) for n in range(len(slots))),
    )


def actions(moment, kind: type) -> list:
    found = decide(moment.plan, moment.bindings, moment.observation, moment.memory, moment.now)
    return [a for a in found if isinstance(a, kind)]


def test_slot_is_drained_with_the_reason_and_the_request_waits() -> None:
    moment = held(A1)
    assert actions(moment, Terminate) == []
    (drain,) = actions(moment, Drain)
    assert (drain.slots, drain.reason) == (
        (A1,),
        "gpucluster: [termination] i-0 cannot be terminated: UnauthorizedOperation: no",
    )


def test_request_is_repeated_when_its_pause_is_over_or_the_clock_was_set_back() -> None:
    moment = held(A1, ago=-100.0)
    assert [a.instances for a in actions(moment, Terminate)] == [("i-0",)]
    later = replace(held(A1), now=NOW + 11)
    assert [a.instances for a in actions(later, Terminate)] == [("i-0",)]


def test_unanswered_request_does_not_drain_the_slot() -> None:
    event = TerminationRefused(
        instances=("i-0",), words="RequestLimitExceeded", until=NOW + 10, refused=False
    )
    assert actions(held(A1, event=event), Drain) == []
    assert actions(held(A1, event=event), Terminate) == []


def seen(
    moment: ClusterSnapshot, *, jobs: tuple[SlurmJob, ...] = (), instances: tuple[Instance, ...] = ()
) -> ClusterSnapshot:
    """The same snapshot with these jobs, or with these instances."""
    slurm, cloud = moment.observation.slurm, moment.observation.cloud
    assert slurm is not None
    assert cloud is not None
    cloud = replace(cloud, instances={i.id: i for i in instances}) if instances else cloud
    return replace(
        moment, observation=replace(moment.observation, slurm=replace(slurm, jobs=jobs), cloud=cloud)
    )


def test_drain_is_removed_when_the_instance_has_ended() -> None:
    moment = held(
        A1,
        states="IDLE CLOUD POWERED_DOWN DRAIN",
        reason="gpucluster: [termination] i-0 cannot be terminated: no",
        reason_by="slurm",
    )
    assert actions(moment, Undrain) == []
    ended: Instance = instance(0, 2000.0, state=InstanceState.TERMINATED)
    gone = seen(moment, instances=(ended,))
    (lifted,) = actions(gone, Undrain)
    assert (lifted.slots, lifted.reason) == ((A1,), "its old instance has ended")


@pytest.mark.parametrize("subject", [A1, "41"])
def test_why_tells_the_refusal_and_what_to_do(subject: str) -> None:
    slots = tuple(PLAN.pools[0].slots[0])
    moment = held(
        *slots,
        states="IDLE CLOUD POWERED_DOWN DRAIN",
        reason="gpucluster: [termination] i-0 cannot be terminated: UnauthorizedOperation: no",
        reason_by="slurm",
    )
    waits = seen(moment, jobs=(job(41, reason="Resources", required_nodes=(A1,)),))
    said = text(why(waits, subject), NOW)
    assert "i-0 cannot be terminated: UnauthorizedOperation: no" in said
    assert f"{names.TAG_ROLE}=node" in said
    assert f"{names.TAG_CLUSTER}=burst" in said
    assert "busy" not in said
