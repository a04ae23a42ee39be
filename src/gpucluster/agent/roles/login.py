"""A login machine: users, file systems, Slurm's commands, and sshd. It runs no slurmd and no slurmctld."""

import logging
import re

from gpucluster.agent.boot import (
    accounts,
    boot_state,
    bundles,
    directory,
    environment,
    guard,
    hostnames,
    identity,
    munge_key,
    sshd,
    systemd,
)
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.boot.runner import StepFailedError, StepTable, one_line, run_steps
from gpucluster.agent.boot.slurmctld import link_files
from gpucluster.agent.disks import block_devices
from gpucluster.agent.machine import Machine
from gpucluster.agent.roles import head
from gpucluster.plan import names
from gpucluster.plan.model import SlurmPlan

SACKD_SINCE = (23, 11)  # older versions have no sackd and need the files
SSH_SETTINGS = "/etc/ssh/ssh_config.d/10-gpucluster.conf"
USER_SLICE = "/etc/systemd/system/user-.slice.d/50-gpucluster.conf"
ROOT_SLICE = "/etc/systemd/system/user-0.slice.d/60-gpucluster.conf"
SACKD = f"{names.AGENT_RUN}/sackd.env"

log = logging.getLogger(__name__)


def slurm(machine: Machine, state: BootState) -> BootState:
    """Give Slurm's commands their configuration: from sackd, or before 23.11 from the files of the bundle."""
    plan = require(state.bundle).plan
    if version(plan.slurm.version) < SACKD_SINCE:
        link_files(machine, require(state.bundle))
        return state
    servers = ",".join(f"{a}:{plan.head.controller_port}" for a in plan.head.addresses)
    changed = machine.write(SACKD, f'SACKD_OPTIONS="--conf-server {servers}"\n')
    systemd.ensure(machine, "sackd", restart=changed)
    return state


def version(text: str) -> tuple[int, ...]:
    """Return `24.11` as (24, 11)."""
    return tuple(int(word) for word in re.findall(r"[0-9]+", text)[:2])


def limit_sessions(machine: Machine, state: BootState) -> BootState:
    """Bound the memory, tasks and CPUs of each user's sessions: the slice of a user holds all of them (systemd.resource-control)."""
    plan = require(state.bundle).plan
    login = None if plan.aws is None else plan.login
    if login is None:
        return state
    limits = login.sessions
    changed = machine.write(
        USER_SLICE,
        f"# Made by gpucluster: all sessions of one user together.\n[Slice]\nMemoryMax={limits.memory_mib}M\n"
        f"TasksMax={limits.tasks}\nCPUQuota={limits.cpus * 100}%\n",
    )
    changed |= machine.write(
        ROOT_SLICE,
        "# Made by gpucluster: root has no limit.\n[Slice]\nMemoryMax=infinity\nTasksMax=infinity\nCPUQuota=\n",
    )
    if changed:
        machine.run(["systemctl", "daemon-reload"])
    return state


def run_sshd(machine: Machine, state: BootState) -> BootState:
    """Run sshd with our settings."""
    plan = require(state.bundle).plan
    machine.write(SSH_SETTINGS, ssh_settings(plan))
    sshd.run(machine, ldap=plan.directory is not None)
    return state


def ssh_settings(plan: SlurmPlan) -> str:
    """Return settings of ssh to compute nodes. A node has new host keys after each boot, so an old key proves nothing.

    No LogLevel: at ERROR ssh hides why PAM refuses a user.
    """
    nodes = sorted({f"{span.prefix}*" for pool in plan.pools for span in pool.slots})
    return (
        f"# Made by gpucluster: a node has new host keys after each boot.\nHost {' '.join(nodes)}\n"
        "    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\n"
    )


AFTER_BUNDLE: StepTable = (  # repeated at each check; a step changes nothing if nothing has changed
    ("hostname", hostnames.for_login),
    ("mounts", block_devices.mount_all),
    ("directory", directory.configure),
    ("users", accounts.apply),
    ("environment", environment.install),
    ("slurm", slurm),
    ("sessions", limit_sessions),
    ("sshd", run_sshd),
)
FOLLOW: StepTable = (("bundle", bundles.fetch_and_apply), *AFTER_BUNDLE)
BOOT: StepTable = (
    ("guard", guard.root_only),
    ("machine", identity.from_user_data),
    ("bundle", bundles.fetch_and_apply),
    ("key", munge_key.fetch),
    *AFTER_BUNDLE,
)


def run(machine: Machine) -> None:
    """Never returns."""
    follow(machine, BOOT, FOLLOW)


def follow(machine: Machine, boot: StepTable, again: StepTable) -> None:
    """Boot, then follow the bundle. Never returns."""
    boot_state.save(machine, boot_state.load(machine))
    state, table = BootState(), boot
    while True:
        state, done = run_once(machine, table, state)
        table = again if done else table
        machine.pause(state.bundle.plan.times.reconcile_s if state.bundle else head.CHECK_S)


def run_once(machine: Machine, table: StepTable, state: BootState) -> tuple[BootState, bool]:
    """Run the steps once. Return the state, and whether all steps are done."""
    deadline = machine.now() + head.REPORT_S
    try:
        state = run_steps(machine, table, state, until=lambda _: deadline)
    except StepFailedError as failure:
        log.warning("this machine is not ready: %s", one_line(failure))
        return failure.state, False
    try:
        bundles.prune(machine, [one.digest for one in (state.bundle, state.offered) if one is not None])
    except OSError as error:
        log.warning("old bundles: %s", one_line(error))
    return state, True
