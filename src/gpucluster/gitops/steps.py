"""The commands of an edit, in their order, from its events. Pure. CLUSTER stands for the cluster's name."""

from collections.abc import Iterable, Iterator

from gpucluster.gitops.events import Controller, Events, Renamed
from gpucluster.gitops.storage_events import Loss
from gpucluster.plan import names
from gpucluster.plan.removals import Removals
from gpucluster.plan.state_storage import BOUND_FOLDERS

CLUSTER = "<cluster>"  # no path of a spec has these signs
POWER_DOWN = "state=power_down_asap"
_TAR = "tar -C / --acls --xattrs"
_TAR_OF_POD = "tar -C /"  # that of busybox has no more options
NO_JOBS = (
    "scontrol update partitionname=PARTITION state=down    # each partition that is UP: no job starts",
    "squeue --states=running    # until no job runs",
)
OPEN = "scontrol update partitionname=PARTITION state=up    # each partition that was UP"
NO_NEW_JOBS = "scontrol update partitionname=PARTITION state=drain    # each removed partition: it takes no new jobs, and runs queued ones"
_NO_DEFAULT = "; until the bundle is applied, sbatch refuses jobs that name no partition"
OTHER_PARTITION = "scontrol update jobid=JOB partition=OTHER    # each queued job of a removed partition"
HELD = (
    f"gpucluster bundle show -c {CLUSTER}    # for which jobs the head waits",
    f"gpucluster bundle apply DIGEST --now -c {CLUSTER}    # only to end these jobs instead",
)
DUMP = f"mariadb-dump --single-transaction --databases {names.DATABASE}"
COPY_DUMP = f"{DUMP} --skip-add-drop-table"  # read by a database that has one of the tables, it ends there
NEWER = "/root/slurmctld-newer"
# slurmctld's folder is a mount point, so what it holds is moved. tests/slurm/test_upgrade.py types this
MOVE_STATE = (
    f"mkdir {NEWER} && find {BOUND_FOLDERS['slurmctld']} -mindepth 1 -maxdepth 1 -exec mv -t {NEWER} {{}} +"
)
SPARE_UID = "usermod -u SPARE OTHER && groupmod -g SPARE OTHER"
_APPLIED = {
    Controller.OLDER,
    Controller.EMPTY,
    Controller.REPLACED,
    Controller.HEAD_RESTARTS,
    Controller.COPIES_STATE,
}


def before(events: Events) -> Iterator[str]:
    if events.smaller:
        yield f"# keep the size of {', '.join(events.smaller)} in the spec: AWS refuses a smaller one"
    if events.queue_lost:
        yield "squeue --all    # the jobs that are lost"
    if not events.queue_lost:
        yield from of_partitions(events.removals, default=events.default_leaves)
    if events.fleet_stops:
        yield from NO_JOBS
    yield from copies(events.lost)
    if events.fleet_stops:
        yield f"gpucluster pool pause POOL -c {CLUSTER}    # each pool: the daemon powers up no node"
        yield f"scontrol update nodename=ALL {POWER_DOWN}    # nodes start anew"
    if events.refused:
        yield unprotect(events.refused)


def copies(lost: Iterable[Loss], *, pods: bool = False) -> Iterator[str]:
    """Yield what copies data that is lost. tests/unit/gitops/test_effects.py types it."""
    for one in lost:
        if pods:
            yield f"kubectl exec POD -- {_TAR_OF_POD} -cf - {_relative(one)} > {_file(one)}    # a pod that mounts {one.path}"
        else:
            yield f"{_TAR} -cf - {_relative(one)} | ssh HOST 'cat > {_file(one)}'    # as root, where {one.path} is mounted: a copy on a host that stays"


def restores(lost: Iterable[Loss], *, pods: bool = False) -> Iterator[str]:
    """Yield what brings a copy back into the empty store that takes the place of a lost one."""
    for one in lost:
        if one.replaced and pods:
            yield f"kubectl exec -i POD -- {_TAR_OF_POD} -xpf - < {_file(one)}    # a pod that mounts the new {one.path}"
        elif one.replaced:
            yield f"ssh HOST 'cat {_file(one)}' | {_TAR} -xpf -    # as root, where the new {one.path} is mounted"


def _relative(one: Loss) -> str:
    return one.path.lstrip("/")


def _file(one: Loss) -> str:
    return f"{one.path.rstrip('/').rpartition('/')[2]}.tar"


def of_partitions(removals: Removals, *, default: bool) -> Iterator[str]:
    """Yield what empties removed partitions. A job moves only to a partition that exists. `default`: the default one leaves."""
    if removals.partitions:
        yield f"{NO_NEW_JOBS}{_NO_DEFAULT if default else ''}"
        if removals.kept:
            yield OTHER_PARTITION


def unprotect(parts: tuple[str, ...]) -> str:
    """Return the command that lets `pulumi up` delete protected parts."""
    return f"pulumi state unprotect URN --stack {CLUSTER}    # each of {', '.join(parts)}; their URNs: pulumi stack --show-urns"


def after(events: Events) -> Iterator[str]:
    if events.left_stopped:
        yield "aws ec2 start-instances --instance-ids HEAD    # `pulumi up` leaves it stopped"
    if events.controller is Controller.OLDER:
        yield f"{MOVE_STATE}    # on the head, as root: slurmctld then starts without this state"
    yield from _accounts(events)
    if events.controller in _APPLIED or events.fleet_stops:
        yield f"gpucluster status {CLUSTER} --wait"
    yield from restores(one for one in events.lost if one.shared)
    if events.fleet_stops:
        yield from _reopen(events)
    else:
        yield from _nodes(events)
    if events.old_mounts_on:
        yield f"systemctl reboot    # as root, on {' and then on '.join(events.old_mounts_on)}: the old mount stays until then"


def _accounts(events: Events) -> Iterator[str]:
    for one in events.renamed:
        yield f"{rename(one)}    # on head, login and running nodes, as root, without processes of {one.was}"
    if events.uids_exchanged:
        yield f"{SPARE_UID}    # first, as root: OTHER has the uid that another user gets"


def _reopen(events: Events) -> Iterator[str]:
    """Yield what ends the pause and opens the partitions. A controller without the old state has neither."""
    if events.controller not in {Controller.EMPTY, Controller.REMOVED}:
        yield f"gpucluster pool resume POOL -c {CLUSTER}    # each pool"
    if not events.queue_lost:
        yield OPEN


def _nodes(events: Events) -> Iterator[str]:
    if events.held and not events.queue_lost:
        yield from HELD
    if events.mounts.added or events.mounts.changed:
        yield f"scontrol update nodename=NODES {POWER_DOWN}    # so that nodes start with it"


def rename(one: Renamed) -> str:
    """Return what gives the locked account of a removed user to the new one. tests/slurm/test_renamed_user.py types it."""
    return f"usermod -l {one.now} -d /home/{one.now} -e '' {one.was} && groupmod -n {one.now} {one.was}"
