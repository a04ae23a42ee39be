"""What an edit makes happen to a Slurm cluster, as typed events. Pure.

The one source of the sentences: two plans, the changes of the spec, and the changes of resources if they were compared.
Plans and resources say the same where both know it; resources also know what a look-up answers, plans what it hides.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from gpucluster.gitops import rebuilt, storage_events
from gpucluster.gitops.model import Kind, ResourceChange, SpecChange
from gpucluster.gitops.storage_events import Loss, Mounts
from gpucluster.plan import names
from gpucluster.plan.model import AwsPlan, ExternalDatabase, ImageById, SlurmOnAws, SlurmPlan
from gpucluster.plan.removals import Removals, removals
from gpucluster.plan.slurm_identity import has_other_database
from gpucluster.plan.state_storage import state_mount
from gpucluster.spec import UpdateClass

Changes = tuple[SpecChange, ...]
Resources = tuple[ResourceChange, ...]

_INSTANCE = "aws:ec2/instance:Instance"
_OCCUPIED = ("aws:ec2/subnet:Subnet", "aws:ec2/vpc:Vpc")  # AWS does not delete them with a machine inside
_GONE = (Kind.REMOVED, Kind.REPLACED)
_VERSION = "slurm.version"
_ONLY_NODES = (UpdateClass.NONE, UpdateClass.NEW_NODES)


class Controller(Enum):
    """What happens to slurmctld and its machine, the least severe first. The report names the most severe one."""

    STAYS = 0
    RESTARTS = 1  # slurmctld alone
    COPIES_STATE = 2  # slurmctld stops meanwhile
    HEAD_RESTARTS = 3
    REPLACED = 4  # a new head has the state
    LEFT_STOPPED = 5  # the head stops, and stays stopped
    OTHER_DATABASE = (
        6  # slurmctld does not start on a new head: its state has another number (`identity.split`)
    )
    OLDER = 7  # slurmctld does not start: its state is of a newer version
    EMPTY = 8  # slurmctld starts without its state
    REMOVED = 9


_BY_BUNDLE = {Controller.RESTARTS, Controller.COPIES_STATE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """A user of the new plan with the uid of a removed one."""

    was: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """All that happens.

    `refused`: protected parts for which `pulumi up` refuses; `smaller`: volumes that AWS does not shrink; `fixed_image`: the
    AMI of the spec, if it decides alone which Slurm runs.
    """

    controller: Controller = Controller.STAYS
    left_stopped: bool = False  # also of a head without state
    new_head: bool = False
    fleet_stops: bool = False
    refuses: bool = False  # the head goes on with the old bundle until the edit is split (`identity.split`)
    removals: Removals = field(default_factory=Removals)
    default_leaves: bool = False  # the default partition is removed
    login_ends: bool = False  # a login machine stops, is replaced, or leaves
    login_gone: bool = False  # it is replaced, or leaves
    login_stays: bool = False  # login machines run on
    lost: tuple[Loss, ...] = ()
    refused: tuple[str, ...] = ()
    smaller: tuple[str, ...] = ()
    stalls: tuple[str, ...] = ()  # file systems whose I/O stalls while they change
    mounts: Mounts = field(default_factory=Mounts)
    new_nodes: bool = False  # only nodes that are launched later have the change
    only_new_nodes: bool = False  # and no change has another effect
    fixed_image: str = ""
    older_database: bool = False  # an older slurmdbd starts with the database of a newer one
    emptied: tuple[str, ...] = ()  # partitions that lose all their old nodes, and stay
    renamed: tuple[Renamed, ...] = ()
    uids_exchanged: bool = False  # a user gets the uid that another one of the new plan has

    @property
    def held(self) -> bool:
        """Whether the head holds the bundle: a new head has no applied bundle, and applies it at once."""
        return bool(self.removals) and not (self.new_head or self.queue_lost or self.refuses)

    @property
    def all_wait(self) -> bool:
        """Whether the head waits for jobs, and no partition has a node that takes new ones."""
        return self.held and bool(self.emptied) and {*self.emptied} >= {*self.removals.kept}

    @property
    def queue_lost(self) -> bool:
        return self.controller in {Controller.OLDER, Controller.EMPTY, Controller.REMOVED}

    @property
    def old_mounts_on(self) -> tuple[str, ...]:
        """Return the machines, apart from nodes, that keep a mount that the new spec replaces."""
        if not (self.mounts.changed or any(one.shared for one in self.lost)):
            return ()
        head = () if self.head_is_down or self.controller is Controller.REMOVED else ("the head",)
        return (*head, *(("login machines",) if self.login_stays else ()))

    @property
    def head_is_down(self) -> bool:
        """Whether the head's machine stops for a time or for good."""
        return self.new_head or self.left_stopped or self.controller is Controller.HEAD_RESTARTS


def events(
    old: SlurmPlan,
    new: SlurmPlan | None,
    changes: Iterable[SpecChange],
    resources: Iterable[ResourceChange] = (),
) -> Events:
    """Return what happens to the old cluster. `new` is None if it has no Slurm any more; `host_events` has two of hosts."""
    if isinstance(old, SlurmOnAws) and isinstance(new, SlurmOnAws):
        return _on_aws(old, new, tuple(changes), tuple(resources))
    if isinstance(old, SlurmOnAws):
        return _leaves_aws(old)
    return Events(controller=Controller.REMOVED)


def _leaves_aws(old: SlurmOnAws) -> Events:
    lost = tuple(storage_events.lost(old, None, ()))
    return Events(
        controller=Controller.REMOVED,
        new_head=True,
        login_ends=old.login is not None,
        login_gone=old.login is not None,
        lost=lost,
        refused=tuple(one.path for one in lost),
    )


def _on_aws(old: SlurmOnAws, new: SlurmOnAws, changes: Changes, resources: Resources) -> Events:
    fixed = _fixed_image(old, new, changes)
    if fixed:
        changes = tuple(one for one in changes if one.path != _VERSION)
    lost = tuple(storage_events.lost(old, new, resources))
    new_head, gone = _new_head(old, new, resources), removals(old, new)
    login_gone = _login_gone(old, new, resources)
    login_ends = login_gone or _login_restarts(old, new, resources)
    stopped = not new_head and bool(storage_events.detached(old, new))
    refuses = not new_head and bool(gone) and has_other_database(old, new)
    found = {
        *_of_changes(changes),
        *_of_head(old, new, resources),
        *_of_state(old, new, lost, new_head=new_head),
    } - (_BY_BUNDLE if refuses else set())
    return Events(
        controller=_most_severe((*found, *([Controller.LEFT_STOPPED] if stopped else []))),
        left_stopped=stopped,
        new_head=new_head,
        fleet_stops=_stops(changes) or _empties_subnets(old, new, resources),
        refuses=refuses,
        removals=gone,
        default_leaves=default_leaves(old, gone),
        login_ends=login_ends,
        login_gone=login_gone,
        login_stays=new.login is not None and not login_ends,
        lost=lost,
        refused=(*(one.path for one in lost), *protected(old, new, resources)),
        smaller=tuple(storage_events.smaller(old, new)),
        stalls=tuple(storage_events.stalls(old, new, lost)),
        mounts=storage_events.mounts(old, new),
        new_nodes=_new_nodes(old, new, changes, resources),
        only_new_nodes=all(one.update in _ONLY_NODES for one in changes),
        fixed_image=fixed,
        older_database=any(map(is_older, changes)) and _keeps_database(old, new, lost),
        emptied=tuple(emptied(old, new, gone)),
        renamed=tuple(renamed(old, new)),
        uids_exchanged=exchanges_uids(old, new),
    )


def _most_severe(found: Iterable[Controller]) -> Controller:
    return max(found, key=lambda one: one.value, default=Controller.STAYS)


def _of_changes(changes: Changes) -> Iterator[Controller]:
    for one in changes:
        if is_older(one):
            yield Controller.OLDER
        elif one.update is UpdateClass.RESTART and one.path.startswith("slurm"):
            yield Controller.RESTARTS


def _of_head(old: SlurmOnAws, new: SlurmOnAws, resources: Resources) -> Iterator[Controller]:
    name = f"{old.name}-{names.ROLE_HEAD}"
    if old.head.machine != new.head.machine or any(_stops_and_starts(one, name) for one in resources):
        yield Controller.HEAD_RESTARTS


def _of_state(
    old: SlurmOnAws, new: SlurmOnAws, lost: tuple[Loss, ...], *, new_head: bool
) -> Iterator[Controller]:
    """Yield what happens to slurmctld's state. The queue is lost where a head starts without it."""
    was, now = state_mount(old), state_mount(new)
    if new_head:
        kept = Controller.OTHER_DATABASE if has_other_database(old, new) else Controller.REPLACED
        yield Controller.EMPTY if was is None or now is None else kept
    if was in {one.path for one in lost}:
        yield Controller.EMPTY
    if now is not None and now != was:
        yield Controller.COPIES_STATE


def _new_head(old: SlurmOnAws, new: SlurmOnAws, resources: Resources) -> bool:
    name = f"{old.name}-{names.ROLE_HEAD}"
    by_plan = bool(rebuilt.turned(rebuilt.head(old), rebuilt.head(new)))
    return by_plan or any(_is_gone(one, name) for one in resources)


def _login_gone(old: SlurmOnAws, new: SlurmOnAws, resources: Resources) -> bool:
    was, now = rebuilt.login(old), rebuilt.login(new)
    if old.login is None or was is None:
        return False
    if new.login is None or now is None:
        return True
    by_plan = bool(rebuilt.turned(was, now)) or not set(old.login.names) <= set(new.login.names)
    return by_plan or any(_is_gone(one, name) for one in resources for name in old.login.names)


def _login_restarts(old: SlurmOnAws, new: SlurmOnAws, resources: Resources) -> bool:
    if old.login is None or new.login is None:
        return False
    by_plan = old.login.machine != new.login.machine
    return by_plan or any(_stops_and_starts(one, name) for one in resources for name in old.login.names)


def _is_gone(one: ResourceChange, name: str) -> bool:
    return one.type == _INSTANCE and one.name == name and one.kind in _GONE


def _stops_and_starts(one: ResourceChange, name: str) -> bool:
    is_changed = one.type == _INSTANCE and one.name == name and one.kind is Kind.CHANGED
    return is_changed and one.update is UpdateClass.RESTART


def _empties_subnets(old: SlurmOnAws, new: SlurmOnAws, resources: Resources) -> bool:
    by_plan = bool(rebuilt.subnets(old) - rebuilt.subnets(new))
    names_of = rebuilt.occupied(old)
    return by_plan or any(
        one.type in _OCCUPIED and one.kind in _GONE and one.name in names_of for one in resources
    )


def _new_nodes(old: SlurmOnAws, new: SlurmOnAws, changes: Changes, resources: Resources) -> bool:
    """Whether a change reaches only nodes that are launched later. Launch templates of Kubernetes' node groups are not Slurm's."""
    ours = rebuilt.launched_from(old) | rebuilt.launched_from(new)
    return any(one.update is UpdateClass.NEW_NODES for one in changes) or any(
        one.update is UpdateClass.NEW_NODES and one.name in ours for one in resources
    )


def protected(old: AwsPlan, new: AwsPlan, resources: Resources) -> tuple[str, ...]:
    """Return the names of protected resources without data that are replaced or deleted, sorted."""
    known, after = rebuilt.stores(old), rebuilt.standing(new)
    by_plan = {name for name, fixed in rebuilt.retained(old).items() if after.get(name) != fixed}
    found = {one.name for one in resources if one.protected and one.kind in _GONE and one.name not in known}
    return tuple(sorted(by_plan | found))


def _fixed_image(old: SlurmOnAws, new: SlurmOnAws, changes: Changes) -> str:
    """Return the AMI that stays while slurm.version changes; empty if there is none."""
    changed = any(one.path == _VERSION for one in changes)
    return new.image.id if changed and isinstance(new.image, ImageById) and old.image == new.image else ""


def _keeps_database(old: SlurmOnAws, new: SlurmOnAws, lost: tuple[Loss, ...]) -> bool:
    """Whether slurmdbd of the new plan uses the old database: one of the site, or one on storage that stays."""
    was, now, place = old.slurm.accounting, new.slurm.accounting, state_mount(old)
    if was is None or now is None or type(was.database) is not type(now.database):
        return False
    if isinstance(now.database, ExternalDatabase):
        return was.database == now.database
    return place is not None and place == state_mount(new) and place not in {one.path for one in lost}


def emptied(old: SlurmPlan, new: SlurmPlan, gone: Removals) -> Iterator[str]:
    """Yield partitions that stay without one of their old nodes as it was."""
    for name, before in _nodes(old).items():
        if name not in gone.partitions and before and before <= set(gone.nodes):
            yield name


def default_leaves(old: SlurmPlan, gone: Removals) -> bool:
    return any(one.default and one.name in gone.partitions for one in old.partitions)


def renamed(old: SlurmPlan, new: SlurmPlan) -> Iterator[Renamed]:
    """Yield users whose uid was that of a removed user: machines keep a removed user's account, locked."""
    after = {user.name for user in new.users}
    removed = {user.uid: user.name for user in old.users if user.name not in after}
    for user in new.users:
        if user.uid in removed:
            yield Renamed(was=removed[user.uid], now=user.name)


def exchanges_uids(old: SlurmPlan, new: SlurmPlan) -> bool:
    """Whether a user gets the uid that another user of the new plan had."""
    before = {user.uid: user.name for user in old.users}
    after = {user.name for user in new.users}
    return any(before.get(user.uid, user.name) in after - {user.name} for user in new.users)


def _nodes(plan: SlurmPlan) -> dict[str, set[str]]:
    """Return the nodes of each partition."""
    return {one.name: set(one.node_names(plan.pools)) for one in plan.partitions}


def is_older(one: SpecChange) -> bool:
    return one.path == _VERSION and one.update is UpdateClass.DATA_LOSS


def _stops(changes: Changes) -> bool:
    """Whether no job may run: an older version needs it as a newer one does."""
    return any(one.update is UpdateClass.STOP_FLEET or is_older(one) for one in changes)
