"""Wait until always-on nodes have booted: right after `pulumi up` a node that boots is no fault."""

import threading
import time
from collections.abc import Callable, Collection, Sequence

from gpucluster.checks import slurmctld
from gpucluster.checks.check import ParseError, listed
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import SlurmPlan
from gpucluster.plan.names import ROLE_HEAD
from gpucluster.slurm.states import NodeState
from gpucluster.slurm.values import SlurmNode
from gpucluster.validate.expectation import Expectation

POLL_S = 2.0
_NEVER = threading.Event()

OnWait = Callable[[str], None]
# Returns slurmctld's nodes; raises GpuclusterError or ParseError without an answer.
QueryNodes = Callable[[], Sequence[SlurmNode]]


def nodes_to_await(plan: SlurmPlan, selection: Sequence[Expectation]) -> frozenset[str]:
    """The always-on nodes of which the selection asks anything: all of them for `nodes.state`. Nobody boots existing hosts."""
    if plan.aws is None:
        return frozenset()
    always_on = frozenset(node for pool in plan.pools for node in pool.always_on())
    if any((one.check, one.target) == ("nodes.state", ROLE_HEAD) for one in selection):
        return always_on
    return always_on & {one.target for one in selection}


def boot_limit_s(plan: SlurmPlan) -> float:
    """The longest `boot_timeout` of the pools, in seconds."""
    return float(max((pool.boot_timeout_s for pool in plan.pools), default=0))


def await_boots(
    nodes: Collection[str],
    query: QueryNodes,
    limit_s: float,
    *,
    on_wait: OnWait = lambda _words: None,
    sleep: Callable[[float], object] = _NEVER.wait,
) -> None:
    """Return when none of `nodes` powers up, after `limit_s`, or if slurmctld does not answer: a check reports each of them."""
    end = time.monotonic() + limit_s
    while nodes and time.monotonic() < end:
        try:
            booting = sorted(node.name for node in query() if node.name in nodes and _boots(node))
        except (GpuclusterError, ParseError):
            return
        if not booting:
            return
        on_wait(
            f"wait for {len(booting)} always-on nodes to boot, at most {limit_s:g} s: {listed(booting, 4)}"
        )
        sleep(POLL_S)


def _boots(node: SlurmNode) -> bool:
    return NodeState.POWERING_UP in node.states and slurmctld.UNHEALTHY.isdisjoint(node.states)
