"""Site reservations: the nodes of their pools. Pure."""

from collections.abc import Iterator, Sequence

from gpucluster.plan.model import Pool, SiteReservation
from gpucluster.slurm import hostlist
from gpucluster.spec.reservations import PERIODS, Reservation


def reservations(requested: Sequence[Reservation], pools: Sequence[Pool]) -> tuple[SiteReservation, ...]:
    """Return them in the order of the spec."""
    return tuple(
        SiteReservation(
            name=one.name,
            nodes=",".join(_hostlists(one, pools)),
            starts_at=one.start,
            duration_s=one.duration,
            every_s=PERIODS.get(one.repeat or "", 0),
            users=one.users,
            accounts=one.accounts,
            partition=one.partition,
            maint=one.maint,
        )
        for one in requested
    )


def _hostlists(one: Reservation, pools: Sequence[Pool]) -> Iterator[str]:
    if one.nodes is not None:
        yield hostlist.fold(one.nodes)
        return
    yield from (pool.hostlist for pool in pools if pool.name in one.pools)
