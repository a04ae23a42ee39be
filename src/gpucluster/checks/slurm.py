"""What slurmctld says of itself and its nodes, read from --json only: a name can imitate a line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import answers
from gpucluster.checks.model import (
    TIMED_OUT,
    Answer,
    Ask,
    Judgement,
    ParseError,
    failed,
    listed,
    passed,
    short,
    warned,
)
from gpucluster.plan import names

ASK_NODES = Ask(argv=("scontrol", "show", "nodes", "--json"))
BAD = ("DOWN", "FAIL", "DRAIN", "INVALID_REG", "ERROR", "UNKNOWN", "FUTURE")
POWERED = (
    "POWERED_DOWN",
    "POWERING_DOWN",
    "POWERING_UP",
)  # a cloud node's life; a static node must have none
SILENT = "NOT_RESPONDING"  # so is each node that boots, and some that are off


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """Every slurmctld that must answer."""

    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurmd:
    """The machine's own slurmd answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Who must be there; `static` ones must be up, the others may be off."""

    elastic: tuple[str, ...]
    static: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What slurmctld must think that some nodes are."""

    nodes: tuple[str, ...]
    cpus: int
    sockets: int
    cores: int
    threads: int
    memory_mib: int
    gres: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareLines:
    """One for each pool."""

    lines: tuple[Hardware, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as slurmctld shows it."""

    name: str
    states: frozenset[str]
    reason: str
    address: str
    partitions: frozenset[str]
    hardware: tuple[int, int, int, int, int, str]  # as Hardware, without the names


def parse_pings(got: tuple[Answer, ...]) -> dict[str, str]:
    """Controller -> UP or DOWN; none of them if scontrol waited in vain."""
    if got[0].code == TIMED_OUT:
        return {}
    return {
        answers.text(item, "hostname"): answers.text(item, "pinged")
        for item in answers.objects(got[0], "pings")
    }


def ask_pings(_want: Controllers) -> tuple[Ask, ...]:
    return (Ask(argv=("scontrol", "ping", "--json")),)


def ask_nodes(_want: object) -> tuple[Ask, ...]:
    return (ASK_NODES,)


def judge_pings(found: dict[str, str], want: Controllers) -> Judgement:
    expected = ", ".join(f"{host} UP" for host in want.hosts)
    said = ", ".join(f"{host} {found.get(host, 'does not answer')}" for host in want.hosts)
    return passed(said) if said == expected else failed(said, expected)


def ask_slurmd(_want: Slurmd) -> tuple[Ask, ...]:
    return (Ask(argv=("scontrol", "show", "slurmd"), limit_s=5.0),)


def parse_slurmd(got: tuple[Answer, ...]) -> str:
    """The version that answers; nothing if scontrol waited in vain or was refused."""
    if got[0].code == TIMED_OUT or "slurm_load_slurmd_status" in got[0].stderr:
        return ""
    version = re.search(r"^Version\s+= (\S+)$", got[0].text(), re.MULTILINE)
    if version is None:
        raise ParseError(f"scontrol show slurmd said {short(got[0].stdout, 80)}")
    return version[1]


def judge_slurmd(found: str, _want: Slurmd) -> Judgement:
    expected = "an answer from this machine's slurmd"
    return passed(f"slurmd {short(found, 30)} answers", expected) if found else failed("no answer", expected)


def parse_nodes(got: tuple[Answer, ...]) -> tuple[Node, ...]:
    """Every node."""
    found = tuple(_node(item) for item in answers.objects(got[0], "nodes"))
    if not found:
        raise ParseError("slurmctld lists no node at all")
    return found


def judge_nodes(found: tuple[Node, ...], want: Nodes) -> Judgement:
    """Bad states fail; a slot that the daemon blocked, because the cloud refuses it, is a warning."""
    wanted = frozenset(want.elastic) | frozenset(want.static)
    expected = f"{len(wanted)} nodes, none down or drained, no reason set"
    absent = sorted(wanted - {node.name for node in found})
    extra = sorted({node.name for node in found} - wanted)
    static = frozenset(want.static)
    ours = [node for node in found if node.name in wanted]
    bad = [node for node in ours if _is_bad(node, static) and not _blocked(node)]
    blocked = [node for node in ours if _blocked(node)]
    problems = [
        *(f"{name} is missing" for name in absent),
        *(f"{name} is not in the plan" for name in extra),
        *(f"{node.name} {'+'.join(sorted(node.states))}{_because(node)}" for node in bad),
    ]
    if problems:
        return failed(listed(problems, 4), expected)
    if blocked:
        return warned(listed([f"{node.name} is blocked{_because(node)}" for node in blocked], 3), expected)
    off = sum("POWERED_DOWN" in node.states for node in ours)
    return passed(f"{len(ours)} nodes, {len(ours) - off} up, {off} powered down", expected)


def judge_hardware(found: tuple[Node, ...], want: HardwareLines) -> Judgement:
    """What is configured, node by node, against the plan's shapes."""
    seen = {node.name: node.hardware for node in found}
    wrong: list[str] = []
    for line in want.lines:
        shape = (line.cpus, line.sockets, line.cores, line.threads, line.memory_mib, line.gres)
        wrong += [f"{name}: {_shape(seen[name])}" for name in line.nodes if seen.get(name, shape) != shape]
        if not seen.keys() & set(line.nodes):
            wrong.append(f"none of {listed(line.nodes, 2)} is there")
    expected = "; ".join(
        f"{listed(line.nodes, 1)}: "
        + _shape((line.cpus, line.sockets, line.cores, line.threads, line.memory_mib, line.gres))
        for line in want.lines
    )
    return failed(listed(wrong, 3), expected) if wrong else passed(f"{len(seen)} nodes as planned", expected)


def _node(item: Mapping[str, Any]) -> Node:
    cpus, sockets, cores, threads, memory = (int(answers.number(item, key)) for key in _SHAPE)
    return Node(
        name=answers.text(item, "name"),
        states=frozenset(answers.words(item, "state")),
        reason=answers.text(item, "reason"),
        address=answers.text(item, "address"),
        partitions=frozenset(answers.strings(item, "partitions")),
        hardware=(cpus, sockets, cores, threads, memory, answers.text(item, "gres")),
    )


_SHAPE = ("cpus", "sockets", "cores", "threads", "real_memory")


def _is_bad(node: Node, static: frozenset[str]) -> bool:
    if any(word in node.states for word in BAD):
        return True
    return node.name in static if is_away(node) else SILENT in node.states


def is_away(node: Node) -> bool:
    """Off, or on its way up or down: nobody can be asked there."""
    return any(word in node.states for word in POWERED)


def _blocked(node: Node) -> bool:
    """Out of use and off with the daemon's own reason: the cloud refuses it now, and the daemon lifts it."""
    out = "DRAIN" in node.states or "DOWN" in node.states
    return out and is_away(node) and node.reason.startswith(names.REASON_PREFIX)


def _because(node: Node) -> str:
    return f" ({short(node.reason, 120)})" if node.reason else ""


def _shape(shape: tuple[int, int, int, int, int, str]) -> str:
    cpus, sockets, cores, threads, memory, gres = shape
    return f"CPUs={cpus} {sockets}x{cores}x{threads} RealMemory={memory} Gres={short(gres, 60) or 'none'}"
