"""The add-ons of EKS that a cluster has: those of every cluster, and a driver for each kind of file system of the spec."""

from collections.abc import Sequence

from gpucluster.plan.eks import ADDONS, EFS, FSX
from gpucluster.spec.model import Storage


def addons_of(storage: Sequence[Storage]) -> tuple[str, ...]:
    """Return their names, in the order of ADDONS."""
    used = {
        EFS: any(one.efs is not None for one in storage),
        FSX: any(one.fsx_lustre is not None for one in storage),
    }
    return tuple(name for name in ADDONS if used.get(name, True))
