"""What a login machine must have: services, Slurm's files, sshd. Pure."""

import re
from collections.abc import Iterator
from typing import Any

from gpucluster.checks import files, login_shell, machine, munge, remedies, slurmctld
from gpucluster.plan import names
from gpucluster.plan.model import SlurmOnAws, SlurmPlan
from gpucluster.validate import (
    file_expectations,
    node_expectations,
    running_expectations,
    unit_expectations,
    user_expectations,
)
from gpucluster.validate.pool_jobs import pool_jobs

SACKD_SINCE = (23, 11)  # older versions have no sackd and need the files
SACKD_CACHE = "/run/slurm/conf"
_FETCH = f"on {{machine}}: {remedies.restart('sackd')}"  # it asks slurmctld for the files when it starts
_FROM_SACKD = ("slurm.conf", "plugstack.conf")  # what clients of every version read


def machines(plan: SlurmPlan) -> tuple[str, ...]:
    """The names of the login machines."""
    return plan.login.names if isinstance(plan, SlurmOnAws) and plan.login is not None else ()


def of_login(plan: SlurmOnAws, bundle: str) -> Iterator[tuple[str, Any]]:
    """The checks with their values, but those of every machine."""
    sackd = _has_sackd(plan)
    units = ("munge", *(("sackd",) if sackd else ()), "gpucluster-agent", "ssh", "gpucluster-guard")
    services = tuple(f"{unit}.service" for unit in units)
    yield "svc.active", machine.Units(units=services, at_boot=unit_expectations.at_boot(plan))
    yield "auth.rt", munge.Munge()
    yield "clock.sync", machine.MachineClock()
    sums = _files(plan, sackd=sackd)
    yield "cfg.same", files.Files(sha256=sums, remedy=_FETCH if sackd else "")
    if bundle:
        yield "cfg.bundle", files.Applied(link=names.BUNDLE_DIR, digest=bundle, remedy=remedies.AGENT)
    yield "files.modes", file_expectations.of_login(plan, tuple(sums), sackd=sackd)
    yield "net.ports", running_expectations.ports_of_login(plan)
    yield "login.slurm", slurmctld.Controllers(hosts=(plan.head.name,))
    if job := next(iter(pool_jobs(plan)), None):
        gres = (f"--gres={job.gres}",) if job.gres else ()
        options = (f"--partition={job.partition}", "--nodes=1", "--time=1", *gres)
        yield "login.user", login_shell.LoginShell(options=options)
    yield "sshd.conf", user_expectations.of_login(plan)


def _has_sackd(plan: SlurmPlan) -> bool:
    return tuple(int(word) for word in re.findall(r"[0-9]+", plan.slurm.version)[:2]) >= SACKD_SINCE


def _files(plan: SlurmPlan, *, sackd: bool) -> dict[str, str]:
    """sackd fetches what commands read; an older version has links to all files of the bundle."""
    if not sackd:
        return node_expectations.slurm_files(plan, names.SLURM_ETC, on_head=True)
    every = node_expectations.slurm_files(plan, SACKD_CACHE, on_head=False)
    return {path: digest for path, digest in every.items() if path.rpartition("/")[2] in _FROM_SACKD}
