"""What is there, beside what the spec wants. It reads, and asks the server what an apply would change without changing it."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpucluster.artifacts import write_tree
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s.releases import Release
from gpucluster.k8s_apply import charts, charts_objects, record, workload_states
from gpucluster.k8s_apply.access import Access
from gpucluster.k8s_apply.charts_removal import strays
from gpucluster.k8s_apply.clock import REPEAT_S, T, patiently, some, until
from gpucluster.k8s_apply.conditions import waiting
from gpucluster.k8s_apply.faults import RefusedError, WebhookError
from gpucluster.k8s_apply.helm import Helm
from gpucluster.k8s_apply.objects import (
    Ref,
    condition,
    is_ending,
    is_true,
    ref_of,
    rows,
    section,
    selector,
    set_fields,
)
from gpucluster.k8s_apply.ownership import leftovers
from gpucluster.k8s_apply.refusals import owners, refused, without_right
from gpucluster.k8s_apply.steps import Steps
from gpucluster.k8s_apply.up import not_ready
from gpucluster.k8s_apply.workload_states import WorkloadState

WAIT_S = 1800.0
_QUEUE = ("kueue.x-k8s.io/v1beta2", "ClusterQueue")
_POOL = ("karpenter.sh/v1", "NodePool")


@dataclass(frozen=True, slots=True)
class ChartState:
    """A chart of the spec. `installed` is empty if it is not there."""

    name: str
    wanted: str
    installed: str
    state: str  # of helm, and `other values`


@dataclass(frozen=True, slots=True)
class WaveState:
    """A wave of the spec."""

    folder: str
    objects: int
    missing: tuple[str, ...]
    changed: tuple[str, ...]
    unread: tuple[str, ...] = ()  # what nobody compared, because the user may not patch it


@dataclass(frozen=True, slots=True)
class PoolState:
    """A NodePool of Karpenter's."""

    name: str
    nodes: str
    limits: dict[str, str]
    waiting: str  # empty: ready


@dataclass(frozen=True, slots=True)
class QueueUse:
    """A resource of a flavor in a queue."""

    flavor: str
    resource: str
    quota: str
    used: str


@dataclass(frozen=True, slots=True)
class QueueState:
    """A ClusterQueue."""

    name: str
    uses: tuple[QueueUse, ...]
    admitted: int
    pending: int
    waiting: str


@dataclass(frozen=True, slots=True)
class Status:
    """The whole table. `unsettled` has what `up` would still do or await; empty: the cluster is as the spec says."""

    applied: str  # digest of the tree; empty if none is applied
    wanted: str
    charts: tuple[ChartState, ...]
    waves: tuple[WaveState, ...]
    pools: tuple[PoolState, ...]
    queues: tuple[QueueState, ...]
    workloads: tuple[WorkloadState, ...]
    leftovers: tuple[str, ...]
    unsettled: tuple[str, ...]
    another: str = ""  # why this is another cluster than the one that `up` changed; empty: nothing says so


def status(access: Access, steps: Steps) -> Status:
    """Read everything once. An API server that is away for a moment is asked again."""
    kubectl, cluster = access.kubectl, steps.cluster
    found = _asked(access, lambda: record.read(kubectl, cluster))
    another = _asked(access, lambda: record.difference(kubectl, cluster, access.account, found))
    there = {ref_of(one): one for one in _asked(access, lambda: kubectl.get(steps.objects))}
    waves = tuple(_waves(access, steps, there))
    installed = _charts(access, steps, found)
    left = _asked(access, lambda: leftovers(kubectl, steps))
    awaited = [one for wave in steps.waves for one in steps.awaited(wave)]
    unsettled = (
        *((another,) if another else ()),
        *(f"the chart {one.name} is {one.state}" for one in installed if one.state != charts.DEPLOYED),
        *(f"{name} is missing" for wave in waves for name in wave.missing),
        *(f"{name} differs" for wave in waves for name in wave.changed),
        *(f"{wave.folder} is not compared: {words}" for wave in waves for words in wave.unread),
        *_asked(access, lambda: not_ready(access, [one for one in awaited if ref_of(one) in there])),
    )
    return Status(
        applied=found.digest if found is not None and found.complete else "",
        wanted=steps.digest,
        charts=installed,
        waves=waves,
        pools=tuple(map(_pool, _asked(access, lambda: kubectl.find([_POOL], selector(cluster))))),
        queues=tuple(map(_queue, _asked(access, lambda: kubectl.find([_QUEUE], selector(cluster))))),
        workloads=_asked(access, lambda: workload_states.of(kubectl, steps, there)),
        leftovers=(
            *left.names,
            *(f"the chart {one.place}" for one in strays(access, steps)),
        ),
        unsettled=unsettled,
        another=another,
    )


def await_settled(access: Access, steps: Steps, limit_s: float) -> None:
    """Return when the cluster is as the spec says. StateError tells what is missing after `limit_s`."""
    until(
        f"{steps.cluster} to be as its spec says",
        lambda: list(status(access, steps).unsettled),
        access.clock,
        access.report,
        limit_s=limit_s,
        next_step=f"gpucluster k8s up {steps.cluster}",
    )


def _charts(access: Access, steps: Steps, applied: record.Record | None) -> tuple[ChartState, ...]:
    helm = access.helm
    if helm is None:
        return ()
    there = patiently(helm.installed, access.clock, access.report)
    with tempfile.TemporaryDirectory(prefix="gpucluster-k8s-") as folder:
        write_tree(steps.tree, Path(folder))
        found = list[ChartState]()
        for release in steps.releases:
            one = there.get((release.namespace, release.name))
            state = "missing" if one is None else one.status
            if one is not None and not one.ours:
                state = "of others"
            elif (
                one is not None
                and state == charts.DEPLOYED
                and not charts.same(release, one, _values(access, helm, release), Path(folder))
            ):
                state = "of another version or with other values"
            elif state == charts.DEPLOYED and applied and charts.undefined(release, applied.definitions):
                state = "deployed, and no `k8s up` has applied its definitions"
            elif state == charts.DEPLOYED and (lacks := _lacks(access, helm, release, steps)):
                state = f"deployed, but {some(list(lacks))}"
            found.append(ChartState(release.name, release.version, "" if one is None else one.chart, state))
    return tuple(found)


def _lacks(access: Access, helm: Helm, release: Release, steps: Steps) -> tuple[str, ...]:
    """Return what the cluster lacks of a chart; the refusal, if the user may not read all of it."""
    try:
        return _asked(access, lambda: charts_objects.lacks(access.kubectl, helm, release, steps.objects))
    except RefusedError as error:
        return (f"its objects are not compared: {error.message}",)


def _values(access: Access, helm: Helm, release: Release) -> Mapping[str, Any]:
    return _asked(access, lambda: helm.values(release))


def _asked(access: Access, call: Callable[[], T]) -> T:
    return patiently(call, access.clock, access.report)


def _waves(access: Access, steps: Steps, there: Mapping[Ref, Manifest]) -> Iterator[WaveState]:
    """Yield each wave. A webhook that is away is awaited once: the rest of the status says why it is."""
    limit_s = REPEAT_S
    for wave in steps.waves:
        refs = [ref_of(one) for one in wave.objects]
        ending = {ref: "it is being deleted" for ref in refs if ref in there and is_ending(there[ref])}
        present = [one for one in wave.objects if ref_of(one) in there and ref_of(one) not in ending]
        try:
            changed, unread = _compared(access, present, there, limit_s)
        except WebhookError as error:
            limit_s, changed, unread = 0.0, (), (error.message,)
        yield WaveState(
            folder=wave.wave.folder,
            objects=len(refs),
            missing=tuple(str(ref) for ref in refs if ref not in there),
            changed=(*_named(ending), *changed),
            unread=unread,
        )


def _compared(
    access: Access, present: Sequence[Manifest], there: Mapping[Ref, Manifest], limit_s: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the objects that an apply would change and those that the server would refuse, with its words; and what nobody compared."""
    kubectl = access.kubectl

    def asked(call: Callable[[], T]) -> T:
        return patiently(call, access.clock, access.report, limit_s)

    bad, closed = dict[Ref, str](), dict[Ref, str]()
    try:
        made = asked(lambda: kubectl.applied(present))
    except RefusedError as error:
        closed = without_right(error, present)
        rest = [one for one in present if ref_of(one) not in closed]
        found = asked(lambda: list(refused(kubectl, rest)))
        bad = {ref_of(one): owners(why) or why.message for one, why in found}
        made = asked(lambda: kubectl.applied([one for one in rest if ref_of(one) not in bad]))
    differ = (str(ref_of(one)) for one in made if set_fields(one) != set_fields(there[ref_of(one)]))
    counts = Counter(closed.values())
    unread = (f"you may not patch {resource} ({count})" for resource, count in sorted(counts.items()))
    return (*_named(bad), *differ), tuple(unread)


def _named(found: Mapping[Ref, str]) -> Iterator[str]:
    return (f"{ref} ({words})" for ref, words in found.items())


def _pool(one: Manifest) -> PoolState:
    resources = section(section(one, "status"), "resources")
    words = waiting(one).partition(": ")[2]
    return PoolState(
        one["metadata"]["name"],
        str(resources.get("nodes", "0")),
        section(section(one, "spec"), "limits"),
        words,
    )


def _queue(one: Manifest) -> QueueState:
    state = section(one, "status")
    used = {
        (flavor["name"], resource["name"]): str(resource.get("total", "0"))
        for flavor in rows(state, "flavorsUsage")
        for resource in rows(flavor, "resources")
    }
    uses = (
        QueueUse(
            flavor["name"],
            resource["name"],
            str(resource["nominalQuota"]),
            used.get((flavor["name"], resource["name"]), "0"),
        )
        for group in rows(section(one, "spec"), "resourceGroups")
        for flavor in rows(group, "flavors")
        for resource in rows(flavor, "resources")
    )
    words = "" if is_true(one, "Active") else str(condition(one, "Active").get("message") or "not active")
    return QueueState(
        name=one["metadata"]["name"],
        uses=tuple(uses),
        admitted=int(state.get("admittedWorkloads", 0)),
        pending=int(state.get("pendingWorkloads", 0)),
        waiting=words,
    )
