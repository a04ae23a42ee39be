"""What the second head must have while it stands by: services, Slurm's files, the shared state. Pure.

slurmctld's and the daemon's answers are asked of the head alone: those of a standby that waits say nothing of the cluster.
"""

from collections.abc import Iterator
from typing import Any

from gpucluster.checks import files, machine, munge, remedies
from gpucluster.plan import names
from gpucluster.plan.model import SlurmPlan
from gpucluster.validate import file_expectations, node_expectations, unit_expectations

_UNITS = ("munge", "slurmctld", "gpucluster-agent", "gpucluster-guard", "gpucluster-elastic")
_OFF = ("slurmd", "sackd", "mariadb", "nfs-server")  # of other roles; the database is elsewhere


def machines(plan: SlurmPlan) -> tuple[str, ...]:
    """The name of the standby, if the plan has one."""
    return () if plan.aws is None or plan.head.standby is None else (names.standby_name(plan.name),)


def of_standby(plan: SlurmPlan, bundle: str, state: str) -> Iterator[tuple[str, Any]]:
    """The checks with their values, but those of every machine. `state`: the folder of slurmctld's state."""
    units = (*_UNITS, *(("slurmdbd",) if plan.slurm.accounting is not None else ()))
    yield (
        "svc.active",
        machine.Units(units=_services(units), off=_services(_OFF), at_boot=unit_expectations.at_boot(plan)),
    )
    yield "auth.rt", munge.Munge()
    yield "clock.sync", machine.MachineClock()
    sums = node_expectations.slurm_files(plan, names.SLURM_ETC, on_head=True)
    yield "cfg.same", files.Files(sha256=sums)
    if bundle:
        yield "cfg.bundle", files.Applied(link=names.BUNDLE_DIR, digest=bundle, remedy=remedies.AGENT)
    yield "files.modes", file_expectations.of_head(plan, tuple(sums), state)


def _services(units: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{unit}.service" for unit in units)
