"""The GPUs, MIG slices, shards and parts of MPS that a partition loses, as rows of the table of requests. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpucluster.plan import gres
from gpucluster.plan.model import Mig, Pool
from gpucluster.text import listed

NEVER = "and never start: cancel them"
_PARTS = {"shard": "shards", "mps": "parts of MPS"}


@dataclass(frozen=True, slots=True)
class Lost:
    """A row of the table that holds for some jobs. `of`: their partitions; empty: all. `until` follows the reason.

    `also`: rows of other jobs of this clause, to which Slurm does the same.
    """

    row: str
    jobs: str  # `that ask for the licence matlab`
    of: tuple[str, ...] = ()
    until: str = NEVER
    others: bool = False  # the clause before is about some of these jobs
    then: str = ""  # what follows
    also: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[str, ...]:
        return (self.row, *self.also)


def lost_gres(
    name: str, was: tuple[Pool, ...], now: tuple[Pool, ...], every: tuple[Pool, ...]
) -> Iterator[Lost]:
    """Yield what the partition loses with its pools. `every`: all pools of the new plan."""
    yield from _gpus(name, was, now, last=not _types(every))
    yield from _parts(name, was, now, _part_names(every))


def _gpus(name: str, was: tuple[Pool, ...], now: tuple[Pool, ...], *, last: bool) -> Iterator[Lost]:
    """GPUs by their model, MIG slices by their profile, and GPUs by number alone. `last`: no pool has GPUs any more."""
    before, after = _types(was), _types(now)
    if before and not after:
        yield Lost("last-gpus-removed" if last else "gpus-removed", "that ask for GPUs", (name,))
        return
    profiles, sliced = _profiles(was), bool(_profiles(now))
    for kind, count in before.items():
        left = after.get(kind, 0)
        if left:
            if left < count:
                yield Lost("gpus-too-few", f"that ask for more than {left} gpu:{kind} of a node", (name,))
            continue
        row = _other(of_profile=kind in profiles, sliced=sliced)
        yield Lost(row, f"that ask for gpu:{kind}", (name,))
    if (most := _most_of_node(now)) < _most_of_node(was):
        jobs = f"that ask for more than {most} GPU{'s' if most > 1 else ''} of a node without their model"
        yield Lost("gpus-too-few", jobs, (name,))
    if before and not before.keys() & after.keys():
        of_slices = sliced and not profiles
        what = "a MIG slice for each" if of_slices else listed(after)
        jobs = f"that ask for GPUs without their model have {what}, and"
        yield Lost("mig-added-any" if of_slices else "gpu-model-any", jobs, (name,))


def _other(*, of_profile: bool, sliced: bool) -> str:
    if of_profile:
        return "mig-profile" if sliced else "mig-removed"
    return "mig-added" if sliced else "gpu-model"


def _types(pools: Iterable[Pool]) -> dict[str, int]:
    """Return the most of each type on one node."""
    return _most(_counts(pool) for pool in pools)


def _most(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            found[name] = max(count, found.get(name, 0))
    return found


def _most_of_node(pools: Iterable[Pool]) -> int:
    """Return the most GPUs, or MIG slices, of one node: those of a job that names no type."""
    return max((sum(_counts(pool).values()) for pool in pools), default=0)


def _counts(pool: Pool) -> Mapping[str, int]:
    shape = pool.shape
    if not shape.gpu_count or shape.gpu_model is None:
        return {}
    if isinstance(shape.sharing, Mig):
        return {one.profile: one.count * shape.gpu_count for one in shape.sharing.slices}
    return {shape.gpu_model: shape.gpu_count}


def _profiles(pools: Iterable[Pool]) -> frozenset[str]:
    return frozenset(
        kind for pool in pools if isinstance(pool.shape.sharing, Mig) for kind in gres.gpu_types(pool.shape)
    )


def _parts(
    name: str, was: tuple[Pool, ...], now: tuple[Pool, ...], everywhere: frozenset[str]
) -> Iterator[Lost]:
    """Shards, and parts of MPS. slurmctld counts those of a node, and a job gets those of one GPU."""
    before, after, of_node = _part_counts(was), _part_counts(now), _parts_of_node(now)
    for part, count in before.items():
        left = after.get(part, 0)
        if not left:
            yield Lost(_gone(part, now, after, everywhere), f"that ask for gres/{part}", (name,))
        elif left < count:
            what, row = _PARTS[part], f"{part.removesuffix('s') + 's'}-too-few"
            yield Lost(row, f"that ask for more than {of_node[part]} {what} of a node", (name,))
            yield Lost(f"{row}-of-gpu", f"that ask for more than {left} {what}", (name,), others=True)


def _gone(part: str, now: tuple[Pool, ...], after: Mapping[str, int], everywhere: frozenset[str]) -> str:
    """Return the row of parts that leave. GresTypes is without those that no pool has."""
    if part == "shard":
        if _profiles(now):
            return "shards-to-mig"
        return "shards-removed" if part in everywhere else "last-shards-removed"
    if "shard" in after:
        return "mps-to-shards"
    return "mps-removed" if part in everywhere else "last-mps-removed"


def _part_counts(pools: Iterable[Pool]) -> dict[str, int]:
    """Return the most of each kind of parts on one GPU."""
    return _most(dict([part]) for pool in pools if (part := gres.part_of(pool.shape)) is not None)


def _parts_of_node(pools: Iterable[Pool]) -> dict[str, int]:
    return _most(
        {part[0]: part[1] * pool.shape.gpu_count}
        for pool in pools
        if (part := gres.part_of(pool.shape)) is not None
    )


def _part_names(pools: Iterable[Pool]) -> frozenset[str]:
    return frozenset(_part_counts(pools))
