"""What the plan decides for the placement of jobs: of nodes and of partitions."""

from collections.abc import Iterator

from gpucluster.plan import defaults
from gpucluster.plan.defaults import Note
from gpucluster.plan.model import Partition, Pool, SlurmPlan
from gpucluster.spec import ClusterSpec

_WHY_FEATURES = "words for `sbatch --constraint`: what is known of a node before it runs"


def of_nodes(pool: Pool) -> Iterator[Note]:
    """Features and Weight of the pool's nodes."""
    at = f"pools[{pool.name}]"
    yield Note(f"{at}.features", ", ".join(pool.features), _features_reason(pool))
    shape = pool.shape
    if shape.system_cpus or shape.system_memory_mib:
        reserved = f"`extra` reserves {shape.system_cpus} CPUs and {shape.system_memory_mib} MiB of each node for the system"
        yield Note(f"{at}.for_jobs", f"{shape.job_cpus} CPUs, {shape.job_memory_mib} MiB", reserved)
    if shape.gpu_count:
        yield Note(f"{at}.links", *_links(pool))
    kinds = dict.fromkeys(always_on for _, always_on in pool.by_start())
    gpus = shape.gpu_count > 0
    weights = (f"{defaults.WEIGHTS[gpus, one]} {'always on' if one else 'elastic'}" for one in kinds)
    yield Note(f"{at}.weight", ", ".join(weights), defaults.WEIGHTS_REASON)


def _links(pool: Pool) -> tuple[str, str]:
    shape = pool.shape
    if shape.gpu_count == 1:
        return "none", "the nodes have one GPU"
    if shape.nvlink_group == shape.gpu_count:
        return "none", "NVLink joins all GPUs of a node, so Slurm can choose any of them"
    if shape.nvlink_group:
        return (
            f"groups of {shape.nvlink_group}",
            "gres.conf has them as Links: a job gets GPUs that NVLink joins",
        )
    return "none", "no NVLink is known: Slurm chooses GPUs by their sockets only"


def _features_reason(pool: Pool) -> str:
    markets = dict.fromkeys(source.market.value for source in pool.sources)
    machines = dict.fromkeys(name for source in pool.sources for name in source.machines)
    open_ = [" or ".join(words) for words in (markets, machines) if len(words) > 1]
    return f"{_WHY_FEATURES}. Decided only at a launch: {'; '.join(open_)}" if open_ else _WHY_FEATURES


_PACKING = "slurmctld fills the nodes of a Weight in their order: jobs of single GPUs share the first nodes, and a gang finds whole nodes behind them. A node that is up comes before one that is powered down"


def of_partitions(spec: ClusterSpec, plan: SlurmPlan) -> Iterator[Note]:
    """Every default of the partitions, in their order."""
    yield Note("slurm.packing", "in order", _PACKING)
    for requested, partition in zip(spec.partitions, plan.partitions, strict=True):
        at = f"partitions[{partition.name}]"
        if requested.max_time is None:
            yield Note(f"{at}.max_time", "no limit", "the spec has no `max_time`")
        if requested.default_time is None:
            yield defaults.of_default(f"{at}.default_time", partition.default_time_s, defaults.DEFAULT_TIME_S)
        if requested.requires_gpus is None:
            yield Note(f"{at}.requires_gpus", *_requires_gpus(partition, plan))
    if not any(partition.default for partition in plan.partitions):
        yield Note("partitions", "no default", "the spec sets no default: a job must name its partition")


def _requires_gpus(partition: Partition, plan: SlurmPlan) -> tuple[str, str]:
    if partition.requires_gpus:
        others = ", ".join(other.name for other in plan.partitions if not other.requires_gpus)
        return "yes", f"jobs without GPUs are refused here, because they can use {others}"
    if partition.max_cpus_per_node is not None:
        return "no", "jobs without GPUs share the `max_cpus_per_node` of each node"
    pools = [pool for pool in plan.pools if pool.name in partition.pools]
    if any(not pool.shape.gpu_count for pool in pools):
        return "no", "the partition has nodes without GPUs. Jobs without GPUs go there first"
    return (
        "no",
        "no partition has other nodes for jobs without GPUs, or limits them by `max_cpus_per_node`: they can use all CPUs of a GPU node",
    )
