"""Where a team's pods can stand, before there is a plan: the same shares and levels as the plan's."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpucluster.catalog import Catalog
from gpucluster.plan import shares
from gpucluster.plan.allocatable import gpus_of
from gpucluster.plan.levels import levels, stands
from gpucluster.plan.places import Place
from gpucluster.spec.kubernetes import distribution
from gpucluster.spec.model import ClusterSpec, Pool
from gpucluster.spec.part import AbsentError, written
from gpucluster.spec.pools import of_kubernetes
from gpucluster.spec.resources import in_unit
from gpucluster.spec.rules.kubernetes import gives_of, machines_of, mig_of, shared_by


@dataclass(frozen=True, slots=True)
class _Offer:
    """A pool before it is planned."""

    name: str
    shared_by: tuple[str, ...]
    node: Mapping[str, int]
    most: int
    words: tuple[str, ...]

    def offers(self) -> dict[str, int]:
        return {resource: amount * self.most for resource, amount in self.node.items()}


def places_of(name: str, cluster: ClusterSpec, catalog: Catalog) -> list[Place]:
    """The team's pools, as the plan will see them."""
    teams = written(cluster.kubernetes).teams
    offers = [_offer(pool, cluster, catalog) for pool in of_kubernetes(cluster)]
    promised = shares.promised(offers, [amounts(team.quota) for team in teams])
    for team, mine in zip(teams, promised, strict=True):
        if team.name == name:
            return [
                _place(offer, offer.offers() if team.may_borrow else mine[offer.name])
                for offer in shares.in_order(offers)
                if shares.has(offer, team.quota, mine[offer.name], may_borrow=team.may_borrow)
            ]
    raise AbsentError


def amounts(resources: Mapping[str, int]) -> dict[str, int]:
    """In the plan's units; AbsentError for what is no whole number of them, which is said elsewhere."""
    found = {resource: in_unit(resource, amount) for resource, amount in resources.items()}
    if None in found.values():
        raise AbsentError
    return {resource: amount for resource, amount in found.items() if amount is not None}


def _offer(pool: Pool, cluster: ClusterSpec, catalog: Catalog) -> _Offer:
    machines, nodes, gives = machines_of(pool, catalog), written(pool.nodes), gives_of(pool, catalog)
    tells = stands(gpus_of(machines), mig_of(pool), nodes.min, nodes.max)
    told = levels(distribution(written(cluster.kubernetes)), machines) if tells else ()
    words = tuple(level.word for level in told)
    return _Offer(pool.name, shared_by(pool, catalog), gives, nodes.max, words)


def _place(offer: _Offer, reach: Mapping[str, int]) -> Place:
    return Place(
        pool=offer.name,
        node=offer.node,
        most=offer.most,
        reach=reach,
        shared_by=offer.shared_by,
        words=offer.words,
    )
