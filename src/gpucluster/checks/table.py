"""The table of the checks of machines, Slurm and AWS. Machines load it; the checks of Kubernetes have their own table.

To add one, write its query, parser and rule in the module of its subject, and a row in `tables/`.
"""

from collections.abc import Mapping
from typing import Any

from gpucluster.checks.check import Check
from gpucluster.checks.tables.added import ADDED
from gpucluster.checks.tables.cloud import CLOUD
from gpucluster.checks.tables.jobs import JOBS
from gpucluster.checks.tables.machines import MACHINES
from gpucluster.checks.tables.slurm import SLURM

CHECKS: Mapping[str, Check[Any, Any]] = {
    check.id: check for check in (*MACHINES, *SLURM, *JOBS, *ADDED, *CLOUD)
}
