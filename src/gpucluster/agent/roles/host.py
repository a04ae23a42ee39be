"""An existing host, head or node: run Slurm from the files that Ansible installed; then the agent ends.

Such a host changes only by Ansible or a boot, and both start the agent again. A timer of the head runs `watch`. A host has no cloud, no daemon and no metadata
service: the bundle is a local file, Ansible installs the munge key, and the plan gives the name.
"""

from dataclasses import replace
from typing import Any, cast

from gpucluster.agent.boot import (
    accounting,
    boot_state,
    bundles,
    cluster_identity,
    environment,
    held_bundle,
    hostnames,
    identity,
    mig,
    mps,
    munge_key,
    reservations,
    slurmctld,
    slurmd,
    sshd,
    watchdog,
)
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.boot.runner import StepTable, one_line
from gpucluster.agent.disks import mounts
from gpucluster.agent.health import settings as health_settings
from gpucluster.agent.machine import Machine, NotYetError
from gpucluster.agent.roles import head
from gpucluster.errors import GpuclusterError
from gpucluster.json_text import parse_json
from gpucluster.plan import names

HEAD: StepTable = (
    ("machine", identity.from_host_file),
    ("bundle", slurmctld.fetch_bundle),
    ("slurm", slurmctld.check_config),
    ("cluster", cluster_identity.check),
    ("hold", held_bundle.hold),
    ("hosts", hostnames.for_host),
    ("key", munge_key.use_installed),
    ("mounts", mounts.mount_from_fstab),
    ("accounting", accounting.run_slurmdbd),
    ("controller", slurmctld.apply_bundle),
    ("held", held_bundle.clear),
    ("ready", slurmctld.wait_for_controller),
    ("accounts", accounting.apply_accounts),
    ("reservations", reservations.apply),
    ("drains", held_bundle.lift_drains),
)
NODE: StepTable = (
    ("machine", identity.from_host_file),
    ("bundle", bundles.fetch_and_apply),
    ("hosts", hostnames.for_host),
    ("key", munge_key.use_installed),
    ("mounts", mounts.mount_from_fstab),
    ("name", slurmd.name_from_plan),
    ("devices", slurmd.wait_for_gpus),
    ("mig", mig.slice_gpus),
    ("mps", mps.start_daemons),
    ("tmp", slurmd.create_private_tmp),
    ("environment", environment.install_on_node),
    ("health", health_settings.write),
    ("slurmd", slurmd.run_on_host),
    ("sshd", sshd.guard_on_host),
)
TABLES = {names.ROLE_HEAD: HEAD, names.ROLE_NODE: NODE}
RETRY_S = 5.0
CHECK_S = 0.3
STATUS = f"{names.SITE_DIR}/{names.SITE_STATUS}"


def run(machine: Machine) -> None:
    """Run the steps until all are done and no bundle is held. Also end with a refused bundle, because only Ansible can bring another."""
    boot_state.save(machine, boot_state.load(machine))
    table = TABLES[require(identity.from_host_file(machine, BootState()).identity).role]
    state, done, last = BootState(), False, b""
    while not done or state.held or state.accounting:
        state, done, last = head.run_once(machine, table, state, last, key=names.SITE_STATUS)
        if not done or state.held or state.accounting:
            machine.pause(RETRY_S)


def watch(machine: Machine) -> str:
    """Look after the slurmctld of this head once: kill one that does not answer, and keep its reservations.

    Return what is wrong; empty: nothing. Nothing happens while the agent applies a bundle, which restarts slurmctld itself.
    """
    digest = bundles.applied(machine)
    bundle = None if digest is None else bundles.stored(machine, digest)
    if bundle is None or _agent_state(machine) != "exited":
        return ""
    state = replace(identity.from_host_file(machine, BootState()), bundle=bundle)
    try:
        watchdog.watch(machine, state)
    except NotYetError as error:
        return str(error)
    return reservations.apply(machine, state).reservations


def apply_accounts(machine: Machine) -> str:
    """Apply accounts and limits of the host's bundle, and reset GPU-hours in a new month. Return an empty text, or why not.

    The agent of an existing host has ended: a timer calls this at the start of each month (UTC).
    """
    try:
        state = bundles.fetch(machine, identity.from_host_file(machine, BootState()))
        return accounting.apply_accounts(machine, state).accounting
    except (GpuclusterError, OSError) as error:
        return f"the accounts are not applied: {one_line(error)}"


def wait(machine: Machine, digest: str, limit_s: float) -> str:
    """Wait until the agent has ended and has applied `digest`. Return an empty text, or the reason after `limit_s`."""
    end = machine.now() + limit_s
    while reason := missing(machine, digest):
        if machine.now() >= end:
            return f"not ready after {limit_s:g} s: {reason}"
        machine.pause(CHECK_S)
    return ""


def missing(machine: Machine, digest: str) -> str:
    """Return in one line what is not done yet; empty if all is done."""
    unit, status = _agent_state(machine), _status(machine)
    failed = [f"{step.name}: {step.detail}" for step in boot_state.load(machine).steps if not step.ok]
    if unit != "exited":
        held = str(status.get("detail") or "") if status.get("bundle") == digest else ""
        step = "; ".join(failed[-1:]) or held or "it has reported no step yet"
        return f"the agent is {unit or 'missing'}; {step}"
    if status.get("ready") is not True:
        return str(status.get("detail") or "") or "the agent has ended and reported no reason"
    return (
        ""
        if status.get("applied") == digest
        else f"the agent has applied {status.get('applied')}, not {digest}"
    )


def _agent_state(machine: Machine) -> str:
    """Return systemd's word for the agent's unit; `exited`: it has done its work."""
    unit = machine.run(["systemctl", "show", "--property=SubState", "--value", names.AGENT_UNIT], check=False)
    return unit.stdout.strip()


def _status(machine: Machine) -> dict[str, Any]:
    try:
        found = parse_json(machine.read(STATUS))
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
