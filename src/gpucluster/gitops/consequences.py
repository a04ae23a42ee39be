"""What the plans say that no single wish says: slots that vanish, nodes that look different, a head that moves.

A question compares one pool, or the cluster, before and after; it answers with what follows, or nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from gpucluster.cost import AnyPool, pools_of
from gpucluster.gitops.classes import worse, worst
from gpucluster.gitops.model import Consequence, SpecChange
from gpucluster.plan import names
from gpucluster.plan.model import ClusterPlan, Head, Image, Pool, SlotRange
from gpucluster.spec import UpdateClass


def consequences(
    old: ClusterPlan, new: ClusterPlan, changes: Iterable[SpecChange]
) -> tuple[Consequence, ...]:
    """Those that are worse than every change of the same part; of two clusters none (a rename loses all anyway)."""
    if old.name != new.name:
        return ()
    told = tuple(changes)
    return tuple(one for one in _all(old, new) if worse(one.update, _told_of(one.path, told)))


def _all(old: ClusterPlan, new: ClusterPlan) -> Iterator[Consequence]:
    yield from _head(old, new)
    yield from _login(old, new)
    before = {pool.name: pool for pool in pools_of(old)}
    for pool in pools_of(new):
        if type(before.get(pool.name)) is type(
            pool
        ):  # one that another orchestrator runs now is another pool
            for question in _OF_POOL:
                yield from question(before[pool.name], pool)


def _head(old: ClusterPlan, new: ClusterPlan) -> Iterator[Consequence]:
    """On AWS: a host that exists is neither destroyed nor made."""
    if old.head is None or new.head is None or old.aws is None or new.aws is None:
        return
    for what, was, now in (
        ("zone", old.head.zone, new.head.zone),
        ("address", old.head.address, new.head.address),
        ("image", _image(old.aws.image), _image(new.aws.image)),
    ):
        if was != now:
            update, rest = _left_of(old.head, what)
            says = f"the head's {what} is another ({was} -> {now}): it is destroyed and made anew, {rest}"
            yield Consequence(path="head", update=update, says=says)
            return


def _left_of(head: Head, what: str) -> tuple[UpdateClass, str]:
    """What outlives the head: a volume does, but never leaves its zone."""
    if head.volumes and what == "zone":
        paths = ", ".join(volume.path for volume in head.volumes)
        return UpdateClass.DATA_LOSS, f"and its volumes ({paths}) cannot leave their zone"
    if head.standby is not None or any(volume.key == names.STATE_VOLUME for volume in head.volumes):
        return UpdateClass.REPLACE, "and finds its state again"
    return UpdateClass.REPLACE, "with the queue on it"


def _login(old: ClusterPlan, new: ClusterPlan) -> Iterator[Consequence]:
    """Nobody said where it stands, and the head's zone moved."""
    if old.login is not None and new.login is not None and old.login.zone != new.login.zone:
        says = f"the login machines stand in {new.login.zone} instead of {old.login.zone}: whoever is logged in is thrown off"
        yield Consequence(path="login", update=UpdateClass.REPLACE, says=says)


def _image(image: Image | None) -> str:
    return "none" if image is None else image.id or image.name or "none"


def _slots(old: AnyPool, new: AnyPool) -> Iterator[Consequence]:
    if not (isinstance(old, Pool) and isinstance(new, Pool)):
        return  # Kubernetes' nodes have no names of ours
    gone = [lost for span in old.slots for lost in _lost(span, new.slots)]
    if gone:
        names = ", ".join(span.hostlist for span in gone)
        says = f"{names} leave Slurm's files: what runs there must end first"
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.DRAIN, says=says)


def _shape(old: AnyPool, new: AnyPool) -> Iterator[Consequence]:
    was, now = _look(old), _look(new)
    if was != now:
        says = f"the nodes look different ({was} -> {now}): those that are up must end, and others come"
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.DRAIN, says=says)


def _always_on(old: AnyPool, new: AnyPool) -> Iterator[Consequence]:
    was, now = _zone(old), _zone(new)
    if old.min and new.min and was != now:
        says = f"the always-on nodes stand in {now} instead of {was}: the old ones end when their jobs do"
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.DRAIN, says=says)


def _moved(old: AnyPool, new: AnyPool) -> Iterator[Consequence]:
    if not (isinstance(old, Pool) and isinstance(new, Pool)):
        return
    before = dict(old.hosts())
    moved = [f"{name} {before[name]} -> {now}" for name, now in new.hosts() if before.get(name, now) != now]
    if moved:
        says = f"a host's name leads to another address, which is another machine: {', '.join(moved)}"
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.DRAIN, says=says)


def _placed(old: AnyPool, new: AnyPool) -> Iterator[Consequence]:
    if isinstance(old, Pool) and isinstance(new, Pool) and old.placement != new.placement:
        where = "near each other, in a group of their zone" if new.placement else "wherever there is room"
        says = f"nodes that come from now on are placed {where}"
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.NEW_NODES, says=says)


_OF_POOL: tuple[Callable[[AnyPool, AnyPool], Iterator[Consequence]], ...] = (
    _slots,
    _shape,
    _always_on,
    _moved,
    _placed,
)


def _lost(span: SlotRange, now: tuple[SlotRange, ...]) -> Iterator[SlotRange]:
    """The runs of `span` that are not among the slots of now."""
    kept = {n for other in now if other.prefix == span.prefix for n in range(other.first, other.last + 1)}
    gone = [n for n in range(span.first, span.last + 1) if n not in kept]
    starts = [n for n in gone if n - 1 in kept or n == span.first]
    ends = [n for n in gone if n + 1 in kept or n == span.last]
    return (replace(span, first=first, last=last) for first, last in zip(starts, ends, strict=True))


def _look(pool: AnyPool) -> str:
    """What jobs are matched with."""
    if not isinstance(pool, Pool):
        return f"{_gpus(pool.gpu_count, pool.gpu_model)}{pool.vcpus} CPUs"
    shape = pool.shape
    cpus = f"{shape.sockets} x {shape.cores_per_socket} x {shape.threads_per_core} CPUs"
    return f"{_gpus(shape.gpu_count, shape.gpu_model)}{cpus}, {shape.real_memory_mib} MiB"


def _gpus(count: int, model: str | None) -> str:
    return f"{count} x {model}, " if count else ""


def _zone(pool: AnyPool) -> str | None:
    """Where the always-on nodes stand; None for hosts that exist."""
    return pool.sources[0].zones[0] if pool.sources else None


def _told_of(path: str, changes: tuple[SpecChange, ...]) -> UpdateClass | None:
    return worst(change.update for change in changes if change.path.startswith(path))
