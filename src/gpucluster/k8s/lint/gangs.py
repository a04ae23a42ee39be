"""Pods that work together with GPUs: fabric, shared memory, zones, and what a node can hold.

These rules know habits, not refusals, so most are warnings.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint import hosts, kueue, ray_jobs
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.manifest_set import ManifestSet
from gpucluster.k8s.lint.pods import Pods, amounts, asked, needs, parts_of, pods_of
from gpucluster.k8s.lint.tree import at, entries, mapping, text, texts

GPU, EFA = "nvidia.com/gpu", "vpc.amazonaws.com/efa"
_MOST = Decimal(16)  # GPUs of the largest host that is sold as one: DGX-2, p2.16xlarge
_SHARES = (
    Decimal(1),
    Decimal(2),
    Decimal(4),
    Decimal(8),
    _MOST,
)  # of a host with 8 or 16 GPUs, without a rest
_SHM_PER_GPU = Decimal(2**30)  # bytes; NCCL and data loaders of one GPU need about 1 GiB
# devices whose collectives read NCCL's variables: RCCL of AMD does, Neuron, Gaudi and MPI do not
_WITH_NCCL = ("nvidia.com/", "amd.com/")
_FABRIC = ("NCCL_", "FI_", "RDMAV_")
_TCP = (
    ("FI_PROVIDER", "tcp"),
    ("FI_PROVIDER", "sockets"),
    ("NCCL_NET", "socket"),
    ("NCCL_NET_PLUGIN", "none"),
)
_LAUNCHERS = ("torchrun", "torch.distributed", "MASTER_ADDR", "PET_NNODES")
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_NOT_GANGS = frozenset(
    {"Deployment.apps", "ReplicaSet.apps", "DaemonSet.apps", "StatefulSet.apps", "CronJob.batch"}
)
_CLAIM_TEMPLATE = "ResourceClaimTemplate.resource.k8s.io"
_GPU_CLASSES = frozenset({"gpu.nvidia.com", "mig.nvidia.com"})
_SHM = "/dev/shm"  # noqa: S108 - a path in a container


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        for pods in parts_of(thing):
            if GPU in needs(pods):
                yield from _count(manifests, pods)
        for pods in pods_of(thing):
            if GPU in needs(pods):
                yield from _held(pods)
                yield from _shared_memory(pods)
                yield from _one_host(manifests, pods)
                yield from _two_ways(manifests, pods)
            if is_gang(pods):
                yield from _fabric(manifests, pods)
                yield from _zones(manifests, pods)


def is_gang(pods: Pods) -> bool:
    """Return whether several pods with devices work as one: a job or set, and no replicas of a service."""
    return pods.count > 1 and pods.owner.key not in _NOT_GANGS and bool(devices(pods)) and _is_wide(pods)


def devices(pods: Pods) -> dict[str, Decimal]:
    return {name: amount for name, amount in needs(pods).items() if kueue.is_device(name)}


def _is_wide(pods: Pods) -> bool:
    """A plain Job is a gang if it is indexed, or starts a distributed program; else its pods take work from a queue."""
    indexed = at(pods.owner.body, "spec", "completionMode") == "Indexed"
    return pods.owner.key != "Job.batch" or indexed or is_launched(pods)


def is_launched(pods: Pods) -> bool:
    """Return whether the pods start a distributed program."""
    return any(word in repr(pods.spec) for word in _LAUNCHERS)


def _count(manifests: ManifestSet, pods: Pods) -> Iterator[Finding]:
    """Of a host that the manifests do not name, only this is known: it has 1, 2, 4, 8 or 16 GPUs."""
    known = {Decimal(gpus) for gpus in hosts.gpus_of(manifests, pods)} - {Decimal(0)}
    for path, container in pods.containers():
        gpus = asked(container).get(GPU, Decimal(0))
        if gpus <= 0 or gpus != int(gpus):
            continue
        rest = all(host % gpus for host in known) if known else gpus not in _SHARES and gpus < _MOST
        if rest and not (known and gpus > max(known)):
            sizes = " or ".join(quantity.shown(host) for host in sorted(known)) or "8 or 16"
            words = f"{quantity.shown(gpus)} GPUs do not divide a host of {sizes}: the rest stays unused"
            yield pods.owner.warned("gpu-count", words, (*path, "resources", "limits", GPU))


def _held(pods: Pods) -> Iterator[Finding]:
    """The scheduler reserves what the largest init container asks for until the pod ends."""
    first = [(path, asked(one)) for path, one in pods.containers() if "initContainers" in path and one.get("restartPolicy") != "Always"]  # fmt: skip
    ours = [asked(one).get(GPU, Decimal(0)) for path, one in pods.containers() if (path, asked(one)) not in first]  # fmt: skip
    for path, amounts_of in first:
        if amounts_of.get(GPU, Decimal(0)) > sum(ours):
            words = f"the pod holds {quantity.shown(amounts_of[GPU])} GPUs until it ends, and its containers ask for {quantity.shown(sum(ours, start=Decimal(0)))}"
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
        if not names and not ray_jobs.has_shared_memory(pods, path):
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
    """A gang that must be in one host needs a host with all its GPUs. A host that is not named can be of any size."""
    key = kueue.REQUIRED
    known = hosts.gpus_of(manifests, pods)
    most = Decimal(max(known)) if known else _MOST
    total = needs(pods)[GPU] * pods.count
    if pods.annotations.get(key) == kueue.HOSTNAME and total > most:
        has = (
            f"which has {quantity.shown(most)}"
            if known
            else f"and few hosts have more than {quantity.shown(most)}"
        )
        words = f"{quantity.shown(total)} GPUs must be in one host, {has}: it would wait forever"
        level = Severity.ERROR if known else Severity.WARNING
        yield pods.owner.found("host-domain", words, pods.where("metadata", "annotations", key), level)


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
        uses_nccl = any(resource.startswith(_WITH_NCCL) for resource in have)
        wants = "efa" in names.values() or _has_fabric(manifests, pods)
        if have.get(EFA, Decimal(0)) == 0 and wants:
            yield pods.owner.warned(
                "no-efa", f"asks for no {EFA}, so its nodes talk over TCP", (*path, "resources", "limits")
            )
        elif have.get(EFA, Decimal(0)) > 0 and (tcp := _over_tcp(names, nccl=uses_nccl)):
            words = f"asks for EFA, and {tcp}={names[tcp]} takes TCP"
            yield pods.owner.warned("no-efa", words, (*path, "env"))
        elif 0 < have.get(EFA, Decimal(0)) < (most := _fabric_of(manifests, pods)):
            words = f"asks for {quantity.shown(have[EFA])} of {most} devices of EFA, with all GPUs of its machine: the rest stays unused"
            yield pods.owner.warned("no-efa", words, (*path, "resources", "limits", EFA))
        elif (
            have.get(EFA, Decimal(0)) > 0
            and uses_nccl
            and not any(word in whole for word in _FABRIC)
            and not container.get("envFrom")
        ):
            yield pods.owner.warned(
                "no-nccl-variables",
                "uses EFA without a variable of NCCL or libfabric: NCCL can choose another interface",
                (*path, "env"),
            )


def _over_tcp(names: Mapping[str, str], *, nccl: bool) -> str:
    """Return the first variable that chooses TCP, of those that its libraries read; "" for none."""
    read = (one for one in _TCP if nccl or not one[0].startswith("NCCL_"))
    return next((name for name, value in read if names.get(name, "").lower() == value), "")


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
    named = hosts.machines_of(manifests, pods)
    return bool(named) and all(
        one is not None and one.efa > 0 and one.gpu is not None and one.gpu.count == gpus for one in named
    )


def _fabric_of(manifests: ManifestSet, pods: Pods) -> int:
    """Return how many EFA devices the named machines have, if the pod takes all their GPUs; 0 if nothing names them."""
    gpus = needs(pods).get(GPU)
    named = hosts.machines_of(manifests, pods)
    whole = all(one is not None and one.gpu is not None and one.gpu.count == gpus for one in named)
    return (
        min((one.efa for one in named if one), default=0)
        if whole and len(list(pods.containers())) == 1
        else 0
    )


def _zones(manifests: ManifestSet, pods: Pods) -> Iterator[Finding]:
    """EFA does not cross zones (T30), and Karpenter makes the nodes of one gang in any zone of its pool."""
    if EFA not in needs(pods) or _is_in_one_zone(pods):
        return
    for maker in hosts.makers_of(manifests, pods):
        zones = {zone for _, zone in hosts.wanted(maker, hosts.ZONE)}
        if len(zones) > 1:
            words = f"its nodes can be in {' and '.join(sorted(zones))}, and EFA does not cross zones: choose one zone, or require a topology"
            yield pods.owner.warned("gang-zones", words, pods.where("spec", "nodeSelector"))


def _is_in_one_zone(pods: Pods) -> bool:
    above = (pods.annotations, mapping(at(pods.owner.body, "metadata", "annotations")))
    asked_for = any(key in notes for notes in above for key in (kueue.REQUIRED, _EXCLUSIVE))
    return (
        asked_for
        or hosts.ZONE in texts(pods.spec.get("nodeSelector"))
        or hosts.ZONE in repr(pods.spec.get("affinity"))
    )
