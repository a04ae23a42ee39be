"""Job scripts of a cluster: the templates of `templates/slurm/jobs`, filled in for one partition of a plan.

To add one: write its template, and a row in TEMPLATES. `Job` has the values; each is text for a shell script.
"""

from dataclasses import dataclass, fields

from gpucluster.artifacts import Artifact
from gpucluster.errors import GpuclusterError
from gpucluster.plan import mounts, names
from gpucluster.plan.model import (
    Lustre,
    Mount,
    NfsFromHead,
    Nvme,
    Partition,
    Pool,
    SlurmPlan,
)
from gpucluster.slurm.config.render import environment
from gpucluster.text import format_duration

DAY_S = 86400
ON_SEVERAL = 2  # nodes of a template for several nodes
PARTS = 16  # tasks of an array
HOME = "$HOME"


@dataclass(frozen=True, slots=True)
class Template:
    """A job script: its file, what it shows, and whether it needs GPUs or several nodes."""

    name: str
    file: str
    about: str
    gpus: bool = False


TEMPLATES = (
    Template("torchrun", "torchrun.sbatch", "PyTorch with FSDP or DDP: torchrun on each node", gpus=True),
    Template("deepspeed", "deepspeed.sbatch", "DeepSpeed: one rank on each GPU, by srun", gpus=True),
    Template("mpi", "mpi.sbatch", "an MPI program, by srun and PMIx"),
    Template("array", "array.sbatch", "inference over the lines of a file, as a job array that continues"),
    Template("sweep", "sweep.sbatch", "one run for each line of arguments, as a job array"),
    Template("chain", "chain.sh", "three jobs, each after the one before it"),
    Template("stage-in", "stage-in.sbatch", "copy a data set to the nodes' own disks first"),
    Template("checkpoint", "checkpoint.sbatch", "save a checkpoint at a signal, requeue, continue"),
)


class JobTemplateError(GpuclusterError):
    """A template or a partition that this cluster does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The variables of all templates. Amounts are those of the smallest node of the partition."""

    cluster: str
    partition: str
    nodes: str
    gpus: str  # of a node
    gpus_of_node: str  # a line of #SBATCH, or a comment
    gpus_of_task: str
    cpus: str  # of a node, as Slurm counts them: threads
    ranks: str  # of a node: one on each GPU, or on each core
    ranks_are: str
    cpus_of_rank: str
    threads: str  # cores of a rank
    time: str
    parts: str
    at_once: str  # tasks of an array that fit the partition
    job_env: str
    shared: str  # folder that all nodes see
    shared_note: str
    scratch: str
    scratch_is: str
    signal: str
    signal_note: str
    heartbeat: str


def partition_of(plan: SlurmPlan, name: str | None) -> Partition:
    """Return the partition of this name; without a name the default one, or the first."""
    for one in plan.partitions:
        if one.name == name:
            return one
    if name is not None:
        known = ", ".join(one.name for one in plan.partitions)
        raise JobTemplateError(f"{plan.name} has no partition {name!r}", next_step=f"name one of: {known}")
    return next((one for one in plan.partitions if one.default), plan.partitions[0])


def available(plan: SlurmPlan, partition: Partition) -> tuple[Template, ...]:
    """Return the templates that the partition's nodes can run."""
    return tuple(one for one in TEMPLATES if not one.gpus or _has_gpus(_pools(plan, partition)))


def render(plan: SlurmPlan, partition: Partition, name: str) -> Artifact:
    """Return the script of a template. JobTemplateError for an unknown one, and for one that needs GPUs where there are none."""
    found = next((one for one in TEMPLATES if one.name == name), None)
    known = ", ".join(one.name for one in available(plan, partition))
    if found is None:
        raise JobTemplateError(f"there is no job template {name!r}", next_step=f"name one of: {known}")
    if found not in available(plan, partition):
        raise JobTemplateError(
            f"{name} needs GPUs, and the nodes of partition {partition.name} have none",
            next_step=f"name another partition, or one of: {known}",
        )
    view = job(plan, partition)
    values = {field.name: getattr(view, field.name) for field in fields(view)}
    text = environment().get_template(f"jobs/{found.file}.j2").render(values)
    return Artifact(found.file, text.encode(), 0o755)


def job(plan: SlurmPlan, partition: Partition) -> Job:
    """The values of a partition: whole nodes, so that any of its pools fits."""
    pools = _pools(plan, partition)
    gpus = min(pool.shape.gpu_count for pool in pools)
    cpus = min(pool.shape.job_cpus for pool in pools)
    if partition.max_cpus_per_node is not None:
        cpus = min(cpus, partition.max_cpus_per_node)
    threads_per_core = max(pool.shape.threads_per_core for pool in pools)
    ranks = gpus or max(1, cpus // threads_per_core)
    cpus_of_rank = max(1, cpus // ranks)
    shared, note = _shared(plan)
    scratch, scratch_is = _scratch(plan)
    signal, signal_note = _signal(plan, pools)
    return Job(
        cluster=plan.name,
        partition=partition.name,
        nodes=str(min(ON_SEVERAL, max(pool.max for pool in pools))),
        gpus=str(gpus),
        gpus_of_node=f"#SBATCH --gpus-per-node={gpus}" if gpus else "# The nodes have no GPUs.",
        gpus_of_task="#SBATCH --gpus-per-node=1" if gpus else "# The nodes have no GPUs.",
        cpus=str(cpus),
        ranks=str(ranks),
        ranks_are="one rank on each GPU" if gpus else "one rank on each core",
        cpus_of_rank=str(cpus_of_rank),
        threads=str(max(1, cpus_of_rank // threads_per_core)),
        time=_time(partition),
        parts=str(PARTS),
        at_once=str(min(PARTS, sum(pool.max * max(1, pool.shape.gpu_count) for pool in pools))),
        job_env=names.JOB_ENV,
        shared=shared,
        shared_note=note,
        scratch=scratch,
        scratch_is=scratch_is,
        signal=signal,
        signal_note=signal_note,
        heartbeat=_heartbeat(pools),
    )


def _pools(plan: SlurmPlan, partition: Partition) -> tuple[Pool, ...]:
    return tuple(pool for pool in plan.pools if pool.name in partition.pools)


def _has_gpus(pools: tuple[Pool, ...]) -> bool:
    return all(pool.shape.gpu_count for pool in pools)


def _time(partition: Partition) -> str:
    """At most a day: a short limit lets backfill start the job earlier."""
    minutes = min(partition.max_time_s or DAY_S, DAY_S) // 60
    return f"{minutes // 60:02}:{minutes % 60:02}:00"


def _shared(plan: SlurmPlan) -> tuple[str, str]:
    """Return a folder that users may write on every node, and what it is. The fast file system is first."""
    away = mounts.heads_only(plan)
    every = [one for one in plan.storage if one.path != away and not isinstance(one.source, Nvme)]
    fast = [one for one in every if isinstance(one.source, Lustre)]
    others = [one for one in every if not isinstance(one.source, NfsFromHead) and not _is_home(one)]
    if found := (*fast, *others):
        return f"{found[0].path}/$USER", f"{found[0].path} is on every node. $USER needs a folder there."
    if any(_is_home(one) for one in every):
        return HOME, "/home is on every node."
    return HOME, "This cluster has no shared file system: a node does not see files of another machine."


def _is_home(mount: Mount) -> bool:
    return mount.path == "/home"


def _scratch(plan: SlurmPlan) -> tuple[str, str]:
    """Return a folder on the node's own disk. The private /tmp is on the NVMe disks, if there are any."""
    if plan.slurm.private_tmp is not None:
        return "/tmp", f"the job's own /tmp, in {plan.slurm.private_tmp}"  # noqa: S108  private by Slurm's plugin
    disks = next((one.path for one in plan.storage if isinstance(one.source, Nvme)), None)
    return ("/tmp", "/tmp") if disks is None else (disks, f"the disks at {disks}")  # noqa: S108


def _signal(plan: SlurmPlan, pools: tuple[Pool, ...]) -> tuple[str, str]:
    """Return the signal of the pools. A partition of pools with several signals takes the first pool's."""
    settings = pools[0].termination
    if plan.aws is None:
        return settings.signal, f"Slurm signals this script with {settings.signal} before its time limit."
    lead = format_duration(settings.lead_s)
    note = f"gpucluster signals this script with {settings.signal} when its machine is to end, and requeues the job {lead} before that end; Slurm signals it before the time limit."
    others = sorted({pool.termination.signal for pool in pools} - {settings.signal})
    more = f" The signal of another pool of the partition is {', '.join(others)}." if others else ""
    return settings.signal, note + more


def _heartbeat(pools: tuple[Pool, ...]) -> str:
    """A new checkpoint is a heartbeat, if the daemon watches the jobs of every pool."""
    limits = [pool.job_heartbeat.after_s for pool in pools if pool.job_heartbeat is not None]
    if len(limits) < len(pools):
        return "# No watchdog: the spec has no `job_heartbeat` for every pool of the partition."
    beat = f'{names.JOB_HEARTBEAT_DIR}/"$SLURM_JOB_ID"'
    return (
        f"# Each new checkpoint is a heartbeat. A job without one for {format_duration(min(limits))} counts as hung.\n"
        f'while sleep 10; do if [[ $(find "$CHECKPOINTS" -newer {beat} -print -quit) ]]; then touch {beat}; fi; done &'
    )
