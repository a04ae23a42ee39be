"""What jobs ask for that an edit takes from them, and the clauses about these jobs, from the recorded table of Slurm. Pure.

`slurm.request_table` has what real Slurm did. A clause carries the ids of its rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gpucluster.gitops.model import Clause
from gpucluster.plan import gres
from gpucluster.plan.model import Mig, Partition, Pool, SlurmPlan
from gpucluster.slurm.request_table import Fates, Outcome, Way, fates_of
from gpucluster.slurm.states import PartitionState
from gpucluster.text import listed

NEVER = "and never start: cancel them"
_HELD, _RELEASED = "JobHeldAdmin", "until an operator releases them (scontrol release JOB)"
_AGAIN = "until there are as many again"
_PARTS = {"shard": "shards", "mps": "parts of MPS"}
_STATES = {
    PartitionState.DOWN: "partition-down",
    PartitionState.DRAIN: "partition-drain",
    PartitionState.INACTIVE: "partition-inactive",
}


@dataclass(frozen=True, slots=True)
class Lost:
    """A row of the table that holds for some jobs. `of`: their partitions; empty: all. `until` follows the reason."""

    row: str
    jobs: str  # `that ask for the licence matlab`
    of: tuple[str, ...] = ()
    until: str = NEVER
    others: bool = False  # the clause before is about some of these jobs


def clauses(old: SlurmPlan, new: SlurmPlan | None, way: Way) -> tuple[Clause, ...]:
    """Return the clauses about queued jobs. `new` is None if Slurm leaves, with its queue."""
    if new is None:
        return ()
    found = _together((*_licences(old, new), *_of_partitions(old, new), *_accounts(old, new)))
    return tuple(
        Clause(
            subject="queued", text=_sentence(one, fates_of(one.row, new.slurm.version, way)), rows=(one.row,)
        )
        for one in found
    )


def _sentence(one: Lost, fates: Fates) -> str:
    where = f" in {listed(one.of)}" if one.of else ""
    refused = " (sbatch refuses new ones)" if fates.new.outcome is Outcome.REFUSED else ""
    who = "others" if one.others else "those"
    return f"{who}{where} {one.jobs} {_fate(fates, one.until)}{refused}".replace("  ", " ")


def _fate(fates: Fates, until: str) -> str:
    match fates.queued.outcome:
        case Outcome.WAITS:
            return f"wait with {fates.queued.reason}, {_RELEASED if fates.queued.reason == _HELD else until}"
        case Outcome.STARTS_WITHOUT:
            return "start without it"
        case Outcome.ENDED:
            return "are ended by Slurm"
        case _:
            return "start"


def _together(found: Iterable[Lost]) -> Iterator[Lost]:
    """Yield one for each row and request, with all its partitions."""
    by_request: dict[Lost, list[str]] = {}
    for one in found:
        by_request.setdefault(replace(one, of=()), []).extend(one.of)
    return (replace(one, of=tuple(dict.fromkeys(of))) for one, of in by_request.items())


# --- licences -----------------------------------------------------------------------------------------
def _licences(old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    after = {one.name: one.count for one in new.slurm.licenses}
    for one in old.slurm.licenses:
        left = after.get(one.name, 0)
        if not left:
            yield Lost("licence-removed", f"that ask for the licence {one.name}")
        elif left < one.count:
            jobs = f"that ask for more than {left} of the licence {one.name}"
            yield Lost("licence-too-few", jobs, until=_AGAIN)


# --- partitions ---------------------------------------------------------------------------------------
def _of_partitions(old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    after = {one.name: one for one in new.partitions}
    for one in old.partitions:
        if one.name in after:
            was, now = _pools(one, old), _pools(after[one.name], new)
            yield from _gpus(one.name, was, now, last=not _types(new.pools))
            yield from _parts(one.name, was, now, _part_names(new.pools))
            yield from _sizes(one.name, was, now)
            yield from _state(one.name, old, new)


def _pools(partition: Partition, plan: SlurmPlan) -> tuple[Pool, ...]:
    return tuple(pool for pool in plan.pools if pool.name in partition.pools)


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
    if before and not before.keys() & after.keys():
        if sliced and not profiles:
            yield Lost(
                "mig-added-any",
                "that ask for GPUs without their model have a MIG slice for each, and",
                (name,),
            )
        else:
            yield Lost(
                "gpu-model-any", f"that ask for GPUs without their model have {listed(after)}, and", (name,)
            )


def _other(*, of_profile: bool, sliced: bool) -> str:
    if of_profile:
        return "mig-profile" if sliced else "mig-removed"
    return "mig-added" if sliced else "gpu-model"


def _types(pools: Iterable[Pool]) -> dict[str, int]:
    """Return the most of each type on one node."""
    found: dict[str, int] = {}
    for pool in pools:
        for kind, count in _counts(pool).items():
            found[kind] = max(count, found.get(kind, 0))
    return found


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
    found: dict[str, int] = {}
    for pool in pools:
        if (part := gres.part_of(pool.shape)) is not None:
            found[part[0]] = max(part[1], found.get(part[0], 0))
    return found


def _parts_of_node(pools: Iterable[Pool]) -> dict[str, int]:
    found: dict[str, int] = {}
    for pool in pools:
        if (part := gres.part_of(pool.shape)) is not None:
            found[part[0]] = max(part[1] * pool.shape.gpu_count, found.get(part[0], 0))
    return found


def _part_names(pools: Iterable[Pool]) -> frozenset[str]:
    return frozenset(_part_counts(pools))


def _sizes(name: str, was: tuple[Pool, ...], now: tuple[Pool, ...]) -> Iterator[Lost]:
    """Nodes and CPUs of the partition, and memory of a node."""
    fewer = _nodes(now) < _nodes(was)
    if fewer:
        yield Lost("nodes-too-few", "that need more nodes than are left", (name,), _AGAIN)
    if _cpus(now) < _cpus(was):
        row = "nodes-too-few-cpus" if fewer else "cpus-too-few"
        yield Lost(row, "that need more CPUs than are left", (name,), _AGAIN)
    if (left := _memory(now)) < _memory(was):
        yield Lost("memory-too-low", f"that ask for more than {left} MiB of a node", (name,))


def _nodes(pools: Iterable[Pool]) -> int:
    return sum(len(one.node_names) for one in pools)


def _cpus(pools: Iterable[Pool]) -> int:
    return sum(one.shape.job_cpus * len(one.node_names) for one in pools)


def _memory(pools: Iterable[Pool]) -> int:
    return max((one.shape.job_memory_mib for one in pools), default=0)


def _state(name: str, old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    was, now = _state_of(name, old), _state_of(name, new)
    if was != now and (row := _STATES.get(now)):
        yield Lost(row, "", (name,), "until it is UP")


def _state_of(name: str, plan: SlurmPlan) -> PartitionState:
    """Return the state that `extra` gives the partition."""
    of_it = (one for one in plan.slurm.settings if (one.kind, one.of) == ("partition", name))
    return next(
        (PartitionState(one.value.upper()) for one in of_it if one.key == "State" and one.value),
        PartitionState.UP,
    )


# --- accounts -----------------------------------------------------------------------------------------
def _accounts(old: SlurmPlan, new: SlurmPlan) -> Iterator[Lost]:
    """Accounts that leave are closed (`slurm.accounts.diff`)."""
    was, now = old.slurm.accounting, new.slurm.accounting
    if was is None or now is None or not now.enforced:
        return
    kept = {one.name for one in now.accounts}
    added = {one.users for one in now.accounts if one.name not in {other.name for other in was.accounts}}
    for one in was.accounts:
        if one.name not in kept:
            row = "account-renamed" if one.users in added else "account-closed"
            yield Lost(row, f"of the account {one.name}")
