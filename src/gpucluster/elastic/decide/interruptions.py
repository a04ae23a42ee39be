"""Interruptions of living instances: notices of agents and the queue, GPU faults, block ends, operators' orders.

The same notice again, or from a second source, adds no event. A nearer end or a worse kind does.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucluster.catalog.xids import Severity, verdict_of
from gpucluster.cloud.limits import BLOCK_TAKEN_S, BLOCK_WARNING_S
from gpucluster.elastic.decide import replacements
from gpucluster.elastic.decide.launches import refused_for
from gpucluster.elastic.decide.world import HAS_INSTANCE, World
from gpucluster.elastic.events import (
    BootFailed,
    Event,
    GpuFaulted,
    Interrupted,
    InterruptionKind,
    InterruptionOver,
    OfferRefused,
    Verb,
)
from gpucluster.elastic.memory import Incarnation, Interruption
from gpucluster.elastic.memory.interruptions import FAULTS
from gpucluster.plan.messages import GpuFault, NodePhase, Notice, NoticeKind
from gpucluster.plan.model import Market
from gpucluster.slurm import drains as owners
from gpucluster.slurm.drains import DrainOwner
from gpucluster.text import rounded_duration, short, utc

RANKS = (  # the worst first: a worse kind replaces a milder one
    InterruptionKind.SPOT,
    InterruptionKind.BLOCK_END,
    InterruptionKind.FAULT,
    InterruptionKind.MAINTENANCE,
    InterruptionKind.REPLACE,
    InterruptionKind.REBALANCE,
)
KINDS = {
    NoticeKind.SPOT: InterruptionKind.SPOT,
    NoticeKind.REBALANCE: InterruptionKind.REBALANCE,
    NoticeKind.MAINTENANCE: InterruptionKind.MAINTENANCE,
}
DESCRIPTIONS = {
    InterruptionKind.SPOT: "the cloud reclaims this spot instance",
    InterruptionKind.REBALANCE: "the cloud may reclaim this spot instance",
    InterruptionKind.MAINTENANCE: "the cloud has planned maintenance of this instance",
    InterruptionKind.BLOCK_END: "its capacity block ends",
}
COUNTED: Mapping[int, int] = {94: 3}  # the instance is replaced after so many contained memory errors in 24 h
_MOVED = (InterruptionKind.MAINTENANCE, InterruptionKind.BLOCK_END)
_USABLE = (InterruptionKind.REBALANCE, InterruptionKind.MAINTENANCE)  # the machine still boots
# reclaimed instances of one offer within storm_s; for a small offer: half of its instances, at least two
STORM, STORM_LEAST = 3, 2
NEARER_S = 1.0
LAST = 253_402_300_800.0  # the year 10000: datetime has no later dates
SETTLED_S = 600.0  # seconds after which an agent shows the notice that the queue delivered


@dataclass(frozen=True, slots=True)
class NewNotice:
    """The notice of one source about one instance."""

    kind: InterruptionKind
    words: str
    ends_at: float | None
    source: str


def interruption_events(world: World) -> Iterator[Event]:
    """Return events: interruptions that are new, changed or called off."""
    queue = _by_instance(world)
    for slot, incarnation in world.memory.incarnations.items():
        if (
            incarnation.instance is None
            or slot not in world.slots
            or world.instance_status(slot) not in HAS_INSTANCE
        ):
            continue
        faults = tuple(_new_faults(world, slot, incarnation, incarnation.instance))
        yield from faults
        worst = _worst(
            _all_notices(world, slot, incarnation, incarnation.instance, queue.get(incarnation.instance, ()))
        )
        known = incarnation.interruption
        if worst is not None and _is_new(world, known, worst):
            yield _interrupted(slot, incarnation.instance, worst)
        elif known is not None and (words := _called_off(world, slot, incarnation, known)):
            yield InterruptionOver(instance=incarnation.instance, words=words)
            if (
                worst is not None and worst.kind is not InterruptionKind.MAINTENANCE
            ):  # no pass opens the node between
                yield _interrupted(slot, incarnation.instance, worst)


def _interrupted(slot: str, instance: str, one: NewNotice) -> Interrupted:
    return Interrupted(
        slot=slot,
        instance=instance,
        kind=one.kind,
        words=one.words,
        ends_at=one.ends_at,
        source=one.source,
    )


def unusable_boots(world: World) -> Iterator[Event]:
    """Return failed boots on interrupted instances. The slot gets another instance in the same power-up.

    If slurmd is already up, the boot does not fail: a job may have started there since the last list of Slurm.
    """
    for slot, instance, incarnation in world.boots():
        interruption, received = incarnation.interruption, world.reports.get(instance)
        up = (
            received is not None
            and received.report.phase is NodePhase.UP
            and received.report.incarnation == incarnation.number
        )
        if interruption is None or up or interruption.kind in _USABLE:
            continue
        # a fault that the node reports may be a false alarm: the breaker counts it. A notice of the cloud or an order is none
        pool = world.slots[slot].pool.name if replacements.is_counted(world, slot, interruption) else ""
        yield BootFailed(slot=slot, instance=instance, words=f"{instance}: {interruption.words}", pool=pool)


def spot_storms(world: World) -> Iterator[Event]:
    """Refuse an offer with many spot interruptions in a short time, so that replacements do not loop."""
    for key, times in world.memory.taken.items():
        recent = sum(1 for at in times if world.now - world.plan.times.storm_s < at)
        if recent < STORM_LEAST or (recent < STORM and 2 * recent < _living_of(world, key)):
            continue
        old = world.memory.refusals.get(key)
        if old is None or old.until <= world.now:
            words = f"interrupted: {recent} in the last {rounded_duration(world.plan.times.storm_s)}"
            yield OfferRefused(key=key, words=words, until=world.now + refused_for(world.plan.times, old))


def _by_instance(world: World) -> dict[str, tuple[Notice, ...]]:
    found: dict[str, tuple[Notice, ...]] = {}
    for message in world.observation.queue_notices:
        found[message.instance] = (*found.get(message.instance, ()), message.notice)
    return found


def _all_notices(
    world: World, slot: str, incarnation: Incarnation, instance: str, queue: tuple[Notice, ...]
) -> Iterator[NewNotice]:
    received = world.reports.get(instance)
    for notice in received.report.notices if received else ():
        yield _of_notice(notice, "node")
    for notice in queue:
        yield _of_notice(notice, "queue")
    for fault in received.report.faults if received else ():
        yield from _of_fault(fault)
    yield from _of_block(world, slot, incarnation)
    order = world.memory.orders.get(slot)
    if order is not None and order.verb is Verb.NODE_REPLACE and incarnation.launched_at <= order.at:
        words = f"to be replaced, by {short(order.by, 120) or 'an operator'}"
        yield NewNotice(
            InterruptionKind.REPLACE,
            f"{words}: {short(order.words, 120)}" if order.words else words,
            None,
            "operator",
        )


def _of_notice(notice: Notice, source: str) -> NewNotice:
    kind = KINDS[notice.kind]
    has_end = notice.at is not None and 0 < notice.at < LAST and kind is not InterruptionKind.REBALANCE
    ends = notice.at if has_end else None
    when = "" if ends is None else f" at {utc(ends)}"
    what = f" ({short(notice.words, 120)})" if notice.words and kind is InterruptionKind.MAINTENANCE else ""
    return NewNotice(kind, f"{DESCRIPTIONS[kind]}{when}{what}", ends, source)


def _of_fault(fault: GpuFault) -> Iterator[NewNotice]:
    severity = severity_of(fault)
    words = f"one of its GPUs failed: XID {fault.xid} on {short(fault.device, 120)}"
    if severity is not Severity.MONITOR:
        yield NewNotice(InterruptionKind.FAULT, f"{words} ({severity.value})", None, "node")
    elif verdict_of(fault.xid, fault.text).replace_when_idle:
        yield NewNotice(InterruptionKind.REPLACE, f"{words} (to be replaced when idle)", None, "node")


def severity_of(fault: GpuFault) -> Severity:
    """Return the severity by the XID table. Some faults get the next severity when they repeat."""
    severity = verdict_of(fault.xid, fault.text).severity
    again = COUNTED.get(fault.xid)
    return severity.next if again is not None and fault.count >= again else severity


def _of_block(world: World, slot: str, incarnation: Incarnation) -> Iterator[NewNotice]:
    ends = _block_end(world, slot, incarnation)
    if ends is not None and ends - BLOCK_WARNING_S <= world.now:
        taken = ends - BLOCK_TAKEN_S
        words = f"{DESCRIPTIONS[InterruptionKind.BLOCK_END]} at {utc(ends)}, its instances {utc(taken)}"
        yield NewNotice(InterruptionKind.BLOCK_END, words, taken, "cloud")


def _block_end(world: World, slot: str, incarnation: Incarnation) -> float | None:
    """Return the end of the capacity block that the instance is from; None: EC2 does not list it, or it is from none."""
    if incarnation.market is not Market.CAPACITY_BLOCK:
        return None
    sources = (s for s in world.slots[slot].pool.sources if s.position == incarnation.source)
    block = next((world.reservations.get(source.reservation or "") for source in sources), None)
    return None if block is None else block.ends_at


def _worst(notices: Iterator[NewNotice]) -> NewNotice | None:
    """Return the worst kind and, of that kind, the nearest end."""
    return min(
        notices,
        key=lambda n: (RANKS.index(n.kind), n.ends_at if n.ends_at is not None else float("inf"), n.words),
        default=None,
    )


def _is_new(world: World, old: Interruption | None, new: NewNotice) -> bool:
    if old is None or RANKS.index(new.kind) < RANKS.index(old.kind):
        return True
    if old.kind is not new.kind or new.ends_at is None:
        return False
    if old.ends_at is None:
        return True
    if new.kind in _MOVED and _knows(world, new.source, old):  # it may get a later time
        return abs(new.ends_at - old.ends_at) > NEARER_S
    return new.ends_at < old.ends_at - NEARER_S


def _knows(world: World, source: str, interruption: Interruption) -> bool:
    """Return whether the notice is newer than the interruption. An agent shows a notice of the queue later."""
    return source == interruption.source or (source == "node" and interruption.since + SETTLED_S < world.now)


def _called_off(world: World, slot: str, incarnation: Incarnation, interruption: Interruption) -> str:
    """Return the reason why the interruption is over; empty if it is not. Only its source can call it off."""
    if interruption.kind is InterruptionKind.REPLACE and interruption.source == "operator":
        order = world.memory.orders.get(slot)
        return "" if order is not None and order.verb is Verb.NODE_REPLACE else "the order was cancelled"
    if interruption.kind is InterruptionKind.BLOCK_END:
        ends = _block_end(world, slot, incarnation)
        extended = ends is not None and world.now < ends - BLOCK_WARNING_S
        return "its capacity block was extended" if extended else ""
    if interruption.kind is not InterruptionKind.MAINTENANCE:
        return ""
    known_from = interruption.since + (0.0 if interruption.source == "node" else SETTLED_S)
    received = world.reports.get(incarnation.instance or "")
    if received is None or received.at <= known_from or not received.report.watched:
        return ""
    still = any(n.kind is NoticeKind.MAINTENANCE for n in received.report.notices)
    return "" if still else "the cloud's maintenance is over or was called off"


def _new_faults(world: World, slot: str, incarnation: Incarnation, instance: str) -> Iterator[GpuFaulted]:
    received = world.reports.get(instance)
    seen = set(incarnation.faults)
    for fault in received.report.faults if received and len(seen) < FAULTS else ():
        device, severity = short(fault.device, 120), severity_of(fault).value
        if (key := f"{fault.xid} {device} {severity}") not in seen:
            seen.add(key)
            yield GpuFaulted(
                slot=slot,
                instance=instance,
                xid=fault.xid,
                device=device,
                count=fault.count,
                severity=severity,
            )


def _living_of(world: World, key: str) -> int:
    """Return the instances of the offer that live or were reclaimed in this storm."""
    return sum(
        1
        for slot, incarnation in world.memory.incarnations.items()
        if incarnation.instance and incarnation.offer_key == key and slot in world.slots
    )


def interruption_reason(interruption: Interruption) -> str:
    """Return the text of the node's reason and of its jobs' comments."""
    return owners.reason(DrainOwner.EVACUATION, interruption.words)
