"""The standby head: slurmctld as backup controller, and an elastic daemon that waits for the lease.

Both take over while the head is down, and hand back when it returns. Their state is on a file system that both heads
mount. The standby fetches the same bundle. It has no volumes and no exports, and it does not publish the cluster's status.
"""

import logging

from gpucluster.agent.boot import (
    accounting,
    accounts,
    boot_state,
    bundles,
    cluster_identity,
    directory,
    guard,
    held_bundle,
    hostnames,
    identity,
    munge_key,
    slurmctld,
    systemd,
    watchdog,
)
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.boot.runner import StepTable
from gpucluster.agent.disks import block_devices
from gpucluster.agent.machine import Machine, NotYetError
from gpucluster.agent.roles import login
from gpucluster.plan import names

HEAD_FIRST_S = 120.0  # seconds for the head's daemon to take the lease first
HEAD_START_S = 30.0  # seconds for the head's slurmctld after the head has stopped ours
RETRY_S = 600.0  # pause between two releases of the lease: after a release nothing is launched until a daemon takes it
CONTROLLER_KEY = "SlurmctldHost="

log = logging.getLogger(__name__)


def write_local_conf(machine: Machine, state: BootState) -> BootState:
    """Write a slurm.conf for commands on this machine: with a head that is off, each command would wait for TCPTimeout."""
    bundle = require(state.bundle)
    text = (bundle.tree / slurmctld.CONF).read_text()
    machine.write(names.STANDBY_CONF, with_local_controller_first(text, names.standby_name(bundle.plan.name)))
    return state


def with_local_controller_first(text: str, name: str) -> str:
    """Return slurm.conf with this controller first. A waiting backup refuses at once, and the command tries the next one."""
    lines = text.splitlines()
    ours = [line for line in lines if line.startswith(f"{CONTROLLER_KEY}{name}(")]
    rest = [line for line in lines if line not in ours]
    first = next((at for at, line in enumerate(rest) if line.startswith(CONTROLLER_KEY)), 0)
    return "\n".join([*rest[:first], *ours, *rest[first:]]) + "\n"


def run_backup(machine: Machine, state: BootState) -> BootState:
    """Run slurmctld as backup. After the head has stopped it, wait for the head's slurmctld, else ours would take over again."""
    head, saved = require(state.bundle).plan.head, boot_state.load(machine)
    if saved.slurm_digest and not systemd.active(machine, slurmctld.CONTROLLER):
        now = machine.now()
        since = now if saved.slurmctld_down_since is None else min(now, saved.slurmctld_down_since)
        boot_state.update(machine, slurmctld_down_since=since)
        if now - since < HEAD_START_S and not machine.listening(head.address, head.controller_port):
            raise NotYetError("the head has stopped our slurmctld and starts its own")
    state = slurmctld.apply_bundle(machine, state)
    if boot_state.load(machine).slurmctld_down_since is not None:
        boot_state.update(machine, slurmctld_down_since=None)
    return state


def run_daemon(machine: Machine, state: BootState) -> BootState:
    """Run the daemon after the head's daemon had time to take the lease, which belongs on the machine of the active slurmctld."""
    head = require(state.bundle).plan.head
    waited_s = machine.now() - boot_state.load(machine).last_contact_at
    runs = systemd.active(machine, slurmctld.DAEMON)
    if runs and _yields(machine, state):
        log.info("the head is back: this daemon gives the lease to the head's daemon")
        boot_state.update(machine, lease_yielded_at=machine.now())
        systemd.ensure(machine, slurmctld.DAEMON, restart=True)
    if not runs and waited_s < HEAD_FIRST_S and not machine.listening(head.address, head.registration_port):
        raise NotYetError(f"the head's daemon does not listen on {head.registration_port} yet")
    return slurmctld.run_daemon(machine, state)


def _yields(machine: Machine, state: BootState) -> bool:
    """Return whether our daemon has the lease while the head's slurmctld runs again."""
    head, last = require(state.bundle).plan.head, boot_state.load(machine).lease_yielded_at
    if last is not None and machine.now() - last < RETRY_S:
        return False
    acts = machine.listening(require(state.identity).address, head.registration_port)
    return acts and machine.listening(head.address, head.controller_port)


AFTER_BUNDLE: StepTable = (
    ("slurm", slurmctld.check_config),
    ("cluster", cluster_identity.check),
    ("watchdog", watchdog.watch),
    ("hold", held_bundle.hold),
    ("hostname", hostnames.for_standby),
    ("mounts", block_devices.mount_all),
    ("state", block_devices.bind_state),
    ("state-cluster", cluster_identity.check),  # a boot mounts the state just now
    ("directory", directory.configure),
    ("users", accounts.apply),
    ("standby-conf", write_local_conf),
    ("accounting", accounting.run_backup),
    ("controller", run_backup),
    ("elastic", run_daemon),
    ("held", held_bundle.clear),
)
FOLLOW: StepTable = (("bundle", slurmctld.fetch_bundle), *AFTER_BUNDLE)
BOOT: StepTable = (
    ("guard", guard.root_only),
    ("machine", identity.from_user_data),
    ("guard-daemon", guard.root_and_daemon),
    ("bundle", bundles.fetch),
    ("key", munge_key.fetch),
    *AFTER_BUNDLE,
)


def run(machine: Machine) -> None:
    """Never returns."""
    login.follow(machine, BOOT, FOLLOW)
