"""Heartbeat files of jobs: a job that wants the watchdog touches JOB_HEARTBEAT_DIR/JOBID while it makes progress.

The Prolog creates the file, of the job's owner, with time NEVER; only root can create or remove files there. So no user can
make the file of another's job, or so many files that others are not read. Only plain files named by a job id count, and
links are not followed. The watchdog never acts on a job that did not touch its file.
"""

import itertools
import os
import stat
from collections.abc import Iterator

from gpucluster.agent.credentials import job_steps
from gpucluster.agent.machine import Machine
from gpucluster.plan import names
from gpucluster.plan.messages import Beat

MAX_SCANNED, MAX_REPORTED = 4096, 128
DIGITS = 10
NEVER = 0.0  # time of a file that its job has not touched
STARTING_S = 120.0  # slurmd starts the first step after the Prolog, which takes 5 s at most


def read(machine: Machine) -> tuple[Beat, ...]:
    """Return the newest heartbeats, sorted by job."""
    try:
        with os.scandir(machine.path(names.JOB_HEARTBEAT_DIR)) as entries:
            found = sorted(_heartbeats(itertools.islice(entries, MAX_SCANNED)), key=lambda b: -b.at)
    except OSError:
        return ()
    return tuple(sorted(found[:MAX_REPORTED], key=lambda b: b.job))


def sweep(machine: Machine) -> None:
    """Remove the files of ended jobs, in the folder of heartbeats and in that of restarts."""
    now, alive = machine.clock(), job_steps.running_jobs(machine)
    folders = (machine.path(names.JOB_HEARTBEAT_DIR), machine.path(names.JOB_RESTARTS_DIR))
    listed = (one for folder in folders if folder.is_dir() for one in folder.iterdir())
    files = [one for one in listed if one.name.isascii() and one.name.isdigit()]
    for file in files:
        if int(file.name) not in alive and now - file.lstat().st_ctime > STARTING_S:
            file.unlink(missing_ok=True)


def _heartbeats(entries: Iterator[os.DirEntry[str]]) -> Iterator[Beat]:
    for entry in entries:
        name = entry.name
        if not (name.isascii() and name.isdigit()) or len(name) > DIGITS or name.startswith("0"):
            continue
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode) and found.st_mtime != NEVER:
            yield Beat(job=int(name), uid=found.st_uid, at=round(found.st_mtime, 3))
