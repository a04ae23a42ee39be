"""Capacity blocks as Slurm reservations: no job runs before a block begins, or into its end.

A block may be used from its start until its warning (T26) less the time that a job gets to say farewell. Where a zone of
a pool has nothing but one block, a Slurm reservation over all its slots keeps jobs out before and after. Where other
sources stand beside the block, a reservation holds only the slots that live on it, and `offers` gives it no job that
could run longer.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from gpucluster.cloud.limits import BLOCK_WARNING_S
from gpucluster.cloud.port import Reservation
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.model import Action, CloseWindow, OpenWindow, Window
from gpucluster.plan.model import Market, Pool, Source
from gpucluster.plan.names import WINDOW_PREFIX

ACTIVE, SCHEDULED = "active", "scheduled"
NEAR_S = 60.0  # Slurm cuts times to its own grid; what differs by less is the same


def windows(world: World) -> Iterator[Action]:
    """Bring Slurm's reservations of ours to what the cloud says of the blocks."""
    blocks = _blocks(world)
    have = {window.name: window for window in world.slurm.windows}
    if not blocks and not have:
        return
    want = {w.name: w for name in blocks for w in _wanted(world, name, blocks[name], have)}
    for name, window in sorted(want.items()):
        if _differs(have.get(name), window, world.now):
            yield OpenWindow(window=window, reason="the capacity block is not for jobs then")
    unknown = tuple(_name(name) for name in blocks if name not in world.cloud.reservations)
    for name in sorted(have.keys() - want.keys()):
        if not name.startswith(unknown):  # `()`: no name does
            yield CloseWindow(name=name, reason="no capacity block needs it")


def shut(world: World, reservation: str) -> str:
    """Why nothing may be launched from it now, in words; empty: it may, as far as there is room."""
    listed = world.cloud.reservations.get(reservation)
    if listed is None:
        return "is not known to the cloud"
    if listed.starts_at is not None and listed.starts_at > world.now:
        return f"begins at {_stamp(listed.starts_at)}"
    if listed.state != ACTIVE:
        return f"is {listed.state}"
    over = until(world, reservation)
    return f"ends at {_stamp(listed.ends_at or over)}" if over is not None and over <= world.now else ""


def until(world: World, reservation: str) -> float | None:
    """Until when a job may run in a block; None for what has no such end."""
    listed, users = world.cloud.reservations.get(reservation), _blocks(world).get(reservation)
    return _until(listed, users) if listed is not None and users else None


_Users = tuple[tuple[Pool, Source], ...]


def _blocks(world: World) -> dict[str, _Users]:
    """Block -> the sources that use it."""
    found: dict[str, _Users] = {}
    for pool in world.plan.pools:
        for source in pool.sources:
            if source.market is Market.CAPACITY_BLOCK and source.reservation:
                found[source.reservation] = (*found.get(source.reservation, ()), (pool, source))
    return found


def _until(listed: Reservation, users: _Users) -> float | None:
    if listed.ends_at is None:
        return None
    return listed.ends_at - BLOCK_WARNING_S - max(pool.farewell.lead_s for pool, _ in users)


def _wanted(world: World, name: str, users: _Users, have: Mapping[str, Window]) -> Iterator[Window]:
    """One before the block begins, and one from when no job may run any more."""
    listed = world.cloud.reservations.get(name)
    over = _until(listed, users) if listed is not None else None
    if listed is None or over is None or listed.ends_at is None or listed.state not in (ACTIVE, SCHEDULED):
        return
    alone = tuple(s for pool, source in users for s in _alone(pool, source))
    begins, title = listed.starts_at or 0.0, f"{_name(name)}-begin"
    if begins > world.now and alone:
        yield Window(name=title, starts_at=_since(world, have, title), ends_at=begins, nodes=alone)
    held = tuple(dict.fromkeys((*alone, *_living_on(world, users))))
    if held and listed.ends_at > world.now:
        since = over if over > world.now else _since(world, have, _name(name))
        yield Window(name=_name(name), starts_at=since, ends_at=listed.ends_at, nodes=held)


def _since(world: World, have: Mapping[str, Window], name: str) -> float:
    """Slurm makes no reservation that began in the past."""
    return have[name].starts_at if name in have else world.now


def _alone(pool: Pool, source: Source) -> tuple[str, ...]:
    """The slots of zones in which the pool has nothing but this block."""
    others = {zone for other in pool.sources if other is not source for zone in other.zones}
    return tuple(
        s for span in pool.slots if span.zone in source.zones and span.zone not in others for s in span
    )


def _living_on(world: World, users: _Users) -> tuple[str, ...]:
    used = {(pool.name, source.position) for pool, source in users}
    return tuple(
        slot
        for slot, life in world.memory.lives.items()
        if life.instance
        and life.market is Market.CAPACITY_BLOCK
        and (place := world.slots.get(slot)) is not None
        and (place.pool.name, life.source) in used
    )


def _differs(have: Window | None, want: Window, now: float) -> bool:
    """A reservation that has begun cannot be moved any more."""
    if have is None:
        return True
    if have.starts_at <= now:
        return False
    moved = abs(have.starts_at - want.starts_at) > NEAR_S or abs(have.ends_at - want.ends_at) > NEAR_S
    return moved or set(have.nodes) != set(want.nodes)


def _name(reservation: str) -> str:
    return WINDOW_PREFIX + reservation.removeprefix("cr-")


def _stamp(at: float | None) -> str:
    return datetime.fromtimestamp(at or 0.0, UTC).strftime("%Y-%m-%d %H:%M UTC")
