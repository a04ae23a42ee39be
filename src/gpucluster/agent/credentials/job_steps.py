"""The jobs with a step on this node, from facts that only root can set: a user may give a process any title."""

import re
from collections.abc import Iterator
from pathlib import Path

from gpucluster.agent.machine import Machine

PROGRAM = "slurmstepd"  # Debian appends `-wlm`; after an upgrade the kernel appends ` (deleted)`
# The title of a step; `slurmstepd infinity` only holds the cgroup.
STEP = re.compile(rb"slurmstepd: \[([0-9]{1,10})[.+]")
BATCH = re.compile(rb"slurmstepd: \[([0-9]{1,10})(?:\+[0-9]+)?\.batch\]")


def running_jobs(machine: Machine) -> frozenset[int]:
    """Return the jobs with a step on this node.

    The owner of a /proc entry proves nothing: it is root for a user's process that cannot be dumped. A setuid program
    runs as root under a title that a user chose. So the program must be slurmstepd and its real uid root. Its effective
    uid may be the user's for a moment.
    """
    return frozenset(_steps(machine.path("/proc"), root_uid(machine)))


def batch_jobs(machine: Machine) -> frozenset[int]:
    """Return the jobs whose batch script runs on this node."""
    return frozenset(_steps(machine.path("/proc"), root_uid(machine), BATCH))


def root_uid(machine: Machine) -> int:
    """Return the uid of root: the owner of /proc."""
    return machine.path("/proc").stat().st_uid


def _steps(proc: Path, owner: int, title_of: re.Pattern[bytes] = STEP) -> Iterator[int]:
    started_by = f"\nUid:\t{owner}\t"  # the first of four is the real uid
    for title in proc.glob("[0-9]*/cmdline"):
        try:
            match = title_of.match(title.read_bytes())
            if match and _program(title.parent).startswith(PROGRAM) and started_by in _status(title.parent):
                yield int(match[1])
        except OSError:
            continue  # the process has ended


def _program(process: Path) -> str:
    return (process / "exe").readlink().name


def _status(process: Path) -> str:
    return (process / "status").read_text(errors="replace")
