"""The second head: slurmctld as its backup, and a daemon that waits for the lease. Its state is on a mount of both.

It is told of a bundle as the head is, and has no volume, no export and no word in the status: the head's is the cluster's.
"""

from gpucluster.node import (
    accounts,
    bundles,
    controller,
    directory,
    disks,
    guard,
    identity,
    key,
    login_role,
    mounts,
    naming,
)
from gpucluster.node.machine import Machine
from gpucluster.node.walk import Table

FOLLOW: Table = (
    ("bundle", controller.offered),
    ("slurm", controller.tried),
    ("hostname", naming.standby),
    ("mounts", mounts.attached),
    ("state", disks.state),
    ("directory", directory.joined),
    ("users", accounts.settled),
    ("controller", controller.controller),
    ("elastic", controller.elastic),
)
BOOT: Table = (
    ("guard", guard.strict),
    ("machine", identity.find),
    ("guard-daemon", guard.with_daemon),
    ("bundle", bundles.fetch),
    ("key", key.take),
    *FOLLOW[1:],
)


def live(machine: Machine) -> None:
    """Never returns."""
    login_role.follow(machine, BOOT, FOLLOW)
