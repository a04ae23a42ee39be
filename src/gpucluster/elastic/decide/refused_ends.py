"""Terminations that the cloud refuses: when they are requested again, and drains of their slots.

EC2 refuses for example when the instance's tags were changed, because the head's role may only end instances with the
cluster's tags, or when a right was removed. The instance lives on and costs money, and its slot has no place for another one.
"""

from collections.abc import Iterator, Sequence

from gpucluster.cloud.port import CloudError, Fault
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.events import TerminationRefused
from gpucluster.elastic.memory import Memory
from gpucluster.elastic.model import Action, Drain
from gpucluster.slurm import drains
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import SlurmPhase
from gpucluster.text import short

FIRST_S, LONGEST_S = 15.0, 300.0  # seconds until the next request; each refusal doubles them
WORDS = 200  # characters of EC2's text: with UnauthorizedOperation it has an encoded message of a thousand


def event_of(memory: Memory, instances: Sequence[str], error: CloudError, now: float) -> TerminationRefused:
    """Return the event of a failed call.

    One instance that may not be ended prevents the end of all of the call (T23), so after a refusal of several each is
    requested alone, at once.
    """
    answered, alone = error.fault not in (Fault.THROTTLED, Fault.LOST), len(instances) == 1
    old = max(
        (known.times for i in instances if (known := memory.refused_ends.get(i)) is not None), default=0
    )
    wait = 0.0 if answered and not alone else min(FIRST_S * 2 ** min(old, 10), LONGEST_S)
    words = short(f"{error.code}: {error.message}", WORDS)
    return TerminationRefused(
        instances=tuple(instances), words=words, until=now + wait, refused=answered and alone
    )


def drain_slots(world: World) -> Iterator[Action]:
    """Drain the slots whose instance cannot be terminated. Slurm would place a job on them when they are powered down."""
    if not world.memory.refused_ends:
        return
    for slot in world.group(SlurmPhase.OFF, SlurmPhase.POWERING_DOWN):
        if world.node(slot).drained or world.kept(slot):
            continue
        if (known := world.refused_end(slot)) is not None:
            instance = world.memory.incarnations[slot].instance
            words = f"{instance} cannot be terminated: {known.words}"
            yield Drain(slots=(slot,), reason=drains.reason(DrainOwner.TERMINATION, words))
