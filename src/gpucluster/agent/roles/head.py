"""The head: munge key, storage, Slurm's files, slurmctld, the elastic daemon; then it follows the bundle."""

import logging
from dataclasses import replace

from gpucluster.agent.boot import (
    accounting,
    accounts,
    boot_state,
    cluster_identity,
    directory,
    guard,
    held_bundle,
    hostnames,
    identity,
    munge_key,
    reservations,
    slurmctld,
    watchdog,
)
from gpucluster.agent.boot.boot_state import BootState
from gpucluster.agent.boot.runner import StepFailedError, StepTable, one_line, run_steps
from gpucluster.agent.disks import block_devices, mounts
from gpucluster.agent.machine import BundleRefusedError, Machine
from gpucluster.errors import GpuclusterError
from gpucluster.plan import names

STORAGE: StepTable = (
    ("volumes", block_devices.mount_volumes),
    ("exports", mounts.export),
    ("mounts", block_devices.mount_all),
    ("state", block_devices.bind_state),
)
AFTER_BUNDLE: StepTable = (  # repeated at each check; a step changes nothing if nothing has changed
    ("slurm", slurmctld.check_config),
    ("cluster", cluster_identity.check),
    ("watchdog", watchdog.watch),
    ("hold", held_bundle.hold),
    ("hostname", hostnames.for_head),
    *STORAGE,
    ("state-cluster", cluster_identity.check),  # a boot mounts the state just now
    ("directory", directory.configure),
    ("users", accounts.apply),
    ("accounting", accounting.run_slurmdbd),
    ("controller", slurmctld.apply_bundle),
    ("elastic", slurmctld.run_daemon),
    ("held", held_bundle.clear),
    ("ready", slurmctld.wait_until_ready),
    ("accounts", accounting.apply_accounts),
    ("reservations", reservations.apply),
)
FOLLOW: StepTable = (("bundle", slurmctld.fetch_bundle), *AFTER_BUNDLE)
BOOT: StepTable = (
    ("guard", guard.root_only),
    ("machine", identity.from_user_data),
    ("guard-daemon", guard.root_and_daemon),
    ("bundle", slurmctld.fetch_bundle),
    ("key", munge_key.create_or_fetch),
    *AFTER_BUNDLE,
)
CHECK_S = 60.0  # until the plan is known
REPORT_S = 120.0  # after this time the step in progress is published as the reason

log = logging.getLogger(__name__)


def run(machine: Machine) -> None:
    """Boot, then follow the bundle. Never returns."""
    boot_state.save(machine, boot_state.load(machine))
    state, table, last = BootState(), BOOT, b""
    while True:
        state, done, last = run_once(machine, table, state, last)
        table = FOLLOW if done else table
        machine.pause(state.bundle.plan.times.reconcile_s if state.bundle else CHECK_S)


def run_once(
    machine: Machine, table: StepTable, state: BootState, last: bytes, *, key: str = names.STATUS_KEY
) -> tuple[BootState, bool, bytes]:
    """Run the steps once and publish the result. Return the state, whether all steps are done, and the published status."""
    deadline = machine.now() + REPORT_S
    refused: dict[str, str] = {}
    try:
        state, done, detail = run_steps(machine, table, state, until=lambda _: deadline), True, ""
    except StepFailedError as failure:
        state, done, detail = failure.state, False, one_line(failure)
        refused = _first_refused(failure)
        log.warning("this machine is not ready: %s", detail)
    if state.refused:
        detail = f"the new bundle is not applied: {state.refused}"
    elif done:
        detail = state.held or state.accounting or state.reservations or watchdog.words(machine)
    if state.identity is None:
        return state, done, last
    try:
        ready = done and not state.refused and not state.held and not state.accounting
        shown = replace(state, **refused)
        last = slurmctld.publish_status(machine, shown, ready=ready, detail=detail, last=last, key=key)
    except (GpuclusterError, OSError) as error:
        log.warning("the status cannot be published: %s", one_line(error))
    return state, done, last


def _first_refused(failure: StepFailedError) -> dict[str, str]:
    """Return what the status says of a bundle that is refused while there is no earlier one. The next round checks it again."""
    cause = failure.__cause__
    if not isinstance(cause, BundleRefusedError):
        return {}
    return {"refused": one_line(cause), "damaged": cause.digest}
