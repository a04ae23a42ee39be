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
from gpucluster.plan.model import SlurmOnAws, SlurmPlan
from gpucluster.plan.removals import Removals, removals
from gpucluster.plan.state_storage import state_mount
from gpucluster.spec import UpdateClass

Changes = tuple[SpecChange, ...]
Resources = tuple[ResourceChange, ...]

_INSTANCE = "aws:ec2/instance:Instance"
_OCCUPIED = ("aws:ec2/subnet:Subnet", "aws:ec2/vpc:Vpc")  # AWS does not delete them with a machine inside
_GONE = (Kind.REMOVED, Kind.REPLACED)


class Controller(Enum):
    """What happens to slurmctld and its machine, in the order of gravity: of several, the last one is told."""

    STAYS = 0
    RESTARTS = 1  # slurmctld alone
    COPIES_STATE = 2  # slurmctld stops meanwhile
    HEAD_RESTARTS = 3
    REPLACED = 4  # a new head has the state
    LEFT_STOPPED = 5  # the head stops, and stays stopped
    EMPTY = 6  # slurmctld starts without its state
    REMOVED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """All that happens. `refused`: protected parts for which `pulumi up` refuses; `smaller`: volumes that AWS does not shrink."""

    controller: Controller = Controller.STAYS
    left_stopped: bool = False  # also of a head without state
    new_head: bool = False
    fleet_stops: bool = False
    removals: Removals = field(default_factory=Removals)
    login_ends: bool = False  # a login machine stops, is replaced, or leaves
    login_gone: bool = False  # it is replaced, or leaves
    lost: tuple[Loss, ...] = ()
    refused: tuple[str, ...] = ()
    smaller: tuple[str, ...] = ()
    stalls: tuple[str, ...] = ()  # file systems whose I/O stalls while they change
    mounts: Mounts = field(default_factory=Mounts)
    new_nodes: bool = False  # only nodes that are launched later have the change
    anew: bool = False  # nodes have the change only when they start anew

    @property
    def held(self) -> bool:
        """Whether the head holds the bundle: a new head has no applied bundle, and applies it at once."""
        return bool(self.removals) and not self.new_head and not self.queue_lost

    @property
    def queue_lost(self) -> bool:
        return self.controller in {Controller.EMPTY, Controller.REMOVED}

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
    lost = tuple(storage_events.lost(old, new, resources))
    new_head, gone = _new_head(old, new, resources), removals(old, new)
    login_gone = _login_gone(old, new, resources)
    stopped = not new_head and bool(storage_events.detached(old, new))
    found = {
        *_of_changes(changes),
        *_of_head(old, new, resources),
        *_of_state(old, new, lost, new_head=new_head),
    }
    return Events(
        controller=_gravest((*found, *([Controller.LEFT_STOPPED] if stopped else []))),
        left_stopped=stopped,
        new_head=new_head,
        fleet_stops=_stops(changes) or _empties_subnets(old, new, resources),
        removals=gone,
        login_ends=login_gone or _login_restarts(old, new, resources),
        login_gone=login_gone,
        lost=lost,
        refused=(*(one.path for one in lost), *_protected(old, new, resources)),
        smaller=tuple(storage_events.smaller(old, new)),
        stalls=tuple(storage_events.stalls(old, new, lost)),
        mounts=storage_events.mounts(old, new),
        new_nodes=_only_new_nodes(old, new, changes, resources),
        anew=not gone and any(_needs_a_start(one) for one in changes),
    )


def _gravest(found: Iterable[Controller]) -> Controller:
    return max(found, key=lambda one: one.value, default=Controller.STAYS)


def _of_changes(changes: Changes) -> Iterator[Controller]:
    for one in changes:
        if (
            one.path == "slurm.version" and one.update is UpdateClass.DATA_LOSS
        ):  # older: it cannot read the state
            yield Controller.EMPTY
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
        yield Controller.EMPTY if was is None or now is None else Controller.REPLACED
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


def _only_new_nodes(old: SlurmOnAws, new: SlurmOnAws, changes: Changes, resources: Resources) -> bool:
    """Whether only nodes that are launched later have a change. Launch templates of Kubernetes' node groups are not Slurm's."""
    ours = rebuilt.launched_from(old) | rebuilt.launched_from(new)
    return any(one.update is UpdateClass.NEW_NODES for one in changes) or any(
        one.update is UpdateClass.NEW_NODES and one.name in ours for one in resources
    )


def _protected(old: SlurmOnAws, new: SlurmOnAws, resources: Resources) -> tuple[str, ...]:
    """Return the names of protected resources without data that are replaced or deleted, sorted."""
    known, after = rebuilt.stores(old), rebuilt.standing(new)
    by_plan = {name for name, fixed in rebuilt.retained(old).items() if after.get(name) != fixed}
    found = {one.name for one in resources if one.protected and one.kind in _GONE and one.name not in known}
    return tuple(sorted(by_plan | found))


def _stops(changes: Changes) -> bool:
    return any(one.update is UpdateClass.STOP_FLEET for one in changes)


def _needs_a_start(one: SpecChange) -> bool:
    """The class `drain` of a change that takes no node from Slurm's files: nodes have it when they start."""
    return one.update is UpdateClass.DRAIN and one.path.startswith("slurm.")
