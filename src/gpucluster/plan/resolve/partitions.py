"""Slurm's partitions: time limits, and which of them take jobs without GPUs. Pure."""

from collections.abc import Mapping, Sequence

from gpucluster.plan import defaults
from gpucluster.plan.model import Partition, Pool
from gpucluster.plan.resolve import accounting, sizes
from gpucluster.spec import ClusterSpec
from gpucluster.spec.model import Partition as PartitionSpec
from gpucluster.spec.part import require


def partitions(spec: ClusterSpec, pools: Sequence[Pool]) -> tuple[Partition, ...]:
    """The partitions, in their order."""
    gpus = {pool.name: pool.shape.gpu_count for pool in pools}
    some_for_cpus = any(_is_for_cpus(one, gpus) for one in spec.partitions)
    return tuple(
        _partition(one, spec, pools, requires_gpus=some_for_cpus and not _is_for_cpus(one, gpus))
        for one in spec.partitions
    )


def _partition(
    one: PartitionSpec, spec: ClusterSpec, pools: Sequence[Pool], *, requires_gpus: bool
) -> Partition:
    """Return the partition. `requires_gpus` if the spec does not say: jobs without GPUs have a better place."""
    short = int(defaults.DEFAULT_TIME_S.value)
    return Partition(
        name=one.name,
        pools=one.pools,
        default=one.default,
        max_time_s=one.max_time,
        default_time_s=one.default_time or min(short, one.max_time or short),
        sizes=sizes.of_partition(one, require(spec.slurm), pools),
        requires_gpus=requires_gpus if one.requires_gpus is None else one.requires_gpus,
        max_cpus_per_node=one.max_cpus_per_node,
        tier=one.tier or 1,
        exclusive=one.exclusive,
        qos=one.qos,
        accounts=one.accounts,
        allow_qos=accounting.allowed_qos(spec, one.allow_qos),
        topology=one.topology,
    )


def _is_for_cpus(one: PartitionSpec, gpus: Mapping[str, int]) -> bool:
    """Whether jobs without GPUs keep few GPU nodes from other jobs here."""
    if one.requires_gpus:
        return False
    return one.max_cpus_per_node is not None or any(not gpus[pool] for pool in one.pools)
