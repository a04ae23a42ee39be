"""Slurm reservations that keep jobs out of capacity blocks before a block starts and near its end.

A block is usable from its start until its warning (T26), less the lead time of the termination. If a block is the only
source of a pool in a zone, a Slurm reservation over all slots of the zone keeps jobs out before and after. If the zone
has other sources too, a reservation holds only the slots with an instance of the block, and `offers` gives the block no
job that could run longer.
"""

from collections.abc import Iterator, Mapping

from gpucluster.cloud.limits import BLOCK_WARNING_S
from gpucluster.cloud.port import Reservation
from gpucluster.elastic.decide.world import World
from gpucluster.elastic.model import Action, DeleteReservation, SetReservation
from gpucluster.plan.model import Market, Pool, Source
from gpucluster.plan.names import BLOCK_RESERVATION_PREFIX
from gpucluster.slurm.values import SlurmReservation
from gpucluster.text import utc_minute

ACTIVE, SCHEDULED = "active", "scheduled"
NEAR_S = 60.0  # Slurm rounds times. A smaller difference counts as the same time.


def reservations(world: World) -> Iterator[Action]:
    """Create, move and delete our Slurm reservations, so that they match the capacity blocks."""
    blocks = _blocks(world)
    have = {r.name: r for r in world.slurm.reservations if r.name.startswith(BLOCK_RESERVATION_PREFIX)}
    if not blocks and not have:
        return
    want = {w.name: w for name in blocks for w in _wanted(world, name, blocks[name], have)}
    for name, reservation in sorted(want.items()):
        if _is_outdated(have.get(name), reservation, world.now):
            yield DeleteReservation(name=name, reason="the capacity block has other times now")
        elif _differs(have.get(name), reservation, world.now):
            yield SetReservation(reservation=reservation, reason="the capacity block is not for jobs then")
    unknown = tuple(_name(name) for name in blocks if name not in world.reservations)
    for name in sorted(have.keys() - want.keys()):
        if not name.startswith(unknown):  # `()`: no pool has this name
            yield DeleteReservation(name=name, reason="no capacity block needs it")


def why_unusable(world: World, reservation: str) -> str:
    """Return the reason why nothing can be launched from the block now; empty if launches are possible."""
    listed = world.reservations.get(reservation)
    if listed is None:
        return "is not known to the cloud"
    if listed.starts_at is not None and listed.starts_at > world.now:
        return f"begins at {utc_minute(listed.starts_at)}"
    if listed.state != ACTIVE:
        return f"is {listed.state}"
    over = until(world, reservation)
    return f"ends at {utc_minute(listed.ends_at or over)}" if over is not None and over <= world.now else ""


def until(world: World, reservation: str) -> float | None:
    """Return the time until which a job may run in a block; None for a source without an end."""
    listed, users = world.reservations.get(reservation), _blocks(world).get(reservation)
    return _until(listed, users) if listed is not None and users else None


_Users = tuple[tuple[Pool, Source], ...]


def _blocks(world: World) -> dict[str, _Users]:
    """Return the sources that use each block."""
    found: dict[str, _Users] = {}
    for pool in world.plan.pools:
        for source in pool.sources:
            if source.market is Market.CAPACITY_BLOCK and source.reservation:
                found[source.reservation] = (*found.get(source.reservation, ()), (pool, source))
    return found


def _until(listed: Reservation, users: _Users) -> float | None:
    if listed.ends_at is None:
        return None
    return listed.ends_at - BLOCK_WARNING_S - max(pool.termination.lead_s for pool, _ in users)


def _wanted(
    world: World, name: str, users: _Users, have: Mapping[str, SlurmReservation]
) -> Iterator[SlurmReservation]:
    """Return two reservations: one before the block starts, and one from the last time at which a job may run."""
    listed = world.reservations.get(name)
    over = _until(listed, users) if listed is not None else None
    if listed is None or over is None or listed.ends_at is None or listed.state not in (ACTIVE, SCHEDULED):
        return
    alone = tuple(s for pool, source in users for s in _alone(pool, source))
    begins, title = listed.starts_at or 0.0, f"{_name(name)}-begin"
    if begins > world.now and alone:
        yield SlurmReservation(name=title, starts_at=_since(world, have, title), ends_at=begins, nodes=alone)
    nodes = tuple(dict.fromkeys((*alone, *_living_on(world, users))))
    if nodes and listed.ends_at > world.now:
        since = over if over > world.now else _since(world, have, _name(name))
        yield SlurmReservation(name=_name(name), starts_at=since, ends_at=listed.ends_at, nodes=nodes)


def _since(world: World, have: Mapping[str, SlurmReservation], name: str) -> float:
    """Return the start time. Slurm refuses a new reservation that starts in the past."""
    return have[name].starts_at if name in have else world.now


def _alone(pool: Pool, source: Source) -> tuple[str, ...]:
    """Return the slots of zones in which the block is the only source of the pool."""
    others = {zone for other in pool.sources if other is not source for zone in other.zones}
    return tuple(
        s for span in pool.slots if span.zone in source.zones and span.zone not in others for s in span
    )


def _living_on(world: World, users: _Users) -> tuple[str, ...]:
    used = {(pool.name, source.position) for pool, source in users}
    return tuple(
        slot
        for slot, incarnation in world.memory.incarnations.items()
        if incarnation.instance
        and incarnation.market is Market.CAPACITY_BLOCK
        and (place := world.slots.get(slot)) is not None
        and (place.pool.name, incarnation.source) in used
    )


def _is_outdated(have: SlurmReservation | None, want: SlurmReservation, now: float) -> bool:
    """Return whether it has begun, and is for other times of the block. The next pass creates it anew."""
    if have is None or have.starts_at > now:
        return False
    return want.starts_at > now + NEAR_S or abs(have.ends_at - want.ends_at) > NEAR_S


def _differs(have: SlurmReservation | None, want: SlurmReservation, now: float) -> bool:
    """Return whether Slurm's reservation must be created or changed. One that has started is left alone: Slurm cannot move its start."""
    if have is None:
        return True
    if have.starts_at <= now:
        return False
    moved = abs(have.starts_at - want.starts_at) > NEAR_S or abs(have.ends_at - want.ends_at) > NEAR_S
    return moved or set(have.nodes) != set(want.nodes)


def _name(reservation: str) -> str:
    return BLOCK_RESERVATION_PREFIX + reservation.removeprefix("cr-")
