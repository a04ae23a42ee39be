"""Kubeflow Trainer: what a pod of a TrainJob gets in each pool with whole GPUs. Pure."""

from collections.abc import Iterable

from gpucluster.plan.model.kubernetes import NodePool, Trainer, TrainingRuntime
from gpucluster.plan.model.values import EFA, GPU
from gpucluster.plan.quota_shares import of_node
from gpucluster.plan.resolve.pods import FABRIC, fabric_env, shm_mib, without
from gpucluster.spec.kubernetes import Trainer as TrainerSpec


def trainer(requested: TrainerSpec | None, pools: Iterable[NodePool]) -> Trainer | None:
    """None without Trainer. Slices of GPUs have no NCCL between nodes, so pools with slices have no runtime."""
    if requested is None:
        return None
    runtimes = tuple(_runtime(pool) for pool in pools if pool.allocatable.get(GPU, 0))
    return Trainer(image=requested.image, pull_secrets=requested.pull_secrets, runtimes=runtimes)


def _runtime(pool: NodePool) -> TrainingRuntime:
    resources = of_node(pool, {GPU: pool.allocatable[GPU]})
    fabric = resources.get(EFA, 0) > 0
    return TrainingRuntime(
        pool=pool.name,
        resources=resources if fabric else without(resources, FABRIC),
        fabric=fabric,
        fabric_env=fabric_env([pool], _SEVERAL, fabric=fabric),
        shm_mib=shm_mib(None, resources),
        anywhere=bool(pool.levels),
    )


_SEVERAL = 2  # nodes: the variables are those of a gang of several nodes, and do no harm on one
