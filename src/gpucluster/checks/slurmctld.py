"""Check slurmctld: that it answers, and that its nodes are those of the plan.

Only `--json` is read, because a name can imitate a line of the text format.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from gpucluster.checks import json_fields, remedies
from gpucluster.checks.check import (
    TIMED_OUT,
    CheckResult,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
    warned,
)
from gpucluster.slurm import client, drains, hostlist, parse
from gpucluster.slurm.parse import SlurmAnswerError
from gpucluster.slurm.states import POWER_SAVING, UNHEALTHY, NodeState
from gpucluster.slurm.values import NodeHardware, SlurmNode
from gpucluster.text import short

T = TypeVar("T")
INSTALL = (  # {{machine}} is left for the report
    "on {{machine}}: apt-cache policy slurm-client; on existing hosts install Slurm {release}, then playbooks/site.yml again; "
    "on AWS: gpucluster image build, then replace {{machine}}"
)
_OTHER_OFFERS = (
    "none on a machine: the daemon asks EC2 again and lifts its own drain; "
    "if it lasts, give the pool another machine type, zone or source in the spec"
)
_PATCH = re.compile(r"[0-9]+\.[0-9]+\.([0-9]+)")
QUERY_NODES = Query(argv=client.SHOW_NODES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """The slurmctld that must answer."""

    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastRelease:
    """The first release of a version, such as `26.05.4`, that mends the published faults of security in `mends`."""

    version: str
    mends: str

    def fault_of(self, version: str) -> str:
        """Return what is wrong with an older version; empty: nothing, or it cannot be compared."""
        found = _PATCH.match(version)
        if found is None or int(found[1]) >= int(self.version.rpartition(".")[2]):
            return ""
        return f"is {short(version, 30)}, and {self.version} mends {self.mends}; a distribution may mend its package under the older number"

    @property
    def remedy(self) -> str:
        return INSTALL.format(release=f"{self.version} or newer")


class SlurmdFault(StrEnum):
    """What is wrong with a machine's slurmd."""

    SILENT = "silent"
    RELEASE = "release"  # it is of another release
    UNMENDED = "unmended"  # it has published faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurmd:
    """The machine's own slurmd must answer, be of this release of Slurm, and not older than `least` (None: not known)."""

    release: str
    least: LeastRelease | None = None


class NodeFault(StrEnum):
    """What is wrong with nodes in slurmctld; the first of several has the remedy."""

    OTHERS = "others"  # a node of the plan is missing, or one is not in the plan
    FORGED = "forged"  # a drain in gpucluster's name that a person wrote
    OFF = "off"  # an always-on node is powered down
    DOWN = "down"  # slurmd of the node does not answer
    DRAINED = "drained"
    BLOCKED = "blocked"  # by the daemon, for want of capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """The nodes that must exist. `always_on` nodes must be up; `elastic` nodes may be powered down."""

    elastic: tuple[str, ...]
    always_on: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What slurmctld has for a node. `features`: the active ones, which a person can change."""

    hardware: NodeHardware
    weight: int
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareLine:
    """The configuration of some nodes, as one NodeName line of slurm.conf has it."""

    nodes: tuple[str, ...]
    settings: NodeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareLines:
    """One line for each pool."""

    lines: tuple[HardwareLine, ...]


def parsed(answer: QueryOutput, parser: Callable[[str], T]) -> T:
    """Slurm's JSON through its one parser; ParseError if the program failed or the parser refuses the text."""
    text = answer.text()
    try:
        return parser(text)
    except SlurmAnswerError as error:
        raise ParseError(short(error.message)) from error


def query_pings(_want: Controllers) -> tuple[Query, ...]:
    return (Query(argv=client.PING),)


def parse_pings(got: tuple[QueryOutput, ...]) -> dict[str, str]:
    """Controller -> UP or DOWN; empty if scontrol timed out."""
    return {} if got[0].code == TIMED_OUT else parsed(got[0], parse.parse_pings)


def evaluate_pings(found: dict[str, str], want: Controllers) -> CheckResult:
    expected = ", ".join(f"{host} UP" for host in want.hosts)
    words = ", ".join(f"{host} {found.get(host, 'does not answer')}" for host in want.hosts)
    return passed(words) if words == expected else failed(words, expected)


def query_slurmd(_want: Slurmd) -> tuple[Query, ...]:
    return (Query(argv=("scontrol", "show", "slurmd"), limit_s=5.0),)


def parse_slurmd(got: tuple[QueryOutput, ...]) -> str:
    """The version of slurmd; empty if scontrol timed out or the connection was refused."""
    if got[0].code == TIMED_OUT or "slurm_load_slurmd_status" in got[0].stderr:
        return ""
    version = re.search(r"^Version\s+= (\S+)$", got[0].text(), re.MULTILINE)
    if version is None:
        raise ParseError(f"scontrol show slurmd printed {short(got[0].stdout, 80)}")
    return version[1]


def evaluate_slurmd(found: str, want: Slurmd) -> CheckResult:
    expected = f"an answer from this machine's slurmd of Slurm {want.release}"
    if not found:
        again = f"on {{machine}}: {remedies.restart('slurmd')}; {remedies.LOG} slurmd; tail /var/log/slurm/slurmd.log"
        return failed("no answer", expected, (), again, family=SlurmdFault.SILENT)
    if not is_of_release(found, want.release):
        words = f"slurmd is {short(found, 30)}, not {want.release}"
        remedy = INSTALL.format(release=want.release)
        return failed(words, expected, (), remedy, family=SlurmdFault.RELEASE)
    if want.least is not None and (fault := want.least.fault_of(found)):
        return warned(f"slurmd {fault}", expected, want.least.remedy, family=SlurmdFault.UNMENDED)
    return passed(f"slurmd {short(found, 30)} answers", expected)


def is_of_release(version: str, release: str) -> bool:
    """Whether the version is a patch level of the release: `24.11.5` of `24.11`."""
    return version.startswith(f"{release}.")


def query_nodes(_want: object) -> tuple[Query, ...]:
    return (QUERY_NODES,)


def parse_nodes(got: tuple[QueryOutput, ...]) -> tuple[SlurmNode, ...]:
    """All nodes; ParseError if there is none."""
    found = parsed(got[0], parse.parse_nodes)
    if not found:
        raise ParseError("slurmctld lists no node")
    return found


def evaluate_nodes(found: tuple[SlurmNode, ...], want: Nodes) -> CheckResult:
    """Unhealthy states fail. A slot that the daemon blocked for lack of capacity is a warning."""
    wanted = frozenset(want.elastic) | frozenset(want.always_on)
    expected = f"{len(wanted)} nodes, none down or drained, no reason set"
    absent = sorted(wanted - {node.name for node in found})
    extra = sorted({node.name for node in found} - wanted)
    always_on = frozenset(want.always_on)
    ours = [node for node in found if node.name in wanted]
    bad = [node for node in ours if _is_unhealthy(node, always_on) and not _is_blocked(node)]
    blocked = [node for node in ours if _is_blocked(node)]
    problems = [
        *(f"{name} is missing" for name in absent),
        *(f"{name} is not in the plan" for name in extra),
        *(f"{node.name} {'+'.join(sorted(node.states))}{_reason(node)}" for node in bad),
    ]
    if problems:
        family = NodeFault.OTHERS if absent or extra else _node_fault(bad)
        culprits = tuple(node.name for node in bad)
        return failed(listed(problems, 4), expected, culprits, _node_remedy(family, bad), family=family)
    if blocked:
        return _blocked(blocked, ours, expected)
    off = sum(NodeState.POWERED_DOWN in node.states for node in ours)
    return passed(f"{len(ours)} nodes, {len(ours) - off} up, {off} powered down", expected)


def without_nodes(partitions: Mapping[str, tuple[str, ...]], held: Collection[str]) -> tuple[str, ...]:
    """Say it of each partition whose nodes are all among `held`."""
    closed = (name for name, nodes in partitions.items() if nodes and set(nodes) <= set(held))
    return tuple(f"partition {short(name, 60)} has no other node" for name in closed)


def _blocked(blocked: list[SlurmNode], every: list[SlurmNode], expected: str) -> CheckResult:
    """Work stops in a partition without another node. The daemon lifts its own drain."""
    partitions: dict[str, tuple[str, ...]] = {}
    for node in every:
        partitions |= {name: (*partitions.get(name, ()), node.name) for name in node.partitions}
    closed = without_nodes(partitions, {node.name for node in blocked})
    words = listed([f"{node.name} is blocked{_reason(node)}" for node in blocked], 3)
    words = "; ".join((words, *closed))
    return warned(words, expected, _OTHER_OFFERS, stops_work=bool(closed), family=NodeFault.BLOCKED)


def parse_hardware(got: tuple[QueryOutput, ...]) -> dict[str, NodeSettings]:
    """Node -> its configuration; ParseError if the answer lacks one."""
    found = {node.name: node for node in parse_nodes(got)}
    if unread := sorted(name for name, node in found.items() if node.hardware is None):
        raise ParseError(f"scontrol shows no hardware of {short(listed(unread, 3))}")
    items = json_fields.members(json_fields.table(got[0].text()), "nodes")
    weights = {json_fields.text(item, "name"): int(json_fields.number(item, "weight")) for item in items}
    return {
        name: NodeSettings(
            hardware=node.hardware, weight=weights[name], features=tuple(sorted(node.features))
        )
        for name, node in found.items()
        if node.hardware is not None
    }


def evaluate_hardware(found: dict[str, NodeSettings], want: HardwareLines) -> CheckResult:
    """Compare each node's configuration with its line in the plan."""
    wrong: list[str] = []
    for line in want.lines:
        others = (name for name in line.nodes if found.get(name, line.settings) != line.settings)
        wrong += [f"{name}: {_shape(found[name])}" for name in others]
        if not found.keys() & set(line.nodes):
            wrong.append(f"no node of {listed(line.nodes, 2)} exists")
    expected = "; ".join(f"{listed(line.nodes, 1)}: {_shape(line.settings)}" for line in want.lines)
    return (
        failed(listed(wrong, 3), expected)
        if wrong
        else passed(f"{len(found)} nodes as in the plan", expected)
    )


def is_off_or_changing(node: SlurmNode) -> bool:
    """Whether no command can run on the node: powered down, powering up or powering down."""
    return not POWER_SAVING.isdisjoint(node.states)


def _is_unhealthy(node: SlurmNode, always_on: frozenset[str]) -> bool:
    if not UNHEALTHY.isdisjoint(node.states):
        return True
    if is_off_or_changing(node):
        return node.name in always_on
    return (
        NodeState.NOT_RESPONDING in node.states
    )  # booting nodes and some powered-down nodes have this flag, too


def _is_blocked(node: SlurmNode) -> bool:
    """Whether the daemon drained a powered-down slot: the cloud has no capacity now, and the daemon removes the drain."""
    out = NodeState.DRAIN in node.states or NodeState.DOWN in node.states
    return out and is_off_or_changing(node) and node.drain_owner.is_daemon


def _is_forged(node: SlurmNode) -> bool:
    return drains.is_forged(node.reason, node.reason_by)


def _node_fault(bad: list[SlurmNode]) -> NodeFault:
    if all(map(_is_forged, bad)):
        return NodeFault.FORGED
    if any(node.drained for node in bad):
        return NodeFault.DRAINED
    return NodeFault.OFF if all(map(is_off_or_changing, bad)) else NodeFault.DOWN


def _node_remedy(family: NodeFault, bad: list[SlurmNode]) -> str:
    if family is NodeFault.OTHERS:
        return "on {machine}: scontrol reconfigure; sinfo -N"
    if family is NodeFault.FORGED:  # who reads the reasons waits for the daemon, and they are a person's
        return f"on {{machine}}: {_lifted(bad)}"
    if family is NodeFault.DRAINED:
        return f"on {{machine}}: sinfo -R; repair the cause of the reason, then {_lifted(bad)}"
    nodes = hostlist.fold([node.name for node in bad])
    if family is NodeFault.OFF:
        return f"on {{machine}}: scontrol update nodename={nodes} state=power_up; {remedies.LOG} gpucluster-elastic"
    # a node whose slurmd answers again is no longer down
    return f"on each of {nodes}: {remedies.restart('slurmd')}; then on {{machine}}: sinfo -R"


def _lifted(bad: list[SlurmNode]) -> str:
    drained = hostlist.fold([node.name for node in bad if node.drained])
    down = hostlist.fold([node.name for node in bad if not node.drained])
    commands = (
        *((f"scontrol update nodename={drained} state=undrain",) if drained else ()),
        *((f"scontrol update nodename={down} state=resume",) if down else ()),
    )
    return "; ".join(commands)


def _reason(node: SlurmNode) -> str:
    forged = (
        f", written by {short(node.reason_by, 30) or 'an unknown user'}, not by gpucluster"
        if _is_forged(node)
        else ""
    )
    return f" ({short(node.reason, 120)}{forged})" if node.reason else ""


def _shape(found: NodeSettings) -> str:
    board = found.hardware
    return (
        f"CPUs={board.cpus} {board.sockets}x{board.cores}x{board.threads} RealMemory={board.memory_mib} "
        f"Gres={short(board.gres, 60) or 'none'} Weight={found.weight} Features={short(','.join(found.features), 60) or 'none'}"
    )
