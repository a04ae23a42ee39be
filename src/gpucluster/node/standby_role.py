"""The second head: slurmctld as its backup, and a daemon that waits for the lease. Its state is on a mount of both.

Both act while the head is away, and give way when it is back.

It is told of a bundle as the head is, and has no volume, no export and no word in the status: the head's is the cluster's.
"""

import logging

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
from gpucluster.plan import names
from gpucluster.plan.model import there

HEAD_FIRST_S = 120.0  # so long the head's daemon may take to be the first
RELIEVED_S = 30.0  # so long the head's slurmctld may take to start, once it has ended ours
AGAIN_S = 600.0  # a head whose daemon does not come costs the lease's time, in which nothing is launched
HOST = "SlurmctldHost="

log = logging.getLogger(__name__)


def near(machine: Machine, known: Known) -> Known:
    """slurm.conf for those who ask from here: a head that is off lets each of their calls wait for TCPTimeout."""
    bundle = of(known.bundle)
    text = (bundle.tree / controller.CONF).read_text()
    machine.write(names.NEAR_CONF, ours_first(text, names.standby_name(bundle.plan.name)))
    return known


def ours_first(text: str, name: str) -> str:
    """A slurm.conf with this controller before the others. One that only waits says so at once, and the next is asked."""
    lines = text.splitlines()
    ours = [line for line in lines if line.startswith(f"{HOST}{name}(")]
    rest = [line for line in lines if line not in ours]
    first = next((at for at, line in enumerate(rest) if line.startswith(HOST)), 0)
    return "\n".join([*rest[:first], *ours, *rest[first:]]) + "\n"


def backup(machine: Machine, known: Known) -> Known:
    """slurmctld, which a head that comes back ends: ours waits for the head's, or it would take over again meanwhile."""
    head, kept = there(of(known.bundle).plan.head), state.load(machine)
    if kept.slurm and not systemd.active(machine, controller.CONTROLLER):
        now = machine.now()
        since = now if kept.ended_at is None or kept.ended_at > now else kept.ended_at  # a boot begins anew
        state.change(machine, ended_at=since)
        if now - since < RELIEVED_S and not machine.listening(head.address, head.controller_port):
            raise NotYetError("the head, which ended our slurmctld, is starting its own")
    known = controller.controller(machine, known)
    if state.load(machine).ended_at is not None:
        state.change(machine, ended_at=None)
    return known


def elastic(machine: Machine, known: Known) -> Known:
    """The daemon, once the head's own has the lease: it belongs beside the slurmctld that acts."""
    head = there(of(known.bundle).plan.head)
    waited_s = machine.now() - state.load(machine).heard_at
    runs = systemd.active(machine, controller.DAEMON)
    if runs and _yields(machine, known):
        log.info("the head is back: the daemon here gives the lease to the head's")
        state.change(machine, yielded_at=machine.now())
        systemd.ensure(machine, controller.DAEMON, restart=True)
    if not runs and waited_s < HEAD_FIRST_S and not machine.listening(head.address, head.registration_port):
        raise NotYetError(f"the head's daemon does not listen on {head.registration_port} yet")
    return controller.elastic(machine, known)


def _yields(machine: Machine, known: Known) -> bool:
    """Whether the daemon here acts, and slurmctld on the head, which takes over from ours whenever it starts."""
    head, last = there(of(known.bundle).plan.head), state.load(machine).yielded_at
    if last is not None and machine.now() - last < AGAIN_S:
        return False
    acts = machine.listening(of(known.identity).address, head.registration_port)
    return acts and machine.listening(head.address, head.controller_port)


FOLLOW: Table = (
    ("bundle", controller.offered),
    ("slurm", controller.tried),
    ("hostname", naming.standby),
    ("mounts", mounts.attached),
    ("state", disks.state),
    ("directory", directory.joined),
    ("users", accounts.settled),
    ("near", near),
    ("controller", backup),
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
