"""The table of consequences: what changes, and what happens to running jobs, queued jobs, sessions and data. Data only."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster.gitops.model import WAITS, Effect, Kind, Said
from gpucluster.spec import UpdateClass

NONE, LIVE, NEW_NODES, DRAIN = UpdateClass.NONE, UpdateClass.LIVE, UpdateClass.NEW_NODES, UpdateClass.DRAIN
RESTART, STOP_FLEET, REPLACE, DATA_LOSS = (
    UpdateClass.RESTART, UpdateClass.STOP_FLEET, UpdateClass.REPLACE, UpdateClass.DATA_LOSS
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """A change whose effect differs from that of its class. Empty `updates` or `kinds`: all of them."""

    pattern: str  # of the path, with `[]` for each item
    effect: Effect
    updates: tuple[UpdateClass, ...] = ()
    kinds: tuple[Kind, ...] = ()

    def fits(self, pattern: str, update: UpdateClass, kind: Kind) -> bool:
        return (
            re.fullmatch(self.pattern, pattern) is not None
            and update is not UpdateClass.NONE
            and (not self.updates or update in self.updates)
            and (not self.kinds or kind in self.kinds)
        )


POWER_DOWN = "state=power_down_asap"  # only nodes of a cloud
_NOTHING = Effect()
_SHOW_HELD = "gpucluster bundle show -c NAME    # for which jobs the head waits"
_NOW = "gpucluster bundle apply DIGEST --now -c NAME    # only to end these jobs instead"
_COMMANDS_WAIT = Said("stay open; Slurm's commands wait while slurmctld restarts")
_STOP = (
    "scontrol update partitionname=PARTITION state=down    # each partition: no job starts",
    "squeue --states=running    # until no job runs",
)
_HELD = Effect(
    running=Said(f"finish on the nodes that are removed or changed: {WAITS}"),
    queued=Said(
        "stay in the queue, and start on other nodes of their partition; one that names a removed node holds the bundle "
        "until it is cancelled or changed"
    ),
    sessions=Said("stay open; an srun session is a running job, and holds the bundle"),
    after=(_SHOW_HELD, _NOW),
)
_HELD_PARTITION = Effect(
    running=Said(
        "of a removed partition finish; the head applies the bundle, with all its changes, after them"
    ),
    queued=Said(
        "of a removed partition hold the bundle until they have run, are cancelled, or are in another partition"
    ),
    sessions=Said("stay open; an srun session is a running job, and holds the bundle"),
    before=("scontrol update jobid=JOB partition=OTHER    # each queued job of a removed partition",),
    after=(_SHOW_HELD, _NOW),
)
_SESSIONS_END = Effect(
    sessions=Said("on login machines that stop or leave end, also srun in them", total=True),
)
_BACKUP = "# back up the data that is lost"
_RUNNING_LOST = Said(
    "are lost: the new slurmctld does not know them, and their nodes are replaced", total=True
)
_QUEUED_LOST = Said("are lost with slurmctld's state; users submit them again", total=True)
_SRUN_ENDS = Said(
    "with srun lose their jobs: srun ends, or waits until it is stopped (Ctrl-C); others stay open, and Slurm's commands wait until the head is up",
    total=True,
)
QUEUE_LOST = Effect(
    running=_RUNNING_LOST,
    queued=_QUEUED_LOST,
    sessions=_SRUN_ENDS,
    before=("squeue --all    # the jobs that are lost",),
    after=("gpucluster status NAME --wait",),
)
QUEUE_KEPT = Effect(
    running=Said("go on while the head is replaced; a job that reads a file system of the head waits for it"),
    queued=Said("stay in the queue, and start when the new head is up"),
    sessions=Said("stay open; Slurm's commands wait until the head is up"),
    after=("gpucluster status NAME --wait",),
)
VOLUMES_LOST = Effect(
    running=_RUNNING_LOST,
    queued=_QUEUED_LOST,
    sessions=_SRUN_ENDS,
    data=Said("on the head's volumes does not move to the new zone"),
    before=(_BACKUP,),
    after=("gpucluster status NAME --wait",),
)
HEAD_STOPPED = Effect(
    running=Said("go on without slurmctld; a job that reads a file system of the head waits for it"),
    queued=Said("wait until the head is started by hand"),
    sessions=Said("stay open; Slurm's commands wait until the head is started by hand"),
    before=("pulumi state unprotect URN    # the volume; else `pulumi up` refuses, and changes nothing",),
    after=("aws ec2 start-instances --instance-ids HEAD    # `pulumi up` leaves it stopped",),
)
KEY_KEPT = Effect(
    data=Said("stays encrypted with the old key, and `pulumi up` refuses to replace protected volumes")
)

BY_CLASS: Mapping[UpdateClass, Effect] = {
    NONE: _NOTHING,
    LIVE: _NOTHING,
    NEW_NODES: Effect(
        running=Said("go on: only nodes that are launched later have the change"),
        queued=Said("stay in the queue; on nodes that are launched later they have the change"),
    ),
    DRAIN: Effect(
        running=Said("finish: the affected nodes take no new jobs, then they are removed or changed"),
        queued=Said("stay in the queue, and start on other nodes"),
        sessions=Said("stay open; an srun session is a running job"),
    ),
    RESTART: Effect(sessions=_COMMANDS_WAIT),
    STOP_FLEET: Effect(
        running=Said("must have ended before: let them end, or cancel them", total=True),
        queued=Said("stay in the queue, and start after the change"),
        sessions=Said("with srun must have ended, as they are jobs; others stay open"),
        before=(
            *_STOP,
            f"scontrol update nodename=ALL {POWER_DOWN}    # nodes of a cloud start anew",
        ),
        after=("scontrol update partitionname=PARTITION state=up    # each partition",),
    ),
    REPLACE: Effect(
        running=Said("on machines that are replaced are lost"),
        queued=Said("stay in the queue if slurmctld's state stays"),
        sessions=Said("on machines that are replaced end"),
    ),
    DATA_LOSS: Effect(
        running=Said("that use what is removed are lost"),
        queued=Said("that need what is removed fail"),
        sessions=Said("that use what is removed end"),
        data=Said("is lost where it is removed", total=True),
        before=(_BACKUP,),
    ),
}

BY_CLASS_OF_PODS: Mapping[UpdateClass, Effect] = {
    NONE: _NOTHING,
    LIVE: _NOTHING,
    NEW_NODES: BY_CLASS[NEW_NODES],
    DRAIN: Effect(running=Said("are evicted from nodes that leave, as their disruption budgets allow")),
    RESTART: Effect(sessions=Said("of `kubectl` wait while the control plane changes")),
    STOP_FLEET: Effect(running=Said("must have ended before: let them end, or delete them", total=True)),
    REPLACE: Effect(running=Said("are lost"), queued=Said("are lost"), before=(_BACKUP,)),
    DATA_LOSS: BY_CLASS[DATA_LOSS],
}

ROWS = (
    # pools and partitions
    Row(r"pools\[\](\.nodes\.max|\.hosts|\.addresses|\.machine|\.sharing.*|\.capacity\[\]\.zones)?|machines.*", _HELD, (DRAIN,)),
    Row(r"partitions\[\]", _HELD_PARTITION, (DRAIN,)),
    Row(
        r"partitions\[\]\.max_time",
        Effect(
            running=Said("go on to their own time limit"),
            queued=Said("with a time limit above max_time wait with PartitionTimeLimit until it is lowered"),
        ),
    ),
    Row(
        r"(accounts|qos)\[\]\.limits.*",
        Effect(
            running=Said("go on, also above a new limit"),
            queued=Said("stay in the queue; those above the limit wait until jobs of the same account or QOS end"),
        ),
    ),
    Row(
        r"budget(\..*)?",
        Effect(queued=Said("stay in the queue; no node is launched for them while the budget stops launches")),
    ),
    # people and sessions
    Row(
        r"users\[\]",
        Effect(
            running=Said("of a removed user go on"),
            queued=Said("of a removed user stay in the queue"),
            sessions=Said("of a removed user stay open; a new login is refused"),
            data=Said("of a removed user stays, with the old uid"),
        ),
        kinds=(Kind.REMOVED,),
    ),
    Row(
        r"users\[\]\.keys|access(\.ssh_from|\.ssm)?|directory.*",
        Effect(sessions=Said("that are open stay open; the next login needs the new keys, networks and accounts")),
    ),
    Row(
        r"users\[\]\.uid",
        Effect(
            running=Said("go on with the old uid; the head applies the bundle, with all its changes, when it has the new uid"),
            queued=Said("stay in the queue; those of this user fail while the machines have different uids for him"),
            data=Said("keeps the old uid until `chown` changes it"),
            after=(
                "usermod -u UID USER && groupmod -g UID USER    # on head, login and running nodes, as root, without processes of the user",
                "chown -R --from=OLDUID USER: /home/USER    # once, as root",
            ),
        ),
    ),
    Row(
        r"aws\.jobs\..*",
        Effect(sessions=Said("stay open; keys for S3, also those that jobs have, get the new rights")),
    ),
    Row(
        r"aws\.jobs",
        Effect(sessions=Said("stay open; jobs on nodes that are launched later have keys for S3")),
        kinds=(Kind.ADDED,),
    ),
    Row(
        r"aws\.jobs",
        Effect(sessions=Said("stay open; keys for S3 that jobs have are refused")),
        kinds=(Kind.REMOVED,),
    ),
    Row(r"login(\.machine|\.count|\.zone)?", _SESSIONS_END, (RESTART, REPLACE)),
    # the head and its state
    Row(
        r"head\.machine|head\.standby\.machine",
        Effect(
            running=Said("go on while the head stops and starts; a job that reads a file system of the head waits for it"),
            queued=Said("stay in the queue, and start when the head is up"),
            sessions=Said("stay open; Slurm's commands wait until the head is up"),
            after=("gpucluster status NAME --wait",),
        ),
    ),
    Row(
        r"head\.state",
        Effect(
            sessions=Said("stay open; Slurm's commands wait while slurmctld's state is copied to the volume"),
            data=Said("of slurmctld and of the daemon moves to the volume, and its old copy stays"),
            after=("gpucluster status NAME --wait",),
        ),
        kinds=(Kind.ADDED,),
    ),
    Row(r"head\.state|head", Effect(queued=Said("are lost with slurmctld's state", total=True), before=(_BACKUP,)), (DATA_LOSS,)),
    Row(  # the consequence for the head tells what it keeps
        r"aws\.image(\..*)?",
        Effect(
            running=Said("on nodes keep their image: only nodes that are launched later have the new one"),
            sessions=_SESSIONS_END.sessions,
        ),
        (REPLACE,),
    ),
    Row(r"head\.address", _NOTHING, (REPLACE,)),
    # file systems
    Row(
        r"storage\[\]",
        Effect(
            running=Said("go on without the new file system: a node mounts it when it starts"),
            queued=Said("stay in the queue; on nodes that run already they do not have the new file system"),
            after=(f"scontrol update nodename=NODES {POWER_DOWN}    # so that nodes start with it",),
        ),
        kinds=(Kind.ADDED,),
    ),
    # the whole cluster
    Row(
        r"name|aws\.region",
        Effect(
            running=Said("stay on the old cluster, until it is deleted"),
            queued=Said("stay on the old cluster, until it is deleted"),
            sessions=Said("stay on the old cluster, until it is deleted"),
            data=Said("stays on the old cluster, and is deleted with it"),
            before=(_BACKUP,),
        ),
    ),
)  # fmt: skip
