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


def state_root(plan: SlurmPlan) -> str | None:
    """Return the folder that survives the head; None if there is no such storage."""
    head = plan.head
    if head.standby is not None:
        return f"{head.standby.state}/{SHARED_STATE}"
    return next((volume.path for volume in head.volumes if volume.key == names.STATE_VOLUME), None)


def mount_point(root: str) -> str:
    """Return the mount point of the storage of `state_root`."""
    return root.removesuffix(f"/{SHARED_STATE}")
