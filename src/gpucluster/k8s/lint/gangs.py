"""Pods that work together with GPUs: fabric, shared memory, rendezvous, and what a node can hold.

These rules know habits, not refusals, so most are warnings.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

from gpucluster.catalog import Machine, load
from gpucluster.k8s.lint import kueue, quantity
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet
from gpucluster.k8s.lint.pods import JOBSET, Pods, amounts, asked, needs, pods_of
from gpucluster.k8s.lint.tree import at, entries, mapping, text, texts

GPU, EFA = "nvidia.com/gpu", "vpc.amazonaws.com/efa"
_TYPE = "node.kubernetes.io/instance-type"
_MOST = Decimal(8)  # GPUs of one host, as nearly all machines have
_WHOLE = (Decimal(1), Decimal(2), Decimal(4), Decimal(8), Decimal(16))  # shares of a host without a rest
_SHM_PER_GPU = Decimal(2**30)  # bytes; NCCL and data loaders of one GPU need about 1 GiB
_FABRIC = ("NCCL_", "FI_", "RDMAV_")
_NOT_GANGS = frozenset(
    {"Deployment.apps", "ReplicaSet.apps", "DaemonSet.apps", "StatefulSet.apps", "CronJob.batch"}
)
_JOBS = frozenset({"Job.batch", JOBSET})
_CLAIM_TEMPLATE = "ResourceClaimTemplate.resource.k8s.io"
_GPU_CLASSES = frozenset({"gpu.nvidia.com", "mig.nvidia.com"})
_SHM = "/dev/shm"  # noqa: S108 - a path in a container
_RENDEZVOUS = ("MASTER_ADDR", "PET_MASTER_ADDR")


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        for pods in pods_of(thing):
            if GPU in needs(pods):
                yield from _count(pods)
                yield from _shared_memory(pods)
                yield from _one_host(manifests, pods)
                yield from _two_ways(manifests, pods)
            if is_gang(pods):
                yield from _fabric(manifests, pods)
                yield from _rendezvous(pods)
                yield from _names(pods)


@cache
def machines() -> Mapping[str, Machine]:
    """Return the catalog's machines by name."""
    return load().machines


def is_gang(pods: Pods) -> bool:
    """Return whether several pods with devices work as one: a job or set, and no replicas of a service."""
    return pods.count > 1 and pods.owner.key not in _NOT_GANGS and bool(devices(pods)) and _is_wide(pods)


def devices(pods: Pods) -> dict[str, Decimal]:
    return {name: amount for name, amount in needs(pods).items() if kueue.is_device(name)}


def _is_wide(pods: Pods) -> bool:
    """A plain Job is a gang if it is indexed; else its pods take work from a queue."""
    return pods.owner.key != "Job.batch" or at(pods.owner.body, "spec", "completionMode") == "Indexed"


def _count(pods: Pods) -> Iterator[Finding]:
    for path, container in pods.containers():
        gpus = asked(container).get(GPU)
        if gpus is not None and gpus > 0 and gpus == int(gpus) and gpus not in _WHOLE and gpus < _MOST:
            words = f"{quantity.shown(gpus)} GPUs do not divide a host of 8: the rest stays unused"
            yield pods.owner.warned("gpu-count", words, (*path, "resources", "limits", GPU))


def _shared_memory(pods: Pods) -> Iterator[Finding]:
    """Without a memory volume a container has 64 MiB, and NCCL fails between the GPUs of a pod."""
    sizes = {
        text(at(volume, "name")): (path, mapping(at(volume, "emptyDir")))
        for path, volume in entries(pods.spec, "volumes")
    }
    for path, container in pods.containers():
        gpus = asked(container).get(GPU, Decimal(0))
        if gpus < 2 or "initContainers" in path or pods.spec.get("hostIPC") is True:
            continue
        names = [
            text(at(mount, "name"))
            for _, mount in entries(container, "volumeMounts")
            if text(at(mount, "mountPath")).rstrip("/") == _SHM
        ]
        if not names:
            yield pods.owner.warned(
                "no-shm",
                f"{quantity.shown(gpus)} GPUs share 64 MiB of /dev/shm: mount an emptyDir of medium Memory there",
                (*path, "volumeMounts"),
            )
        for name in names:
            where, volume = sizes.get(name, ((), {}))
            size = quantity.parse(volume.get("sizeLimit"))
            if size is not None and size < _SHM_PER_GPU * gpus:
                words = f"{quantity.shown(size)} of /dev/shm for {quantity.shown(gpus)} GPUs: NCCL and data loaders need 1Gi each"
                yield pods.owner.warned("no-shm", words, pods.where("spec", *where, "emptyDir", "sizeLimit"))
            elif where and volume and volume.get("medium") != "Memory":
                yield pods.owner.warned(
                    "no-shm",
                    f"{_SHM} is on a disk: the volume needs medium Memory",
                    pods.where("spec", *where),
                )


def _one_host(manifests: ManifestSet, pods: Pods) -> Iterator[Finding]:
    """A gang that must be in one host needs a host with all its GPUs."""
    key = kueue.REQUIRED
    pools = manifests.facts.pools or ()
    most = max((amounts(pool.allocatable).get(GPU, Decimal(0)) for pool in pools), default=_MOST)
    total = needs(pods)[GPU] * pods.count
    if pods.annotations.get(key) == kueue.HOSTNAME and total > most:
        words = f"{quantity.shown(total)} GPUs must be in one host, which has {quantity.shown(most)}: it would wait forever"
        yield pods.owner.found("host-domain", words, pods.where("metadata", "annotations", key))


def _two_ways(manifests: ManifestSet, pods: Pods) -> Iterator[Finding]:
    """The device plugin and DRA count the same GPUs without knowing of each other."""
    claims = [claim for _, claim in entries(pods.spec, "resourceClaims") if _is_gpu(manifests, pods, claim)]
    for path, container in pods.containers() if claims else ():
        if GPU in asked(container):
            words = f"asks for {GPU} of the device plugin, and its pod for a GPU of DRA: use one of them"
            yield pods.owner.warned("two-gpu-ways", words, (*path, "resources"))


def _is_gpu(manifests: ManifestSet, pods: Pods, claim: Any) -> bool:
    """Return whether a claim is for a GPU: by its template, else by its name. A channel between GPUs is none."""
    template = manifests.get(
        _CLAIM_TEMPLATE, text(at(claim, "resourceClaimTemplateName")), pods.owner.namespace
    )
    if template is None:
        return "gpu" in text(at(claim, "name")).lower()
    requests = [one for _, one in entries(template.body, "spec", "spec", "devices", "requests")]
    classes = {
        text(at(one, *way))
        for one in requests
        for way in (("exactly", "deviceClassName"), ("deviceClassName",))
    }
    return bool(classes & _GPU_CLASSES)


def _fabric(manifests: ManifestSet, pods: Pods) -> Iterator[Finding]:
    """Without EFA, and without NCCL's variables for it, a gang runs over TCP, many times slower."""
    whole = repr(pods.owner.body)  # with the command of a launcher
    for path, container in pods.containers():
        have, names = asked(container), _variables(container)
        if not any(kueue.is_device(resource) for resource in have) or "initContainers" in path:
            continue
        wants = "efa" in names.values() or _has_fabric(manifests, pods)
        if have.get(EFA, Decimal(0)) == 0 and wants:
            yield pods.owner.warned(
                "no-efa", f"asks for no {EFA}, so its nodes talk over TCP", (*path, "resources", "limits")
            )
        elif (
            have.get(EFA, Decimal(0)) > 0
            and not any(word in whole for word in _FABRIC)
            and not container.get("envFrom")
        ):
            yield pods.owner.warned(
                "no-nccl-variables",
                "uses EFA without a variable of NCCL or libfabric: NCCL can choose another interface",
                (*path, "env"),
            )


def _variables(container: Mapping[str, Any]) -> dict[str, str]:
    return {text(at(one, "name")): text(at(one, "value")) for _, one in entries(container, "env")}


def _has_fabric(manifests: ManifestSet, pods: Pods) -> bool:
    """Return whether the pods take whole hosts that have EFA, by the pools or by the named machine."""
    gpus = needs(pods).get(GPU, Decimal(0))
    queue = kueue.queue_of(manifests, pods.owner)
    behind = [
        pool
        for flavor in (kueue.flavors_of(manifests, queue) if queue else ())
        for pool in kueue.pools_behind(manifests, flavor)
    ]
    of_pools = [amounts(pool.allocatable) for pool in behind]
    if any(have.get(EFA, Decimal(0)) > 0 and have.get(GPU) == gpus for have in of_pools):
        return True
    machine = machines().get(texts(pods.spec.get("nodeSelector")).get(_TYPE, ""))
    return machine is not None and machine.efa > 0 and machine.gpu is not None and machine.gpu.count == gpus


def _rendezvous(pods: Pods) -> Iterator[Finding]:
    for path, container in pods.containers():
        for inner, variable in entries(container, "env"):
            name, value = text(at(variable, "name")), text(at(variable, "value"))
            expected = {
                "PET_NNODES": Decimal(pods.count),
                "PET_NPROC_PER_NODE": asked(container).get(GPU),
            }.get(name)
            if name == "PET_NNODES" and pods.owner.key not in _JOBS:
                continue
            if expected is not None and value.isdecimal() and Decimal(value) != expected:
                words = f"{name} is {value}, the manifest has {quantity.shown(expected)}: the processes wait for each other until the time-out"
                yield pods.owner.warned("rendezvous", words, (*path, *inner, "value"))


def _names(pods: Pods) -> Iterator[Finding]:
    """Pods of a set find each other by names of the cluster's DNS."""
    named = any(_variables(container).get(name) for _, container in pods.containers() for name in _RENDEZVOUS)
    if pods.owner.key != JOBSET or not named:
        return
    policy, where = pods.spec.get("dnsPolicy"), pods.where("spec", "dnsPolicy")
    if policy == "Default" or (policy == "None" and not pods.spec.get("dnsConfig")):
        yield pods.owner.warned(
            "pod-names", f"with dnsPolicy {policy} its pods cannot resolve each other's names", where
        )
    elif pods.spec.get("hostNetwork") is True and policy != "ClusterFirstWithHostNet":
        yield pods.owner.warned(
            "pod-names",
            "with hostNetwork its pods need dnsPolicy ClusterFirstWithHostNet to resolve each other's names",
            where,
        )
    if at(pods.owner.body, "spec", "network", "enableDNSHostnames") is False:
        where = ("spec", "network", "enableDNSHostnames")
        yield pods.owner.warned("pod-names", "without enableDNSHostnames its pods have no names", where)
