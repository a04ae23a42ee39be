"""The site's own program on a machine that is to be left: run once for each kind of trouble, as root, by systemd.

It never holds anything up: a program that is missing, fails or takes too long is a failed step of the report; so is
one that others than root may change, which is not run (decision 0004).
"""

import re
from datetime import UTC, datetime
from pathlib import PurePosixPath

from gpucluster.errors import GpuclusterError
from gpucluster.node import state, systemd
from gpucluster.node.known import Known, of
from gpucluster.node.machine import Machine
from gpucluster.node.walk import one_line
from gpucluster.plan.messages import NoticeKind, Step

STEP = "farewell"
LIMIT_S = 100  # of a spot notice's 120 s
KILL_S = 5  # after the limit, for one that does not hear SIGTERM
OTHERS = 0o022  # group and everybody: may write
LEAVING = re.compile(r"([a-z-]{1,20})(?: ([0-9]{1,12}))?")


def run(machine: Machine, known: Known) -> None:
    """Start it if it is due, and report what became of it."""
    kept, script = state.load(machine), _script(known)
    if script is None:
        return
    _report_failed(machine, kept)
    due = _due(machine, known)
    if due is None or due[0] in kept.farewells:
        return
    kind, end = due
    state.change(machine, farewells=(*kept.farewells, kind))
    argv = ["systemd-run", f"--unit={_unit(kind)}", "--no-block", "--quiet"]
    argv += [f"--property=RuntimeMaxSec={LIMIT_S}", f"--property=TimeoutStopSec={KILL_S}"]
    try:
        if hindrance := _not_roots_alone(machine, script):
            _record(machine, f"{script}: not run: {hindrance}")
        else:
            machine.run([*argv, "--", script, kind, end], timeout_s=5)
    except (GpuclusterError, OSError) as error:
        _record(machine, f"{script}: {one_line(error)}")


def _script(known: Known) -> str | None:
    pool = of(known.bundle).plan.pool_of(of(known.answer).node)
    return pool.farewell.script if pool is not None else None


def _due(machine: Machine, known: Known) -> tuple[str, str] | None:
    """Kind and end: what this machine heard itself, else what the controller says."""
    for notice in machine.heard().notices:
        if notice.kind is NoticeKind.SPOT:
            return notice.kind.value, _clock(notice.at)
    told = LEAVING.fullmatch(of(known.answer).leaving)
    return (told[1], _clock(float(told[2]) if told[2] else None)) if told else None


def _not_roots_alone(machine: Machine, script: str) -> str:
    """Whom the program trusts beside root; asked of another process, because a file system may hang."""
    way = (script, *(str(folder) for folder in PurePosixPath(script).parents))
    argv = ["stat", "--dereference", "--format=%u %a %n", "--", *way]
    lines = machine.run(argv, timeout_s=5, check=False).stdout.splitlines()
    if way[-1] not in {line.rpartition(" ")[2] for line in lines}:
        return "nobody knows whose it is"
    for uid, mode, path in (line.split(" ", 2) for line in lines):
        if uid != "0" or int(mode, 8) & OTHERS:
            return f"others than root may change {path}"
    return ""  # what is missing systemd says itself


def _report_failed(machine: Machine, kept: state.AgentState) -> None:
    told = {step.name for step in kept.steps}
    for kind in kept.farewells:
        unit = _unit(kind)
        if (
            STEP not in told
            and machine.run(["systemctl", "is-failed", "--quiet", unit], check=False).code == 0
        ):
            _record(machine, f"{kind}: {systemd.last_words(machine, unit)}")


def _record(machine: Machine, detail: str) -> None:
    state.record(machine, Step(name=STEP, ok=False, seconds=0.0, detail=detail))


def _unit(kind: str) -> str:
    return f"gpucluster-farewell-{kind}"


def _clock(at: float | None) -> str:
    """`2026-11-21T19:20:00Z`; empty where no end is told."""
    try:
        return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return ""
