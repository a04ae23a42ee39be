"""Hosts that leave a pool: removed from the cluster, or in another pool of it under the same name. Pure."""

import re
from collections.abc import Iterator
from dataclasses import replace

from gpucluster.gitops.model import WAITS, SpecChange, worst
from gpucluster.plan.model import Pool, SlurmOnHosts
from gpucluster.plan.removals import removals
from gpucluster.slurm import hostlist
from gpucluster.spec import UpdateClass

_POOL = re.compile(r"pools\[([^\]]*)\](?:\.(hosts|addresses|machine))?")


def reworded(change: SpecChange, old: SlurmOnHosts, new: SlurmOnHosts) -> SpecChange:
    """Return a change of a pool's hosts with what it does to them, if some of them move to another pool."""
    match = _POOL.fullmatch(change.path)
    pool = match and next((one for one in old.pools if one.name == match[1]), None)
    if match is None or pool is None:
        return change
    if not any(_moved(pool, new)):
        return _joined(change, pool.name, old, new)
    if match[2] in {"addresses", "machine"}:
        changes = {*pool.node_names} & {*removals(old, new).nodes}
        return change if changes else replace(change, update=UpdateClass.LIVE)
    found = tuple(_leave(pool, old, new))
    return replace(
        change,
        update=worst(update for update, _ in found) or change.update,
        why="; ".join(text for _, text in found),
    )


def _joined(change: SpecChange, name: str, old: SlurmOnHosts, new: SlurmOnHosts) -> SpecChange:
    """Return a change of a pool that only gets hosts; those of other pools are not new ones."""
    from_others = [one for one in old.pools for other, _ in _moved(one, new) if other == name]
    found = (
        f"{hostlist.fold(moved)} come from the pool {one.name}"
        for one in from_others
        for other, moved in _moved(one, new)
        if other == name
    )
    return replace(change, why="; ".join(found)) if from_others and change.why else change


def _leave(pool: Pool, old: SlurmOnHosts, new: SlurmOnHosts) -> Iterator[tuple[UpdateClass, str]]:
    """Yield what becomes of the hosts that the pool loses."""
    gone = removals(old, new)
    if removed := [name for name in pool.node_names if name in gone.removed]:
        yield UpdateClass.DRAIN, f"{hostlist.fold(removed)} are removed from Slurm's files: {WAITS}"
    for other, moved in _moved(pool, new):
        where = f"move to the pool {other}"
        if others := [name for name in moved if name in gone.changed]:
            what = "with other hardware or another address"
            yield UpdateClass.DRAIN, f"{hostlist.fold(others)} {where} {what}: {WAITS}"
        if same := [name for name in moved if name not in gone.changed]:
            yield UpdateClass.LIVE, f"{hostlist.fold(same)} {where}, and get its features and partitions"


def _moved(pool: Pool, new: SlurmOnHosts) -> Iterator[tuple[str, list[str]]]:
    """Yield the other pools that get hosts of this one, with these."""
    for other in new.pools:
        there = {*other.node_names}
        if other.name != pool.name and (moved := [name for name in pool.node_names if name in there]):
            yield other.name, moved
