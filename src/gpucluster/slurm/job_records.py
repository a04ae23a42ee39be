"""What slurmdbd has of a job: a record of each of its runs, as sacct prints it. Pure."""

from dataclasses import dataclass

_FIELDS = "JobIDRaw,Submit,Start,End,State,Reason,ExitCode"
IN_ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s"}  # Unix seconds, for the command of `show`


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One run of a job. Times are whole Unix seconds; 0 means that there was none yet."""

    submitted_at: float  # of a run after a requeue: the time of the requeue
    started_at: float
    ended_at: float
    state: str  # PREEMPTED, COMPLETED, CANCELLED by 5001
    reason: (
        str  # the last one that held the job, other than Priority and Resources (sacct(1)); empty without one
    )
    exit_code: str  # of the job, and of the signal that ended it: 1:0


def show(job: int) -> tuple[str, ...]:
    """The command. With --jobs, sacct has no earliest time."""
    return ("sacct", "--allusers", "--allocations", "--duplicates", "--noheader", "--parsable2", f"--jobs={job}", f"--format={_FIELDS}")  # fmt: skip


def parse(job: int, text: str) -> tuple[JobRecord, ...]:
    """Return the runs of this job, without the other tasks of its array. ValueError for a line of another form."""
    rows = [line.split("|") for line in text.splitlines() if line.strip()]
    if wrong := [row for row in rows if len(row) != len(_FIELDS.split(","))]:
        raise ValueError(f"sacct printed {'|'.join(wrong[0])[:80]!r}")
    return tuple(
        JobRecord(
            submitted_at=_time(submitted), started_at=_time(started), ended_at=_time(ended), state=state, reason="" if reason == "None" else reason,
            exit_code=code,
        )
        for number, submitted, started, ended, state, reason, code in rows
        if number == str(job)
    )  # fmt: skip


def _time(word: str) -> float:
    """`Unknown` and `None` are times that have not come."""
    return float(word) if word.isascii() and word.isdecimal() else 0.0
