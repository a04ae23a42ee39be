"""How many jobs of each user run and wait, as a command of a head and its parser."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster.slurm.parse import SlurmAnswerError
from gpucluster.slurm.states import JobState

# No text that a user writes is asked for. Each task of an array has a row.
ARGV = ("squeue", "--noheader", "--all", "--array", "--format=%T|%N|%u")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsByUser:
    """Counts of jobs by user. A job with nodes runs, also while it starts or ends."""

    running: Mapping[str, int]
    waiting: Mapping[str, int]


def parse(text: str) -> JobsByUser:
    """Read the rows of ARGV."""
    running, waiting = Counter[str](), Counter[str]()
    for line in text.splitlines():
        state, *rest = line.strip().split("|")
        if len(rest) != 2 or not (state and rest[1]):
            raise SlurmAnswerError(f"a row of squeue cannot be read: {line[:80]!r}")
        nodes, user = rest
        (waiting if state == JobState.PENDING or not nodes else running)[user] += 1
    return JobsByUser(running=running, waiting=waiting)
