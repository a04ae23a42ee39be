"""What the plans say that no single wish says: slots that vanish, nodes that look different, a head that moves.

A question compares one pool, or the cluster, before and after; it answers with what follows, or nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from gpucluster.gitops.classes import worse, worst
from gpucluster.gitops.model import Consequence, SpecChange
from gpucluster.plan.model import ClusterPlan, NodeShape, Pool, SlotRange
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
    before = {pool.name: pool for pool in old.pools}
    for pool in new.pools:
        if pool.name in before:
            for question in _OF_POOL:
                yield from question(before[pool.name], pool)


def _head(old: ClusterPlan, new: ClusterPlan) -> Iterator[Consequence]:
    if old.head is None or new.head is None:
        return
    for what, was, now in (
        ("zone", old.head.zone, new.head.zone),
        ("address", old.head.address, new.head.address),
        ("image", old.aws and old.aws.image, new.aws and new.aws.image),
    ):
        if was != now:
            says = f"the head's {what} is another ({was} -> {now}): it is destroyed and made anew, with the queue on it"
            yield Consequence(path="head", update=UpdateClass.REPLACE, says=says)
            return


def _slots(old: Pool, new: Pool) -> Iterator[Consequence]:
    gone = [lost for span in old.slots for lost in _lost(span, new.slots)]
    if gone:
        names = ", ".join(span.hostlist for span in gone)
        says = f"{names} leave Slurm's files: what runs there must end first"
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.DRAIN, says=says)


def _shape(old: Pool, new: Pool) -> Iterator[Consequence]:
    if old.shape != new.shape:
        says = (
            f"the nodes look different to Slurm ({_look(old.shape)} -> {_look(new.shape)}): "
            "those that are up must end before they come back"
        )
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.DRAIN, says=says)


def _always_on(old: Pool, new: Pool) -> Iterator[Consequence]:
    if not (old.sources and new.sources and old.min and new.min):
        return
    was, now = old.sources[0].zones[0], new.sources[0].zones[0]
    if was != now:
        says = f"the always-on nodes stand in {now} instead of {was}: the old ones end when their jobs do"
        yield Consequence(path=f"pools[{new.name}]", update=UpdateClass.DRAIN, says=says)


_OF_POOL: tuple[Callable[[Pool, Pool], Iterator[Consequence]], ...] = (_slots, _shape, _always_on)


def _lost(span: SlotRange, now: tuple[SlotRange, ...]) -> Iterator[SlotRange]:
    """The runs of `span` that are not among the slots of now."""
    kept = {n for other in now if other.prefix == span.prefix for n in range(other.first, other.last + 1)}
    gone = [n for n in range(span.first, span.last + 1) if n not in kept]
    starts = [n for n in gone if n - 1 in kept or n == span.first]
    ends = [n for n in gone if n + 1 in kept or n == span.last]
    return (replace(span, first=first, last=last) for first, last in zip(starts, ends, strict=True))


def _look(shape: NodeShape) -> str:
    gpus = f"{shape.gpu_count} x {shape.gpu_model}, " if shape.gpu_count else ""
    return f"{gpus}{shape.cpus} CPUs, {shape.real_memory_mib} MiB"


def _told_of(path: str, changes: tuple[SpecChange, ...]) -> UpdateClass | None:
    return worst(change.update for change in changes if change.path.startswith(path))
