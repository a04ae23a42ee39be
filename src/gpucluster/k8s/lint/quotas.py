"""Quotas equal the capacity of the pools, and cover the requests of their workloads."""

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint import kueue, placement
from gpucluster.k8s.lint.facts import PoolFacts
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import LWS, TRAIN_JOB, Pods, amounts, needs, parts_of, pods_of
from gpucluster.k8s.lint.tree import Path, at, below, entries, items, text

_APART = frozenset(
    {"Deployment.apps", LWS}
)  # Kueue queues each of their replicas alone, so they can be in several flavors


def check(manifests: ManifestSet) -> Iterator[Finding]:
    if manifests.facts.pools is not None:
        yield from _against_pools(manifests)
    for queue in manifests.all(kueue.CLUSTER_QUEUE, kueue.COHORT):
        yield from _once(queue)
    for workload in manifests.objects:
        queue = kueue.queue_of(manifests, workload)
        if queue is not None:
            yield from _workload(manifests, workload, queue)


def _against_pools(manifests: ManifestSet) -> Iterator[Finding]:
    promised: dict[tuple[str, str], list[kueue.Quota]] = {}
    for owner in manifests.all(kueue.CLUSTER_QUEUE, kueue.COHORT):
        for quota in kueue.quotas(owner):
            promised.setdefault((quota.flavor, quota.resource), []).append(quota)
    for (name, resource), quotas in promised.items():
        flavor = manifests.get(kueue.FLAVOR, name)
        if flavor is not None:
            yield from _compare(flavor, resource, quotas, kueue.pools_behind(manifests, flavor))


def _compare(flavor: Obj, resource: str, quotas: list[kueue.Quota], pools: tuple[PoolFacts, ...]) -> Iterator[Finding]:  # fmt: skip
    have = sum((_of_pool(pool, resource) for pool in pools), start=Decimal(0))
    promised = sum((quota.nominal for quota in quotas), start=Decimal(0))
    device = kueue.is_device(resource)
    last, who = quotas[-1], ", ".join(dict.fromkeys(quota.owner.name for quota in quotas))
    words = f"{quantity.shown(promised)} {resource} of flavor {flavor.name!r} are in quotas ({who}), its pools have {quantity.shown(have)}"  # fmt: skip
    if promised > have:
        level = Severity.ERROR if device else Severity.WARNING
        yield last.owner.found("quota-above-pools", words, last.path, level)
    elif device and promised < have:
        yield last.owner.warned("quota-below-pools", f"{words}: the rest is unused", last.path)


def _of_pool(pool: PoolFacts, resource: str) -> Decimal:
    return amounts(pool.allocatable).get(resource, Decimal(0)) * pool.max_nodes


def _once(queue: Obj) -> Iterator[Finding]:
    """As Kueue's webhook: a resource is in one group, and a flavor lists the covered resources in their order."""
    groups: dict[str, int] = {}
    for path, resources, flavor in _flavor_lists(queue):
        if resources[0] != resources[1]:
            yield queue.found("quota-resources", _differ(flavor, *resources), path)  # fmt: skip
        for resource in resources[0]:
            number = int(path[2])
            if groups.setdefault(resource, number) != number:
                yield queue.found("quota-resources", f"{resource} is in two groups", path)


def _differ(flavor: str, covered: list[str], own: list[str]) -> str:
    order = ": the order must agree, too" if sorted(covered) == sorted(own) else ""
    return f"flavor {flavor!r} has {', '.join(own)}, covered are {', '.join(covered)}{order}"


def _flavor_lists(queue: Obj) -> Iterator[tuple[Path, tuple[list[str], list[str]], str]]:
    for group_path, group in entries(queue.body, "spec", "resourceGroups"):
        covered = [text(name) for name in items(at(group, "coveredResources"))]
        for path, flavor in entries(group, "flavors"):
            own = [text(at(entry, "name")) for _, entry in entries(flavor, "resources")]
            yield (*group_path, *path), (covered, own), text(at(flavor, "name"))


def _workload(manifests: ManifestSet, workload: Obj, queue: Obj) -> Iterator[Finding]:
    covered = kueue.covered(queue)
    total: dict[str, Decimal] = {}
    flavors = _placeable(manifests, workload, queue)
    for pods in _parts(manifests, workload):
        yield from _covered(manifests, pods, covered, queue)
        for resource, amount in needs(pods).items():
            total[resource] = total.get(resource, Decimal(0)) + amount * pods.count
    for resource, amount in total.items():
        reached = _reach(manifests, queue, resource, flavors)
        reach = sum(reached, start=Decimal(0)) if workload.key in _APART else max(reached, default=Decimal(0))
        if resource in covered and amount > reach:
            words = f"asks for {quantity.shown(amount)} {resource}, queue {queue.name!r} reaches {quantity.shown(reach)}"  # fmt: skip
            yield workload.found(
                "workload-above-quota", f"{words}: it would wait forever", ("spec",), _sure(manifests, queue)
            )


def _parts(manifests: ManifestSet, workload: Obj) -> Iterator[Pods]:
    """Return the pods of a workload. The nodes of a TrainJob are in its runtime, with the resources of the job if it has any."""
    runtime = kueue.runtime_of(manifests, workload)
    given = at(workload.body, "spec", "trainer", "resourcesPerNode") is not None
    if workload.key != TRAIN_JOB or runtime is None or given:
        number = at(runtime.body, "spec", "mlPolicy", "numNodes") if runtime else None
        silent = at(workload.body, "spec", "trainer", "numNodes") is None
        for pods in parts_of(workload):
            yield replace(pods, count=number) if pods.alone and silent and type(number) is int else pods
        return
    said = at(workload.body, "spec", "trainer", "numNodes")
    nodes = said if said is not None else at(runtime.body, "spec", "mlPolicy", "numNodes")
    for pods in pods_of(runtime):
        step = at(below(runtime.body, pods.path[:-3]), "template", "metadata", "labels", kueue.STEP)
        if step == "trainer":
            count = nodes if type(nodes) is int else 1
            yield replace(pods, owner=workload, path=("spec", "runtimeRef"), count=count, inline=True)


def _sure(manifests: ManifestSet, queue: Obj) -> Severity:
    """A cohort may have more members in the cluster than in the manifests."""
    alone = not kueue.cohort_of(queue) and kueue.is_complete(manifests, queue)
    return Severity.ERROR if manifests.facts.whole or alone else Severity.WARNING


def _covered(manifests: ManifestSet, pods: Pods, covered: frozenset[str], queue: Obj) -> Iterator[Finding]:
    for resource in needs(pods):
        if resource not in covered:
            words = (
                f"asks for {resource}, which queue {queue.name!r} does not cover: it would never be admitted"
            )
            level = (
                Severity.ERROR if manifests.facts.whole else Severity.WARNING
            )  # Kueue's configuration can transform it
            yield pods.owner.found("quota-uncovered", words, pods.where("spec"), level)


def _placeable(manifests: ManifestSet, workload: Obj, queue: Obj) -> frozenset[str]:
    """Return the flavors that all its pods can have. `placement` reports a requested level that no flavor has."""
    names = frozenset(flavor.name for flavor in kueue.flavors_of(manifests, queue))
    elsewhere = frozenset(quota.flavor for quota in kueue.quotas(queue)) - names
    for pods in pods_of(workload):
        able = kueue.given(manifests, queue, pods.annotations) or kueue.flavors_of(manifests, queue)
        names &= {flavor.name for flavor in able if _chosen(manifests, pods, flavor)}
    return names | elsewhere


def _chosen(manifests: ManifestSet, pods: Pods, flavor: Obj) -> bool:
    """Return whether the pods' own selector and affinity allow the flavor's nodes; True if the pools are unknown."""
    pools = kueue.pools_behind(manifests, flavor)
    return not pools or any(placement.selected(pods, pool) for pool in pools)


def _reach(manifests: ManifestSet, queue: Obj, resource: str, flavors: frozenset[str]) -> Iterator[Decimal]:
    """Yield the most that each flavor can provide: its own quota and what may be borrowed in the whole cohort tree."""
    family = kueue.family(manifests, queue)
    for own in kueue.quotas(queue):
        if own.resource == resource and own.flavor in flavors:
            all_of_it = sum(
                (q.nominal for owner in family for q in kueue.quotas(owner) if (q.flavor, q.resource) == (own.flavor, resource)),
                start=Decimal(0),
            )  # fmt: skip
            limit = all_of_it if own.borrowing is None else min(all_of_it, own.nominal + own.borrowing)
            yield limit if len(family) > 1 else own.nominal
