"""What a plan requires of its account: machine types by zone, vCPUs by quota, images, roles, addresses. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.catalog import Catalog
from gpucluster.catalog.quotas import Quota, quota_of
from gpucluster.doctor.facts import ReservationFact
from gpucluster.plan.model import AwsPlan, AwsPool, Image, ImageById, InterfaceKind, eks_of
from gpucluster.plan.model.capacity import Source
from gpucluster.plan.model.values import Market
from gpucluster.plan.reservations import reserved

SPOT_ROLE = "AWSServiceRoleForEC2Spot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A machine type of the plan in a zone."""

    where: str  # `pools[h200].capacity[0]`, `head`
    machine: str
    zone: str
    alternatives: bool  # whether the same source has another machine or zone


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUse:
    """The most that one part of the plan uses of a quota."""

    where: str
    machine: str
    market: str
    count: int
    vcpus: int | None  # of all machines; None: the catalog does not know the machine type
    quota: Quota | None


def placements(plan: AwsPlan) -> tuple[Placement, ...]:
    """Return every machine type and zone that may be launched."""
    fixed = [
        Placement(where=where, machine=machine, zone=zone, alternatives=False)
        for where, machine, zone, _ in _pulumi_machines(plan)
    ]
    return (*fixed, *(placement for pool in plan.pools for placement in _pool_placements(pool)))


def quota_uses(
    plan: AwsPlan, catalog: Catalog, reserved: tuple[ReservationFact, ...]
) -> tuple[QuotaUse, ...]:
    """Return the most that runs at once, by quota. Reservations count against a quota even while they are empty (T09)."""
    rows = [
        _quota_use(where, machine, Market.ON_DEMAND.value, count, catalog)
        for where, machine, _, count in _pulumi_machines(plan)
    ]
    for pool in plan.pools:
        for source in pool.sources:
            market = source.market.value
            if source.market in (Market.SPOT, Market.ON_DEMAND):
                rows.append(_largest_use(pool, source, market, catalog))
    active = [one for one in reserved if not one.block and one.state in ("active", "pending", "scheduled")]
    rows += [
        _quota_use(f"reservation {r.id}", r.machine, Market.ON_DEMAND.value, r.total, catalog) for r in active
    ]
    return tuple(rows)


def images(plan: AwsPlan) -> dict[str, tuple[Image, tuple[str, ...]]]:
    """Return the images by name or id, with the fields of the spec that name them."""
    found: dict[str, tuple[Image, tuple[str, ...]]] = {}
    wanted = [
        ("aws.image", plan.image if plan.slurm is not None else None),
        *((f"pools[{p.name}].image", p.image) for p in plan.pools),
    ]
    for where, image in wanted:
        if image is not None:
            key = image.id if isinstance(image, ImageById) else image.name
            found[key] = (image, (*found.get(key, (image, ()))[1], where))
    return found


def roles(plan: AwsPlan) -> dict[str, str]:
    """Return the service-linked roles of the launches with their services. Only spot has one.

    The daemon's fleets are of the type `instant`, which needs no role (EC2 user guide, service-linked role for EC2 Fleet).
    """
    spot = any(source.market is Market.SPOT for pool in plan.pools for source in pool.sources)
    return {SPOT_ROLE: "spot.amazonaws.com"} if spot else {}


def reservations(plan: AwsPlan) -> dict[str, tuple[str, Source]]:
    """Return reservations and capacity blocks of the plan by id, with field and source."""
    return {key: (field, source) for key, field, source in reserved(plan)}


def needed_now(plan: AwsPlan) -> frozenset[str]:
    """Return the reservations of node groups: EKS launches their nodes in `pulumi up`, and nobody tries again later."""
    plane = eks_of(plan)
    groups = () if plane is None else plane.groups
    return frozenset(group.reservation for group in groups if group.reservation is not None)


def addresses(plan: AwsPlan) -> dict[str, int]:
    """Return by zone the most addresses that machines use in its private subnet. An EFA-only interface uses none."""
    found: dict[str, int] = {}
    for _, _, zone, count in _pulumi_machines(plan):
        found[zone] = found.get(zone, 0) + count
    for pool in plan.pools:
        each = max((_addressed(t.interfaces) for t in pool.templates), default=1)
        for span in pool.slots:
            found[span.zone] = found.get(span.zone, 0) + each * min(len(span), pool.max)
    return found


def fixed_addresses(plan: AwsPlan) -> dict[str, tuple[str, str]]:
    """Return the fixed addresses of head and standby, with field and zone."""
    head = plan.head
    if head is None:
        return {}
    found = {head.address: ("head.address", head.zone)}
    if head.standby is not None:
        found[head.standby.address] = ("head.standby.address", head.standby.zone)
    return found


def _addressed(interfaces: tuple[object, ...]) -> int:
    kinds = [getattr(i, "kind", None) for i in interfaces]
    return sum(1 for kind in kinds if kind is not InterfaceKind.EFA_ONLY) or 1


def _pulumi_machines(plan: AwsPlan) -> Iterator[tuple[str, str, str, int]]:
    """Yield (where, machine, zone, count) of the machines that Pulumi owns."""
    head = plan.head
    if head is not None:
        yield "head.machine", head.machine, head.zone, 1
        if head.standby is not None:
            yield "head.standby.machine", head.standby.machine, head.standby.zone, 1
    if plan.login is not None:
        yield "login.machine", plan.login.machine, plan.login.zone, len(plan.login.names)


def _pool_placements(pool: AwsPool) -> Iterator[Placement]:
    for source in pool.sources:
        several = len(source.machines) * len(source.zones) > 1
        for machine in source.machines:
            for zone in source.zones:
                where = f"pools[{pool.name}].capacity[{source.position}]"
                yield Placement(where=where, machine=machine, zone=zone, alternatives=several)


def _largest_use(pool: AwsPool, source: Source, market: str, catalog: Catalog) -> QuotaUse:
    count = pool.max if source.max is None else min(pool.max, source.max)
    where = f"pools[{pool.name}].capacity[{source.position}]"
    made = [_quota_use(where, machine, market, count, catalog) for machine in source.machines]
    return max(made, key=lambda use: use.vcpus or 0)


def _quota_use(where: str, machine: str, market: str, count: int, catalog: Catalog) -> QuotaUse:
    facts = catalog.machines.get(machine)
    return QuotaUse(
        where=where,
        machine=machine,
        market=market,
        count=count,
        vcpus=None if facts is None else facts.vcpus * count,
        quota=quota_of(machine, market),
    )
