"""The commands of an edit on existing hosts, in their order. Pure. CLUSTER stands for its name.

A comment says on which host a command is typed; without one it is the operator's machine, or any host with Slurm.
"""

from collections.abc import Iterable, Iterator

from gpucluster.gitops.events import default_leaves
from gpucluster.gitops.host_events import HostEvents
from gpucluster.gitops.host_sentences import has_database
from gpucluster.gitops.steps import (
    CLUSTER,
    COPY_DUMP,
    DUMP,
    HELD,
    NO_JOBS,
    OPEN,
    SPARE_UID,
    of_partitions,
    rename,
)
from gpucluster.plan import mounts, names
from gpucluster.plan.state_storage import BOUND_FOLDERS
from gpucluster.slurm import hostlist

APPLY = (
    f"gpucluster inventory {CLUSTER} --to site",
    "ansible-playbook -i site/inventory.yml playbooks/site.yml",
)
_STATE = BOUND_FOLDERS["slurmctld"]
_TAR = "tar -C / --acls --xattrs"
_SSH = "libpam-slurm-adopt"  # the packages are those of `host_packages` in playbooks/packages.yml


def steps(events: HostEvents, first: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the commands. `first`: those of single fields, before the playbook."""
    return (*_before(events), *first, *_of_accounts(events), *APPLY, *_after(events))


def _before(events: HostEvents) -> Iterator[str]:
    yield from of_partitions(events.removals, default=default_leaves(events.old, events.removals))
    if events.fleet_stops or events.older:
        yield from NO_JOBS
    if events.head_moves:
        yield from _of_head(events)
    if events.version:
        yield from _of_version(events)


def _after(events: HostEvents) -> Iterator[str]:
    if events.held and not events.fleet_stops:
        yield from HELD
        yield f"{APPLY[1]}    # again when they have ended: while the head waits, the first run fails after two minutes, before it runs the agents of the nodes"
    gone = [name for name in events.removals.removed if name not in _hosts(events)]
    if gone:
        yield f"systemctl disable --now {names.AGENT_UNIT} slurmd    # on {hostlist.fold(gone)}, as root: the playbook does not touch a host that left"
    if events.mounts.removed:
        paths = " ".join(events.mounts.removed)
        yield f"umount {paths}    # on each host, as root, without processes that use it, and delete the line in /etc/fstab: the playbook keeps both"
    if events.users_removed:
        yield "usermod --lock --expiredate 1 USER    # on each host, as root: the playbook deletes only the key file of gpucluster"
    if events.fleet_stops and not events.older:
        yield OPEN


def _of_head(events: HostEvents) -> Iterator[str]:
    """Yield how the state moves. tar keeps owners by their names, so the packages with the users come first."""
    old, new = events.old.head, events.new.head
    here, there = f"{old.name} ({old.address})", f"{new.name} ({new.address})"
    database = has_database(events.old) and has_database(events.new)
    if old.name == new.name:
        yield f"# if {new.address} is the same machine with another address: copy nothing, and stop nothing"
    timers = f"{names.WATCH_TIMER} {names.ACCOUNTS_TIMER}"
    daemons = "slurmctld slurmdbd" if events.old.slurm.accounting is not None else "slurmctld"
    yield f"systemctl disable --now {timers} {names.AGENT_UNIT} {daemons}    # on {here}, as root: the playbook does not touch a host that left"
    packages = "munge slurmctld mariadb-server" if database else "munge slurmctld"
    yield f"apt-get install {packages}    # on {there}, as root, for their users"
    ssh = f"ssh -p {events.old.hosts.ssh_port} {events.old.hosts.ssh_user}@{old.address} sudo"
    kept = [path for path in mounts.exports(events.old) if path in mounts.exports(events.new)]
    paths = " ".join(path.lstrip("/") for path in (_STATE, names.MUNGE_KEY, *kept))
    what = "slurmctld's state, munge's key and the exports" if kept else "slurmctld's state and munge's key"
    yield f"{ssh} {_TAR} -cf - {paths} | {_TAR} -xpf -    # on {there}, as root: {what}"
    if database:
        yield f"{ssh} {COPY_DUMP} | mariadb    # on {there}, as root"
    if events.mounts.changed:
        yield f"umount {' '.join(events.mounts.changed)}    # on each node, as root, without processes that use it"


def _of_version(events: HostEvents) -> Iterator[str]:
    plan, version = events.new, events.new.slurm.version
    if has_database(events.old) and not events.head_moves:
        yield f"{DUMP} > backup.sql    # on {events.old.head.name}, as root"
    accounting = ("slurmdbd",) if plan.slurm.accounting is not None else ()
    ssh = (_SSH,) if plan.slurm.node_ssh is not None else ()
    if events.older:
        yield f"systemctl stop {names.WATCH_TIMER} slurmctld    # on {plan.head.name}, as root"
        yield f"mv {_STATE} {_STATE}.newer    # on {plan.head.name}, as root: an older slurmctld cannot read it"
    why = f"from a package source with Slurm {version}: the playbook fails where another version is installed"
    head = _packages(events, ("slurm-client", *accounting, "slurmctld"))
    yield f"apt-get install {head}    # on {plan.head.name} first, as root, {why}"
    yield f"apt-get install {_packages(events, ('slurm-client', 'slurmd', *ssh))}    # then on each node, as root"


def _packages(events: HostEvents, found: tuple[str, ...]) -> str:
    if events.older:
        return f"--allow-downgrades {' '.join(f'{name}=VERSION' for name in found)}"
    return f"--only-upgrade {' '.join(found)}"


def _of_accounts(events: HostEvents) -> Iterator[str]:
    """Yield what comes before the playbook: its first play fails on a host with the old name or uid."""
    head = events.new.head.name
    for one in events.renamed:
        yield f"{rename(one)}    # on {head}, then on each node, as root, without processes of {one.was}"
    if events.uids_exchanged:
        yield f"{SPARE_UID}    # first, on {head} and each node, as root: OTHER has the uid that another user gets"
    if not events.uid:
        return
    yield f"usermod -u UID USER && groupmod -g UID USER    # on {head}, then on each node, as root, without processes of the user"
    yield f"chown -R -h USER:USER /home/USER    # once, on {head}, as root; also other folders with his files"


def _hosts(events: HostEvents) -> set[str]:
    return {events.new.head.name, *(name for pool in events.new.pools for name, _ in pool.hosts())}
