"""A job's token: the Prolog leaves one for each job in a folder of root's, a file of root's that only the job's user reads.

It counts while a step of the job runs here. Nothing is remembered beside the files: an agent that restarts knows them.
"""

import hmac
import os
import re
import stat
from pathlib import Path

from gpucluster.errors import GpuclusterError
from gpucluster.node import steps
from gpucluster.node.machine import Machine
from gpucluster.plan import names

LONGEST = 128
TOKEN = re.compile(
    r"([1-9][0-9]{0,9})\.([0-9]{1,10})\.[A-Za-z0-9_-]{43}"
)  # JOBID, UID and 32 bytes of chance
STARTING_S = 120.0  # slurmd starts a job's first step as its Prolog ends, which waits 5 s at most


class NotThisJobError(GpuclusterError):
    """Whoever asks is not a process of a job that runs here."""


def job_of(machine: Machine, token: str, uid: int) -> int:
    """The job whose token it is, asked by its own user; NotThisJobError in all other cases. It may be over."""
    match = TOKEN.fullmatch(token)
    if match is None:
        raise NotThisJobError("no token of a job")
    if int(match[2]) != uid or not _is(machine, match[1], token):
        raise NotThisJobError("no token of a job of this user's on this node")
    return int(match[1])


def sweep(machine: Machine) -> None:
    """Forget the jobs that are over."""
    now, alive = machine.clock(), steps.jobs(machine)
    for file in _files(machine):
        if int(file.name) not in alive and now - file.lstat().st_mtime > STARTING_S:
            file.unlink(missing_ok=True)


def _is(machine: Machine, job: str, token: str) -> bool:
    """Whether root's file of the job holds the token. A link is nobody's."""
    try:
        descriptor = os.open(
            machine.place(names.JOBS_DIR) / job, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as opened:
        seen = os.fstat(descriptor)
        ours = stat.S_ISREG(seen.st_mode) and seen.st_uid == steps.root(machine)
        return ours and hmac.compare_digest(opened.read(LONGEST), token.encode())


def _files(machine: Machine) -> list[Path]:
    folder = machine.place(names.JOBS_DIR)
    found = folder.iterdir() if folder.is_dir() else ()
    return [file for file in found if file.name.isascii() and file.name.isdigit()]
