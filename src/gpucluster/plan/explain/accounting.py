"""Decisions of the plan on accounting, on the order of jobs, and on accounts with a monthly limit."""

from collections.abc import Iterator

from gpucluster.plan import defaults, names
from gpucluster.plan.defaults import Note, of_default
from gpucluster.plan.model import Accounting, LocalDatabase, SlurmPlan
from gpucluster.spec import ClusterSpec
from gpucluster.spec.accounting import Accounting as AccountingSpec
from gpucluster.spec.part import require


def of_accounting(spec: ClusterSpec, plan: SlurmPlan) -> Iterator[Note]:
    """What the spec does not say of the database, the weights, and the accounts."""
    accounting, requested = plan.slurm.accounting, require(spec.slurm).accounting
    if accounting is None or requested is None:
        why = "the spec has no `slurm.accounting`: slurmctld writes one line for each ended job, and no share or limit is possible"
        yield Note("slurm.accounting", names.JOB_COMPLETIONS, why)
        return
    yield from _database(requested, accounting)
    yield from _order()
    yield from _billing(plan)
    yield from _accounts(spec, accounting)


def _database(requested: AccountingSpec, accounting: Accounting) -> Iterator[Note]:
    if isinstance(accounting.database, LocalDatabase):
        pool = f"{accounting.database.buffer_pool_mib} MiB"
        rule = defaults.BUFFER_POOL_PERCENT
        yield Note("slurm.accounting.buffer_pool", pool, f"{rule.value:g} % {rule.reason}")
        why = "MariaDB listens on no network, and knows slurmdbd by its uid: there is no password"
        yield Note("slurm.accounting.password", "none", why)
    if requested.keep is None:
        yield of_default("slurm.accounting.keep", accounting.keep_s, defaults.KEEP_S)
    if not accounting.enforced:
        why = "the spec has neither `accounts` nor `qos`: every user may run jobs, and slurmdbd records them"
        yield Note("slurm.accounting.enforce", "nothing", why)


def _order() -> Iterator[Note]:
    """The priority of a job is the sum of these weights, each times a factor between 0 and 1."""
    weights = (
        ("qos", defaults.WEIGHT_QOS),
        ("fairshare", defaults.WEIGHT_FAIRSHARE),
        ("age", defaults.WEIGHT_AGE),
    )
    for name, rule in weights:
        yield Note(f"slurm.priority.{name}", f"{rule.value:.0f}", rule.reason)
    yield of_default("slurm.priority.half_life", defaults.HALF_LIFE_S.value, defaults.HALF_LIFE_S)
    yield of_default("slurm.priority.max_age", defaults.MAX_AGE_S.value, defaults.MAX_AGE_S)


def _billing(plan: SlurmPlan) -> Iterator[Note]:
    shapes = {pool.name: pool.shape for pool in plan.pools}
    if any(shape.gpu_count for shape in shapes.values()):
        yield Note("slurm.billing.gpu", f"{defaults.GPU_BILLING.value:g}", defaults.GPU_BILLING.reason)
    for partition in plan.partitions:
        if not any(shapes[pool].gpu_count for pool in partition.pools):
            yield Note(
                f"partitions[{partition.name}].billing.cpu",
                f"{defaults.CPU_BILLING.value:g}",
                defaults.CPU_BILLING.reason,
            )


def _accounts(spec: ClusterSpec, accounting: Accounting) -> Iterator[Note]:
    requested = {one.name: one for one in spec.accounts}
    for account in accounting.accounts:
        limits = requested[account.name].limits
        at = f"accounts[{account.name}]"
        if limits is not None and limits.gpu_hours_per_month is not None:
            why = f"a QOS of the account, which counts {limits.gpu_hours_per_month} GPU-hours without decay; the head sets the count to zero at the start of a month (UTC). A job starts only if the rest of the hours is enough for its time limit"
            yield Note(f"{at}.qos", ", ".join(account.qos), why)
        elif not requested[account.name].qos:
            yield Note(f"{at}.qos", ", ".join(account.qos), "those of the account above, or Slurm's `normal`")
