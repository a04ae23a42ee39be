"""Tokens of jobs. The Prolog writes one for each job: a file of root that only the user of the job can read.

A token is valid while a step of the job runs on this node. The files are the only state, so the agent can restart.
"""

import hmac
import os
import re
import stat
from pathlib import Path

from gpucluster.agent.credentials import job_steps
from gpucluster.agent.machine import Machine
from gpucluster.errors import GpuclusterError
from gpucluster.plan import names

MAX_BYTES = 128
TOKEN = re.compile(r"([1-9][0-9]{0,9})\.([0-9]{1,10})\.[A-Za-z0-9_-]{43}")  # JOBID, UID, 32 random bytes
STARTING_S = 120.0  # slurmd starts the first step after the Prolog, which takes 5 s at most


class NotThisJobError(GpuclusterError):
    """The request does not come from a process of a job that runs on this node."""


def job_of(machine: Machine, token: str, uid: int) -> int:
    """Return the job of a token that its own user sends; else NotThisJobError. The job may have ended."""
    match = TOKEN.fullmatch(token)
    if match is None:
        raise NotThisJobError("not a token of a job")
    if int(match[2]) != uid or not _matches(machine, match[1], token):
        raise NotThisJobError("not a token of this user's job on this node")
    return int(match[1])


def sweep(machine: Machine) -> None:
    """Remove the tokens of ended jobs."""
    now, alive = machine.clock(), job_steps.running_jobs(machine)
    for file in _files(machine):
        if int(file.name) not in alive and now - file.lstat().st_mtime > STARTING_S:
            file.unlink(missing_ok=True)


def _matches(machine: Machine, job: str, token: str) -> bool:
    """Return whether root's file of the job has this token. Links are not followed."""
    try:
        descriptor = os.open(
            machine.path(names.JOBS_DIR) / job, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as opened:
        seen = os.fstat(descriptor)
        ours = stat.S_ISREG(seen.st_mode) and seen.st_uid == job_steps.root_uid(machine)
        return ours and hmac.compare_digest(opened.read(MAX_BYTES), token.encode())


def _files(machine: Machine) -> list[Path]:
    folder = machine.path(names.JOBS_DIR)
    found = folder.iterdir() if folder.is_dir() else ()
    return [file for file in found if file.name.isascii() and file.name.isdigit()]
