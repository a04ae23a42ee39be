"""Drains of slots that a held bundle removes or changes: no new job is placed there, and their jobs end in their time.

The agent applies the bundle when these slots have no jobs. Until then nothing is launched for them. If a newer bundle keeps
them, the drains are lifted (rows of the node table).
"""

from collections.abc import Iterator

from gpucluster.elastic.decide.gangs import comment_jobs
from gpucluster.elastic.decide.placement import pools_of_job, waiting
from gpucluster.elastic.decide.world import World, names_in
from gpucluster.elastic.model import Action, Drain
from gpucluster.plan.messages import HeldBundle
from gpucluster.slurm import drains
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import SlurmPhase
from gpucluster.slurm.values import SlurmJob, SlurmNode

_SKIPPED = (None, SlurmPhase.FUTURE, SlurmPhase.UNKNOWN)  # no job is placed there


def drain_removed(world: World, lifted: frozenset[str]) -> Iterator[Action]:
    """Drain the slots, and comment the jobs that have no other slots.

    `lifted`: slots whose drains this pass lifts before.
    """
    held = world.observation.held
    if held is None or not held.nodes:
        return
    reason = _reason(held)
    slots = tuple(
        slot
        for slot in held.nodes
        if slot in lifted
        or (world.phases.get(slot) not in _SKIPPED and not _stays_drained(world.node(slot), reason))
    )
    if slots:
        yield Drain(slots=slots, reason=reason)
    jobs = tuple(job for job in waiting(world) if has_no_other_slot(world, job))
    yield from comment_jobs(jobs, drains.reason(DrainOwner.BUNDLE, words_for_jobs(held)))


def drain_reason(world: World, slot: str) -> str:
    """Return why the slot is kept drained while the bundle is held; empty if it is not."""
    held = world.observation.held
    return "" if held is None or slot not in held.nodes else _reason(held)


def _reason(held: HeldBundle) -> str:
    return drains.reason(DrainOwner.BUNDLE, held.reason)


def words_for_jobs(held: HeldBundle) -> str:
    """Return why a job waits whose nodes are all removed or changed."""
    return f"all nodes of its partitions are drained: bundle {held.bundle[:12]} removes or changes them"


def has_no_other_slot(world: World, job: SlurmJob) -> bool:
    """Return whether a held bundle removes or changes all slots of the job's partitions."""
    if world.removed is not None and not world.removed:
        return False
    pools, found = pools_of_job(world, job), False
    for (pool, _), names in names_in(world.plan).items():
        if pool in pools:
            found = found or bool(names)
            if not all(map(world.is_removed, names)):
                return False
    return found


def _stays_drained(node: SlurmNode, reason: str) -> bool:
    """Return whether the drain lasts as long as the bundle is held. The daemon itself removes its drains for capacity."""
    return node.drained and (node.drain_owner is not DrainOwner.CAPACITY or node.reason == reason)
