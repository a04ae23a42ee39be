"""Check the power-saving cycle: elastic nodes boot for a job, power down when idle, and leave no instance."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.checks import json_fields
from gpucluster.checks.check import CheckResult, Location, Query, QueryOutput, failed, listed, passed, unknown
from gpucluster.slurm.states import JobState, NodeState
from gpucluster.text import short

OFF, POWERING_UP, POWERING_DOWN = NodeState.POWERED_DOWN, NodeState.POWERING_UP, NodeState.POWERING_DOWN
BUSY, COMPLETING, IDLE = JobState.RUNNING, NodeState.COMPLETING, NodeState.IDLE
_NEXT: dict[
    str, tuple[str, ...]
] = {  # steps of `states.cycle_step`; jobs of others may use a node after ours
    "": (OFF,),
    OFF: (POWERING_UP,),
    POWERING_UP: (BUSY, IDLE),
    BUSY: (COMPLETING, IDLE, POWERING_DOWN),
    COMPLETING: (BUSY, IDLE, POWERING_DOWN),
    IDLE: (BUSY, POWERING_DOWN, OFF),  # a sample each half second can miss POWERING_DOWN
    POWERING_DOWN: (OFF,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCycle:
    """The limits of a cycle: seconds from power-up to running, and from the end of the last job to powered down."""

    up_s: float
    down_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCycle:
    """The steps of one node, each with its time in seconds, and the instance that has its address now."""

    node: str
    transitions: tuple[tuple[float, str], ...]
    instance: str  # "": no living instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles:
    """The nodes of a job. The job released them at `released_s`."""

    released_s: float
    nodes: tuple[NodeCycle, ...]


def query_cycles(want: PowerCycle) -> tuple[Query, ...]:
    return (Query(at=Location.SAMPLES, limit_s=want.down_s),)


def parse_cycles(got: tuple[QueryOutput, ...]) -> Cycles:
    """The JSON that `validate.node_sampler` writes."""
    whole = json_fields.table(got[0].text())
    return Cycles(
        released_s=json_fields.number(whole, "released_s"),
        nodes=tuple(
            NodeCycle(
                node=json_fields.text(item, "node"),
                transitions=tuple(
                    (json_fields.number(one, "at"), json_fields.text(one, "step"))
                    for one in json_fields.members(item, "transitions")
                ),
                instance=json_fields.text(item, "instance"),
            )
            for item in json_fields.members(whole, "nodes")
        ),
    )


def evaluate_cycles(found: Cycles, want: PowerCycle) -> CheckResult:
    """One faulty cycle fails the check. A cycle that other jobs hide is unknown."""
    expected = f"off, up within {want.up_s:g} s, off within {want.down_s:g} s of its job, no instance left"
    if not found.nodes:
        return unknown("no node was sampled", expected)
    if faults := [words for one in found.nodes if (words := _fault(one, found.released_s, want))]:
        return failed(listed(faults, 3), expected)
    if hidden := [words for one in found.nodes if (words := _hidden(one))]:
        return unknown(listed(hidden, 3), expected)
    return passed(listed([_times(one, found.released_s) for one in found.nodes]), expected)


def _hidden(one: NodeCycle) -> str:
    """Why the samples show no full cycle, without a fault of the cluster; empty: they do."""
    if not one.transitions:
        return f"{one.node} has no sample"
    if one.transitions[0][1] != OFF:
        return f"{one.node} was {one.transitions[0][1]} before the job"
    return f"{one.node} has another job now" if one.transitions[-1][1] == BUSY else ""


def _fault(one: NodeCycle, released_s: float, want: PowerCycle) -> str:
    if _hidden(one):
        return ""
    steps = [step for _, step in one.transitions]
    odd = any(now not in _NEXT.get(before, ()) for before, now in zip(["", *steps], steps, strict=False))
    if odd or steps[-1] != OFF or BUSY not in steps:
        return f"{one.node} went {' > '.join(steps)}"
    if _up_s(one) > want.up_s or _down_s(one, released_s) > want.down_s:
        return _times(one, released_s)
    return f"{one.node} is off, but {short(one.instance, 60)} runs at its address" if one.instance else ""


def _times(one: NodeCycle, released_s: float) -> str:
    return f"{one.node} up in {_up_s(one):.1f} s, off {_down_s(one, released_s):.1f} s after its job"


def _up_s(one: NodeCycle) -> float:
    return next(_at(one, BUSY)) - next(_at(one, POWERING_UP))


def _down_s(one: NodeCycle, released_s: float) -> float:
    """Seconds from the end of our job, or of the last job of others after it."""
    return one.transitions[-1][0] - max(released_s, *_at(one, IDLE))


def _at(one: NodeCycle, step: str) -> Iterator[float]:
    return (at for at, name in one.transitions if name == step)
