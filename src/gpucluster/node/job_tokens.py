"""A job's token: the Prolog leaves one for each job in a folder of root's, a file that only the job's user reads.

It counts while a step of the job runs here. Nothing is remembered beside the files: an agent that restarts knows them.
"""

import hmac
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from gpucluster.errors import GpuclusterError
from gpucluster.node.machine import Machine
from gpucluster.plan import names

LONGEST = 128
TOKEN = re.compile(r"([1-9][0-9]{0,9})\.[A-Za-z0-9_-]{43}")  # JOBID and 32 bytes of chance
STEP = re.compile(rb"slurmstepd: \[([0-9]{1,10})[.+]")  # a step's title
STARTING_S = 900.0  # a Prolog may be so long before the first step


class NotThisJobError(GpuclusterError):
    """Whoever asks is not a process of a job that runs here."""


def job_of(machine: Machine, token: str, uid: int) -> int:
    """The running job whose token it is, asked by its own user; NotThisJobError in all other cases."""
    match = TOKEN.fullmatch(token)
    if match is None:
        raise NotThisJobError("no token of a job")
    if not _is(machine.place(names.JOBS_DIR) / match[1], token, uid):
        raise NotThisJobError("no token of a job of this user's on this node")
    job = int(match[1])
    if job not in running(machine):
        raise NotThisJobError(f"job {job} does not run here")
    return job


def sweep(machine: Machine) -> None:
    """Forget the jobs that are over."""
    now, alive = machine.clock(), running(machine)
    for file in _files(machine):
        if int(file.name) not in alive and now - file.lstat().st_mtime > STARTING_S:
            file.unlink(missing_ok=True)


def running(machine: Machine) -> frozenset[int]:
    """Jobs with a step here, by what root's own processes call themselves: a user may take any title."""
    proc = machine.place("/proc")
    root = proc.stat().st_uid
    return frozenset(_steps(proc, root))


def _steps(proc: Path, root: int) -> Iterator[int]:
    for title in proc.glob("[0-9]*/cmdline"):
        try:
            match = STEP.match(title.read_bytes())
            if match and title.parent.stat().st_uid == root:
                yield int(match[1])
        except OSError:
            continue  # it ended while we looked


def _is(file: Path, token: str, uid: int) -> bool:
    """Whether the file is `uid`'s and holds the token. A link is nobody's."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as opened:
        seen = os.fstat(descriptor)
        ours = stat.S_ISREG(seen.st_mode) and seen.st_uid == uid
        return ours and hmac.compare_digest(opened.read(LONGEST), token.encode())


def _files(machine: Machine) -> list[Path]:
    folder = machine.place(names.JOBS_DIR)
    found = folder.iterdir() if folder.is_dir() else ()
    return [file for file in found if file.name.isascii() and file.name.isdigit()]
