"""Nodes and partitions that a new plan takes from slurm.conf, or changes so that Slurm ends the jobs on them (S18).

The agent holds such a bundle until they have no jobs. `diff` shows the same nodes. Pure; standard library only.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucluster.plan import gres
from gpucluster.plan.model import NodeShape, Pool, SlurmPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """What the new plan takes away, in the order of the old plan."""

    removed: tuple[str, ...] = ()  # nodes that are not in the new plan
    changed: tuple[str, ...] = ()  # nodes with other hardware, or hosts with another address
    partitions: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # partitions that stay

    def __bool__(self) -> bool:
        return bool(self.removed or self.changed or self.partitions)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that must have no jobs."""
        return (*self.removed, *self.changed)


@dataclass(frozen=True, slots=True)
class _Node:
    """A node as slurm.conf describes it."""

    hardware: tuple[int | str | None, ...]
    address: str | None  # None: a slot has no address before its instance runs


def removals(old: SlurmPlan, new: SlurmPlan) -> Removals:
    """Compare two plans of one cluster."""
    before, after = dict(_nodes(old)), dict(_nodes(new))
    kept = {partition.name for partition in new.partitions}
    return Removals(
        removed=tuple(name for name in before if name not in after),
        changed=tuple(name for name, node in before.items() if after.get(name, node) != node),
        partitions=tuple(p.name for p in old.partitions if p.name not in kept),
        kept=tuple(p.name for p in old.partitions if p.name in kept),
    )


def hardware(shape: NodeShape) -> tuple[int | str | None, ...]:
    """The parts of a node's line in slurm.conf and gres.conf."""
    return (
        shape.sockets,
        shape.cores_per_socket,
        shape.threads_per_core,
        shape.real_memory_mib,
        shape.gpu_model,
        shape.gpu_count,
        shape.nvlink_group,
        gres.of_node(shape),
    )


def _nodes(plan: SlurmPlan) -> Iterator[tuple[str, _Node]]:
    for pool in plan.pools:
        line, addresses = hardware(pool.shape), _addresses(pool)
        for span in pool.slots:
            yield from ((name, _Node(line, addresses.get(name))) for name in span)


def _addresses(pool: Pool) -> Mapping[str, str]:
    return dict(pool.hosts())
