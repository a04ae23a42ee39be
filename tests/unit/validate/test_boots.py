"""Standing nodes that boot right after `pulumi up` are awaited; a node that does not come is still found."""

from collections.abc import Sequence

import pytest
from support import builders

from gpucluster.checks.check import ParseError
from gpucluster.errors import GpuclusterError
from gpucluster.slurm.states import NodeState as S
from gpucluster.slurm.values import SlurmNode
from gpucluster.validate import expectations
from gpucluster.validate.boots import POLL_S, await_boots, nodes_to_await
from gpucluster.validate.expect import select

BOOTS, UP = (S.CLOUD, S.IDLE, S.NOT_RESPONDING, S.POWERING_UP), (S.CLOUD, S.IDLE)
STANDING = ("min: 0, max: 16", "min: 2, max: 16")


def nodes(**states: Sequence[str]) -> tuple[SlurmNode, ...]:
    return tuple(SlurmNode(name=name, states=frozenset(found)) for name, found in states.items())


def waits(answers: list[tuple[SlurmNode, ...]], limit_s: float = 600) -> tuple[int, list[str]]:
    """How often it waits, and the words."""
    told, slept, rest = [], [], iter(answers)
    await_boots(("a", "b"), lambda: next(rest), limit_s, on_wait=told.append, sleep=slept.append)
    assert set(slept) <= {POLL_S}
    return len(slept), told


@pytest.mark.parametrize(
    ("answers", "times"),
    [
        ([nodes(a=UP, b=UP)], 0),
        ([nodes(a=BOOTS, b=UP), nodes(a=BOOTS, b=BOOTS), nodes(a=UP, b=UP)], 2),
        ([nodes(a=UP, b=UP, elastic=BOOTS)], 0),
        ([nodes(a=(S.CLOUD, S.DOWN, S.POWERING_UP), b=UP)], 0),
        ([nodes(a=(S.CLOUD, S.IDLE, S.POWERED_DOWN), b=UP)], 0),
    ],
    ids=["up", "boots", "another boots", "slurmctld has marked it down", "nobody boots it"],
)
def test_run_waits_while_a_standing_node_boots(answers: list[tuple[SlurmNode, ...]], times: int) -> None:
    assert waits(answers)[0] == times


def test_words_name_the_nodes_and_the_limit() -> None:
    _, told = waits([nodes(a=BOOTS, b=UP), nodes(a=UP, b=UP)])
    assert told == ["wait for 1 always-on nodes to boot, at most 600 s: a"]


def test_wait_ends_after_the_limit() -> None:
    assert waits([nodes(a=BOOTS)], limit_s=0)[0] == 0


@pytest.mark.parametrize("error", [ParseError("no node"), GpuclusterError("head cannot be reached")])
def test_run_does_not_wait_for_an_answer_of_slurmctld(error: Exception) -> None:
    def query() -> tuple[SlurmNode, ...]:
        raise error

    await_boots(("a",), query, 600, sleep=lambda _s: pytest.fail("it waited"))


@pytest.mark.parametrize(
    ("only", "awaited"),
    [
        ((), {"h200-2a-1", "h200-2a-2"}),
        (("nodes.state",), {"h200-2a-1", "h200-2a-2"}),
        (("disk[h200-2a-2]",), {"h200-2a-2"}),
        (("ctl.ping",), set()),
    ],
)
def test_only_nodes_of_the_selection_are_awaited(only: tuple[str, ...], awaited: set[str]) -> None:
    plan = builders.a_plan(STANDING)
    assert nodes_to_await(plan, select(expectations(plan), tier=0, only=only)) == awaited
