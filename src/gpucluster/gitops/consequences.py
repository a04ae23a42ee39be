"""Find consequences that only the plans show: removed slots, different nodes, a replaced head.

Each check compares one pool, or the cluster, before and after. It yields the consequences.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from gpucluster.cost import AnyPool, pools_of
from gpucluster.gitops.effect_rows import HEAD_STOPPED, KEY_KEPT, QUEUE_KEPT, QUEUE_LOST, VOLUMES_LOST
from gpucluster.gitops.model import WAITS, Consequence, Effect, SpecChange, worse, worst
from gpucluster.plan import names
from gpucluster.plan.model import (
    ClusterPlan,
    Efs,
    FsxLustre,
    Head,
    Image,
    ImageById,
    Pool,
    SlotRange,
    SlurmOnAws,
)
from gpucluster.spec import UpdateClass


def consequences(
    old: ClusterPlan, new: ClusterPlan, changes: Iterable[SpecChange]
) -> tuple[Consequence, ...]:
    """Return consequences worse than every change of the same part. A renamed cluster has none: it is lost anyway.

    That the head waits for jobs is also said with changes of the same class, unless one of them says it.
    """
    found = tuple(changes)
    return tuple(one for one in every_consequence(old, new) if _is_new(one, found))


def every_consequence(old: ClusterPlan, new: ClusterPlan) -> tuple[Consequence, ...]:
    """Return all consequences, also those that a change of their part reports."""
    return () if old.name != new.name else tuple(_all(old, new))


def _is_new(one: Consequence, changes: tuple[SpecChange, ...]) -> bool:
    known = _class_of(one.path, changes)
    if worse(one.update, known) or known is not one.update or WAITS not in one.message:
        return worse(one.update, known)
    return not any(WAITS in change.why for change in changes if change.path.startswith(one.path))


def _all(old: ClusterPlan, new: ClusterPlan) -> Iterator[Consequence]:
    yield from _head(old, new)
    yield from _login(old, new)
    yield from _key(old, new)
    yield from _detached(old, new)
    before = {pool.name: pool for pool in pools_of(old)}
    for pool in pools_of(new):
        if type(before.get(pool.name)) is type(pool):  # a pool of another orchestrator is a different pool
            for check in _POOL_CHECKS:
                yield from check(before[pool.name], pool)


def _head(old: ClusterPlan, new: ClusterPlan) -> Iterator[Consequence]:
    """Check the head on AWS. Existing hosts are neither created nor deleted."""
    if not (isinstance(old, SlurmOnAws) and isinstance(new, SlurmOnAws)):
        return
    for what, was, now in (
        ("zone", old.head.zone, new.head.zone),
        ("address", old.head.address, new.head.address),
        ("image", _image(old.image), _image(new.image)),
    ):
        if was != now:
            update, effect, rest = _left_of(old.head, what)
            message = (
                f"the head's {what} changes ({was} -> {now}): the head is deleted and created again, {rest}"
            )
            yield Consequence(path="head", update=update, message=message, effect=effect)
            return


def _left_of(head: Head, what: str) -> tuple[UpdateClass, Effect, str]:
    """Return the class, the effect and what survives the head: volumes do, but cannot change their zone."""
    if head.volumes and what == "zone":
        paths = ", ".join(volume.path for volume in head.volumes)
        return UpdateClass.DATA_LOSS, VOLUMES_LOST, f"and its volumes ({paths}) cannot leave their zone"
    if head.standby is not None or any(volume.key == names.STATE_VOLUME for volume in head.volumes):
        return UpdateClass.REPLACE, QUEUE_KEPT, "and keeps its state"
    return UpdateClass.REPLACE, QUEUE_LOST, "and the queue on it is lost"


def _login(old: ClusterPlan, new: ClusterPlan) -> Iterator[Consequence]:
    """Check login machines: without their own zone they follow the head."""
    if old.login is not None and new.login is not None and old.login.zone != new.login.zone:
        message = (
            f"the login machines move from {old.login.zone} to {new.login.zone}: sessions on them are lost"
        )
        yield Consequence(path="login", update=UpdateClass.REPLACE, message=message)


def _key(old: ClusterPlan, new: ClusterPlan) -> Iterator[Consequence]:
    """Check data that the cluster created: a volume or a file system keeps its KMS key, so a new key needs a new one."""
    if (
        not (isinstance(old, SlurmOnAws) and isinstance(new, SlurmOnAws))
        or old.aws.kms_key == new.aws.kms_key
    ):
        return
    made = [mount.path for mount in old.storage if isinstance(mount.source, Efs | FsxLustre)]
    paths = [*made, *(volume.path for volume in old.head.volumes)]
    if paths:
        message = (
            f"the data on {', '.join(paths)} stays encrypted with the old key: a new key needs new file systems and "
            "volumes, and `pulumi up` refuses to replace protected ones"
        )
        yield Consequence(path="aws.kms_key", update=UpdateClass.DATA_LOSS, message=message, effect=KEY_KEPT)


def _detached(old: ClusterPlan, new: ClusterPlan) -> Iterator[Consequence]:
    """Check volumes that leave the head: the preview of `pulumi up` refuses. What comes later stops the head, and does not start it."""
    if not (isinstance(old, SlurmOnAws) and isinstance(new, SlurmOnAws)):
        return
    kept = {volume.key for volume in new.head.volumes}
    paths = [volume.path for volume in old.head.volumes if volume.key not in kept]
    if paths:
        message = (
            f"`pulumi up` refuses in its preview to delete the protected volume of {', '.join(paths)}, and changes nothing; "
            "without the protection, or with --skip-preview, it stops the head to detach the volume, and leaves it stopped"
        )
        yield Consequence(path="head", update=UpdateClass.RESTART, message=message, effect=HEAD_STOPPED)


def _image(image: Image) -> str:
    return image.id if isinstance(image, ImageById) else image.name


def _slots(old: AnyPool, new: AnyPool) -> Iterator[Consequence]:
    if not (isinstance(old, Pool) and isinstance(new, Pool)):
        return  # Kubernetes assigns node names itself
    gone = [lost for span in old.slots for lost in _lost(span, new.slots)]
    if gone:
        removed = ", ".join(span.hostlist for span in gone)
        message = f"{removed} are removed from Slurm's files: {WAITS}"
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.DRAIN, message=message)


def _shape(old: AnyPool, new: AnyPool) -> Iterator[Consequence]:
    was, now = _look(old), _look(new)
    if was != now:
        message = (
            f"the hardware of the nodes changes ({was} -> {now}): {WAITS}; then running nodes are replaced"
        )
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.DRAIN, message=message)


def _always_on(old: AnyPool, new: AnyPool) -> Iterator[Consequence]:
    was, now = _zone(old), _zone(new)
    if old.min and new.min and was != now:
        message = (
            f"the always-on nodes move from {was} to {now}: the old ones are removed when their jobs end"
        )
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.DRAIN, message=message)


def _moved(old: AnyPool, new: AnyPool) -> Iterator[Consequence]:
    if not (isinstance(old, Pool) and isinstance(new, Pool)):
        return
    before = dict(old.hosts())
    moved = [f"{name} {before[name]} -> {now}" for name, now in new.hosts() if before.get(name, now) != now]
    if moved:
        message = (
            f"the address of a host name changes, so it is a different machine: {', '.join(moved)}; {WAITS}"
        )
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.DRAIN, message=message)


def _placed(old: AnyPool, new: AnyPool) -> Iterator[Consequence]:
    if isinstance(old, Pool) and isinstance(new, Pool) and old.placement != new.placement:
        where = "in a placement group of their zone" if new.placement else "without a placement group"
        message = f"nodes that are launched later are placed {where}"
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.NEW_NODES, message=message)


_POOL_CHECKS: tuple[Callable[[AnyPool, AnyPool], Iterator[Consequence]], ...] = (
    _slots,
    _shape,
    _always_on,
    _moved,
    _placed,
)


def _lost(span: SlotRange, now: tuple[SlotRange, ...]) -> Iterator[SlotRange]:
    """Return the ranges of `span` that are not in the new slots."""
    kept = {n for other in now if other.prefix == span.prefix for n in range(other.first, other.last + 1)}
    gone = [n for n in range(span.first, span.last + 1) if n not in kept]
    starts = [n for n in gone if n - 1 in kept or n == span.first]
    ends = [n for n in gone if n + 1 in kept or n == span.last]
    return (replace(span, first=first, last=last) for first, last in zip(starts, ends, strict=True))


def _look(pool: AnyPool) -> str:
    """Return the node's hardware as jobs request it."""
    if not isinstance(pool, Pool):
        return f"{_gpus(pool.gpu_count, pool.gpu_model)}{pool.vcpus} CPUs"
    shape = pool.shape
    cpus = f"{shape.sockets} x {shape.cores_per_socket} x {shape.threads_per_core} CPUs"
    return f"{_gpus(shape.gpu_count, shape.gpu_model)}{cpus}, {shape.real_memory_mib} MiB"


def _gpus(count: int, model: str | None) -> str:
    return f"{count} x {model}, " if count else ""


def _zone(pool: AnyPool) -> str | None:
    """Return the zone of always-on nodes; None for existing hosts."""
    return pool.sources[0].zones[0] if pool.sources else None


def _class_of(path: str, changes: tuple[SpecChange, ...]) -> UpdateClass | None:
    return worst(change.update for change in changes if change.path.startswith(path))
