"""What an edit makes happen to Slurm on existing hosts, as typed events. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from gpucluster.gitops.events import Renamed, emptied, exchanges_uids, is_older, renamed
from gpucluster.gitops.identity import split
from gpucluster.gitops.model import Kind, SpecChange
from gpucluster.gitops.storage_events import Mounts, mounts
from gpucluster.plan.model import HostHead, LocalDatabase, NfsFromHead, SlurmOnHosts
from gpucluster.plan.mounts import exports
from gpucluster.plan.removals import Removals, removals
from gpucluster.spec import UpdateClass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvents:
    """All that happens. `old` and `new` are the plans, for names and paths."""

    old: SlurmOnHosts
    new: SlurmOnHosts
    fleet_stops: bool = False
    restarts: bool = False  # slurmctld alone
    version: bool = False  # of Slurm
    older: bool = False  # so slurmctld cannot read its state
    removals: Removals = field(default_factory=Removals)
    mounts: Mounts = field(default_factory=Mounts)
    unexported: tuple[str, ...] = ()  # mount points that the head no longer exports
    older_database: bool = False  # an older slurmdbd starts with the database of a newer one
    emptied: tuple[str, ...] = ()  # partitions that lose all their old nodes, and stay
    uid: bool = False
    renamed: tuple[Renamed, ...] = ()
    uids_exchanged: bool = False  # a user gets the uid that another one of the new plan has
    users_removed: bool = False  # and no other user has the uid

    @property
    def head_moves(self) -> bool:
        """Whether the head is another host: another address of a name is another machine, as for nodes."""
        return _place(self.old.head) != _place(self.new.head)

    @property
    def refuses(self) -> bool:
        """Whether the head goes on with the old bundle until the edit is split. An older slurmctld has no state that differs."""
        return not self.older and not self.head_moves and split(self.old, self.new, moved=False) != ""

    @property
    def held(self) -> bool:
        """Whether the head holds the bundle. Another head has no applied one, and applies it at once."""
        return bool(self.removals) and not (self.head_moves or self.refuses)

    @property
    def all_wait(self) -> bool:
        """Whether the head waits for jobs, and no partition has a node that takes new ones."""
        return self.held and bool(self.emptied) and {*self.emptied} >= {*self.removals.kept}


def host_events(old: SlurmOnHosts, new: SlurmOnHosts, changes: Iterable[SpecChange]) -> HostEvents:
    """Return what happens to the hosts of the old plan."""
    found, gone, moved = tuple(changes), removals(old, new), _place(old.head) != _place(new.head)
    mounted = mounts(old, new)
    from_head = _from_head(old)
    again = tuple(path for path in _from_head(new) if path in from_head and path not in mounted.changed)
    again_named = tuple(renamed(old, new))
    changed = (*mounted.changed, *(again if moved else ()))
    return HostEvents(
        old=old,
        new=new,
        fleet_stops=any(one.update is UpdateClass.STOP_FLEET for one in found),
        restarts=any(one.update is UpdateClass.RESTART and one.path.startswith("slurm") for one in found),
        version=old.slurm.version != new.slurm.version,
        older=any(map(is_older, found)),
        removals=gone,
        mounts=replace(mounted, changed=changed),
        unexported=() if moved else tuple(_unexported(old, new)),
        older_database=any(map(is_older, found)) and _keeps_database(old, new),
        emptied=tuple(emptied(old, new, gone)),
        renamed=again_named,
        uids_exchanged=exchanges_uids(old, new),
        uid=any(one.path.startswith("users[") and one.path.endswith("].uid") for one in found),
        users_removed=bool(_removed_users(found) - {f"users[{one.was}]" for one in again_named}),
    )


def _place(head: HostHead) -> tuple[str, str]:
    return head.name, head.address


def _from_head(plan: SlurmOnHosts) -> tuple[str, ...]:
    return tuple(one.path for one in plan.storage if isinstance(one.source, NfsFromHead))


def _unexported(old: SlurmOnHosts, new: SlurmOnHosts) -> Iterator[str]:
    """Yield the mount points whose folder the same head no longer exports."""
    for one in old.storage:
        if isinstance(one.source, NfsFromHead) and one.source.export not in exports(new):
            yield one.path


def _removed_users(changes: Iterable[SpecChange]) -> set[str]:
    return {one.path for one in changes if one.kind is Kind.REMOVED and _is_user(one.path)}


def _is_user(path: str) -> bool:
    return path.startswith("users[") and path.endswith("]")


def _keeps_database(old: SlurmOnHosts, new: SlurmOnHosts) -> bool:
    """Whether slurmdbd of the new plan uses the old database, also one that moves with the head."""
    was, now = old.slurm.accounting, new.slurm.accounting
    if was is None or now is None:
        return False
    return was.database == now.database or type(was.database) is type(now.database) is LocalDatabase
