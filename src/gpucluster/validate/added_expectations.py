"""What a machine must not have beside its packages, its image and the plan. Pure.

An existing host has programs, rules of sudo and exports of the site: of these only a second root is judged there.
"""

from collections.abc import Iterator
from typing import Any

from gpucluster.checks.command_path import CommandsWant
from gpucluster.checks.exports import ExportsWant
from gpucluster.checks.root_rights import RootWant
from gpucluster.checks.setuid import SetuidWant
from gpucluster.plan import mounts
from gpucluster.plan.model import Pool, SlurmPlan
from gpucluster.plan.names import ROLE_HEAD


def of_machine(plan: SlurmPlan, target: str, pool: Pool | None) -> Iterator[tuple[str, Any]]:
    """The checks with their values. `pool`: of a node, whose scripts at boot are the site's."""
    on_aws, scripts = plan.aws is not None, pool is not None and bool(pool.on_boot)
    yield "users.root", RootWant(sudo=on_aws, scripts=scripts)
    if on_aws:
        own = mounts.exports(plan) if target == ROLE_HEAD else ()
        clients = mounts.clients(plan)
        yield "fs.exports", ExportsWant(exports=dict.fromkeys(own, clients), scripts=scripts)
        yield "path.slurm", CommandsWant(scripts=scripts)
        yield "files.setuid", SetuidWant(scripts=scripts)
