"""What slurmctld says of its partitions: their nodes, their limits, and whom they let in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import answers
from gpucluster.checks.model import Answer, Ask, Judgement, failed, listed, passed, short
from gpucluster.checks.slurm import ASK_NODES, parse_nodes

# What keeps jobs out, and the plan never sets: where it stands in the JSON, what people call it.
_BARRIERS = (
    (("groups", "allowed"), "AllowGroups"),
    (("accounts", "allowed"), "AllowAccounts"),
    (("accounts", "deny"), "DenyAccounts"),
    (("qos", "allowed"), "AllowQos"),
    (("qos", "deny"), "DenyQos"),
    (("nodes", "allowed_allocation"), "AllocNodes"),
)
_ASK_DEFAULT = Ask(
    argv=("sinfo", "--all", "--noheader", "--format=%P")
)  # 24.11's JSON does not say which it is


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWant:
    """A partition; `max_time_min` None is unlimited."""

    name: str
    default: bool
    max_time_min: int | None
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """All of them."""

    partitions: tuple[PartitionWant, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition as slurmctld shows it; `barriers` are as `AllowGroups=root`."""

    name: str
    default: bool
    state: tuple[str, ...]
    max_time_min: int | None
    nodes: frozenset[str]
    barriers: tuple[str, ...] = ()


def ask_partitions(_want: Partitions) -> tuple[Ask, ...]:
    return (Ask(argv=("scontrol", "show", "partition", "--json")), ASK_NODES, _ASK_DEFAULT)


def parse_partitions(got: tuple[Answer, ...]) -> tuple[Partition, ...]:
    """Partitions with their nodes, which name them in the second answer; the third marks the default with a star."""
    shown, nodes = answers.objects(got[0], "partitions"), parse_nodes(got[1:2])
    starred = {word.removesuffix("*") for word in got[2].text().split() if word.endswith("*")}
    return tuple(
        Partition(
            name=(name := answers.text(item, "name")),
            default=name in starred,
            state=answers.words(item, "partition", "state"),
            max_time_min=_whole(answers.optional(item, "maximums", "time")),
            nodes=frozenset(node.name for node in nodes if name in node.partitions),
            barriers=tuple(_barriers(item)),
        )
        for item in shown
    )


def judge_partitions(found: tuple[Partition, ...], want: Partitions) -> Judgement:
    seen = {partition.name: partition for partition in found}
    wrong = [words for one in want.partitions for words in _problems(seen.get(one.name), one)]
    wrong += [
        f"{short(name, 40)} is not in the plan"
        for name in sorted(seen.keys() - {p.name for p in want.partitions})
    ]
    expected = ", ".join(f"{p.name} UP with {len(p.nodes)} nodes" for p in want.partitions)
    return failed(listed(wrong, 4), expected) if wrong else passed(expected)


def _barriers(item: Mapping[str, Any]) -> Iterator[str]:
    for path, name in _BARRIERS:
        if value := answers.text(item, *path):
            yield f"{name}={short(value, 60)}"
    most = answers.optional(item, "maximums", "nodes")
    if most is not None:
        yield f"MaxNodes={most:g}"
    if (least := answers.number(item, "minimums", "nodes")) > 1:
        yield f"MinNodes={least:g}"


def _problems(found: Partition | None, want: PartitionWant) -> Iterator[str]:
    if found is None:
        yield f"{want.name} is missing"
        return
    if found.state != ("UP",):
        yield f"{want.name} is {'+'.join(found.state)}"
    if found.default != want.default:
        yield f"{want.name} is {'' if found.default else 'not '}the default"
    if found.max_time_min != want.max_time_min:
        yield f"{want.name} MaxTime {_time(found.max_time_min)}, not {_time(want.max_time_min)}"
    if found.nodes != frozenset(want.nodes):
        yield f"{want.name} has {len(found.nodes)} nodes, not {len(want.nodes)}"
    for barrier in found.barriers:
        yield f"{want.name} has {barrier}, which no plan sets"


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _time(minutes: int | None) -> str:
    return "UNLIMITED" if minutes is None else f"{minutes} min"
