"""Whose steps run here, by what nobody but root can show: a user may give a process any title."""

import re
from collections.abc import Iterator
from pathlib import Path

from gpucluster.node.machine import Machine

PROGRAM = "slurmstepd"  # Debian adds `-wlm`, the kernel ` (deleted)` once a newer package is there
# A step's title; `slurmstepd infinity` only keeps the cgroup.
STEP = re.compile(rb"slurmstepd: \[([0-9]{1,10})[.+]")


def jobs(machine: Machine) -> frozenset[int]:
    """Jobs with a step here.

    A user's process is shown as root's once it may not be dumped, and a program with a setuid bit runs as root under a
    title of the user's. So it must be slurmstepd's program, started by root. For moments its effective user is the job's.
    """
    return frozenset(_steps(machine.place("/proc"), root(machine)))


def root(machine: Machine) -> int:
    """Root's uid, as the owner of /proc."""
    return machine.place("/proc").stat().st_uid


def _steps(proc: Path, owner: int) -> Iterator[int]:
    started_by = f"\nUid:\t{owner}\t"  # the first of four is the real one
    for title in proc.glob("[0-9]*/cmdline"):
        try:
            match = STEP.match(title.read_bytes())
            if match and _program(title.parent).startswith(PROGRAM) and started_by in _status(title.parent):
                yield int(match[1])
        except OSError:
            continue  # it ended while we looked


def _program(process: Path) -> str:
    return (process / "exe").readlink().name


def _status(process: Path) -> str:
    return (process / "status").read_text(errors="replace")
