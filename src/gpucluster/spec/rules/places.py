"""The pools where a team's pods can run, before there is a plan. Shares and topology levels equal the plan's."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from gpucluster.catalog import Catalog
from gpucluster.plan import names, quota_shares
from gpucluster.plan.kubernetes import gpus_of, has_topology, levels
from gpucluster.plan.model.values import CPU, EFA, MEMORY, weight
from gpucluster.plan.node_pools import Part, in_one_zone, parts
from gpucluster.plan.quota_shares import TeamPool
from gpucluster.spec.kubernetes import Team, distribution
from gpucluster.spec.model import ClusterSpec, Pool
from gpucluster.spec.part import AbsentError, require
from gpucluster.spec.pools import of_kubernetes, sources_of
from gpucluster.spec.resources import in_unit
from gpucluster.spec.rules.kubernetes import gives_of, machines_of, mig_of, offered, shared_by


@dataclass(frozen=True, slots=True)
class _Offer:
    """A pool of the spec, or its part in one zone, with the resources that it offers."""

    name: str
    shared_by: tuple[str, ...]
    node: Mapping[str, int]
    most: int
    words: tuple[str, ...]
    one_zone: bool
    together: int

    def offers(self) -> dict[str, int]:
        return {resource: amount * self.most for resource, amount in self.node.items()}


@dataclass(frozen=True, slots=True)
class _Division:
    """The pools of a cluster, and for each team the guaranteed amounts in each pool."""

    offers: tuple[_Offer, ...]
    by_team: Mapping[str, Mapping[str, quota_shares.Amounts]]


@dataclass(frozen=True, slots=True, eq=False)
class _Inputs:
    """A cluster and a catalog as the key of a cache. They are compared by identity: a spec has lists, so it has no hash."""

    cluster: ClusterSpec
    catalog: Catalog

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Inputs) and self.cluster is other.cluster and self.catalog is other.catalog

    def __hash__(self) -> int:
        return hash((id(self.cluster), id(self.catalog)))


def places_of(name: str, cluster: ClusterSpec, catalog: Catalog) -> list[TeamPool]:
    """Return the team's pools, as the plan will have them."""
    team, divided = team_of(name, cluster), _division(_Inputs(cluster, catalog))
    mine, limits = divided.by_team[name], amounts(team.borrowing_limit or {}) if team.may_borrow else None
    borrow = quota_shares.borrowed(divided.offers, mine, limits)
    return [
        _place(offer, {r: own + borrow[offer.name][r] for r, own in mine[offer.name].items()})
        for offer in quota_shares.in_order(divided.offers)
        if quota_shares.has(offer, team.quota, mine[offer.name], may_borrow=team.may_borrow)
    ]


def unpromised(cluster: ClusterSpec, catalog: Catalog) -> list[str]:
    """Return the pools of which a part is in no quota: the cohort lends it."""
    divided = _division(_Inputs(cluster, catalog))
    return [
        offer.name
        for offer in divided.offers
        if any(
            sum(mine[offer.name][r] for mine in divided.by_team.values()) < all_
            for r, all_ in offer.offers().items()
        )
    ]


@lru_cache(maxsize=1)
def _division(of: _Inputs) -> _Division:
    """Divide the pools once for all rules: each rule asks again for each team and workload."""
    teams = require(of.cluster.kubernetes).teams
    offers = tuple(
        offer for pool in of_kubernetes(of.cluster) for offer in _offers(pool, of.cluster, of.catalog)
    )
    promised = quota_shares.promised(offers, [amounts(team.quota) for team in teams])
    return _Division(offers, {team.name: mine for team, mine in zip(teams, promised, strict=True)})


def pools_of(team: str, cluster: ClusterSpec, catalog: Catalog, wanted: Mapping[str, int]) -> list[Pool]:
    """Return the pools that offer the resources to this team: the team has a quota of each resource that is shared there."""
    mine = team_of(team, cluster)
    named = [resource for resource in wanted if resource not in (CPU, MEMORY)]
    return [
        pool
        for pool in of_kubernetes(cluster)
        if (gives := gives_of(pool, catalog))
        and set(mine.quota) & set(gives)
        and all(resource in gives and resource in mine.quota for resource in named)
    ]


def has_room(wanted: Mapping[str, int], gives: Mapping[str, int]) -> bool:
    """Return whether one pod fits on one node."""
    return all(gives.get(resource, 0) >= amount for resource, amount in wanted.items())


def memory_of(places: Iterable[TeamPool], wanted: Mapping[str, int]) -> int | None:
    """Return the least memory that a pod has in the pools where it fits; None if it fits nowhere."""
    if not all(wanted.values()):
        return None  # another rule reports it
    if MEMORY in wanted:
        return wanted[MEMORY]
    parts = [(place, _part(place, wanted)) for place in places if place.pods(wanted)]
    return min((int(place.node[MEMORY] * part) for place, part in parts), default=None)


def _part(place: TeamPool, wanted: Mapping[str, int]) -> Fraction:
    """Return the part of a node that goes with the amounts."""
    named = [r for r in place.shared_by if r in wanted] or [r for r in (CPU,) if r in wanted]
    whole = sum(place.node[r] * weight(r) for r in (place.shared_by if named != [CPU] else (CPU,)))
    return Fraction(sum(wanted[r] * weight(r) for r in named), whole)


def limit_of(
    team: str, cluster: ClusterSpec, catalog: Catalog, resource: str, beside: Iterable[str] = ()
) -> int:
    """Return the most that the team can hold at once. `beside`: accelerators of the same pods.

    CPU and memory of a pool follow from the quota of its accelerators. So a team has CPUs beside its GPUs, also where another
    pool has quotas of CPU.
    """
    mine, offers = team_of(team, cluster), offered(cluster, catalog)
    if resource in offers and resource != CPU:
        own = in_unit(resource, mine.quota.get(resource, 0)) or 0
        return min(own + _borrows(mine, resource, offers), offers[resource])
    named = [one for one in beside if one not in (CPU, MEMORY)]
    places = places_of(team, cluster, catalog)
    return sum(place.reach.get(resource, 0) for place in places if all(place.node.get(r) for r in named))


def _borrows(team: Team, resource: str, offers: Mapping[str, int]) -> int:
    if not team.may_borrow:
        return 0
    limits = team.borrowing_limit or {}
    return (in_unit(resource, limits[resource]) or 0) if resource in limits else offers[resource]


def team_of(name: str, cluster: ClusterSpec) -> Team:
    """Return the team. AbsentError if there is none; another rule reports it."""
    found = next((team for team in require(cluster.kubernetes).teams if team.name == name), None)
    if found is None:
        raise AbsentError
    return found


def amounts(resources: Mapping[str, int]) -> dict[str, int]:
    """Return amounts in the plan's units. AbsentError if one is not a whole number; another rule reports it."""
    found = {resource: in_unit(resource, amount) for resource, amount in resources.items()}
    if None in found.values():
        raise AbsentError
    return {resource: amount for resource, amount in found.items() if amount is not None}


def _offers(pool: Pool, cluster: ClusterSpec, catalog: Catalog) -> Iterator[_Offer]:
    """Yield what the plan will have: the pool, or its part in each zone."""
    machines, nodes, gives = machines_of(pool, catalog), require(pool.nodes), gives_of(pool, catalog)
    with_topology = has_topology(gpus_of(machines), mig_of(pool), nodes.min, nodes.max)
    found = levels(distribution(require(cluster.kubernetes)), machines) if with_topology else ()
    words = tuple(level.word for level in found)
    for part in zone_parts(pool, cluster, catalog):
        name = (
            pool.name
            if part.zone is None
            else names.zone_part(pool.name, require(cluster.aws).region, part.zone)
        )
        one_zone = part.zone is not None or len(_zones(pool, cluster)) == 1
        together = _together(part, pool, cluster) if words else 0
        yield _Offer(name, shared_by(pool, catalog), gives, part.max, words, one_zone, together)


def _together(part: Part, pool: Pool, cluster: ClusterSpec) -> int:
    """Return the most always-on nodes in one zone."""
    if part.zone is not None:
        return part.min
    return in_one_zone(part.min, sources_of(pool, require(cluster.aws).network.places))


def zone_parts(pool: Pool, cluster: ClusterSpec, catalog: Catalog) -> tuple[Part, ...]:
    """Return the parts of a pool of Kubernetes, as the plan will have them."""
    nodes, zones = require(pool.nodes), require(cluster.aws).network.places
    fabric = bool(gives_of(pool, catalog).get(EFA))
    return parts(nodes.min, nodes.max, sources_of(pool, zones), fabric=fabric)


def _zones(pool: Pool, cluster: ClusterSpec) -> set[str]:
    sources = sources_of(pool, require(cluster.aws).network.places)
    return {zone for source in sources for zone in source.zones}


def _place(offer: _Offer, reach: Mapping[str, int]) -> TeamPool:
    return TeamPool(
        pool=offer.name,
        node=offer.node,
        most=offer.most,
        reach=reach,
        shared_by=offer.shared_by,
        words=offer.words,
        one_zone=offer.one_zone,
        together=offer.together,
    )
