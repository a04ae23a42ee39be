"""Starting units, and their last words when they would not start."""

from gpucluster.node.machine import Machine, NotYetError
from gpucluster.shell import CommandError

START_S = 90.0
LINES = 12
TRIES_S = 60.0  # a unit that does not start within this never will


def ensure(machine: Machine, unit: str, *, restart: bool = False) -> None:
    """Return when the unit runs: systemd waits for its notification. NotYetError with its last words otherwise."""
    verb = "restart" if restart else "start"
    try:
        machine.run(["systemctl", verb, f"{unit}.service"], timeout_s=START_S)
    except CommandError as error:
        raise NotYetError(f"{unit} does not start: {last_words(machine, unit)}", limit_s=TRIES_S) from error


def active(machine: Machine, unit: str) -> bool:
    """Does it run?"""
    return machine.run(["systemctl", "is-active", "--quiet", f"{unit}.service"], check=False).code == 0


def last_words(machine: Machine, unit: str) -> str:
    """The unit's own last lines; of those, the errors if there are any."""
    name, lines = f"{unit}.service", str(LINES)
    argv = [
        "journalctl",
        "--unit",
        name,
        "--lines",
        lines,
        "--output",
        "cat",
        "--boot",
        "--no-pager",
        "--quiet",
    ]
    said = machine.run(argv, check=False, timeout_s=10).stdout.splitlines()
    errors = [line for line in said if "fatal" in line or "error" in line]
    return "; ".join((errors or said)[-2:]) or "it says nothing"
