"""Check what `gpucluster k8s status` tells: the objects of each folder, charts, NodePools, queues, gangs and services."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from gpucluster.checks import json_fields
from gpucluster.checks.check import CheckResult, Location, Query, QueryOutput, failed, listed, passed
from gpucluster.text import short

_FAULTS = (
    ("missing", "misses"),
    ("changed", "differs in"),
    ("unread", "is not compared:"),
)  # keys of a folder in the status


APPLY = "gpucluster k8s up {cluster}"


class ObjectFault(StrEnum):
    """What is wrong with the objects of the spec; the first of several has the remedy."""

    ANOTHER = "another"  # the record is of another cluster
    CONFLICT = "conflict"  # another manager has set fields
    DIFFERENT = "different"  # missing, or with other fields
    UNREAD = "unread"  # nobody compared some


_REMEDIES = {
    ObjectFault.ANOTHER: "kubectl config current-context; kubectl config get-contexts; then choose this cluster's: kubectl config use-context CONTEXT",
    ObjectFault.UNREAD: "kubectl auth can-i --list; kubectl get pods --all-namespaces; when they can be compared: gpucluster validate {cluster} --tier 0 --only kube.objects",
    ObjectFault.CONFLICT: f"{APPLY} --force-conflicts",
    ObjectFault.DIFFERENT: APPLY,
}
RECORD = "the record of `k8s up`:"  # the culprit if it is of another cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """The folders of the tree, in their order."""

    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Charts:
    """The charts of the plan."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launchers:
    """The number of Karpenter's NodePools."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """The teams' ClusterQueues."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """`NAMESPACE/NAME` of the gangs and services of the workloads file."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One row of the status: a folder, a chart, a NodePool, a queue, a gang or a service. `fault` is empty if it is good."""

    name: str
    fault: str
    kind: str = ""  # of ObjectFault, for a folder


def query_status(_: object) -> tuple[Query, ...]:
    return (Query(at=Location.STATUS),)


def parse_objects(outputs: tuple[QueryOutput, ...]) -> tuple[State, ...]:
    """A row for each folder, and one for the record of `up` if it is of another cluster."""
    status = _status(outputs)
    another = json_fields.text(status, "another")
    record = (State(name=RECORD, fault=short(another, 300), kind=ObjectFault.ANOTHER),) if another else ()
    return (*record, *map(_folder, json_fields.members(status, "waves")))


def parse_charts(outputs: tuple[QueryOutput, ...]) -> tuple[State, ...]:
    return tuple(
        State(name=json_fields.text(row, "name"), fault=_unless(json_fields.text(row, "state"), "deployed"))
        for row in json_fields.members(_status(outputs), "charts")
    )


def parse_launchers(outputs: tuple[QueryOutput, ...]) -> tuple[State, ...]:
    return _waiting(outputs, "pools")


def parse_queues(outputs: tuple[QueryOutput, ...]) -> tuple[State, ...]:
    return _waiting(outputs, "queues")


def parse_workloads(outputs: tuple[QueryOutput, ...]) -> tuple[State, ...]:
    """A gang that waits in its queue is no fault; one that failed or is missing is one, and a service without its replicas."""
    return tuple(
        State(name=json_fields.text(row, "name"), fault=_of_workload(row))
        for row in json_fields.members(_status(outputs), "workloads")
    )


def evaluate_objects(found: tuple[State, ...], want: Objects) -> CheckResult:
    result = _judged(found, want.folders, "folders", f"{len(want.folders)} folders as the spec says")
    if result.is_healthy:
        return result
    kinds = {row.kind for row in found if row.kind}
    family = next((one for one in ObjectFault if one in kinds), ObjectFault.DIFFERENT)
    return replace(result, remedy=_REMEDIES[family], family=family)


def evaluate_charts(found: tuple[State, ...], want: Charts) -> CheckResult:
    return _judged(found, want.names, "charts", f"deployed: {', '.join(want.names)}")


def evaluate_launchers(found: tuple[State, ...], want: Launchers) -> CheckResult:
    if len(found) < want.count:
        return failed(f"{len(found)} NodePools", f"{want.count} ready NodePools")
    return _judged(found, (), "NodePools", f"{want.count} ready NodePools")


def evaluate_queues(found: tuple[State, ...], want: Queues) -> CheckResult:
    return _judged(found, want.names, "queues", f"active: {', '.join(want.names)}")


def evaluate_workloads(found: tuple[State, ...], want: Workloads) -> CheckResult:
    return _judged(found, want.names, "gangs and services", "none failed or missing")


def _judged(found: tuple[State, ...], needed: tuple[str, ...], what: str, expected: str) -> CheckResult:
    faults = {row.name: row.fault for row in found if row.fault}
    faults |= {name: "missing" for name in needed if name not in {row.name for row in found}}
    if faults:
        said = [f"{name} {words}" for name, words in faults.items()]
        return failed(listed(said), expected, tuple(faults))
    return passed(f"{len(found)} {what}", expected)


def _status(outputs: tuple[QueryOutput, ...]) -> Mapping[str, Any]:
    (output,) = outputs
    return json_fields.table(output.text())


def _folder(wave: Mapping[str, Any]) -> State:
    faults = [(words, json_fields.strings(wave, key)) for key, words in _FAULTS]
    said = [f"{words} {listed(names)}" for words, names in faults if names]
    return State(
        name=json_fields.text(wave, "folder"), fault=short("; ".join(said), 300), kind=_kind(dict(faults))
    )


def _kind(faults: Mapping[str, Sequence[str]]) -> str:
    """Of one folder; the words of an owner are those of `k8s_apply.refusals.owners`."""
    missing, changed, unread = (faults[words] for _, words in _FAULTS)
    if any(" has set " in words for words in changed):
        return ObjectFault.CONFLICT
    if missing or changed:
        return ObjectFault.DIFFERENT
    return ObjectFault.UNREAD if unread else ""


def _waiting(outputs: tuple[QueryOutput, ...], key: str) -> tuple[State, ...]:
    return tuple(
        State(name=json_fields.text(row, "name"), fault=short(json_fields.text(row, "waiting")))
        for row in json_fields.members(_status(outputs), key)
    )


def _unless(state: str, good: str) -> str:
    return "" if state == good else f"is {short(state, 300)}"


def _of_workload(row: Mapping[str, Any]) -> str:
    state, why = json_fields.text(row, "state"), json_fields.text(row, "why")
    bad = state in ("missing", "failed", "waiting")
    return short(f"is {state}{': ' if why else ''}{why}") if bad else ""
