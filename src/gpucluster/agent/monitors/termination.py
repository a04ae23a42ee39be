"""The end of a node: the site's termination script before an interruption, and self-termination without a controller.

systemd runs the script as root, once for each kind of interruption. It delays nothing: a script that is missing, fails
or takes too long is a failed step of the report. A script that other users can change is not run (decision 0004).
"""

import re
from pathlib import PurePosixPath

from gpucluster.agent.boot import boot_state, systemd
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.boot.runner import one_line
from gpucluster.agent.machine import Machine
from gpucluster.errors import GpuclusterError
from gpucluster.plan.messages import NoticeKind, Step
from gpucluster.plan.model import SlurmPlan
from gpucluster.text import utc

STEP = "termination"
DEFAULT_LIMIT_S = 1800.0  # while the plan is not known
LIMIT_S = 100  # a spot notice comes 120 s before the end
KILL_S = 5  # from SIGTERM to SIGKILL
WRITABLE_BY_OTHERS = 0o022  # by group or others
INTERRUPTION = re.compile(r"([a-z-]{1,20})(?: ([0-9]{1,12}))?")


def run(machine: Machine, state: BootState) -> None:
    """Start the script if an interruption is announced, and report a failed one."""
    saved, script = boot_state.load(machine), _script(state)
    if script is None:
        return
    _report_failed(machine, saved)
    due = _due(machine, state)
    if due is None or due[0] in saved.termination_scripts:
        return
    kind, end = due
    boot_state.update(machine, termination_scripts=(*saved.termination_scripts, kind))
    argv = ["systemd-run", f"--unit={_unit(kind)}", "--no-block", "--quiet"]
    argv += [f"--property=RuntimeMaxSec={LIMIT_S}", f"--property=TimeoutStopSec={KILL_S}"]
    try:
        target = _resolved(machine, script)
        if reason := _unsafe(machine, script, target):
            _record(machine, f"{script}: not run: {reason}")
        else:
            machine.run([*argv, "--", target, kind, end], timeout_s=5)
    except (GpuclusterError, OSError) as error:
        _record(machine, f"{script}: {one_line(error)}")


def self_termination_limit_s(plan: SlurmPlan | None) -> float:
    """Return after how many seconds without a controller and without a job step a node powers off."""
    return plan.times.self_termination_s if plan else DEFAULT_LIMIT_S


def self_termination_due(*, plan: SlurmPlan | None, node: str, silent_s: float, steps_running: bool) -> bool:
    """Return whether the node must power off. It never does in an always-on slot, or while a job step runs."""
    if plan is not None and (pool := plan.pool_of(node)) is not None and node in pool.always_on():
        return False
    return not steps_running and silent_s >= self_termination_limit_s(plan)


def _script(state: BootState) -> str | None:
    pool = require(state.bundle).plan.pool_of(require(state.answer).node)
    return pool.termination.script if pool is not None else None


def _due(machine: Machine, state: BootState) -> tuple[str, str] | None:
    """Return kind and end of the interruption: from this machine's notices, else from the controller's answer."""
    for notice in machine.health().notices:
        if notice.kind is NoticeKind.SPOT:
            return notice.kind.value, _iso_time(notice.at)
    found = INTERRUPTION.fullmatch(require(state.answer).interruption)
    return (found[1], _iso_time(float(found[2]) if found[2] else None)) if found else None


def _resolved(machine: Machine, script: str) -> str:
    """Return the file behind all links, so that the file that was checked is the file that runs; the script itself if it is missing."""
    argv = ["readlink", "--canonicalize-existing", "--", script]
    return machine.run(argv, timeout_s=5, check=False).stdout.strip() or script


def _unsafe(machine: Machine, script: str, target: str) -> str:
    """Return why the script is not safe to run as root; empty if it is. A separate `stat` looks, because a file system may hang.

    Nobody but root may change the file, a folder above it, or a folder above the link in the spec.
    """
    folders = (folder for path in (target, script) for folder in map(str, PurePosixPath(path).parents))
    paths = tuple(dict.fromkeys((target, *folders)))
    argv = ["stat", "--dereference", "--format=%u %a %n", "--", *paths]
    lines = machine.run(argv, timeout_s=5, check=False).stdout.splitlines()
    if "/" not in {line.rpartition(" ")[2] for line in lines}:
        return "its owner cannot be read"
    for uid, mode, path in (line.split(" ", 2) for line in lines):
        if uid != "0" or int(mode, 8) & WRITABLE_BY_OTHERS:
            return f"other users than root can change {path}"
    return ""  # if the script is missing, systemd reports it


def _report_failed(machine: Machine, saved: boot_state.SavedState) -> None:
    reported = {step.name for step in saved.steps}
    for kind in saved.termination_scripts:
        unit = _unit(kind)
        if (
            STEP not in reported
            and machine.run(["systemctl", "is-failed", "--quiet", unit], check=False).code == 0
        ):
            _record(machine, f"{kind}: {systemd.last_log_lines(machine, unit)}")


def _record(machine: Machine, detail: str) -> None:
    boot_state.record(machine, Step(name=STEP, ok=False, seconds=0.0, detail=detail))


def _unit(kind: str) -> str:
    return f"gpucluster-termination-{kind}"


def _iso_time(at: float | None) -> str:
    """`2026-11-21T19:20:00Z`; empty if the end is not known."""
    return "" if at is None else utc(at)
