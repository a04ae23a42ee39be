"""The sizes of a job that asks for none, on a node of each pool of its partition. Pure."""

from collections.abc import Sequence

from gpucluster.plan import gres
from gpucluster.plan.model import JobSizes, NodeShape, Pool
from gpucluster.slurm import sizes
from gpucluster.spec.model import Partition as PartitionSpec
from gpucluster.spec.model import Slurm as SlurmSpec


def of_partition(requested: PartitionSpec, slurm: SlurmSpec, pools: Sequence[Pool]) -> JobSizes:
    """Return the sizes with which a job fits on a node of each of its pools: the least of them.

    Slurm counts reserved CPUs in MaxCPUsPerNode, and in the memory of a job that has its nodes alone (S16).
    """
    shapes = [pool.shape for pool in pools if pool.name in requested.pools]
    of_node, of_cpu = sizes.memory_limits(slurm.extra, requested.extra)
    memory = min(min(shape.job_memory_mib // shape.job_cpus, of_node // shape.cpus) for shape in shapes)
    limit = requested.max_cpus_per_node
    most = None if limit is None else limit + min(shape.system_cpus for shape in shapes)
    shares = [_cpus_of_gpu(shape, most) for shape in shapes if shape.gpu_count]
    return JobSizes(
        memory_of_cpu_mib=max(1, min(memory, of_cpu)),
        cpus_of_gpu=min(shares, default=0) or None,
        most_cpus_of_node=most,
    )


def _cpus_of_gpu(shape: NodeShape, most: int | None) -> int:
    """Return the CPUs of a GPU, or of a MIG slice, if all of a node are in use. 0: there are more of them than CPUs.

    A job gets whole cores, so the share of a GPU is whole cores if it has one.
    """
    cpus = shape.job_cpus if most is None else min(shape.job_cpus, most - shape.system_cpus)
    share = max(0, cpus) // gres.units(shape)
    return share // shape.threads_per_core * shape.threads_per_core or share
