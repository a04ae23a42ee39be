"""What the observation adds to memory: the edges of a level-triggered loop, each written once.

A fact changes memory so that the same observation yields no more facts.
"""

from collections.abc import Iterator
from signal import Signals

from gpucluster.cloud.port import InstanceState
from gpucluster.elastic.decide.world import Fate, World
from gpucluster.elastic.events import (
    BecameBusy,
    BecameIdle,
    Booted,
    BootFailed,
    CameUp,
    EndSeen,
    Event,
    InstanceGone,
    JobLeft,
    JobPlaced,
    JobRunning,
    LaunchDone,
    LaunchDropped,
    LifeOver,
    Needed,
    PowerUpStays,
    Registered,
    Renewed,
    Troubled,
    TroubleKind,
    Unneeded,
)
from gpucluster.elastic.memory import Life, Placement
from gpucluster.elastic.model import Phase, SlurmJob
from gpucluster.plan.messages import NodePhase
from gpucluster.plan.model import Market

# slurmd runs and slurmctld still waits for a boot: it is to start anew. Registration takes less than a second, and a
# start with -b after a late one would kill the job that began meanwhile: hence the long wait.
UNHEARD_S = 30.0
_BY_PEOPLE = ("Client.", "User initiated")  # EC2's StateReason and transition reason of what was asked for
_SETTLED = (Phase.OFF, Phase.UP, Phase.SILENT, Phase.LEAVING, Phase.ENDING)  # no power-up is under way


def launches(world: World) -> Iterator[Event]:
    """Outcomes that the cloud's list tells by token, and requests that came to nothing."""
    if not world.memory.launches:
        return
    by_token: dict[str, list[str]] = {}
    for instance in world.cloud.instances.values():
        if instance.token:
            by_token.setdefault(instance.token, []).append(instance.id)
    for request, launch in world.memory.launches.items():
        found = sorted(by_token.get(launch.ask.token, ()))
        if len(found) == len(launch.ask.slots):
            yield LaunchDone(request=request, instances=tuple(found))
        elif launch.asked_at + 300.0 < world.now and not _wanted(world, launch.ask.slots):
            yield LaunchDropped(request=request)  # fewer than were asked for: then they are strays


def jobs(world: World) -> Iterator[Event]:
    """Jobs that were given our slots, began to run, or left them."""
    known = world.memory.jobs
    seen: set[str] = set()
    for job in world.slurm.jobs:
        slots = tuple(n for n in job.nodes if n in world.slots)
        key = str(job.id)
        placement = known.get(key)
        if fell(world, job, placement):
            seen.add(key)  # it comes back
        if not slots or not (job.configuring or job.running or job.suspended):
            continue
        seen.add(key)
        if placement is None or placement.slots != slots:
            yield JobPlaced(job=job.id, slots=slots, submitted_at=job.submitted_at)
        if job.running and not (placement is not None and placement.slots == slots and placement.running):
            yield JobRunning(job=job.id)
    for key in known.keys() - seen:
        yield JobLeft(job=int(key))


def instances(world: World) -> Iterator[Event]:
    """What became of the instances, and first words of their agents."""
    for slot, life in world.memory.lives.items():
        if life.instance is None:
            continue
        fate = world.fate(slot)
        if fate is Fate.ENDED:
            yield from _ended(world, slot, life, life.instance)
            continue
        listed = world.instance(slot)
        if life.booted_at is None and listed is not None and listed.state is InstanceState.RUNNING:
            yield Booted(slot=slot, instance=life.instance)
        if life.registered_at is None and _registered(world, life, life.instance):
            yield Registered(slot=slot, instance=life.instance)
    over = tuple(sorted(i for i in world.memory.endings if _is_over(world, i)))
    if over:
        yield EndSeen(instances=over)


def lives(world: World) -> Iterator[Event]:
    """Lives that begin, come up, fall idle or end. Reads memory in which `instances` is already folded."""
    for slot, life in world.memory.lives.items():
        if life.open:
            yield from _open_life(world, slot, life)
    for slot in world.group(Phase.WANTED):
        life = world.life(slot)
        if life is None or not life.open:
            yield _needed(world, slot, life)


def power_ups(world: World) -> Iterator[Event]:
    """Marks of a power-up that Slurm keeps after it: asked for again while the node came up (24.11, seen).

    Neither a registration nor a power-down takes the mark away, and the power thread serves it as soon as the node is off.
    """
    for slot, life in world.memory.lives.items():
        if world.phases.get(slot) in _SETTLED and life.relapses is not (
            "POWER_UP" in world.node(slot).states
        ):
            yield PowerUpStays(slot=slot, stays=not life.relapses)


def fell(world: World, job: SlurmJob, placement: Placement | None) -> bool:
    """Whether a script without a handler died of the signal that told it of its machine's end."""
    if placement is None or placement.sent_back or "FAILED" not in job.states:
        return False
    if not (placement.signalled or _on_leavers(world, placement)):
        return False
    pools = (world.slots[slot].pool for slot in placement.slots if slot in world.slots)
    return job.returns and any(job.ended_by == Signals[f"SIG{p.farewell.signal}"] for p in pools)


def _on_leavers(world: World, placement: Placement) -> bool:
    """A kill between the signal and its record leaves only this: a machine of the job's is to be left."""
    lives = (world.life(slot) for slot in placement.slots)
    return any(life is not None and life.trouble is not None for life in lives)


def _wanted(world: World, slots: tuple[str, ...]) -> bool:
    return any(world.phases.get(slot) is Phase.WANTED for slot in slots)


def _ended(world: World, slot: str, life: Life, instance: str) -> Iterator[Event]:
    asked = instance in world.memory.endings
    if world.phases.get(slot) is Phase.WANTED and life.failed is None and life.up_at is None and not asked:
        listed = world.cloud.instances.get(instance)
        words = (listed.reason if listed else None) or "the instance ended"
        pool = world.slots[slot].pool.name
        yield BootFailed(slot=slot, instance=instance, words=f"{instance}: {words}", pool=pool)
    if (
        life.market is Market.SPOT
        and life.trouble is None
        and life.up_at is not None
        and not _was_asked(world, instance)
    ):
        taken = "the cloud took this spot machine back without a notice"
        yield Troubled(
            slot=slot,
            instance=instance,
            kind=TroubleKind.SPOT,
            words=taken,
            ends_at=world.now,
            source="cloud",
        )
    yield InstanceGone(slot=slot, instance=instance)


def _was_asked(world: World, instance: str) -> bool:
    """Whether we ended it, or another did: a person, or the machine itself. Then no capacity was taken back."""
    listed = world.cloud.instances.get(instance)
    by_people = listed is not None and (listed.reason or "").startswith(_BY_PEOPLE)
    return by_people or instance in world.memory.endings


def _registered(world: World, life: Life, instance: str) -> bool:
    heard = world.reports.get(instance)
    return heard is not None and heard.report.phase is not NodePhase.FAILED


def _is_over(world: World, instance: str) -> bool:
    listed = world.cloud.instances.get(instance)
    if listed is not None:
        return not listed.living
    return world.memory.endings[instance] + 300.0 < world.now


def _open_life(world: World, slot: str, life: Life) -> Iterator[Event]:
    phase = world.phases.get(slot)
    if phase is Phase.WANTED:
        yield from _wanted_again(world, slot, life)
    elif not life.instance and not life.request:
        yield LifeOver(slot=slot)
    elif phase is Phase.OFF and life.instance and life.unneeded_at is None:
        yield Unneeded(slot=slot)
    elif phase is Phase.UP and life.instance:
        yield from _up(world, slot, life)


def _wanted_again(world: World, slot: str, life: Life) -> Iterator[Event]:
    """A slot that was up, or that Slurm had given up, is wanted anew: its living instance serves a new life."""
    if life.instance is None or life.instance in world.memory.endings:
        return
    if life.up_at is not None or life.unneeded_at is not None:
        yield _needed(world, slot, life)
        return
    heard = world.reports.get(life.instance)
    if heard is None or heard.report.phase is not NodePhase.UP or heard.report.life != life.number:
        return
    if heard.since + UNHEARD_S <= world.slurm.at and "POWERING_UP" in world.node(slot).states:
        yield Renewed(slot=slot, life=life.number + 1)


def _up(world: World, slot: str, life: Life) -> Iterator[Event]:
    if life.up_at is None or life.unneeded_at is not None:
        yield CameUp(slot=slot, pool=world.slots[slot].pool.name)
    idle = world.node(slot).idle
    if idle and life.idle_at is None:
        yield BecameIdle(slot=slot)
    elif not idle and life.idle_at is not None:
        yield BecameBusy(slot=slot)


def _needed(world: World, slot: str, life: Life | None) -> Needed:
    jobs = tuple(j.id for j in world.starting_on.get(slot, ()))
    return Needed(slot=slot, life=(life.number if life else 0) + 1, jobs=jobs)
