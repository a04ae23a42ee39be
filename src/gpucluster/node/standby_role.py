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
    state,
    systemd,
)
from gpucluster.node.known import Known, of
from gpucluster.node.machine import Machine, NotYetError
from gpucluster.node.walk import Table
from gpucluster.plan.model import there

HEAD_FIRST_S = 120.0  # so long the head's daemon may take to be the first


def elastic(machine: Machine, known: Known) -> Known:
    """The daemon, once the head's own has the lease: it belongs beside the slurmctld that acts."""
    head = there(of(known.bundle).plan.head)
    waited_s = machine.now() - state.load(machine).heard_at
    runs = systemd.active(machine, controller.DAEMON)
    if not runs and waited_s < HEAD_FIRST_S and not machine.listening(head.address, head.registration_port):
        raise NotYetError(f"the head's daemon does not listen on {head.registration_port} yet")
    return controller.elastic(machine, known)


FOLLOW: Table = (
    ("bundle", controller.offered),
    ("slurm", controller.tried),
    ("hostname", naming.standby),
    ("mounts", mounts.attached),
    ("state", disks.state),
    ("directory", directory.joined),
    ("users", accounts.settled),
    ("controller", controller.controller),
    ("elastic", elastic),
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
