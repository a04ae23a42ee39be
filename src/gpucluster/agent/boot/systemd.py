"""Start systemd units, and read their log if they do not start."""

from gpucluster.agent.machine import Machine, NotYetError
from gpucluster.errors import GpuclusterError
from gpucluster.shell import CommandError

START_S = 90.0
LINES = 12
TRIES_S = 60.0  # after this time a unit that does not start counts as failed
RESTARTS_S = 10.0  # a unit that ended so recently may be starting again
RUNS = ("active", "reloading", "refreshing")  # values of ActiveState


def ensure(machine: Machine, unit: str, *, restart: bool = False) -> None:
    """Start the unit and wait for its notification; NotYetError with its last log lines if it does not start."""
    verb = "restart" if restart else "start"
    try:
        machine.run(["systemctl", verb, f"{unit}.service"], timeout_s=START_S)
    except CommandError as error:
        raise NotYetError(
            f"{unit} does not start: {last_log_lines(machine, unit)}", limit_s=TRIES_S
        ) from error


def active(machine: Machine, unit: str) -> bool:
    """Return whether the unit runs."""
    return machine.run(["systemctl", "is-active", "--quiet", f"{unit}.service"], check=False).code == 0


def down_s(machine: Machine, unit: str) -> float | None:
    """Return the seconds since the unit ended; None: it runs, may be restarting, or systemd does not answer."""
    argv = ["systemctl", "show", f"{unit}.service", "--property=ActiveState,ActiveExitTimestampMonotonic"]
    try:
        answer = machine.run(argv, check=False, timeout_s=5).stdout
    except (GpuclusterError, OSError):
        return None
    found = {name: value for name, _, value in (line.partition("=") for line in answer.splitlines())}
    ended = found.get("ActiveExitTimestampMonotonic", "")
    if not ended.isdecimal() or not int(ended) or found.get("ActiveState", RUNS[0]) in RUNS:
        return None
    seconds = machine.now() - int(ended) / 1e6
    return seconds if seconds >= RESTARTS_S else None


def last_log_lines(machine: Machine, unit: str) -> str:
    """Return the last log lines of the unit; the lines with errors, if there are any."""
    argv = ["journalctl", "--unit", f"{unit}.service", "--lines", str(LINES), "--output", "cat"]
    argv += ["--boot", "--no-pager", "--quiet"]
    lines = machine.run(argv, check=False, timeout_s=10).stdout.splitlines()
    errors = [line for line in lines if "fatal" in line or "error" in line]
    return "; ".join((errors or lines)[-2:]) or "its log is empty"
