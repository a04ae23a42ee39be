"""Slurm's own reasons for a job that waits: what each means, and what can be done.

Source: slurm.schedmd.com/job_reason_codes.html and src/common/job_state_reason.c (read 2026-11-21); the first row
whose word the reason begins with counts. A reason that no row has is shown as it is.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What sort of thing a reason is."""

    NONE = "none"
    PRIORITY = "priority"
    RESOURCES = "resources"
    DEPENDENCY = "dependency"
    LIMIT = "limit"
    HELD = "held"
    BEGIN = "begin"
    RESERVATION = "reservation"
    REQUEST = "request"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Reason:
    """A row. `words` end the sentence `waits: ...`; `remedy` is for the person who asks; JOB is the job's id."""

    begins: str
    kind: Kind
    words: str
    remedy: str


_USAGE = "sacctmgr show assoc, sshare -l and `scontrol show assoc_mgr` show limits and use; an operator raises them"
ROWS: tuple[Reason, ...] = (
    Reason("None", Kind.NONE, "Slurm gives no reason yet", ""),
    Reason("Priority", Kind.PRIORITY, "jobs of a higher priority are ahead of it", "sprio -l and squeue --sort=-p show the order"),
    Reason("Resources", Kind.RESOURCES, "the nodes that it could have are busy", "it starts when they are free: squeue --start -j JOB"),
    Reason("Nodes required", Kind.RESOURCES, "the nodes that it needs are drained, down or reserved", "sinfo -R shows who drained what and why"),
    Reason("ReqNodeNotAvail", Kind.RESOURCES, "the nodes that it could have are drained, down or reserved", "sinfo -R shows who drained what and why; with --nodelist, submit without it"),
    Reason("NodeDown", Kind.RESOURCES, "a node that it needs is down", "sinfo -R shows why"),
    Reason("PartitionConfig", Kind.RESOURCES, "no node of its partition fits it as things stand", "sinfo -R; scontrol show partition"),
    Reason("DependencyNeverSatisfied", Kind.DEPENDENCY, "a job that it depends on can never end as it was asked to", "scancel JOB, or scontrol update jobid=JOB dependency="),
    Reason("Dependency", Kind.DEPENDENCY, "a job that it depends on has not ended yet", "scontrol show job JOB names it"),
    Reason("JobHeldUser", Kind.HELD, "its user holds it", "scontrol release JOB"),
    Reason("JobHeldAdmin", Kind.HELD, "an operator holds it", "ask the operators; one of them types: scontrol release JOB"),
    Reason("job requeued in held state", Kind.HELD, "it was requeued and held", "scontrol release JOB"),
    Reason("launch failed requeued held", Kind.HELD, "its launch failed, so Slurm requeued and held it", "look at slurmctld's log; then scontrol release JOB"),
    Reason("JobLaunchFailure", Kind.HELD, "its launch failed", "look at slurmctld's log and the node's; then scontrol release JOB"),
    Reason("BeginTime", Kind.BEGIN, "it may not begin before its time", "scontrol update jobid=JOB starttime=now begins it earlier"),
    Reason("Reservation", Kind.RESERVATION, "its reservation has not begun, or has no room", "scontrol show reservation"),
    Reason("PartitionTimeLimit", Kind.LIMIT, "it asks for more time than its partition allows", "scontrol update jobid=JOB timelimit=TIME, or submit with a shorter --time"),
    Reason("PartitionNodeLimit", Kind.LIMIT, "it asks for more or fewer nodes than its partition allows", "scontrol show partition; submit with other --nodes"),
    Reason("PartitionDown", Kind.REQUEST, "its partition is down", "an operator types: scontrol update partitionname=NAME state=up"),
    Reason("PartitionInactive", Kind.REQUEST, "its partition is inactive", "an operator types: scontrol update partitionname=NAME state=up"),
    Reason("JobArrayTaskLimit", Kind.LIMIT, "its array runs as many tasks at once as it was told to", "scontrol update jobid=JOB arraytaskthrottle=N"),
    Reason("QOSGrp", Kind.LIMIT, "its QOS has reached a limit of all its jobs together", _USAGE),
    Reason("QOSMax", Kind.LIMIT, "it is over a limit of its QOS for one job, user or account", _USAGE),
    Reason("QOSMin", Kind.LIMIT, "it asks for less than its QOS wants of each job", "submit with more, or under another --qos"),
    Reason("QOSUsage", Kind.LIMIT, "the use of its QOS is over the threshold", _USAGE),
    Reason("QOSNotAllowed", Kind.REQUEST, "its partition does not take its QOS", "submit under another --qos or --partition"),
    Reason("QOS", Kind.LIMIT, "its QOS has reached a limit", _USAGE),
    Reason("AssocGrp", Kind.LIMIT, "its account has reached a limit of all its jobs together", _USAGE),
    Reason("AssocMax", Kind.LIMIT, "it is over a limit of its account for one job or user", _USAGE),
    Reason("Association", Kind.LIMIT, "its account has reached a limit", _USAGE),
    Reason("AccountingPolicy", Kind.LIMIT, "a limit of the accounting stands against it", _USAGE),
    Reason("AccountNotAllowed", Kind.REQUEST, "its partition does not take its account", "submit under another --account or --partition"),
    Reason("Max", Kind.LIMIT, "it is over a limit of its account in this QOS", _USAGE),  # Max*PerAccount
    Reason("InvalidAccount", Kind.REQUEST, "its account is not valid", "sacctmgr show assoc user=NAME shows the valid ones"),
    Reason("InvalidQOS", Kind.REQUEST, "its QOS is not valid", "sacctmgr show qos shows the valid ones"),
    Reason("BadConstraints", Kind.REQUEST, "no node can ever meet what it asks for", "scontrol show job JOB; scancel it, and submit with other features, GPUs or memory"),
    Reason("Licenses", Kind.LIMIT, "it waits for a licence", "scontrol show licenses"),
    Reason("BurstBuffer", Kind.OTHER, "it waits for the burst buffer", "scontrol show burstbuffer"),
    Reason("Cleaning", Kind.OTHER, "Slurm still cleans up after its last start", "a Prolog or Epilog that hangs shows in slurmctld's log"),
    Reason("Prolog", Kind.OTHER, "its PrologSlurmctld is still running", "slurmctld's log shows it"),
    Reason("DeadLine", Kind.REQUEST, "its deadline cannot be met", "submit with a later --deadline"),
)  # fmt: skip
_NONE = ROWS[0]


def reason_of(word: str) -> Reason:
    """The row of Slurm's word; an unknown one is Slurm's own affair, in its own words."""
    if not word:
        return _NONE
    alike = word.replace("_", " ")
    row = next((row for row in ROWS if alike.startswith(row.begins)), None)
    return row or Reason(
        word, Kind.OTHER, f"Slurm says {alike[:80]!r}", "scontrol show job JOB; man squeue has the list"
    )
