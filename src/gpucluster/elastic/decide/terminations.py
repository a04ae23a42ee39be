"""Instances to terminate, idle nodes to power down or keep up, and failed boots."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.cloud.port import Instance
from gpucluster.elastic.abilities import Ability
from gpucluster.elastic.decide import limits, replacements
from gpucluster.elastic.decide.gangs import MAX_BOOTS
from gpucluster.elastic.decide.node_table import (
    EXPECTED,
    IDLE,
    IDLE_OVER,
    PROGRAM_FAILED,
    UNHEALTHY,
    Decision,
    NodeTable,
    row_for,
)
from gpucluster.elastic.decide.offers import Headroom
from gpucluster.elastic.decide.world import InstanceStatus, World
from gpucluster.elastic.events import BootFailed, Event, InterruptionKind, ReplacementBegan, StraysSeen
from gpucluster.elastic.memory import Incarnation
from gpucluster.elastic.model import (
    Action,
    Drain,
    MarkDown,
    PowerDown,
    PowerUp,
    ResetDown,
    Terminate,
    Undrain,
)
from gpucluster.plan.messages import NodePhase, NodeReport
from gpucluster.plan.names import ROLE_NODE, TAG_CLUSTER, TAG_REQUEST, TAG_ROLE
from gpucluster.slurm import drains
from gpucluster.slurm.drains import DrainOwner
from gpucluster.slurm.states import SlurmPhase
from gpucluster.text import short

AGAIN_S = 15.0  # a termination without effect is requested again after this time


def terminations(table: NodeTable) -> Iterator[Action]:
    """Return terminations grouped by reason, so that one call ends many instances."""
    world = table.world
    by_reason: dict[str, list[str]] = {}
    for reason, slots in table.to(Decision.TERMINATE).items():
        found = (
            incarnation.instance for slot in slots if (incarnation := world.incarnation(slot)) is not None
        )
        by_reason[reason] = [i for i in found if i is not None and _is_due(world, i)]
    by_reason["no slot owns it"] = [i for i in world.memory.strays if _is_stray_due(world, i)]
    by_reason["it fills no whole gang"] = [
        i
        for i in world.memory.spares.keys() & world.cloud.instances.keys() - _owned(world)
        if world.cloud.instances[i].living and _is_due(world, i)
    ]
    for reason, ids in sorted(by_reason.items()):
        alone = sorted(set(ids) & world.memory.refused_ends.keys())
        if together := tuple(sorted(set(ids) - set(alone))):
            yield Terminate(instances=together, reason=reason)
        for instance in alone:  # an instance that may not be ended would keep the others of its call alive
            yield Terminate(instances=(instance,), reason=reason)


def _owned(world: World) -> set[str]:
    """Return the instances of the plan's slots."""
    known = world.memory.incarnations.items()
    return {one.instance for slot, one in known if one.instance and slot in world.slots}


def _is_stray_due(world: World, instance: str) -> bool:
    """Return whether a stray is terminated now. Its grace begins when this journal first sees it: an earlier one may have known it."""
    over = world.memory.strays[instance] + world.plan.times.orphan_grace_s <= world.now
    return over and world.may(Ability.END_STRAY) and _is_due(world, instance)


def stray_events(world: World) -> Iterator[Event]:
    """Return the strays that are new, and those that are none any more."""
    found = {one.id for one in strays(world, _owned(world) | world.memory.spares.keys())}
    new, over = (
        tuple(sorted(ids)) for ids in (found - world.memory.strays.keys(), world.memory.strays.keys() - found)
    )
    if new or over:
        yield StraysSeen(instances=new, over=over)


def strays(world: World, owned: set[str]) -> Iterator[Instance]:
    """Return stray instances: living, of this cluster, without a slot, and from no open request."""
    launches = world.memory.launches  # instances of a fleet have its tags, but not its token (T14)
    tokens = {launch.request.token for launch in launches.values()}
    for instance in world.cloud.instances.values():
        tags = instance.tags
        if instance.id in owned or not instance.living:
            continue
        if instance.token in tokens or tags.get(TAG_REQUEST) in launches:
            continue
        if tags.get(TAG_CLUSTER) == world.plan.name and tags.get(TAG_ROLE) == ROLE_NODE:
            yield instance


def _is_due(world: World, instance: str) -> bool:
    asked, refused = world.memory.endings.get(instance), world.memory.refused_ends.get(instance)
    if refused is not None and refused.waits(world.now):
        return False
    return asked is None or not asked <= world.now < asked + AGAIN_S  # in the future: the clock was set back


def idle_ends(world: World, pool: str | None = None) -> Iterator[tuple[str, float]]:
    """Return each idle node with the time at which it is powered down if no other rule keeps it up."""
    table = NodeTable(world)
    for slot in world.group(SlurmPhase.UP):
        context = table.context(slot)
        if pool not in (None, context.place.pool.name):
            continue
        row = row_for(context)
        if row in (IDLE, IDLE_OVER):
            yield slot, context.idle_until
        elif row is EXPECTED:
            yield slot, context.expected_until


def end_idle(world: World) -> Iterator[Action]:
    """Power down the idle nodes that a whole pass powers down, such as those of a drained pool, and nothing else."""
    table = NodeTable(world)
    for words, slots in table.to(Decision.OFF).items():
        idle = (slot for slot in slots if world.phases[slot] is SlurmPhase.UP)
        if due := tuple(slot for slot in idle if not table.context(slot).busy):
            yield PowerDown(slots=due, reason=words)


def left_alone(world: World) -> frozenset[str]:
    """Return the instances of powered-down nodes that the daemon would terminate and may not: they end themselves."""
    if world.may(Ability.TERMINATE) or not world.may(Ability.END_IDLE):
        return frozenset()
    powered_down = (slot for slots in NodeTable(world).to(Decision.TERMINATE).values() for slot in slots)
    off = (SlurmPhase.POWERING_DOWN, SlurmPhase.OFF, SlurmPhase.DOWN_OFF)
    ending = {slot for slot in powered_down if world.phases[slot] in off}
    ending -= {slot for slot in ending if world.refused_end(slot) is not None}
    found = (world.memory.incarnations[slot].instance for slot in ending)
    return frozenset(instance for instance in found if instance is not None)


def power_ups(table: NodeTable, headroom: Headroom, handled: frozenset[str]) -> Iterator[Action]:
    """Power up slots that must be up without a job. Blocked slots, and slots in `handled`, wait for their zone."""
    for words, slots in table.to(Decision.POWER_UP).items():
        off = tuple(_within_limits(table.world, headroom, slots, handled))
        if off:
            yield PowerUp(slots=off, reason=words)


def _within_limits(
    world: World, headroom: Headroom, slots: tuple[str, ...], handled: frozenset[str]
) -> Iterator[str]:
    """Return the slots that may be powered up. Without an instance, a slot needs headroom and a pool that may launch."""
    taken: dict[str, int] = {}
    for slot in slots:
        pool = world.slots[slot].pool.name
        if not world.free(slot):
            yield slot
        elif (
            slot not in handled
            and not limits.stop_of(world, pool)
            and taken.get(pool, 0) < headroom.of_pool(pool)
        ):
            taken[pool] = taken.get(pool, 0) + 1
            yield slot


@dataclass(frozen=True, slots=True)
class BootLimit:
    """The time until which a boot may go on. `unheard`: its agent has never reported. `last`: no other instance follows."""

    at: float
    unheard: bool
    last: bool

    @property
    def missing(self) -> str:
        """What must happen before, as what has not."""
        return "its agent has not reported" if self.unheard else "it is not up"


def boot_failures(world: World) -> Iterator[Event]:
    """Return failed boots of needed slots: the agent gave up, or the boot timeout passed."""
    for slot, instance, incarnation in world.boots():
        if incarnation.up_at is not None:
            continue
        words = _why_failed(world, slot, incarnation, instance)
        if words:
            pool = world.slots[slot].pool.name
            yield BootFailed(slot=slot, instance=instance, words=f"{instance}: {words}", pool=pool)


def last_word(report: NodeReport) -> str:
    """Return the failed boot step, or else the last finished one. The text is made printable and short."""
    step = next((s for s in report.steps if not s.ok), report.steps[-1] if report.steps else None)
    if step is None:
        return "no step was reported"
    text = short(f"step {step.name}: {step.detail or ('done' if step.ok else 'failed')}", 200)
    last = next((line for line in reversed(report.tail.splitlines()) if line.strip()), "")
    if not last or last.strip() in text:
        return text
    return f"{text}; its last log line: {short(last, 120)}"


def _why_failed(world: World, slot: str, incarnation: Incarnation, instance: str) -> str | None:
    received = world.reports.get(instance)
    if received is not None and received.report.phase is NodePhase.FAILED:
        return last_word(received.report)
    if world.instance_status(slot) not in (InstanceStatus.ALIVE, InstanceStatus.UNSEEN):
        return None
    limit, pool = boot_limit(world, slot, incarnation), world.slots[slot].pool
    if limit.at > world.now:
        return None
    if limit.unheard:
        return f"its agent did not report within {pool.report_s:g} s"
    last_report = last_word(received.report) if received is not None else "its agent stopped reporting"
    return f"not up after {pool.boot_timeout_s} s; {last_report}"


def boot_limit(world: World, slot: str, incarnation: Incarnation) -> BootLimit:
    """Return when the boot of the slot's instance has failed, unless its agent reports or the node is up before."""
    pool, began = world.slots[slot].pool, max(incarnation.launched_at, incarnation.since)
    unheard = incarnation.registered_at is None and incarnation.instance not in world.reports
    at = max(began, world.listening_since) + pool.report_s if unheard else began + pool.boot_timeout_s
    stays = world.kept(slot) or incarnation.failed_boots + 1 >= MAX_BOOTS
    return BootLimit(at, unheard, last=stays or incarnation.since + pool.boot_timeout_s <= at)


def replacements_begun(world: World) -> Iterator[Event]:
    """Return the replacements of unhealthy nodes that begin now, within the limit of each pool: the oldest faults first.

    Each event has one node before any has its second one.
    """
    if not world.may(Ability.UPDATE):
        return
    unhealthy: dict[str, list[tuple[int, float, str, str]]] = {}
    found = (*_unhealthy(world), *_faulty(world))
    turns = replacements.turns(world) if found else dict[str, int]()
    for since, slot, instance in found:
        turn = turns.get(slot, 0)
        unhealthy.setdefault(world.slots[slot].pool.name, []).append((turn, since, slot, instance))
    for pool in world.plan.pools:
        for _, _, slot, instance in sorted(unhealthy.get(pool.name, ()))[: replacements.room(world, pool)]:
            yield ReplacementBegan(slot=slot, instance=instance, pool=pool.name)


def _unhealthy(world: World) -> Iterator[tuple[float, str, str]]:
    """Return the nodes that a health check or Slurm drained and that are to be replaced now."""
    table = NodeTable(world)
    for slot in world.group(SlurmPhase.UP):
        if not world.node(slot).drained:
            continue
        context = table.context(slot)
        incarnation = context.incarnation
        if incarnation is None or not incarnation.instance or incarnation.replaced_at is not None:
            continue
        if row_for(context) in (UNHEALTHY, PROGRAM_FAILED):
            yield context.node.reason_at, slot, incarnation.instance


def _faulty(world: World) -> Iterator[tuple[float, str, str]]:
    """Return the nodes that are to be evacuated because a GPU failed."""
    for slot in world.group(SlurmPhase.UP, SlurmPhase.NOT_RESPONDING):
        incarnation = world.incarnation(slot)
        if incarnation is None or not incarnation.instance or incarnation.replaced_at is not None:
            continue
        interruption = incarnation.interruption
        if interruption is None or not replacements.is_counted(world, slot, interruption):
            continue
        if (
            interruption.kind is InterruptionKind.FAULT or world.node(slot).idle
        ):  # a milder fault waits for the jobs
            yield interruption.since, slot, incarnation.instance


def repair_nodes(table: NodeTable, handled: frozenset[str]) -> Iterator[Action]:
    """Carry out at most one step of each node's row in a pass. The next pass reads the result.

    `handled`: slots that this pass drains or powers up. They are not also powered down, because that would remove a drain.
    """
    for words, slots in table.to(Decision.UNDRAIN).items():
        yield Undrain(slots=slots, reason=words)
    for words, slots in table.to(Decision.DRAIN).items():
        yield Drain(slots=slots, reason=drains.reason(DrainOwner.OPERATOR, words))
    for words, slots in table.to(Decision.SET_DOWN).items():
        yield MarkDown(slots=slots, reason=drains.reason(DrainOwner.OPERATOR, words))
    for words, slots in table.to(Decision.DOWN_AND_OFF).items():
        yield MarkDown(slots=slots, reason=drains.reason(DrainOwner.CAPACITY, words))
        yield PowerDown(slots=slots, reason=drains.reason(DrainOwner.CAPACITY, words))
    for words, slots in table.to(Decision.OFF).items():
        if due := tuple(s for s in slots if s not in handled):
            yield PowerDown(slots=due, reason=words)


def resets(table: NodeTable) -> Iterator[ResetDown]:
    """Resume the slots that are DOWN and powered down. Jobs may start on them at once."""
    for words, slots in table.to(Decision.RESET).items():
        yield ResetDown(slots=slots, reason=words)
