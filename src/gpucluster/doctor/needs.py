"""What a plan will ask of its account: machines, vCPUs by quota, images, roles. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.catalog import Catalog
from gpucluster.catalog.quotas import Quota, quota_of
from gpucluster.doctor.model import ReservedFact
from gpucluster.plan.market import Market, Source
from gpucluster.plan.model import Aws, ClusterPlan, Image, InterfaceKind, Pool, there

SPOT_ROLE = "AWSServiceRoleForEC2Spot"
FLEET_ROLE = "AWSServiceRoleForEC2Fleet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A machine of the plan's, and where it is to stand."""

    where: str  # `pools[h200].capacity[0]`, `head`
    machine: str
    zone: str
    alternatives: bool  # another machine or zone of the same source would do


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one part of the plan takes of a quota at most."""

    where: str
    machine: str
    market: str
    count: int
    vcpus: int | None  # of all; None: the catalog does not know the machine
    quota: Quota | None


def aws_of(plan: ClusterPlan) -> Aws:
    """Where the plan stands."""
    return there(plan.aws)


def places(plan: ClusterPlan) -> tuple[Place, ...]:
    """Every machine and zone that may be launched."""
    fixed = [
        Place(where=where, machine=machine, zone=zone, alternatives=False)
        for where, machine, zone, _ in _fixed(plan)
    ]
    return (*fixed, *(place for pool in plan.pools for place in _of_pool(pool)))


def shares(plan: ClusterPlan, catalog: Catalog, reserved: tuple[ReservedFact, ...]) -> tuple[Share, ...]:
    """The most that runs at once, by what it counts against; held capacity counts also while it is empty (T09)."""
    rows = [
        _share(where, machine, Market.ON_DEMAND.value, count, catalog)
        for where, machine, _, count in _fixed(plan)
    ]
    for pool in plan.pools:
        for source in pool.sources:
            market = source.market.value
            if source.market in (Market.SPOT, Market.ON_DEMAND):
                rows.append(_largest(pool, source, market, catalog))
    held = [one for one in reserved if not one.block and one.state in ("active", "pending", "scheduled")]
    rows += [_share(f"reservation {r.id}", r.machine, Market.ON_DEMAND.value, r.total, catalog) for r in held]
    return tuple(rows)


def images(plan: ClusterPlan) -> dict[str, tuple[Image, tuple[str, ...]]]:
    """Images by name or id, and where the spec asks for them."""
    found: dict[str, tuple[Image, tuple[str, ...]]] = {}
    wanted = [("aws.image", aws_of(plan).image), *((f"pools[{p.name}].image", p.image) for p in plan.pools)]
    for where, image in wanted:
        if image is not None:
            key = image.id or image.name or ""
            found[key] = (image, (*found.get(key, (image, ()))[1], where))
    return found


def roles(plan: ClusterPlan) -> dict[str, str]:
    """Service-linked roles that launches need, and whose they are: the daemon's role may not make them."""
    markets = [(source, pool.name) for pool in plan.pools for source in pool.sources]
    found: dict[str, str] = {}
    if any(source.market is Market.SPOT for source, _ in markets):
        found[SPOT_ROLE] = "spot.amazonaws.com"
    if any(len(source.machines) > 1 for source, _ in markets):
        found[FLEET_ROLE] = "ec2fleet.amazonaws.com"
    return found


def reservations(plan: ClusterPlan) -> dict[str, tuple[str, Source]]:
    """Reservations and blocks that the plan draws from, by id: where, and the source."""
    return {
        source.reservation: (f"pools[{pool.name}].capacity[{source.position}]", source)
        for pool in plan.pools
        for source in pool.sources
        if source.reservation is not None
    }


def addresses(plan: ClusterPlan) -> dict[str, int]:
    """Zone -> addresses of its private subnet that the machines take at most; EFA without an address takes none."""
    found: dict[str, int] = {}
    for _, _, zone, count in _fixed(plan):
        found[zone] = found.get(zone, 0) + count
    for pool in plan.pools:
        each = max((_addressed(t.interfaces) for t in pool.templates), default=1)
        for span in pool.slots:
            found[span.zone] = found.get(span.zone, 0) + each * min(len(span), pool.max)
    return found


def _addressed(interfaces: tuple[object, ...]) -> int:
    kinds = [getattr(i, "kind", None) for i in interfaces]
    return sum(1 for kind in kinds if kind is not InterfaceKind.EFA_ONLY) or 1


def _fixed(plan: ClusterPlan) -> Iterator[tuple[str, str, str, int]]:
    """(where, machine, zone, count) of what is Pulumi's."""
    head = plan.head
    if head is not None and head.machine is not None and head.zone is not None:
        yield "head.machine", head.machine, head.zone, 1
        if head.standby is not None:
            yield "head.standby.machine", head.standby.machine, head.standby.zone, 1
    if plan.login is not None:
        yield "login.machine", plan.login.machine, plan.login.zone, len(plan.login.names)


def _of_pool(pool: Pool) -> Iterator[Place]:
    for source in pool.sources:
        several = len(source.machines) * len(source.zones) > 1
        for machine in source.machines:
            for zone in source.zones:
                where = f"pools[{pool.name}].capacity[{source.position}]"
                yield Place(where=where, machine=machine, zone=zone, alternatives=several)


def _largest(pool: Pool, source: Source, market: str, catalog: Catalog) -> Share:
    count = pool.max if source.max is None else min(pool.max, source.max)
    where = f"pools[{pool.name}].capacity[{source.position}]"
    made = [_share(where, machine, market, count, catalog) for machine in source.machines]
    return max(made, key=lambda share: share.vcpus or 0)


def _share(where: str, machine: str, market: str, count: int, catalog: Catalog) -> Share:
    known = catalog.machines.get(machine)
    return Share(
        where=where,
        machine=machine,
        market=market,
        count=count,
        vcpus=None if known is None else known.vcpus * count,
        quota=quota_of(machine, market),
    )
