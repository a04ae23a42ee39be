"""Where the head keeps what must survive it: bind mounts from a volume, or from a file system that head and standby share."""

from collections.abc import Mapping
from pathlib import PurePosixPath

from gpucluster.plan import names
from gpucluster.plan.model import SlurmPlan

# name on the storage -> the folder that it is bound to
BOUND_FOLDERS: Mapping[str, str] = {
    "slurmctld": "/var/spool/slurmctld",
    "elastic": str(PurePosixPath(names.JOURNAL).parent),
}
SHARED_STATE = ".gpucluster"  # the folder on a mount that head and standby share


def state_mount(plan: SlurmPlan) -> str | None:
    """Return the mount point of the storage; None: slurmctld's state is on the head's root volume."""
    if plan.head.standby is not None:
        return plan.head.standby.state
    return next((volume.path for volume in plan.head.volumes if volume.key == names.STATE_VOLUME), None)


def state_root(plan: SlurmPlan) -> str | None:
    """Return the folder on the storage that has BOUND_FOLDERS; None as above."""
    mount = state_mount(plan)
    return mount if mount is None or plan.head.standby is None else f"{mount}/{SHARED_STATE}"
