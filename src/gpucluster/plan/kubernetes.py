"""The resources that a node offers to pods, with the default of each amount, and the levels of a topology. Pure."""

from collections.abc import Mapping, Sequence

from gpucluster.catalog import Machine
from gpucluster.plan import names
from gpucluster.plan.defaults import Default
from gpucluster.plan.model.values import (
    CPU,
    EFA,
    HUGE_PAGES,
    MEMORY,
    Distribution,
    TopologyLevel,
    accelerators,
)

CPU_PERCENT = Default(
    4, "kubelet, containerd and about ten daemon sets: network, storage, device plugins, metrics"
)
CPU_LEAST_MILLI = Default(500, "for the same daemons on a small machine")
MEMORY_PERCENT = Default(
    92,
    "Karpenter subtracts 7.5 % until it has seen such a node, so it would add no node for a larger pod",
)
DAEMONS_MEMORY_PERCENT = Default(
    1,
    "the kubelet's reserve (EKS: 255 MiB, and 11 MiB for each possible pod) and the daemons",
)
DAEMONS_MEMORY_LEAST_MIB = Default(2048, "for the same daemons on a small machine")
HUGE_PAGES_SET_ASIDE_MIB = Default(
    10256, "EFA reserves 5128 pages of 2 MiB at boot; EKS user guide, node EFA"
)
HUGE_PAGES_MIB = Default(5120, "the amount that the examples of the EKS user guide request")
IDLE_S = Default(
    1800,
    "a new node downloads images of tens of GB and partitions its GPUs, which costs more than half an idle hour",
)
SHM_PART = Default(8, "NCCL and data loaders need far more than a pod's default of 64 MiB in /dev/shm")
SHM_LEAST_MIB = 64  # what a container has by itself
SHM_MOST_MIB = Default(65536, "its content counts as memory of the pod, and no framework uses more")
SERVICE_PORT = Default(8000, "the port of vLLM and Triton")
GRACE_S = Default(120, "for the last writes of a program without a checkpoint")
GRACE_AFTER_S = Default(30, "after the time for a checkpoint, for the end of the program")
READY_S = Default(
    1800,
    "for new machines, images of tens of GB and a model; later Kueue takes the quota back and queues it again",
)
RESTARTS = Default(3, "each failed node uses one; a program that always fails stops after the third")
SERVICE_PRIORITY = Default(100_000, "a service that stops answering costs more than a gang that waits")
GANG_PRIORITY = Default(1000, "below services, and above what asks for less than a gang")
MAX_WEIGHT = 100  # of a NodePool; the least is 1 (karpenter v1.14.1, pkg/apis/v1/nodepool.go)
SHARE = Default(1, "teams without a share divide what they may borrow in equal parts")
REQUEST_CPU_MILLI = Default(1000, "for a container without a request, because the queue counts requests")
REQUEST_MEMORY_MIB = Default(4096, "for a container without a request; also its limit")
ROOT_DISK_GIB = Default(
    200, "images of training frameworks have tens of GB, and the kubelet keeps a fifth free"
)
# test/utils/image/manifest.go of Kubernetes v1.36.2
VALIDATION_IMAGE = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"
VOLUME_GIB = Default(1024, "Kubernetes requires a size; NFS does not enforce it")


def allocatable(machines: Sequence[Machine], mig: Mapping[str, int]) -> dict[str, int]:
    """Allocatable resources of a node that may be any of `machines`: the least of each resource. Sliced GPUs have no fabric."""
    efa = 0 if mig else min(machine.efa for machine in machines)
    found = {
        CPU: _cpu_milli(min(machine.vcpus for machine in machines)),
        MEMORY: _memory_mib(min(machine.memory_mib for machine in machines), pages=efa > 0),
        **accelerators(gpus_of(machines), dict(mig)),
    }
    return {**found, EFA: efa, HUGE_PAGES: int(HUGE_PAGES_MIB.value)} if efa else found


def gpus_of(machines: Sequence[Machine]) -> int:
    """GPUs of a node. The spec's rules require the same number for all machines of a pool."""
    return min(0 if machine.gpu is None else machine.gpu.count for machine in machines)


def _cpu_milli(vcpus: int) -> int:
    share = vcpus * 10 * int(CPU_PERCENT.value)
    return vcpus * 1000 - max(share, int(CPU_LEAST_MILLI.value))


def _memory_mib(nameplate: int, *, pages: bool) -> int:
    visible = nameplate * int(MEMORY_PERCENT.value) // 100
    daemons = nameplate * int(DAEMONS_MEMORY_PERCENT.value) // 100
    aside = int(HUGE_PAGES_SET_ASIDE_MIB.value) if pages else 0
    return visible - max(daemons, int(DAEMONS_MEMORY_LEAST_MIB.value)) - aside


# AWS's own labels of the network topology; 1 is the widest, and only the zone is always set
_FABRIC = (
    TopologyLevel(word="spine", label="topology.k8s.aws/network-node-layer-1"),
    TopologyLevel(word="block", label="topology.k8s.aws/network-node-layer-2"),
    TopologyLevel(word="leaf", label="topology.k8s.aws/network-node-layer-3"),
)
_ZONE, _HOST = (
    TopologyLevel(word="zone", label=names.LABEL_ZONE),
    TopologyLevel(word="host", label=names.LABEL_HOST),
)
WORDS = {  # for `topology`; a host is no valid level, because a gang of whole nodes has one pod on each
    Distribution.EKS: tuple(level.word for level in (_ZONE, *_FABRIC)),
    Distribution.EXISTING: (_ZONE.word,),
}


def has_topology(gpus: int, mig: Mapping[str, int], least: int, most: int) -> bool:
    """Whether a pool has a topology: whole GPUs and always-on nodes, because Kueue counts existing nodes."""
    return gpus > 0 and not mig and least == most


def levels(distribution: Distribution, machines: Sequence[Machine]) -> tuple[TopologyLevel, ...]:
    """Labels on every node of such machines, widest first. Kueue ignores a node that lacks the label of one level."""
    has_fabric = distribution is Distribution.EKS and all(m.network_layers >= len(_FABRIC) for m in machines)
    return (_ZONE, *(_FABRIC if has_fabric else ()), _HOST)
