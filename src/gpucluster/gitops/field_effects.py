"""What single fields do to a part of the jobs, sessions or data, and what each class does to pods. Data only.

`gitops.sentences` says what happens to a Slurm cluster as a whole; a note here is about the jobs or people of one field.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gpucluster.gitops.model import Effects, Kind, SpecChange
from gpucluster.gitops.rows import always
from gpucluster.gitops.steps import CLUSTER, POWER_DOWN
from gpucluster.plan import names
from gpucluster.plan.model import Containers
from gpucluster.spec import UpdateClass
from gpucluster.text import parse_duration

NAMES = "NAMES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Clauses about a part of each subject; empty: none. `rows`: the ids in `slurm.request_table` of those about jobs.

    NAMES stands for the items that change, in those about jobs.
    """

    running: str = ""
    queued: str = ""
    sessions: str = ""
    data: str = ""
    before: tuple[str, ...] = ()  # commands
    after: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()

    def of(self, names: str) -> "Note":
        return replace(
            self, running=self.running.replace(NAMES, names), queued=self.queued.replace(NAMES, names)
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A change that has a note. Empty `kinds`: all of them. `when`: its values matter, too."""

    pattern: str  # of the path, with `[]` for each item
    note: Note
    kinds: tuple[Kind, ...] = ()
    when: Callable[[SpecChange], bool] = always

    def fits(self, pattern: str, change: SpecChange) -> bool:
        is_kind = not self.kinds or change.kind in self.kinds
        return re.fullmatch(self.pattern, pattern) is not None and is_kind and self.when(change)


def pyxis_arrives(change: SpecChange) -> bool:
    return change.after == Containers.PYXIS


def _pyxis_leaves(change: SpecChange) -> bool:
    return change.before == Containers.PYXIS


def lowered(change: SpecChange) -> bool:
    """Return whether a limit is new or lower. A value that is no number and no time counts as lower."""
    if change.before is None or change.after is None:
        return change.after is not None
    before, after = (_amount(text) for text in (change.before, change.after))
    return before is None or after is None or after < before


def _narrowed(change: SpecChange) -> bool:
    """Return whether fewer are allowed. Without a list all are."""
    return change.narrows


def _amount(text: str) -> float | None:
    return float(text) if text.isdecimal() else parse_duration(text)


def _limits_tres(change: SpecChange) -> bool:
    """Return whether GPUs or CPUs get a new or lower limit."""
    what = change.path.rpartition(".")[2]
    only_month = what == _HOURS or re.fullmatch(rf"\{{{_HOURS}: [^,]*\}}", change.after or "")
    return not only_month and lowered(change)


def _limits_month(change: SpecChange) -> bool:
    """Return whether the queued jobs have a QOS with new or lower GPU hours. Those of an account that gets some have not."""
    of_account = change.path.startswith("accounts") and change.before is None
    named = _HOURS in change.path or _HOURS in (change.after or "")
    return named and not of_account and lowered(change)


# slurm.containers. tests/slurm/test_containers.py makes it happen
_WITHOUT_PYXIS = Note(
    running="on a node without Pyxis slurmd ends when the bundle is applied: they start no further step there, and stay in `completing`",
    sessions="on machines without Pyxis, sbatch and srun fail",
)
_PYXIS_THERE = f"test -e {names.PYXIS_PLUGIN}"
PYXIS_ON_HOSTS = replace(
    _WITHOUT_PYXIS,
    before=(f"{_PYXIS_THERE}    # on every host; where it fails, install Pyxis and Enroot first",),
)
_PYXIS_ON_AWS = replace(
    _WITHOUT_PYXIS,
    before=(
        f"{_PYXIS_THERE}    # on head, login and running nodes; where it fails, the machine first needs an image of `gpucluster image build --with pyxis`",
    ),
)
_PYXIS_LEAVES = Note(
    running="a step with --container-image fails",
    queued="those that were submitted with --container-image start outside of their container",
    sessions="sbatch and srun refuse --container-image",
    before=("scancel JOB    # each queued job that needs its container, or let it end before",),
)

_HOURS = "gpu_hours_per_month"

ROWS = (
    Row(r"slurm\.containers", _PYXIS_ON_AWS, when=pyxis_arrives),
    Row(r"slurm\.containers", _PYXIS_LEAVES, when=_pyxis_leaves),
    Row(
        r"partitions\[\]\.max_time",
        Note(
            running=f"a lower max_time of {NAMES} ends no job: each keeps its own time limit",
            queued=f"those in {NAMES} with a time limit above max_time wait with PartitionTimeLimit until it is lowered (sbatch refuses new ones)",
            rows=("partition-max-time",),
        ),
        when=lowered,
    ),
    Row(
        r"(accounts|qos)\[\]\.limits.*",
        Note(
            running="a lower limit ends no job",
            queued="those above the limit wait until the jobs of the same account or QOS are below it again, "
            "and one job that is larger than the limit until it is raised",
            rows=("qos-group", "qos-user", "account-group", "account-user"),
        ),
        when=_limits_tres,
    ),
    Row(
        r"(accounts|qos)\[\]\.limits.*",
        Note(
            running="a lower limit ends no job",
            queued="those above the new gpu_hours_per_month wait until the next month",
            rows=("qos-minutes",),
        ),
        when=_limits_month,
    ),
    Row(
        r"partitions\[\]\.(accounts|allow_qos)",
        Note(
            queued=f"those in {NAMES} of an account or QOS that may not use the partition wait with PartitionConfig until they are changed (sbatch refuses new ones)",
            rows=("partition-accounts", "partition-qos"),
        ),
        when=_narrowed,
    ),
    Row(
        r"slurm\.reservations\[\].*",
        Note(queued="those that would run into a reservation wait until its end"),
        (Kind.ADDED, Kind.CHANGED),
    ),
    Row(
        r"slurm\.reservations\[\]\.(users|accounts|partition|maint|repeat)",
        Note(
            queued="those that name a changed reservation keep it as it was: Slurm deletes no reservation that a job uses or names",
            rows=("reservation-removed", "reservation-used"),
        ),
    ),
    Row(
        r"slurm\.reservations\[\]",
        Note(
            queued="those that name a removed reservation keep it: Slurm deletes no reservation that a job uses or names",
            rows=("reservation-removed", "reservation-used"),
        ),
        (Kind.REMOVED,),
    ),
    Row(
        r"pools\[\]\.job_heartbeat(\..*)?",
        Note(
            running="those that touch their heartbeat file less often than the new time count as hung, and with `requeue` are requeued"
        ),
        (Kind.ADDED, Kind.CHANGED),
    ),
    Row(
        r"pools\[\]\.capacity\[\]\.id",
        Note(
            after=(
                f"scontrol update nodename=NODES {POWER_DOWN}    # running nodes of the pool: they are launched anew, in the new reservation",
            )
        ),
        (Kind.CHANGED,),
    ),
    Row(
        r"aws\.boundary",
        Note(queued="those that need a new node wait if the boundary forbids the head to launch it"),
        (Kind.ADDED, Kind.CHANGED),
    ),
    Row(
        r"aws\.network\.nat",
        Note(
            running="connections to the internet end where the NAT gateway changes; with `nat: none` no new one is possible"
        ),
    ),
    Row(
        r"budget(\.(monthly|stop_scaling_at))?",
        Note(queued="no node is launched for them while the budget stops launches"),
        (Kind.ADDED, Kind.CHANGED),
    ),
    Row(
        r"budget",
        Note(queued="nodes are launched for them again, also where the budget had stopped launches"),
        (Kind.REMOVED,),
    ),
    Row(
        r"users\[\]",
        Note(
            running="a removed user's jobs are not ended",
            queued="a removed user's jobs are not cancelled",
            sessions="a new login of a removed user is refused",
            data="that of a removed user keeps the old uid",
        ),
        (Kind.REMOVED,),
    ),
    Row(
        r"users\[\]\.keys|access(\.ssh_from|\.ssm)?|directory.*",
        Note(sessions="the next login needs the new keys, networks and accounts"),
    ),
    Row(
        r"users\[\]\.uid",
        Note(
            running="those of this user keep the old uid; the head applies the bundle, with all its changes, when it has the new uid",
            queued="those of this user fail while the machines have different uids for him",
            data="that of this user keeps the old uid until `chown` changes it",
            after=(
                "usermod -u UID USER && groupmod -g UID USER    # on head, login and running nodes, as root, without processes of the user",
                "chown -R --from=OLDUID USER: /home/USER    # once, as root",
            ),
        ),
    ),
    Row(
        r"aws\.jobs\..*",
        Note(sessions="keys for S3, also those that jobs have, get the new rights"),
    ),
    Row(
        r"aws\.jobs",
        Note(sessions="jobs on nodes that are launched later have keys for S3"),
        (Kind.ADDED,),
    ),
    Row(
        r"aws\.jobs",
        Note(
            running="the keys for S3 that they have are refused",
            sessions="keys for S3 that jobs have are refused",
        ),
        (Kind.REMOVED,),
    ),
    Row(
        r"head\.standby",
        Note(
            queued="those that still wait when the head next restarts are lost: it then has an older state of its own disk",
            data="of slurmctld stays on the shared file system, and is not copied back",
        ),
        (Kind.REMOVED,),
    ),
    Row(
        r"storage\[\]\.fsx_lustre\.link(\[\].*)?",
        Note(data="the files of a changed link stay on both sides, and follow its new rules"),
    ),
)

_PODS = Effects(running="go on", queued="stay in the queue", sessions="stay open", data="stays where it is")

BY_CLASS_OF_PODS: Mapping[UpdateClass, Effects] = {
    UpdateClass.NONE: _PODS,
    UpdateClass.LIVE: _PODS,
    UpdateClass.NEW_NODES: Effects(
        running="go on: only nodes that are launched later have the change",
        queued="stay in the queue; on nodes that are launched later they have the change",
        sessions=_PODS.sessions,
        data=_PODS.data,
    ),
    UpdateClass.DRAIN: Effects(
        running="go on: Karpenter keeps nodes until they are empty; pods are evicted from nodes that are deleted by hand, "
        "as their disruption budgets allow",
        queued=_PODS.queued,
        sessions=_PODS.sessions,
        data=_PODS.data,
    ),
    UpdateClass.RESTART: Effects(
        running=_PODS.running,
        queued=_PODS.queued,
        sessions="of `kubectl` wait while the control plane changes",
        data=_PODS.data,
    ),
    UpdateClass.STOP_FLEET: Effects(
        running="must have ended before: let them end, or delete them",
        queued="stay in the queue, and start after the change",
        sessions=_PODS.sessions,
        data=_PODS.data,
    ),
    UpdateClass.REPLACE: Effects(
        running="on what is replaced are lost",
        queued="on what is replaced are lost",
        sessions="in pods that are replaced end",
        data=_PODS.data,
    ),
    UpdateClass.DATA_LOSS: Effects(
        running="that use what is removed are lost",
        queued="that need what is removed fail",
        sessions="that use what is removed end",
        data="is lost where it is removed",
        steps=("kubectl get pvc --all-namespaces    # the volumes that are lost: copy what is needed",),
    ),
}

# What `kubectl apply` makes of the manifests of workloads (`gitops.manifests`)
RECREATED = Note(
    running="of a workload that is deleted and created again end",
    queued="of a workload that is deleted and created again lose their place",
    sessions="in pods that end, end",
    before=(
        "kubectl delete -f FILE    # the old manifest of each workload that is deleted and created again",
    ),
)
ROLLED = Note(
    running="of a changed service are replaced one after another",
    sessions="in pods that are replaced end",
)
GONE = Note(
    running=f"of a removed workload go on until `gpucluster k8s up {CLUSTER} --prune` deletes it",
    queued=f"of a removed workload stay in the queue until `gpucluster k8s up {CLUSTER} --prune` deletes it",
)
