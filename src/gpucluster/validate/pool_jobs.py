"""The jobs that validation runs: one for each pool. Pure."""

from dataclasses import dataclass

from gpucluster.checks import jobs, power_saving
from gpucluster.plan.model import Mig, NodeShape, Partition, Pool, SlurmPlan

JOB_NODES = 2  # of a pool's job
SLACK_S = 30.0  # added to the plan's times for the polls of slurmctld, of the daemon and of ours
STATIC_START_S = 60.0  # for a job on nodes that are up; later means that others use them


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolJob:
    """The job that validation runs in a pool; in an elastic pool it runs on nodes that boot for it."""

    pool: str
    partition: str
    nodes: int
    max: int  # the most nodes of the pool at a time
    gpus: int  # whole GPUs of each node; 0: none, or slices
    gres: str  # what it asks for on each node, as --gres takes it: all GPUs, or one slice; empty: none
    exclude: str  # hostlist of the partition's other pools
    leaves: tuple[tuple[str, ...], ...]  # the pool's nodes by leaf switch; a job stays below one
    elastic: bool
    start_s: float  # seconds until it must run
    time_limit_s: float


def pool_jobs(plan: SlurmPlan) -> tuple[PoolJob, ...]:
    """One job for each pool, in the first partition of the pool."""
    found = ((pool, _partition_of(plan, pool)) for pool in plan.pools)
    return tuple(_pool_job(plan, pool, partition) for pool, partition in found if partition is not None)


def node_targets(job: PoolJob) -> tuple[str, ...]:
    """The targets of the job's nodes: `POOL/1`, `POOL/2`."""
    return tuple(f"{job.pool}/{n}" for n in range(1, job.nodes + 1))


def is_elastic(plan: SlurmPlan, pool: Pool) -> bool:
    """Whether the pool has nodes that are launched and terminated on demand."""
    return plan.aws is not None and pool.max > pool.min


def _partition_of(plan: SlurmPlan, pool: Pool) -> Partition | None:
    """The first partition of the pool; one that limits the CPUs of a node only if there is no other."""
    found = [p for p in plan.partitions if pool.name in p.pools]
    return min(found, key=lambda p: p.max_cpus_per_node is not None, default=None)


def _pool_job(plan: SlurmPlan, pool: Pool, partition: Partition) -> PoolJob:
    elastic = is_elastic(plan, pool)
    others = [p for p in plan.pools if p.name in partition.pools and p.name != pool.name]
    start_s = pool.boot_timeout_s + SLACK_S if elastic else STATIC_START_S
    shape = pool.shape
    gpus = 0 if isinstance(shape.sharing, Mig) else shape.gpu_count
    return PoolJob(
        pool=pool.name,
        partition=partition.name,
        nodes=min(JOB_NODES, pool.max - pool.min if elastic else len(pool.always_on())),
        max=pool.max,
        gpus=gpus,
        gres=f"gpu:{gpus}" if gpus else _one_slice(shape),
        exclude=",".join(other.hostlist for other in others),
        leaves=_leaves(plan, pool),
        elastic=elastic,
        start_s=start_s,
        time_limit_s=start_s + 300,
    )


def _one_slice(shape: NodeShape) -> str:
    """One slice, because a partition can refuse jobs without GPUs; empty without slices."""
    return f"gpu:{shape.sharing.slices[0].profile}:1" if isinstance(shape.sharing, Mig) else ""


def _leaves(plan: SlurmPlan, pool: Pool) -> tuple[tuple[str, ...], ...]:
    mine = set(pool.node_names)
    leaves = (tuple(node for span in leaf.slots for node in span if node in mine) for leaf in plan.leaves)
    return tuple(leaf for leaf in leaves if leaf) or (pool.node_names,)


def small_job(plan: SlurmPlan, partition: Partition) -> jobs.Small:
    """Return what the job of a partition needs: it must start within the time of the slowest pool."""
    pools = [pool for pool in plan.pools if pool.name in partition.pools]
    limit_s = max((p.boot_timeout_s if is_elastic(plan, p) else STATIC_START_S) for p in pools) + SLACK_S
    return jobs.Small(
        partition=partition.name,
        nodes=partition.node_names(plan.pools),
        limit_s=float(limit_s),
        gpus=int(partition.requires_gpus),
    )


def power_cycle(plan: SlurmPlan, pool: Pool) -> power_saving.PowerCycle:
    """Return the longest times in which a node of the pool must come and go."""
    down_s = pool.idle_s + plan.times.suspend_timeout_s + plan.times.reconcile_s + SLACK_S
    return power_saving.PowerCycle(up_s=float(pool.boot_timeout_s), down_s=float(down_s))
