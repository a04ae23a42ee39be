"""The watchdog of both heads: restart a slurmctld that lives but does not answer.

slurmctld 24.11.5 hangs for ever when any user runs `scancel --ctld` for another user's job (S19). `scontrol ping` still
answers then, and SIGTERM does not end it, so the probe is a request that needs the lock of the jobs, and the end is SIGKILL.
systemd restarts slurmctld only when it ends.
"""

import logging

from gpucluster.agent.boot import boot_state, slurmctld, systemd
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.machine import Machine, NotYetError
from gpucluster.plan import codec, names
from gpucluster.plan.messages import ControllerWatch
from gpucluster.shell import CommandError

HUNG_S = 120.0  # without an answer; MessageTimeout is 30 s, and a busy slurmctld of 10,000 jobs answers within seconds
TAKEOVER_S = (
    120.0  # SlurmctldTimeout: then the standby's slurmctld takes over from one that does not answer its ping
)
MOST_RESTARTS, RESTARTS_S = 3, 3600.0
PROBE = ("scontrol", "show", "job", "1")  # it needs the lock of the jobs; the job need not exist
NO_SUCH_JOB = "Invalid job id"
PROBE_S = 90.0  # MessageTimeout of each slurmctld, and margin

REPORT_S = 30.0  # then the status reports the silence, and the next round goes on

log = logging.getLogger(__name__)


def watch(machine: Machine, state: BootState) -> BootState:
    """Restart our slurmctld if it has not answered for HUNG_S. NotYetError while it does not answer.

    Nothing happens while slurmctld starts, stops or takes control back from the standby: then its unit is not active, or
    it has not answered yet since its start.
    """
    saved = boot_state.load(machine)
    runs = systemd.active(machine, slurmctld.CONTROLLER)
    if not runs or not saved.slurm_digest or saved.standby_stops:
        return _answered(machine, state)
    head, role = require(state.bundle).plan.head, require(state.identity).role
    if role == names.ROLE_STANDBY and machine.listening(head.address, head.controller_port):
        return _answered(
            machine, state
        )  # the head's slurmctld is in control, or hands over: its own agent watches it
    if answers(machine):
        return _answered(machine, state)
    now = machine.now()
    since = now if saved.slurmctld_silent_since is None else min(saved.slurmctld_silent_since, now)
    if saved.slurmctld_silent_since is None:
        boot_state.update(machine, slurmctld_silent_since=since)
        _publish(machine, silent=True)
    # With two heads the other one takes over first: then it answers, and this slurmctld is left alone.
    bound = HUNG_S + (TAKEOVER_S if head.standby is not None else 0.0)
    if now - since < bound:
        raise NotYetError(
            f"slurmctld runs, but has not answered for {now - since:.0f} s; restarted after {bound:.0f} s",
            limit_s=REPORT_S,
        )
    recent = tuple(at for at in saved.slurmctld_restarts if 0 <= now - at < RESTARTS_S)
    if len(recent) >= MOST_RESTARTS:
        wait = recent[0] + RESTARTS_S - now
        raise NotYetError(
            f"slurmctld runs, but does not answer, and was restarted {len(recent)} times within an hour: "
            f"restarted again in {wait / 60:.0f} min; read its log for the cause",
            limit_s=REPORT_S,
        )
    log.warning("slurmctld runs, but has not answered for %.0f s: killed and started again", now - since)
    boot_state.update(machine, slurmctld_silent_since=None, slurmctld_restarts=(*recent, now))
    _publish(machine, silent=False, restarted=True)
    machine.run(["systemctl", "kill", "--signal=KILL", f"{slurmctld.CONTROLLER}.service"], check=False)
    systemd.ensure(machine, slurmctld.CONTROLLER)
    return state


def answers(machine: Machine) -> bool:
    """Return whether slurmctld, or that of the standby, answers a request that needs the lock of the jobs."""
    try:
        done = machine.run(PROBE, check=False, timeout_s=PROBE_S)
    except CommandError:
        return False  # no answer within PROBE_S
    return done.code == 0 or NO_SUCH_JOB in done.stderr


def _answered(machine: Machine, state: BootState) -> BootState:
    if boot_state.load(machine).slurmctld_silent_since is not None:
        boot_state.update(machine, slurmctld_silent_since=None)
        _publish(machine, silent=False)
    return state


def _publish(machine: Machine, *, silent: bool, restarted: bool = False) -> None:
    """Write the file for the daemon's metrics and for `why`."""
    now = machine.clock()
    old = read(machine)
    restarts = (*old.restarts, now) if restarted else old.restarts
    watch = ControllerWatch(silent_since=now if silent else None, restarts=restarts[-MOST_KEPT:])
    machine.write(names.CONTROLLER_WATCH, codec.dumps(watch))


MOST_KEPT = 20  # times of restarts in the file


def read(machine: Machine) -> ControllerWatch:
    """Return what the watchdog wrote; empty if it wrote nothing, or if the file cannot be read."""
    try:
        return codec.loads(ControllerWatch, machine.read(names.CONTROLLER_WATCH))
    except (OSError, ValueError):
        return ControllerWatch()


def words(machine: Machine) -> str:
    """Return what the published status says about the restarts of the last hour; empty without one."""
    recent = [at for at in read(machine).restarts if 0 <= machine.clock() - at < RESTARTS_S]
    if not recent:
        return ""
    many = "once" if len(recent) == 1 else f"{len(recent)} times"
    return f"slurmctld did not answer and was restarted {many} within the last hour; its log has the cause"
