"""Accounting, the order of jobs and preemption, as the values of the templates."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from gpucluster.plan import defaults, gres, names
from gpucluster.plan.model import (
    Accounting,
    ExternalDatabase,
    LocalDatabase,
    Mig,
    NodeShape,
    Partition,
    Pool,
    SlurmPlan,
)
from gpucluster.slurm.config.times import slurm_seconds, slurm_time


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingLines:
    """Where slurmctld sends its records, what it enforces, and the order of jobs."""

    host: str
    backup_host: str  # empty: there is none
    port: str
    tres: str
    enforce: str
    half_life: str
    max_age: str
    weight_qos: str
    weight_fairshare: str
    weight_age: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionLines:
    """Who preempts whom."""

    type: str
    mode: str
    exempt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLines:
    """The database on the head."""

    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalLines:
    """A database elsewhere."""

    host: str
    port: str
    ca: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmdbdConf:
    """templates/slurm/slurmdbd.conf.j2"""

    cluster: str
    host: str
    backup_host: str  # empty: there is none
    port: str
    database: str
    local: tuple[LocalLines, ...]  # one of both
    external: tuple[ExternalLines, ...]
    archive: str
    keep: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MariadbConf:
    """templates/slurm/mariadb.cnf.j2"""

    cluster: str
    data: str
    buffer_pool_mib: str
    log_file_mib: str


def slurmdbd_conf(plan: SlurmPlan) -> SlurmdbdConf:
    """The plan has accounting."""
    accounting = _with_accounting(plan)
    database = accounting.database
    return SlurmdbdConf(
        cluster=plan.name,
        host=plan.head.name,
        backup_host=_backup_host(plan),
        port=str(names.SLURMDBD_PORT),
        database=names.DATABASE,
        local=(LocalLines(user=names.DATABASE_USER),) if isinstance(database, LocalDatabase) else (),
        external=(ExternalLines(host=database.host, port=str(database.port), ca=database.ca),)
        if isinstance(database, ExternalDatabase)
        else (),
        archive=_kept(plan, names.ARCHIVE_DIR),
        keep=f"{-(-accounting.keep_s // 86400)}days",
    )


def mariadb_conf(plan: SlurmPlan) -> MariadbConf:
    """The plan has a database on the head."""
    database = _with_accounting(plan).database
    if not isinstance(database, LocalDatabase):
        raise TypeError("the database is not on the head")
    pool = database.buffer_pool_mib
    return MariadbConf(
        cluster=plan.name,
        data=_kept(plan, names.MARIADB_DATA),
        buffer_pool_mib=str(pool),
        log_file_mib=str(pool // 4),
    )


def _backup_host(plan: SlurmPlan) -> str:
    """The standby, whose slurmdbd uses the same database. A database on the head has no backup."""
    elsewhere = isinstance(_with_accounting(plan).database, ExternalDatabase)
    return names.standby_name(plan.name) if elsewhere and plan.head.standby is not None else ""


def _kept(plan: SlurmPlan, folder: str) -> str:
    """The folder, on the head's volume for its state if it has one."""
    volume = next((one for one in plan.head.volumes if one.key == names.STATE_VOLUME), None)
    return folder if volume is None else f"{volume.path}/{folder.rpartition('/')[2]}"


def _with_accounting(plan: SlurmPlan) -> Accounting:
    if plan.slurm.accounting is None:
        raise ValueError("the plan has no accounting")
    return plan.slurm.accounting


def order(partition: Partition) -> str:
    """The options of a partition that differ from Slurm's defaults."""
    lists = (("AllowAccounts", partition.accounts), ("AllowQos", partition.allow_qos))
    options = (
        f" PriorityTier={partition.tier}" if partition.tier != 1 else "",
        " OverSubscribe=EXCLUSIVE" if partition.exclusive else "",
        f" QOS={partition.qos}" if partition.qos else "",
        *(f" {key}={','.join(values)}" for key, values in lists if values),
    )
    return "".join(options)


def billing(pools: list[Pool]) -> str:
    """What a job costs of its account's share: the largest of its parts of a node (PriorityFlags=MAX_TRES).

    All GPUs of a node cost as much as all its CPUs or all its memory. Of several pools the least counts. A MIG slice costs its
    share of the compute of its GPU, so each type of GPU has a weight of its own where there are slices.
    """
    unit = defaults.GPU_BILLING.value
    shapes = [pool.shape for pool in pools if pool.shape.gpu_count]
    if not shapes:
        return f' TRESBillingWeights="CPU={defaults.CPU_BILLING.value:g}"'
    cpu = min(unit * shape.gpu_count / shape.job_cpus for shape in shapes)
    memory = min(unit * shape.gpu_count * 1024 / shape.job_memory_mib for shape in shapes)
    weights = {"GRES/gpu": unit}
    if any(isinstance(shape.sharing, Mig) for shape in shapes):
        weights = dict(chain.from_iterable(_gpu_weights(shape, unit) for shape in shapes))
    gpus = ",".join(f"{name}={weight:.2f}".removesuffix(".00") for name, weight in sorted(weights.items()))
    return f' TRESBillingWeights="CPU={cpu:.2f},Mem={memory:.2f}G,{gpus}"'


def _gpu_weights(shape: NodeShape, unit: float) -> Iterator[tuple[str, float]]:
    """The weight of each type of GPU, as TRES names it."""
    if isinstance(shape.sharing, Mig):
        for one in shape.sharing.slices:
            yield f"GRES/gpu:{one.profile}", unit * one.sevenths / 7
    else:
        yield f"GRES/gpu:{shape.gpu_model}", unit


def accounting(plan: SlurmPlan) -> Iterator[AccountingLines]:
    accounting = plan.slurm.accounting
    if accounting is None:
        return
    yield AccountingLines(
        host=plan.head.name,
        backup_host=_backup_host(plan),
        port=str(names.SLURMDBD_PORT),
        tres=",".join(_gpu_tres(plan)),
        enforce="associations,limits,qos,safe" if accounting.enforced else "",
        half_life=slurm_time(int(defaults.HALF_LIFE_S.value)),
        max_age=slurm_time(int(defaults.MAX_AGE_S.value)),
        weight_qos=f"{defaults.WEIGHT_QOS.value:.0f}",
        weight_fairshare=f"{defaults.WEIGHT_FAIRSHARE.value:.0f}",
        weight_age=f"{defaults.WEIGHT_AGE.value:.0f}",
    )


def _gpu_tres(plan: SlurmPlan) -> Iterator[str]:
    """What is counted in addition to CPUs, memory and nodes: GPUs, and GPUs of each type: a model, or a MIG profile."""
    models = sorted({model for pool in plan.pools for model in gres.gpu_types(pool.shape)})
    if models:
        yield from ("gres/gpu", *(f"gres/gpu:{model}" for model in models))


def preemption(plan: SlurmPlan) -> Iterator[PreemptionLines]:
    part = plan.slurm.preemption
    if part is not None:
        yield PreemptionLines(
            type="preempt/qos" if part.by == "qos" else "preempt/partition_prio",
            mode=part.mode.upper(),
            exempt=slurm_seconds(part.exempt_s) if part.exempt_s else "",
        )
