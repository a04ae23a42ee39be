"""What is news of machines that live: their agents' notices, the queue, broken GPUs, a block's end, a person's order.

The same news from a second source, or again, is none; a nearer end or a worse kind is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from gpucluster.catalog.xids import Severity, verdict_of
from gpucluster.cloud.limits import BLOCK_TAKEN_S, BLOCK_WARNING_S
from gpucluster.elastic.decide.asks import refused_for
from gpucluster.elastic.decide.world import HAS, World
from gpucluster.elastic.events import (
    BootFailed,
    Event,
    GpuFaulted,
    Refused,
    Troubled,
    TroubleKind,
    TroubleOver,
    Verb,
)
from gpucluster.elastic.memory import Life, Trouble
from gpucluster.elastic.memory.troubles import FAULTS
from gpucluster.elastic.model import Phase
from gpucluster.plan.messages import GpuFault, NodePhase, Notice, NoticeKind
from gpucluster.plan.model import Market

RANKS = (  # the worst first: a worse kind takes over
    TroubleKind.SPOT,
    TroubleKind.BLOCK_END,
    TroubleKind.FAULT,
    TroubleKind.MAINTENANCE,
    TroubleKind.REPLACE,
    TroubleKind.REBALANCE,
)
KINDS = {
    NoticeKind.SPOT: TroubleKind.SPOT,
    NoticeKind.REBALANCE: TroubleKind.REBALANCE,
    NoticeKind.MAINTENANCE: TroubleKind.MAINTENANCE,
}
SAYS = {
    TroubleKind.SPOT: "the cloud takes this spot machine back",
    TroubleKind.REBALANCE: "the cloud may take this spot machine back",
    TroubleKind.MAINTENANCE: "the cloud has planned maintenance of this machine",
    TroubleKind.BLOCK_END: "its capacity block ends",
}
COUNTED: Mapping[int, int] = {94: 3}  # contained memory errors: the machine goes at this many in 24 h (A6)
STORM, STORM_LEAST = 3, 2  # machines of one offer taken back in a storm's time; of few, half and at least two
NEARER_S = 1.0
LAST = 253_402_300_800.0  # the year 10000: no calendar goes so far
SETTLED_S = 600.0  # after that a machine knows what the queue said of it


@dataclass(frozen=True, slots=True)
class News:
    """What one source says of one machine."""

    kind: TroubleKind
    words: str
    ends_at: float | None
    source: str


def noticed(world: World) -> Iterator[Event]:
    """Troubles that are new or have changed, and those that were called off."""
    told = _by_instance(world)
    for slot, life in world.memory.lives.items():
        if life.instance is None or slot not in world.slots or world.fate(slot) not in HAS:
            continue
        faults = tuple(_new_faults(world, slot, life, life.instance))
        yield from faults
        worst = _worst(_all_news(world, slot, life, life.instance, told.get(life.instance, ())))
        if worst is not None and _is_news(world, life.trouble, worst):
            yield Troubled(
                slot=slot,
                instance=life.instance,
                kind=worst.kind,
                words=worst.words,
                ends_at=worst.ends_at,
                source=worst.source,
            )
        elif life.trouble is not None and (words := _called_off(world, slot, life, life.trouble)):
            yield TroubleOver(instance=life.instance, words=words)


def useless(world: World) -> Iterator[Event]:
    """A boot on a machine that is to be left is a failed one: the gang gets another in the same power-up.

    Not where slurmd is up already: a job may have begun there since Slurm was looked at.
    """
    for slot in world.group(Phase.WANTED):
        life = world.life(slot)
        if life is None or life.instance is None or life.failed is not None or life.trouble is None:
            continue
        heard = world.reports.get(life.instance)
        if heard is not None and heard.report.phase is NodePhase.UP and heard.report.life == life.number:
            continue
        if life.trouble.kind not in (TroubleKind.REBALANCE, TroubleKind.MAINTENANCE):
            words = f"{life.instance}: {life.trouble.words}"
            yield BootFailed(slot=slot, instance=life.instance, words=words)  # no pool: not its breaker's


def storms(world: World) -> Iterator[Event]:
    """An offer whose machines are taken back one after the other is left alone, so that replacements do not loop."""
    for key, times in world.memory.taken.items():
        recent = sum(1 for at in times if world.now - world.plan.times.storm_s < at)
        if recent < STORM_LEAST or (recent < STORM and 2 * recent < _living_of(world, key)):
            continue
        old = world.memory.refusals.get(key)
        if old is None or old.until <= world.now:
            words = f"takes its machines back, {recent} in the last {world.plan.times.storm_s / 60:g} minutes"
            yield Refused(key=key, words=words, until=world.now + refused_for(world.plan.times, old))


def clock(at: float) -> str:
    """A moment for people and for the head's log: UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _by_instance(world: World) -> dict[str, tuple[Notice, ...]]:
    found: dict[str, tuple[Notice, ...]] = {}
    for told in world.told:
        found[told.instance] = (*found.get(told.instance, ()), told.notice)
    return found


def _all_news(
    world: World, slot: str, life: Life, instance: str, queue: tuple[Notice, ...]
) -> Iterator[News]:
    heard = world.reports.get(instance)
    for notice in heard.report.notices if heard else ():
        yield _of_notice(notice, "node")
    for notice in queue:
        yield _of_notice(notice, "queue")
    for fault in heard.report.faults if heard else ():
        yield from _of_fault(fault)
    yield from _of_block(world, slot, life)
    order = world.memory.orders.get(slot)
    if order is not None and order.verb is Verb.NODE_REPLACE and life.launched_at <= order.at:
        words = f"to be replaced, by {_plain(order.by) or 'an operator'}"
        yield News(
            TroubleKind.REPLACE, f"{words}: {_plain(order.words)}" if order.words else words, None, "operator"
        )


def _of_notice(notice: Notice, source: str) -> News:
    kind = KINDS[notice.kind]
    told = notice.at is not None and 0 < notice.at < LAST and kind is not TroubleKind.REBALANCE
    ends = notice.at if told else None
    when = "" if ends is None else f" at {clock(ends)}"
    what = f" ({_plain(notice.words)})" if notice.words and kind is TroubleKind.MAINTENANCE else ""
    return News(kind, f"{SAYS[kind]}{when}{what}", ends, source)


def _of_fault(fault: GpuFault) -> Iterator[News]:
    severity = severity_of(fault)
    words = f"a GPU of it failed: XID {fault.xid} on {_plain(fault.device)}"
    if severity is not Severity.MONITOR:
        yield News(TroubleKind.FAULT, f"{words} ({severity.value})", None, "node")
    elif verdict_of(fault.xid, fault.text).replace_when_idle:
        yield News(TroubleKind.REPLACE, f"{words} (to be replaced when idle)", None, "node")


def severity_of(fault: GpuFault) -> Severity:
    """The table's verdict; what only counts when it comes again takes the next rung then."""
    severity = verdict_of(fault.xid, fault.text).severity
    again = COUNTED.get(fault.xid)
    return severity.next if again is not None and fault.count >= again else severity


def _of_block(world: World, slot: str, life: Life) -> Iterator[News]:
    if life.market is not Market.CAPACITY_BLOCK:
        return
    for source in world.slots[slot].pool.sources:
        block = world.cloud.reservations.get(source.reservation or "")
        if source.position != life.source or block is None or block.ends_at is None:
            continue
        taken = block.ends_at - BLOCK_TAKEN_S
        if block.ends_at - BLOCK_WARNING_S <= world.now:
            words = f"{SAYS[TroubleKind.BLOCK_END]} at {clock(block.ends_at)}, its machines {clock(taken)}"
            yield News(TroubleKind.BLOCK_END, words, taken, "cloud")


def _worst(news: Iterator[News]) -> News | None:
    """The worst kind, and of that the nearest end."""
    return min(
        news,
        key=lambda n: (RANKS.index(n.kind), n.ends_at if n.ends_at is not None else float("inf"), n.words),
        default=None,
    )


def _is_news(world: World, old: Trouble | None, new: News) -> bool:
    if old is None or RANKS.index(new.kind) < RANKS.index(old.kind):
        return True
    if old.kind is not new.kind or new.ends_at is None:
        return False
    if old.ends_at is None:
        return True
    if new.kind is TroubleKind.MAINTENANCE and _knows(
        world, new.source, old
    ):  # it may be moved to a later time
        return abs(new.ends_at - old.ends_at) > NEARER_S
    return new.ends_at < old.ends_at - NEARER_S


def _knows(world: World, source: str, trouble: Trouble) -> bool:
    """Whether what it says now is newer than the trouble: a machine knows what the queue said of it only after a while."""
    return source == trouble.source or (source == "node" and trouble.since + SETTLED_S < world.now)


def _called_off(world: World, slot: str, life: Life, trouble: Trouble) -> str:
    """Why it is over; only who announced it can say so, and silence says nothing."""
    if trouble.kind is TroubleKind.REPLACE and trouble.source == "operator":
        order = world.memory.orders.get(slot)
        return "" if order is not None and order.verb is Verb.NODE_REPLACE else "the order was taken back"
    if trouble.kind is not TroubleKind.MAINTENANCE:
        return ""
    known_from = trouble.since + (0.0 if trouble.source == "node" else SETTLED_S)
    heard = world.reports.get(life.instance or "")
    if heard is None or heard.at <= known_from or not heard.report.watched:
        return ""
    still = any(n.kind is NoticeKind.MAINTENANCE for n in heard.report.notices)
    return "" if still else "the cloud's maintenance is over or was called off"


def _new_faults(world: World, slot: str, life: Life, instance: str) -> Iterator[GpuFaulted]:
    heard = world.reports.get(instance)
    seen = set(life.faults)
    for fault in heard.report.faults if heard and len(seen) < FAULTS else ():
        device, severity = _plain(fault.device), severity_of(fault).value
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
    """Machines of the offer that live or were taken in this storm."""
    return sum(
        1
        for slot, life in world.memory.lives.items()
        if life.instance and life.offer == key and slot in world.slots
    )


def _plain(text: str) -> str:
    """Others' words: printable, short."""
    return "".join(c for c in text if c.isprintable())[:120]
