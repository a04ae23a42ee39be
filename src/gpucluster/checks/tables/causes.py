"""Causes that checks of several subjects have. Pure."""

from gpucluster.checks import machine
from gpucluster.plan import names
from gpucluster.plan.state_storage import BOUND_FOLDERS

_WRITTEN = (*machine.SYSTEM_PATHS, BOUND_FOLDERS["slurmctld"], names.SLURMD_SPOOL)
FILES = (
    *(f"disk:{path}" for path in _WRITTEN),
    *(f"fs.mount:{path}" for path in _WRITTEN),
)  # services do not start on a full or read-only file system
