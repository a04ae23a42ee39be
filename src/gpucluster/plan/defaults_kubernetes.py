"""The defaults of Kubernetes, with their reasons: what of a node is not for pods of teams, and what their pods get."""

from gpucluster.plan.defaults import Default

CPU_PERCENT = Default(
    4, "kubelet, containerd and some ten daemon sets: network, storage, device plugins, metrics"
)
CPU_LEAST_MILLI = Default(500, "the same daemons on a small machine")
MEMORY_PERCENT = Default(
    92,
    "Karpenter takes 7.5 % of the nameplate for lost until it has seen such a node: a larger pod would start none",
)
DAEMONS_MEMORY_PERCENT = Default(
    1,
    "the kubelet's own reserve (EKS: 255 MiB and 11 for each pod that the machine may hold) and the daemons",
)
DAEMONS_MEMORY_LEAST_MIB = Default(2048, "the same daemons on a small machine")
HUGE_PAGES_SET_ASIDE_MIB = Default(
    10256, "EFA's software sets 5128 pages of 2 MiB aside when a machine boots (EKS user guide, node EFA)"
)
HUGE_PAGES_MIB = Default(5120, "what a node's pods ask of these pages, as the EKS user guide's examples do")
IDLE_S = Default(
    1800, "an image of tens of GB and slicing GPUs cost more than half an hour of a node that stands empty"
)
SHM_PART = Default(
    8, "NCCL and data loaders need far more than the 64 MiB of /dev/shm that a pod has by itself"
)
SHM_MOST_MIB = Default(65536, "what is in it counts as the pod's memory, and no framework fills more")
SERVICE_PORT = Default(8000, "where vLLM and Triton answer")
RESTARTS = Default(3, "a node that fails costs one; a program that fails each time stops after the third")
REQUEST_CPU_MILLI = Default(1000, "of a container that asks for nothing, for the queue counts what is asked")
REQUEST_MEMORY_MIB = Default(4096, "the same; it is the container's limit, too")
ROOT_DISK_GIB = Default(
    200, "images of training frameworks have tens of GB, and the kubelet wants a fifth free"
)
VOLUME_GIB = Default(1024, "nobody holds an NFS volume to its size, but Kubernetes wants one")
