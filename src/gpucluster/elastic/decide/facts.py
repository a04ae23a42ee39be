"""Events that the observation adds to memory: changes of state, each recorded once.

An event changes memory, so that the same observation gives no more events.
"""

from collections.abc import Iterator
from signal import Signals

from gpucluster.cloud.port import Instance, InstanceState
from gpucluster.elastic.decide.jobs import died_of_signal, interrupted_instance
from gpucluster.elastic.decide.launches import refused_for
from gpucluster.elastic.decide.terminations import strays
from gpucluster.elastic.decide.world import InstanceStatus, World
from gpucluster.elastic.events import (
    BootFailed,
    DrainsSeen,
    Event,
    IncarnationOver,
    IncarnationRenewed,
    InstanceAdopted,
    InstanceGone,
    InstanceRunning,
    Interrupted,
    InterruptionKind,
    JobPlaced,
    JobReleased,
    JobRunning,
    JobsSignalled,
    LaunchDone,
    LaunchDropped,
    NodeBusy,
    NodeIdle,
    NodeNeeded,
    NodeRegistered,
    NodeUnneeded,
    NodeUp,
    OfferRefused,
    PowerUpMarkStays,
    SlotsForgotten,
    TerminationSeen,
    source_key,
)
from gpucluster.elastic.memory import Incarnation, Placement, SeenDrain
from gpucluster.plan.messages import NodePhase
from gpucluster.plan.model import LaunchTemplate, Market
from gpucluster.slurm import hostlist
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import NodeState, SlurmPhase
from gpucluster.slurm.values import SlurmJob, SlurmNode
from gpucluster.text import short

# slurmd runs, but slurmctld still waits for a boot: slurmd must start again. A registration takes less than a second. A
# late start with -b would kill a job that began in the meantime: hence the long wait.
UNHEARD_S = 30.0
_BY_PEOPLE = ("Client.", "User initiated")  # EC2: StateReason and transition reason of a requested end
_SETTLED = (
    SlurmPhase.OFF,
    SlurmPhase.UP,
    SlurmPhase.NOT_RESPONDING,
    SlurmPhase.POWER_DOWN_PENDING,
    SlurmPhase.POWERING_DOWN,
)  # no power-up is in progress


_RESUMED = (
    SlurmPhase.DOWN,
    SlurmPhase.DOWN_OFF,
    SlurmPhase.FUTURE,
)  # a resume, or slurmd's return, opens the slot
_NOT_UP = (
    SlurmPhase.OFF,
    SlurmPhase.POWERING_UP,
    SlurmPhase.POWERING_DOWN,
    SlurmPhase.DOWN,
    SlurmPhase.DOWN_OFF,
)


# slurmctld may have the address of an earlier machine; in the other phases, the machine of its address registered as this node.
_OLD_ADDRESS = (
    SlurmPhase.OFF,
    SlurmPhase.DOWN_OFF,
    SlurmPhase.POWERING_UP,
    SlurmPhase.STUCK,
    SlurmPhase.FUTURE,
    SlurmPhase.UNKNOWN,
)
_POWERED_DOWN = (SlurmPhase.OFF, SlurmPhase.DOWN_OFF)
_LISTED = (InstanceStatus.ALIVE, InstanceStatus.HALTED)
TAKEN = "the cloud took this spot machine back without a notice"


def launch_events(world: World) -> Iterator[Event]:
    """Return launches with instances in the cloud's list, found by token, and launches that have none and are not needed."""
    if not world.memory.launches:
        return
    by_token: dict[str, list[str]] = {}
    for instance in world.cloud.instances.values():
        if instance.token:
            by_token.setdefault(instance.token, []).append(instance.id)
    for request, launch in world.memory.launches.items():
        found = sorted(by_token.get(launch.request.token, ()))
        if len(found) == len(launch.request.slots):
            yield LaunchDone(request=request, instances=tuple(found))
        elif launch.asked_at + 300.0 < world.now and not _wanted(world, launch.request.slots):
            yield LaunchDropped(request=request)  # fewer instances than requested: then they are strays


def job_events(world: World) -> Iterator[Event]:
    """Return events of jobs: they got our slots, began to run, or left them."""
    known = world.memory.jobs
    seen: set[str] = set()
    for job in world.slurm.jobs:
        slots = tuple(n for n in job.nodes if n in world.slots)
        key = str(job.id)
        placement = known.get(key)
        if died_of_signal(world, job, placement):
            seen.add(key)  # the job is requeued
            yield from _unrecorded_signal(world, job)
        if not slots or not (job.configuring or job.running or job.suspended):
            continue
        seen.add(key)
        if placement is None or placement.slots != slots:
            yield JobPlaced(job=job.id, slots=slots, submitted_at=job.submitted_at, restarts=job.restarts)
        if job.running and not (placement is not None and placement.slots == slots and placement.running):
            yield JobRunning(job=job.id)
    for key in sorted(known.keys() - seen):
        yield JobReleased(job=int(key), began=_may_have_begun(world, known[key]))


def _unrecorded_signal(world: World, job: SlurmJob) -> Iterator[JobsSignalled]:
    """Return the signal that ended the job, if the daemon was killed before it recorded it."""
    placement = world.memory.jobs[str(job.id)]
    instance = interrupted_instance(world, placement)
    if instance and not placement.signalled:
        yield JobsSignalled(instance=instance, jobs=(job.id,), signal=Signals(job.exit_signal).name[3:])


def _may_have_begun(world: World, placement: Placement) -> bool:
    """Return whether a run of the job may have begun: no run begins before all of its nodes have come up."""
    return placement.running or placement.unwatched or not any(_never_up(world, s) for s in placement.slots)


def _never_up(world: World, slot: str) -> bool:
    incarnation = world.incarnation(slot)
    return incarnation is not None and incarnation.up_at is None and world.phases.get(slot) in _NOT_UP


def instance_events(world: World) -> Iterator[Event]:
    """Return events of instances: first running, first report of the agent, ended."""
    for slot, incarnation in world.memory.incarnations.items():
        if incarnation.instance is None:
            continue
        status = world.instance_status(slot)
        if status is InstanceStatus.ENDED:
            yield from _ended(world, slot, incarnation, incarnation.instance)
            continue
        listed = world.instance(slot)
        if incarnation.booted_at is None and listed is not None and listed.state is InstanceState.RUNNING:
            yield InstanceRunning(slot=slot, instance=incarnation.instance)
        known = world.reports.get(incarnation.instance)
        if known is None or known.report.phase is NodePhase.FAILED:
            continue
        unknown = known.report.incarnation if known.report.incarnation > incarnation.number else 0
        if incarnation.registered_at is None or unknown:
            yield NodeRegistered(slot=slot, instance=incarnation.instance, incarnation=unknown)
    memory = world.memory
    ending = memory.endings.keys() | memory.refused_ends.keys() | memory.spares.keys()
    over = tuple(sorted(i for i in ending if _is_over(world, i)))
    if over:
        yield TerminationSeen(instances=over)


def incarnation_events(world: World) -> Iterator[Event]:
    """Return events of incarnations that start, come up, become idle or end. Reads memory with the instance events."""
    for slot, incarnation in world.memory.incarnations.items():
        if incarnation.open:
            yield from _open_incarnation(world, slot, incarnation)
    for slot in world.group(SlurmPhase.POWERING_UP):
        incarnation = world.incarnation(slot)
        if incarnation is None or not incarnation.open:
            yield _needed(world, slot, incarnation)


def power_up_events(world: World) -> Iterator[Event]:
    """Return changes of Slurm's power-up mark. Slurm keeps it after a power-up that was requested twice (24.11, observed).

    Neither a registration nor a power-down removes the mark. The power thread powers the node up as soon as it is off.
    """
    for slot, incarnation in world.memory.incarnations.items():
        if world.phases.get(slot) in _SETTLED and incarnation.relapses is not (
            NodeState.POWER_UP in world.node(slot).states
        ):
            yield PowerUpMarkStays(slot=slot, stays=not incarnation.relapses)


def drain_events(world: World) -> Iterator[Event]:
    """Return the slots that were closed or opened. Whoever opened one, Slurm gets its scheduling time from then on."""
    changes: dict[str, list[str]] = {"blocked": [], "drained": [], "undrained": []}
    for slot, phase in world.phases.items():
        seen, kind = world.memory.drains.get(slot), _drain_kind(world.node(slot), phase)
        if kind != _seen_kind(seen):
            changes[kind].append(slot)
    if any(changes.values()):
        yield DrainsSeen(**{kind: hostlist.fold(slots) for kind, slots in changes.items()})


def forgotten_slots(world: World) -> Iterator[Event]:
    """Return the slots of removed pools once nothing of them lives. Else memory would grow with each edit of a spec."""
    memory = world.memory
    mappings = (memory.incarnations, memory.drains, memory.person_drains, memory.unknown, memory.lingers)
    known = frozenset(slot for by_slot in mappings for slot in by_slot)
    removed = sorted(slot for slot in known - world.slots.keys() if _is_empty(memory.incarnations.get(slot)))
    if removed:
        yield SlotsForgotten(slots=hostlist.fold(removed))


def _is_empty(incarnation: Incarnation | None) -> bool:
    return incarnation is None or not (incarnation.instance or incarnation.request or incarnation.open)


def _drain_kind(node: SlurmNode, phase: SlurmPhase) -> str:
    if not node.drained:
        return "drained" if phase in _RESUMED else "undrained"
    return "blocked" if node.drain_owner is DrainOwner.CAPACITY else "drained"


def _seen_kind(seen: SeenDrain | None) -> str:
    if seen is None or not seen.drained:
        return "undrained"
    return "blocked" if seen.blocked else "drained"


def _wanted(world: World, slots: tuple[str, ...]) -> bool:
    return any(world.phases.get(slot) is SlurmPhase.POWERING_UP for slot in slots)


def _ended(world: World, slot: str, incarnation: Incarnation, instance: str) -> Iterator[Event]:
    asked = instance in world.memory.endings
    if (
        world.phases.get(slot) is SlurmPhase.POWERING_UP
        and incarnation.failed is None
        and incarnation.up_at is None
        and not asked
    ):
        words = _end_of(world, instance)
        pool = world.slots[slot].pool.name
        yield BootFailed(slot=slot, instance=instance, words=f"{instance}: {words}", pool=pool)
    if (
        incarnation.market is Market.SPOT
        and incarnation.interruption is None
        and incarnation.up_at is not None
        and _was_reclaimed(world, instance)
    ):
        yield Interrupted(
            slot=slot,
            instance=instance,
            kind=InterruptionKind.SPOT,
            words=TAKEN,
            ends_at=world.now,
            source="cloud",
        )
    yield InstanceGone(slot=slot, instance=instance)


def _end_of(world: World, instance: str) -> str:
    """Return the cloud's reason for the end of an instance. A refused key is named, because EC2 does not name it."""
    listed = world.cloud.instances.get(instance)
    words = (listed.reason if listed else None) or "the instance ended"
    return f"{words}: {_key_words(world)}" if listed is not None and listed.key_refused else words


def _key_words(world: World) -> str:
    own = world.plan.aws and world.plan.aws.kms_key
    key = f"the KMS key {own}" if own else "the account's default KMS key of EBS"
    return f"EC2 cannot use {key} for volumes; enable the key and allow the head's role to use it (docs/aws.md, KMS keys)"


def refused_keys(world: World) -> Iterator[Event]:
    """Refuse every source once an instance ended because of its KMS key: all templates name the same key (T51).

    RunInstances itself succeeds, so without this each waiting job would launch again and again.
    """
    ended = (
        world.cloud.instances.get(incarnation.instance)
        for incarnation in world.memory.incarnations.values()
        if incarnation.instance is not None and incarnation.up_at is None
    )
    refused = next((i for i in ended if i is not None and i.key_refused), None)
    if refused is None:
        return
    words = f"{short(refused.reason or '', 120)}: {_key_words(world)}"
    for pool in world.plan.pools:
        for source in pool.sources:
            key = source_key(pool.name, source.position)
            yield OfferRefused(key=key, words=words, until=world.now + world.plan.times.refusal_max_s)


def _was_reclaimed(world: World, instance: str) -> bool:
    """Return whether the cloud ended the instance: not the daemon, a person or the instance itself.

    Nothing shows that of an instance that the cloud lists no more, an hour after its end.
    """
    listed = world.cloud.instances.get(instance)
    if listed is None or instance in world.memory.endings:
        return False
    return not (listed.reason or "").startswith(_BY_PEOPLE)


def _is_over(world: World, instance: str) -> bool:
    listed = world.cloud.instances.get(instance)
    if listed is not None:
        return not listed.living
    refused, spare = world.memory.refused_ends.get(instance), world.memory.spares.get(instance)
    last = max(refused.at if refused else 0.0, spare.launched_at if spare else 0.0)
    return max(world.memory.endings.get(instance, 0.0), last) + 300.0 < world.now


def _open_incarnation(world: World, slot: str, incarnation: Incarnation) -> Iterator[Event]:
    phase = world.phases.get(slot)
    if phase is SlurmPhase.POWERING_UP:
        yield from _wanted_again(world, slot, incarnation)
    elif not incarnation.instance and not incarnation.request:
        yield IncarnationOver(slot=slot)
    elif phase is SlurmPhase.OFF and incarnation.instance and incarnation.unneeded_at is None:
        yield NodeUnneeded(slot=slot)
    elif phase is SlurmPhase.UP and incarnation.instance:
        yield from _up(world, slot, incarnation)


def _wanted_again(world: World, slot: str, incarnation: Incarnation) -> Iterator[Event]:
    """Return an event for a slot that Slurm powers up again: a new incarnation. A living instance of the slot serves it."""
    if incarnation.instance is None or incarnation.instance in world.memory.endings:
        return
    if incarnation.up_at is not None or incarnation.unneeded_at is not None:
        yield _needed(world, slot, incarnation)
        return
    received = world.reports.get(incarnation.instance)
    if (
        received is None
        or received.report.phase is not NodePhase.UP
        or received.report.incarnation != incarnation.number
    ):
        return
    if received.since + UNHEARD_S <= world.slurm.at and NodeState.POWERING_UP in world.node(slot).states:
        yield IncarnationRenewed(slot=slot, incarnation=incarnation.number + 1)


def _up(world: World, slot: str, incarnation: Incarnation) -> Iterator[Event]:
    if incarnation.up_at is None or incarnation.unneeded_at is not None:
        yield NodeUp(slot=slot, pool=world.slots[slot].pool.name)
    idle = world.node(slot).idle
    if idle and incarnation.idle_at is None:
        yield NodeIdle(slot=slot)
    elif not idle and incarnation.idle_at is not None:
        yield NodeBusy(slot=slot)


def _needed(world: World, slot: str, incarnation: Incarnation | None) -> NodeNeeded:
    jobs = tuple(j.id for j in world.starting_on.get(slot, ()))
    return NodeNeeded(slot=slot, incarnation=(incarnation.number if incarnation else 0) + 1, jobs=jobs)


def adoptions(world: World) -> Iterator[Event]:
    """Adopt living instances that are not in memory (a lost or an old journal), in every phase of their nodes.

    They are found by the address that Slurm has of the node, or by the order that is for them.
    """
    owned = {one.instance for one in world.memory.incarnations.values() if one.instance}
    free = {one.id: one for one in strays(world, owned)}
    if not free:
        return
    by_address = {one.address: one.id for one in free.values() if one.address}
    for slot in sorted(world.phases, key=lambda slot: world.phases[slot] in _OLD_ADDRESS):
        incarnation, status = world.incarnation(slot), world.instance_status(slot)
        old = incarnation.instance if incarnation is not None else None
        fresh = world.phases[slot] not in _OLD_ADDRESS
        if status in _LISTED or (old is not None and not fresh):
            continue
        address = "" if world.phases[slot] in _POWERED_DOWN else world.node(slot).address
        at_address = free.pop(by_address.get(address, ""), None)
        found = at_address or free.pop(_ordered_instance(world, slot), None)
        if found is None:
            continue
        # A journal of yesterday has an instance whose end nobody saw. That of one that is listed as ended is recorded already.
        if old is not None and status is not InstanceStatus.ENDED:
            yield InstanceGone(slot=slot, instance=old)
        yield _adoption(world, slot, found, up=at_address is not None and fresh)


def _ordered_instance(world: World, slot: str) -> str:
    order = world.memory.orders.get(slot)
    return order.instance if order is not None else ""


def _adoption(world: World, slot: str, found: Instance, *, up: bool) -> InstanceAdopted:
    template = _template_of(world, slot, found)
    return InstanceAdopted(
        slot=slot,
        instance=found.id,
        machine=found.machine,
        market=found.market,
        zone=found.zone,
        source=template.source if template else 0,
        price=(template.price or 0) if template else 0,
        launched_at=found.launched_at,
        up=up,
    )


def _template_of(world: World, slot: str, found: Instance) -> LaunchTemplate | None:
    """Return the pool's launch template with the instance's machine type and market, if there is one."""
    templates = world.slots[slot].pool.templates
    return next((t for t in templates if (t.machine, t.market) == (found.machine, found.market)), None)


def unfit_machines(world: World) -> Iterator[Event]:
    """Refuse the offers of instances that register with less hardware than slurm.conf requires."""
    if not any(NodeState.INVALID_REG in world.node(s).states for s in world.group(SlurmPhase.UP)):
        return
    refused: set[str] = set()
    for slot in world.group(SlurmPhase.UP):
        incarnation, node = world.incarnation(slot), world.node(slot)
        if (
            incarnation is None
            or not incarnation.machine
            or NodeState.INVALID_REG not in node.states
            or incarnation.offer_key in refused
        ):
            continue
        refused.add(incarnation.offer_key)
        old = world.memory.refusals.get(incarnation.offer_key)
        if old is None or old.until <= world.now:
            words = f"is not what slurm.conf says: {short(node.reason, 120)}"
            yield OfferRefused(
                key=incarnation.offer_key, words=words, until=world.now + refused_for(world.plan.times, old)
            )
