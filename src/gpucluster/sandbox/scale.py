"""Scale a plan of existing hosts down: fewer hosts in each pool, the same partitions, machines and topology. Pure.

The first hosts of a pool stay. A pool leaves only if the machines do not suffice for one host of each pool; then the pools
stay that keep the most partitions.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import (
    Blocks,
    HostPool,
    Leaf,
    Partition,
    SlotRange,
    SlurmOnHosts,
    Spine,
    Topology,
    Tree,
)

AUTOMATIC = 8  # machines of a scaled-down plan, with the head: they are installed within minutes
BY_ITSELF = 2  # hosts of a pool, for a job of several nodes


def fit(plan: SlurmOnHosts, *, room: int, hosts: int | None = None) -> tuple[SlurmOnHosts, tuple[str, ...]]:
    """The plan with at most `hosts` hosts in each pool, and a sentence for each part that is smaller.

    Without `hosts` a plan of more than AUTOMATIC machines, or more than `room`, gets at most BY_ITSELF hosts in a pool.
    GpuclusterError if the plan does not fit into the room.
    """
    wanted = 1 + sum(pool.max for pool in plan.pools)
    if hosts is None and wanted <= min(AUTOMATIC, room):
        return plan, ()
    limit = room if hosts is not None else min(room, max(AUTOMATIC, 1 + len(plan.pools)))
    pools = plan.pools if len(plan.pools) < limit else _chosen(plan, limit - 1)
    each = _each(pools, limit, hosts)
    kept = tuple(_smaller(pool, each) for pool in pools)
    machines = 1 + sum(pool.max for pool in kept)
    if machines > room or not kept:
        raise GpuclusterError(
            f"{machines} machines remain, and this machine has room for {room}",
            next_step="gpucluster sandbox up FILE --scale 1, or sysctl -w fs.inotify.max_user_instances=512",
        )
    names = {pool.name for pool in kept}
    partitions = tuple(_narrower(one, names) for one in plan.partitions if names & set(one.pools))
    remaining = {name for pool in kept for span in pool.slots for name in span}
    parts = {"", *names, *(one.name for one in partitions)}
    settings = tuple(one for one in plan.slurm.settings if one.of in parts)
    small = replace(
        plan,
        slurm=replace(plan.slurm, settings=settings),
        pools=kept,
        partitions=partitions,
        topologies=tuple(made for one in plan.topologies if (made := _topology(one, remaining)) is not None),
    )
    return small, tuple(_sentences(plan, small))


def _chosen(plan: SlurmOnHosts, most: int) -> tuple[HostPool, ...]:
    """So many pools, in the plan's order: each next one is in the most partitions that have no pool yet."""
    left, taken = list(plan.pools), list[HostPool]()
    bare = {one.name: set(one.pools) for one in plan.partitions}
    while left and len(taken) < most:
        best = max(left, key=lambda pool: sum(pool.name in pools for pools in bare.values()))
        left.remove(best)
        taken.append(best)
        bare = {name: pools for name, pools in bare.items() if best.name not in pools}
    return tuple(pool for pool in plan.pools if pool in taken)


def _each(pools: Sequence[HostPool], limit: int, hosts: int | None) -> int:
    """The number of hosts of each pool: the most that the limit takes, up to BY_ITSELF."""
    if hosts is not None:
        return hosts
    fitting = (n for n in range(BY_ITSELF, 0, -1) if 1 + sum(min(n, pool.max) for pool in pools) <= limit)
    return next(fitting, 1)


def _smaller(pool: HostPool, most: int) -> HostPool:
    slots = tuple(_first(pool.slots, most))
    return replace(pool, slots=slots, addresses=pool.addresses[: sum(len(span) for span in slots)])


def _first(spans: Sequence[SlotRange], most: int) -> Iterator[SlotRange]:
    for span in spans:
        if most <= 0:
            return
        yield replace(span, last=min(span.last, span.first + most - 1))
        most -= len(span)


def _narrower(partition: Partition, pools: Collection[str]) -> Partition:
    return replace(partition, pools=tuple(name for name in partition.pools if name in pools))


def _topology(one: Topology, remaining: Collection[str]) -> Topology | None:
    """The switches and blocks that still have hosts. The base size of blocks becomes that of the smallest block."""
    if isinstance(one, Tree):
        leaves = tuple(_leaves(one.leaves, remaining))
        spines = _spines(one.spines, {leaf.name for leaf in leaves})
        return replace(one, leaves=leaves, spines=spines) if leaves else None
    if isinstance(one, Blocks):
        blocks = tuple(_leaves(one.blocks, remaining))
        if not blocks:
            return None
        base = min(sum(len(span) for span in block.slots) for block in blocks)
        return replace(one, blocks=blocks, sizes=tuple(base * (size // one.sizes[0]) for size in one.sizes))
    return one


def _leaves(leaves: Sequence[Leaf], remaining: Collection[str]) -> Iterator[Leaf]:
    for leaf in leaves:
        slots = tuple(part for span in leaf.slots for part in _parts(span, remaining))
        if slots:
            yield replace(leaf, slots=slots)


def _parts(span: SlotRange, remaining: Collection[str]) -> Iterator[SlotRange]:
    """The hosts of a range that are kept, as ranges."""
    first: int | None = None
    for number, name in enumerate((*span, None), start=span.first):
        if name is not None and name in remaining:
            first = number if first is None else first
        elif first is not None:
            yield replace(span, first=first, last=number - 1)
            first = None


def _spines(spines: Sequence[Spine], known: set[str]) -> tuple[Spine, ...]:
    """The switches above others, from the bottom up, without those that have nothing below."""
    kept = list[Spine]()
    for spine in spines:
        below = tuple(name for name in spine.switches if name in known)
        if below:
            kept.append(replace(spine, switches=below))
            known.add(spine.name)
    return tuple(kept)


def _sentences(plan: SlurmOnHosts, small: SlurmOnHosts) -> Iterator[str]:
    kept = {pool.name: pool for pool in small.pools}
    for pool in plan.pools:
        if pool.name not in kept:
            yield f"pool {pool.name}: none of its {pool.max} hosts, because the machines do not suffice for all pools"
        elif kept[pool.name].max < pool.max:
            yield f"pool {pool.name}: {kept[pool.name].max} of its {pool.max} hosts"
    partitions = {one.name for one in small.partitions}
    gone = [one.name for one in plan.partitions if one.name not in partitions]
    if gone:
        yield f"partitions without a pool are left out: {', '.join(gone)}"
    for before in plan.topologies:
        after = next((one for one in small.topologies if one.name == before.name), None)
        if isinstance(before, Blocks) and isinstance(after, Blocks) and before.sizes != after.sizes:
            yield f"block sizes {', '.join(map(str, after.sizes))} instead of {', '.join(map(str, before.sizes))}"
