"""Slurm's reasons why a job waits, in words, with the next command: one table, and the grammar of its limits.

The reasons are those of src/common/job_state_reason.c of 24.11 and of `sacct --helpreason` of 26.05 (S27); a test compares.
JOB in a remedy is replaced by the job's id.
"""

import re
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The kind of a reason."""

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
    """A row. `words` end the sentence `waits: ...`; `remedy` is for the reader; JOB is replaced by the job's id."""

    begins: str
    kind: Kind
    words: str
    remedy: str


_QOS_USE = "scontrol show assoc_mgr flags=qos qos=$(squeue -h -j JOB -O qos:64) shows each limit, and in brackets what is used"
_ACCOUNT_USE = "scontrol show assoc_mgr flags=assoc accounts=$(squeue -h -j JOB -O account:64) shows each limit, and in brackets what is used"
ROWS: tuple[Reason, ...] = (
    Reason("None", Kind.NONE, "Slurm gives no reason yet", ""),
    Reason("Resources", Kind.RESOURCES, "the nodes that it can use are busy", "it starts when they are free: squeue --start -j JOB"),
    Reason("Nodes required", Kind.RESOURCES, "the nodes that it needs are drained, down or reserved", "sinfo -R shows who drained what and why"),
    Reason("ReqNodeNotAvail", Kind.RESOURCES, "the nodes that it can use are drained, down or reserved", "sinfo -R shows who drained what and why; with --nodelist, submit without it"),
    Reason("NodeDown", Kind.RESOURCES, "a node that it needs is down", "sinfo -R shows why"),
    Reason("PartitionConfig", Kind.RESOURCES, "no node of its partition can run it now", "sinfo -R; scontrol show partition"),
    Reason("DependencyNeverSatisfied", Kind.DEPENDENCY, "a job that it depends on did not end as the dependency requires", "scancel JOB, or scontrol update jobid=JOB dependency="),
    Reason("Dependency", Kind.DEPENDENCY, "a job that it depends on has not ended yet", "scontrol show job JOB names it"),
    Reason("JobHeldUser", Kind.HELD, "its user holds it", "scontrol release JOB"),
    Reason("JobHeldAdmin", Kind.HELD, "an operator holds it, or Slurm 26.05, because a licence that it asks for left or is too few", "ask an operator to run: scontrol release JOB. One whose licence left then starts without it"),
    Reason("job requeued in held state", Kind.HELD, "it was requeued and held", "scontrol release JOB"),
    Reason("launch failed requeued held", Kind.HELD, "its launch failed, so Slurm requeued and held it", "read slurmctld's log; then scontrol release JOB"),
    Reason("JobLaunchFailure", Kind.HELD, "its launch failed", "read the logs of slurmctld and of the node; then scontrol release JOB"),
    Reason("BeginTime", Kind.BEGIN, "its begin time is in the future", "scontrol update jobid=JOB starttime=now begins it earlier"),
    Reason("PartitionTimeLimit", Kind.LIMIT, "it requests more time than its partition allows", "scontrol update jobid=JOB timelimit=TIME, or submit with a shorter --time"),
    Reason("PartitionNodeLimit", Kind.LIMIT, "it requests more or fewer nodes than its partition allows", "scontrol show partition; submit with other --nodes"),
    Reason("PartitionDown", Kind.REQUEST, "its partition is down", "an operator runs: scontrol update partitionname=NAME state=up"),
    Reason("PartitionInactive", Kind.REQUEST, "its partition is inactive", "an operator runs: scontrol update partitionname=NAME state=up"),
    Reason("JobArrayTaskLimit", Kind.LIMIT, "its array already runs its maximum of simultaneous tasks", "scontrol update jobid=JOB arraytaskthrottle=N"),
    Reason("QOSNotAllowed", Kind.REQUEST, "its partition does not allow its QOS", "submit under another --qos or --partition"),
    Reason("AccountNotAllowed", Kind.REQUEST, "its partition does not allow its account", "submit under another --account or --partition"),
    Reason("InvalidAccount", Kind.REQUEST, "its account is not valid", "sacctmgr show assoc user=NAME shows the valid ones"),
    Reason("InvalidQOS", Kind.REQUEST, "its QOS is not valid", "sacctmgr show qos shows the valid ones"),
    Reason("BadConstraints", Kind.REQUEST, "no node can meet its request", "scontrol show job JOB; scancel it, and submit with other features, GPUs or memory"),
    Reason("BurstBuffer", Kind.OTHER, "it waits for the burst buffer", "scontrol show burstbuffer"),
    Reason("Cleaning", Kind.OTHER, "Slurm still cleans up after its last start", "a Prolog or Epilog that hangs shows in slurmctld's log"),
    Reason("Prolog", Kind.OTHER, "its PrologSlurmctld is still running", "slurmctld's log shows it"),
    Reason("Priority", Kind.PRIORITY, "jobs of a higher priority are ahead of it", "sprio -l -j JOB shows what its priority is made of; squeue --sort=-p -t PD shows the order"),
    Reason("Licenses", Kind.LIMIT, "it waits for a licence that other jobs use", "scontrol show licenses; squeue -t R -O jobid,licenses shows who uses them"),
    Reason("ReservationDeleted", Kind.RESERVATION, "its reservation was deleted", "scontrol update jobid=JOB reservationname= starts it without one, or scancel JOB"),
    Reason("ReservationInvalid", Kind.RESERVATION, "its reservation is not valid for it", "scontrol show reservation; scontrol update jobid=JOB reservationname="),
    Reason("Reservation", Kind.RESERVATION, "its reservation has not begun, or is full", "scontrol show reservation"),
    Reason("QOSUsageThreshold", Kind.LIMIT, "the fair-share of its account is below the threshold of its QOS", "sshare -l shows the fair-share; submit under another --qos"),
    Reason("QOSJobLimit", Kind.LIMIT, "its QOS has reached a limit of jobs", _QOS_USE),
    Reason("QOSResourceLimit", Kind.LIMIT, "its QOS has reached a limit of resources", _QOS_USE),
    Reason("QOSTimeLimit", Kind.LIMIT, "its QOS has reached a limit of time", _QOS_USE),
    Reason("AssociationJobLimit", Kind.LIMIT, "its account has reached a limit of jobs", _ACCOUNT_USE),
    Reason("AssociationResourceLimit", Kind.LIMIT, "its account has reached a limit of resources", _ACCOUNT_USE),
    Reason("AssociationTimeLimit", Kind.LIMIT, "its account has reached a limit of time", _ACCOUNT_USE),
    Reason("AccountingPolicy", Kind.LIMIT, "a limit of its account or QOS blocks it", _ACCOUNT_USE),
    Reason("MaxMemPerLimit", Kind.LIMIT, "it requests more memory than its partition allows (MaxMemPerNode, MaxMemPerCPU)", "scontrol show partition; submit with less --mem"),
    Reason("MaxPoweredUpNodes", Kind.LIMIT, "as many nodes are powered up as slurm.conf allows (MaxPoweredUpNodes)", "sinfo -t powering_up,idle,alloc,mix"),
    Reason("JobHoldMaxRequeue", Kind.HELD, "it was requeued too often (MaxBatchRequeue), so Slurm holds it", "read slurmctld's log for the cause; then scontrol release JOB"),
    Reason("DeadLine", Kind.REQUEST, "its deadline cannot be met", "submit with a later --deadline"),
    Reason("SchedDefer", Kind.NONE, "Slurm has not looked at it yet, because it starts jobs only in its cycles (defer)", ""),
    Reason("MpiPortsBusy", Kind.OTHER, "the ports for MPI are in use on its nodes", "it starts when jobs there end: squeue --start -j JOB"),
    Reason("NvidiaImexChannels", Kind.OTHER, "the IMEX channels of its nodes are in use", "it starts when jobs there end: squeue --start -j JOB"),
    Reason("FedJobLock", Kind.OTHER, "another cluster of the federation decides about it", "scontrol show federation"),
    Reason("FrontEndDown", Kind.RESOURCES, "its front end node is down", "scontrol show frontend"),
    Reason("Constraints", Kind.REQUEST, "no node can meet its constraints now", "scontrol show job JOB; submit with other --constraint"),
    Reason("SystemFailure", Kind.OTHER, "slurmctld had an error with it", "slurmctld's log shows it"),
    *(Reason(word, Kind.OTHER, f"its last run ended: {words}", "scontrol show job JOB; scontrol release JOB, if it is held") for word, words in (
        ("NonZeroExitCode", "its exit code was not 0"), ("RaisedSignal", "a signal ended it"), ("TimeLimit", "its time limit was over"),
        ("InactiveLimit", "no step was active for InactiveLimit"), ("OutOfMemory", "it used more memory than it had"),
    )),
)  # fmt: skip
_NONE = ROWS[0]
# slurmctld writes this sentence in place of a reason (seen on 24.11.5)
_GROUPS = re.compile(
    r"uid [0-9]+ not in group permitted to use this partition \((\S+?)\)".replace(" ", "[ _]")
)

# The grammar of limits: QOSGrpGRESRunMinutes, AssocMaxNodePerJobLimit, QOSMaxGRESPerUser, MaxCpuRunMinsPerAccount.
_LIMIT = re.compile(
    r"(?P<whose>QOS|Assoc)?(?P<kind>Grp|Max|Min)(?P<what>Cpu|CPU|Memory|Mem|Node|Energy|GRES|License|BB|Billing|Unknown|SubmitJobs?"
    r"|Jobs|WallDuration|Wall)(?P<time>Minutes|RunMinutes|RunMins)?(?:Per(?P<per>Job|Node|User|Account))?(?:Limit|NotSatisfied)?"
)
_WHAT = {
    "Cpu": "CPUs", "CPU": "CPUs", "Mem": "memory", "Memory": "memory", "Node": "nodes", "Energy": "energy", "GRES": "GPUs or another GRES",
    "License": "licences", "BB": "burst buffer", "Billing": "billing units", "Unknown": "of a trackable resource", "Jobs": "running jobs",
    "SubmitJob": "jobs in the queue", "SubmitJobs": "jobs in the queue", "Wall": "run time", "WallDuration": "run time",
}  # fmt: skip


def _limit_of(word: str) -> Reason | None:
    """Return the reason of a limit by its name; None for another word."""
    found = _LIMIT.fullmatch(word)
    if found is None:
        return None
    whose, kind, time, per = found["whose"], found["kind"], found["time"] or "", found["per"] or ""
    owner = "account" if whose == "Assoc" else "QOS"
    what, setting = _WHAT[found["what"]], _setting_of(owner, kind, found["what"], time, per)
    minutes = f"minutes of {what}" if time else what
    if kind == "Min":
        return Reason(
            word,
            Kind.LIMIT,
            f"it requests less {what} than its QOS requires ({setting})",
            "submit with more, or under another --qos",
        )
    if kind == "Grp" and (time == "Minutes" or found["what"] == "Wall"):
        words = f"all jobs of its {owner} together have used the {minutes} that it may use ({setting})"
    elif kind == "Grp":
        words = f"all jobs of its {owner} together have the {minutes} that it may have at a time ({setting})"
    elif per in ("User", "Account"):
        words = f"the jobs of its {per.lower()} have the {minutes} that its {owner} allows one {per.lower()} ({setting})"
    elif per in ("Job", "Node") or time:
        one = "node" if per == "Node" else "job"
        words = f"it requests more {minutes} than its {owner} allows for one {one} ({setting})"
        return Reason(
            word,
            Kind.LIMIT,
            words,
            f"it never starts: submit with less, or under another --{'account' if whose == 'Assoc' else 'qos'}",
        )
    else:
        words = f"the jobs of its user in this account have the {what} that are allowed ({setting})"
    return Reason(word, Kind.LIMIT, words, _ACCOUNT_USE if whose == "Assoc" else _QOS_USE)


def _setting_of(owner: str, kind: str, what: str, time: str, per: str) -> str:
    """Return the limit's name in sacctmgr."""
    prefix = {"Grp": "Grp", "Max": "Max", "Min": "Min"}[kind]
    if what in ("Jobs", "SubmitJob", "SubmitJobs"):
        base = "Jobs" if what == "Jobs" else "SubmitJobs"
        on = {"User": "PU", "Account": "PA"}.get(per, "") if owner == "QOS" else ""
        return f"{prefix}{base}{on}"
    if what in ("Wall", "WallDuration"):
        return "GrpWall" if kind == "Grp" else "MaxWall"
    mins = {"Minutes": "Mins", "RunMinutes": "RunMins", "RunMins": "RunMins", "": ""}[time]
    on = {"Job": "", "Node": "PerNode", "User": "PU", "Account": "PA", "": ""}[per]
    return f"{prefix}TRES{mins}{on}"


def _of_groups(word: str, partition: str) -> Reason:
    words = f"its user is in no group that its partition {partition} allows (AllowGroups)"
    step = f"scontrol show partition {partition} shows the groups; add the user to one on the head, or submit to another --partition"
    return Reason(word, Kind.REQUEST, words, step)


def reason_of(word: str) -> Reason:
    """Return the row of Slurm's reason. An unknown reason is shown as Slurm writes it."""
    if not word:
        return _NONE
    if (limit := _limit_of(word)) is not None:
        return limit
    alike = word.replace("_", " ")
    if (groups := _GROUPS.match(word)) is not None:
        return _of_groups(word, groups[1])
    row = next((row for row in ROWS if alike.startswith(row.begins)), None)
    return row or Reason(
        word,
        Kind.OTHER,
        f"Slurm's reason is {alike[:80]!r}",
        "scontrol show job JOB; man squeue has the list",
    )
