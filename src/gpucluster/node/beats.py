"""Jobs' heartbeat files: a job that wants to be watched touches BEATS_DIR/JOBID while it makes progress.

The folder is everybody's: only plain files whose name is a job's number are taken, with their owner; links are not
followed, and what is too much is left out (a job without a file is never judged).
"""

import itertools
import os
import stat
from collections.abc import Iterator

from gpucluster.node.machine import Machine
from gpucluster.plan import names
from gpucluster.plan.messages import Beat

SCANNED, MOST = 4096, 128
DIGITS = 10


def read(machine: Machine) -> tuple[Beat, ...]:
    """The newest, by job."""
    try:
        with os.scandir(machine.place(names.BEATS_DIR)) as entries:
            found = sorted(_beats(itertools.islice(entries, SCANNED)), key=lambda b: -b.at)
    except OSError:
        return ()
    return tuple(sorted(found[:MOST], key=lambda b: b.job))


def _beats(entries: Iterator[os.DirEntry[str]]) -> Iterator[Beat]:
    for entry in entries:
        name = entry.name
        if not (name.isascii() and name.isdigit()) or len(name) > DIGITS or name.startswith("0"):
            continue
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):
            yield Beat(job=int(name), uid=found.st_uid, at=round(found.st_mtime, 3))
