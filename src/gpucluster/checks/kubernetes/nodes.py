"""Check the nodes of a pool: how many are ready and take pods, with the labels, taints and resources of the plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from gpucluster import kubernetes_quantity as quantity
from gpucluster.checks import json_fields
from gpucluster.checks.check import (
    CheckResult,
    Location,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
)
from gpucluster.checks.kubernetes import objects
from gpucluster.plan.model.values import quantity as written
from gpucluster.text import short

Taint = tuple[str, str, str]  # key, value, effect
EFFECTS = ("NoSchedule", "NoExecute")  # they keep pods away; PreferNoSchedule does not


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNodes:
    """The nodes of a pool. `selector` is the label that only they have. `labels`, `taints` and `offer` are of each node."""

    selector: str
    min: int
    max: int
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    offer: dict[str, int]  # in the plan's units


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node. `why`: the kubelet's words if it is not ready."""

    name: str
    ready: bool
    why: str
    cordoned: bool
    leaving: bool
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    allocatable: dict[str, Decimal]


def query_nodes(want: PoolNodes) -> tuple[Query, ...]:
    return (Query(at=Location.API, argv=("get", "Node.v1.", "--selector", want.selector, "--output=json")),)


def parse_nodes(outputs: tuple[QueryOutput, ...]) -> tuple[Node, ...]:
    (output,) = outputs
    return tuple(map(_node, objects.items(output)))


def evaluate_nodes(found: tuple[Node, ...], want: PoolNodes) -> CheckResult:
    """Judge the number of nodes, and each node's state, labels and taints."""
    there = [node for node in found if not node.leaving]
    faults = {node.name: list(_faults(node, want)) for node in there}
    bad = {name: words for name, words in faults.items() if words}
    good = len(there) - len(bad)
    expected = f"{want.min} ready nodes" if want.min == want.max else f"{want.min} to {want.max} ready nodes"
    said = [f"{name}: {', '.join(words)}" for name, words in bad.items()]
    if good < want.min:
        said.append(f"{good} ready")
    if len(there) > want.max:
        said.append(f"{len(there)} nodes")
    return failed(listed(said), expected, tuple(bad)) if said else passed(f"{good} ready", expected)


def evaluate_offer(found: tuple[Node, ...], want: PoolNodes) -> CheckResult:
    """Judge what each ready node offers to pods: a missing GPU or network interface."""
    expected = ", ".join(f"{written(name, amount)} {name}" for name, amount in want.offer.items())
    short_of = {node.name: list(_less(node, want.offer)) for node in found if node.ready and not node.leaving}
    bad = {name: words for name, words in short_of.items() if words}
    if bad:
        return failed(listed([f"{name}: {', '.join(w)}" for name, w in bad.items()]), expected, tuple(bad))
    return passed(f"{len(short_of)} nodes with {expected}", expected)


def _faults(node: Node, want: PoolNodes) -> Iterator[str]:
    if not node.ready:
        yield f"not ready ({node.why})" if node.why else "not ready"
    if node.cordoned:
        yield "cordoned"
    for key, value in want.labels.items():
        if node.labels.get(key) != value:
            yield f"label {key} is {short(node.labels.get(key, 'missing'), 60)}, expected {value}"
    for taint in sorted({*want.taints} - {*node.taints}):
        yield f"no taint {_shown(taint)}"
    for taint in sorted({*node.taints} - {*want.taints}):
        if taint[2] in EFFECTS and not _follows(taint, node):
            yield f"taint {_shown(taint)}"


def _follows(taint: Taint, node: Node) -> bool:
    """Whether the taint only repeats that the node is cordoned or not ready, as its controller sets it."""
    return taint[0].startswith("node.kubernetes.io/") and (node.cordoned or not node.ready)


def _less(node: Node, offer: Mapping[str, int]) -> Iterator[str]:
    for name, amount in offer.items():
        needed = quantity.parse(written(name, amount)) or Decimal(0)
        there = node.allocatable.get(name, Decimal(0))
        if there < needed:
            yield f"{quantity.shown(there)} of {written(name, amount)} {name}"


def _shown(taint: Taint) -> str:
    key, value, effect = taint
    return short(f"{key}={value}:{effect}", 80)


def _node(item: objects.Object) -> Node:
    metadata, spec, status = (objects.section(item, key) for key in ("metadata", "spec", "status"))
    state, why = objects.condition(item, "Ready")
    return Node(
        name=objects.name_of(item),
        ready=state == "True",
        why="" if state == "True" else why,
        cordoned=spec.get("unschedulable") is True,
        leaving="deletionTimestamp" in metadata,
        labels=objects.words(metadata, "labels"),
        taints=tuple(map(_taint, json_fields.members_if_any(spec, "taints"))),
        allocatable=dict(_amounts(objects.section(status, "allocatable"))),
    )


def _taint(row: objects.Object) -> Taint:
    value = json_fields.text(row, "value") if "value" in row else ""
    return json_fields.text(row, "key"), value, json_fields.text(row, "effect")


def _amounts(shown: objects.Object) -> Iterator[tuple[str, Decimal]]:
    for name, text in shown.items():
        amount = quantity.parse(text)
        if amount is None:
            raise ParseError(f"allocatable {name} is {short(repr(text), 40)}, not a quantity")
        yield name, amount
