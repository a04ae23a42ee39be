"""The hosts that pods get: by the pools of a spec, by the machine that they name, or by the NodePool that they choose.

A host that none of these names is unknown: no rule assumes its size.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache

from gpucluster import kubernetes_quantity as quantity
from gpucluster.catalog import Machine, load
from gpucluster.k8s.lint import placement
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, amounts, needs, pods_of
from gpucluster.k8s.lint.tree import at, entries, items, text, texts

_CPU = "cpu"
_TAKEN_BY = {_CPU: "the kubelet of EKS", "memory": "the kernel"}
GPU, EFA = "nvidia.com/gpu", "vpc.amazonaws.com/efa"
TYPE, ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
NODE_POOL = "NodePool.karpenter.sh"
_NAME = "karpenter.sh/nodepool"  # the label that Karpenter gives to the nodes of a pool
_OF_AWS = re.compile(
    r"[a-z]+\d[a-z0-9-]*\.(?:nano|micro|small|medium|large|\d*xlarge|metal(?:-\d+xl)?)", re.ASCII
)
_WITH_GPUS = re.compile(r"(?:gr?|p)\d", re.ASCII)  # the families of AWS with GPUs


def check(manifests: ManifestSet) -> Iterator[Finding]:
    """Report pods that ask for more than the machine that they name has. With a spec, `placement` compares its pools."""
    for thing in manifests.objects if manifests.facts.pools is None else ():
        for pods in pods_of(thing):
            yield from _too_large(manifests, pods)


def _too_large(manifests: ManifestSet, pods: Pods) -> Iterator[Finding]:
    """A device plugin can offer one GPU several times, and a kubelet without a reserve all CPUs: both are warnings."""
    named = machines_of(manifests, pods)
    known = [_parts(machine) for machine in named if machine] if all(named) else []
    for resource, amount in needs(pods).items() if known else ():
        most = max((Decimal(parts[resource]) for parts in known if resource in parts), default=amount)
        whole = amount == most and resource in _TAKEN_BY
        if amount > most or whole:
            rest = f", of which {_TAKEN_BY[resource]} takes a part" if whole else ""
            words = f"asks for {quantity.shown(amount)} {resource}, its machine has {quantity.shown(most)}{rest}: it would wait forever"
            sure = resource != GPU and not (whole and resource == _CPU)
            yield pods.owner.found("too-large", words, pods.where("spec"), Severity.ERROR if sure else Severity.WARNING)  # fmt: skip


def gpus_of(manifests: ManifestSet, pods: Pods) -> frozenset[int]:
    """Return the numbers of GPUs that its hosts can have; none if its hosts are unknown."""
    pools = manifests.facts.pools
    if pools is not None:
        chosen = [pool for pool in pools if placement.selected(pods, pool)]
        return frozenset(int(amounts(pool.allocatable).get(GPU, Decimal(0))) for pool in chosen)
    named = machines_of(manifests, pods)
    return frozenset(int(of(one, GPU)) for one in named if one) if all(named) else frozenset()


def machines_of(manifests: ManifestSet, pods: Pods) -> tuple[Machine | None, ...]:
    """Return the machines that its hosts can be, None for one that the catalog does not know; none if nothing names them."""
    by_label = texts(pods.spec.get("nodeSelector")).get(TYPE)
    names = [by_label] if by_label else list(_by_affinity(pods))
    if not names:
        names = [name for maker in makers_of(manifests, pods) for _, name in wanted(maker, TYPE)]
    return tuple(machines().get(name) for name in dict.fromkeys(names))


def _by_affinity(pods: Pods) -> Iterator[str]:
    hard = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    terms = [term for _, term in entries(pods.spec, *hard)]
    for _, one in entries(terms[0], "matchExpressions") if len(terms) == 1 else ():
        if at(one, "key") == TYPE and at(one, "operator") == "In":
            yield from map(text, items(at(one, "values")))


def makers_of(manifests: ManifestSet, pods: Pods) -> tuple[Obj, ...]:
    """Return the NodePools that the pods choose by a label."""
    chosen = texts(pods.spec.get("nodeSelector"))
    return tuple(
        maker
        for maker in manifests.all(NODE_POOL)
        if chosen.get(_NAME) == maker.name
        or (chosen.get(_NAME) is None and labels(maker).items() & chosen.items())
    )


def labels(maker: Obj) -> dict[str, str]:
    return texts(at(maker.body, "spec", "template", "metadata", "labels"))


def wanted(maker: Obj, key: str) -> Iterator[tuple[int, str]]:
    """Yield the values that a NodePool allows for a label of its nodes, with the number of the requirement."""
    for (*_, number), one in entries(maker.body, "spec", "template", "spec", "requirements"):
        if at(one, "key") == key and at(one, "operator") == "In":
            yield from ((int(number), text(value)) for value in items(at(one, "values")))


@cache
def machines() -> Mapping[str, Machine]:
    """Return the catalog's machines by name."""
    return load().machines


def has_no_gpu(name: str) -> bool:
    """Return whether a machine has no GPU for certain, also one of AWS that the catalog does not have."""
    known = machines().get(name)
    return known.gpu is None if known else bool(_OF_AWS.fullmatch(name)) and not _WITH_GPUS.match(name)


def is_no_machine(name: str) -> bool:
    """Return whether the family is in the catalog with GPUs, and the size is none of it."""
    family = f"{name.partition('.')[0]}."
    sizes = [one for one in machines() if one.startswith(family)]
    return bool(sizes) and bool(_WITH_GPUS.match(name)) and name not in sizes and ".metal" not in name


def of(machine: Machine, resource: str) -> Decimal:
    return Decimal(_parts(machine).get(resource, 0))


def _parts(machine: Machine) -> dict[str, int]:
    gpus = machine.gpu.count if machine.gpu else 0
    return {_CPU: machine.vcpus, "memory": machine.memory_mib * 2**20, GPU: gpus, EFA: machine.efa}
