"""A node: the boot from power-on to slurmd, then heartbeats until the machine ends."""

import contextlib
import logging
from dataclasses import replace

from gpucluster.agent.boot import (
    accounts,
    boot_state,
    bundles,
    directory,
    environment,
    guard,
    hostnames,
    identity,
    mig,
    mps,
    munge_key,
    node_reports,
    on_boot,
    slurmd,
    sshd,
)
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.boot.runner import StepFailedError, StepTable, one_line, run_steps
from gpucluster.agent.credentials import job_role, job_steps, job_tokens
from gpucluster.agent.disks import block_devices
from gpucluster.agent.health import settings as health_settings
from gpucluster.agent.machine import Machine
from gpucluster.agent.monitors import job_heartbeats, termination
from gpucluster.agent.monitors.prolog_socket import PrologRequest, PrologSocket
from gpucluster.errors import GpuclusterError
from gpucluster.plan.messages import NodePhase
from gpucluster.slurm import hostlist

log = logging.getLogger(__name__)
KEY_STEP, MOUNTS_STEP = "key", "mounts"


def mount_all(machine: Machine, state: BootState) -> BootState:
    """Mount the file systems. Each failed try is reported, so that a boot timeout has a reason."""
    if any(step.name == MOUNTS_STEP and not step.ok for step in boot_state.load(machine).steps):
        with contextlib.suppress(GpuclusterError, OSError):
            node_reports.send(machine, state, NodePhase.BOOTING)
    return block_devices.mount_all(machine, state)


def start_sshd(machine: Machine, state: BootState) -> BootState:
    """Start sshd for users with a job here. A node without ssh still runs jobs, so a failure is only logged."""
    try:
        return sshd.run_on_node(machine, state)
    except (GpuclusterError, OSError) as error:
        log.warning("sshd does not run on this node: %s", one_line(error))
        return state


AFTER_HEARTBEAT: StepTable = (  # repeated at each answer; a step changes nothing if nothing has changed
    ("hostname", hostnames.for_node),
    ("devices", slurmd.wait_for_gpus),
    ("mig", mig.slice_gpus),
    ("fabric", slurmd.wait_for_fabric),
    ("mps", mps.start_daemons),
    ("health", health_settings.write),
    ("slurmd", slurmd.run_on_node),
)
BOOT: StepTable = (
    ("guard", guard.root_only),
    ("machine", identity.from_user_data),
    ("bundle", bundles.fetch_and_apply),
    (KEY_STEP, munge_key.fetch),
    ("name", node_reports.register),
    (MOUNTS_STEP, mount_all),
    ("directory", directory.configure),
    ("users", accounts.apply),
    ("jobs", job_role.serve_credentials),
    ("tmp", slurmd.create_private_tmp),
    ("environment", environment.install_on_node),
    ("on-boot", on_boot.run),
    *AFTER_HEARTBEAT,
    ("sshd", start_sshd),
)
DEFAULT_HEARTBEAT_S = 30.0  # between reports of a failure while the plan is not known
SHORTEST_HEARTBEAT_S = 0.1
RESOLVE_TRIES, RESOLVE_S = 10, 0.2  # the Prolog waits 5 s


def run(machine: Machine, prolog_socket: PrologSocket) -> None:
    """Boot, then send heartbeats until the machine ends. After a failed boot, report the failure until it ends."""
    boot_state.save(machine, boot_state.load(machine))
    try:
        state = run_steps(
            machine, BOOT, BootState(), until=lambda state: _self_termination_at(machine, state)
        )
    except StepFailedError as failure:
        log.warning("this node cannot join: %s", failure)
        report_until_end(machine, failure.state)
        return
    state = heartbeat(machine, state)
    while not power_off_if_due(machine, state):
        request = prolog_socket.wait(max(require(state.answer).heartbeat_s, SHORTEST_HEARTBEAT_S))
        state = heartbeat(machine, state)
        if request is not None:
            state = _reply_when_resolved(machine, state, prolog_socket, request)


def heartbeat(machine: Machine, state: BootState) -> BootState:
    """Send one heartbeat, start the termination script if an interruption is announced, and apply new users."""
    state = _send_heartbeat(machine, state)
    try:
        termination.run(machine, state)
    except (GpuclusterError, OSError) as error:
        log.warning("termination script: %s", one_line(error))
    for sweep in (job_tokens.sweep, job_heartbeats.sweep):
        with contextlib.suppress(OSError):
            sweep(machine)
    try:
        return accounts.follow_bundle(machine, state)
    except (GpuclusterError, OSError) as error:
        log.warning("users: %s", one_line(error))
    return state


def report_until_end(machine: Machine, state: BootState) -> None:
    """Report the failure until the machine powers off, signed by munge if the key is there."""
    while not power_off_if_due(machine, state):
        try:
            state = state if state.bundle else _with_bundle(machine, state)
            keyed = any(step.name == KEY_STEP and step.ok for step in boot_state.load(machine).steps)
            if keyed:
                node_reports.send(machine, state, NodePhase.FAILED)
            else:
                node_reports.send_failure(machine, state)
        except (GpuclusterError, OSError) as error:
            log.warning("the failure cannot be reported: %s", one_line(error))
        machine.pause(state.bundle.plan.times.heartbeat_s if state.bundle else DEFAULT_HEARTBEAT_S)


def power_off_if_due(machine: Machine, state: BootState) -> bool:
    """Power off if no job runs, and no controller answers or nobody terminates a powered-down node. EC2 then terminates it."""
    saved, busy = boot_state.load(machine), bool(job_steps.running_jobs(machine))
    if not busy and slurmd.is_left_alone(machine, state):
        log.warning("slurmctld shows this node powered down, and the daemon may not end it: it powers off")
        machine.run(["systemctl", "poweroff"], check=False)
        return True
    plan = state.bundle.plan if state.bundle else None
    silent_s = machine.now() - saved.last_contact_at
    if busy and silent_s > 0:
        boot_state.update(machine, last_contact_at=machine.now())
    if not termination.self_termination_due(
        plan=plan, node=saved.node, silent_s=silent_s, steps_running=busy
    ):
        return False
    log.warning("no controller and no job for %.0f s: this machine powers off", silent_s)
    machine.run(["systemctl", "poweroff"], check=False)
    return True


def _send_heartbeat(machine: Machine, state: BootState) -> BootState:
    """Send the report and apply the answer. Without an answer nothing changes on the node."""
    try:
        new = replace(state, answer=node_reports.send(machine, state, NodePhase.UP))
        saved, answer = boot_state.load(machine), require(new.answer)
        new = run_steps(machine, AFTER_HEARTBEAT, new, until=lambda _: machine.now())
        if (saved.slurmd_node, saved.incarnation) != (answer.node, answer.incarnation):
            new = replace(new, answer=node_reports.send(machine, new, NodePhase.UP))
        return new
    except (GpuclusterError, OSError) as error:
        log.warning("heartbeat: %s", one_line(error))
        return state


def _reply_when_resolved(
    machine: Machine, state: BootState, prolog_socket: PrologSocket, request: PrologRequest
) -> BootState:
    """Send heartbeats until every name of the job resolves here, or no tries are left. The job starts in both cases."""
    wanted, tries = _expanded(request.hostlist), RESOLVE_TRIES
    while (missing := wanted - hostnames.known_names(machine)) and tries:
        machine.pause(RESOLVE_S)
        state, tries = heartbeat(machine, state), tries - 1
    if missing:
        log.warning("these names of the job do not resolve: %s", ",".join(sorted(missing)[:20]))
    prolog_socket.reply(request, " ".join(("ok", *_runs_begun(machine, state, request))))
    return state


def _runs_begun(machine: Machine, state: BootState, request: PrologRequest) -> tuple[str, ...]:
    """Return the runs of the job that began before this one. Nothing if Slurm counts no requeue, or no daemon answers."""
    if not (request.job and request.restarts):
        return ()
    try:
        return (str(node_reports.runs_begun(machine, state, request.job, request.restarts)),)
    except (GpuclusterError, OSError) as error:
        log.warning("the restarts of job %s are Slurm's: %s", request.job, one_line(error))
        return ()


def _expanded(text: str) -> frozenset[str]:
    try:
        return frozenset(hostlist.expand_slurm(text))
    except hostlist.HostlistError:
        return frozenset()


def _with_bundle(machine: Machine, state: BootState) -> BootState:
    """Fetch the bundle, which has the controller's address, if the failure came before that step."""
    state = state if state.identity else identity.from_user_data(machine, state)
    return bundles.fetch(machine, state)


def _self_termination_at(machine: Machine, state: BootState) -> float:
    plan = state.bundle.plan if state.bundle else None
    return boot_state.load(machine).last_contact_at + termination.self_termination_limit_s(plan)
