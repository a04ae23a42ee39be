"""The defaults of Kubernetes, with their reasons: what of a node is not for pods of teams, and what their pods get."""

from gpucluster.plan.defaults import Default

CPU_PERCENT = Default(
    4, "kubelet, containerd and some ten daemon sets: network, storage, device plugins, metrics"
)
CPU_LEAST_MILLI = Default(500, "the same daemons on a small machine")
MEMORY_MIB = Default(
    4096, "the daemons' memory and the kubelet's eviction threshold, beside the nameplate's margin"
)
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
