"""What an edit does to the quotas of teams and to the flavors of pools, and what is said of it. Pure.

Teams fill the pools in their order (`plan.quota_shares`), so another order of teams or pools moves quotas from pool to pool.
Kueue counts a running workload in the flavor that it was admitted to.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from gpucluster.gitops.steps import CLUSTER
from gpucluster.plan.model import ClusterPlan
from gpucluster.plan.model.kubernetes import Kubernetes, NodePool, Team
from gpucluster.spec.queueing import NEVER, RECLAIM
from gpucluster.text import listed

_NONE: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """Flavors that leave a pool that stays, teams with less quota in a pool whose flavor stays, and what teams cannot have any more."""

    flavors: tuple[str, ...] = ()  # by pool, or by its part in a zone
    less: tuple[tuple[str, str], ...] = ()  # team and pool
    most: tuple[
        tuple[str, str, int], ...
    ] = ()  # team, resource, and the most of it that it can have in one pool now
    gone: tuple[str, ...] = ()  # resources that no pool has any more
    leaving: tuple[str, ...] = ()  # teams whose queues keep their quota until --prune
    reclaims: bool = False  # a team that lent its quota takes it back from running workloads


def quota_change(old: ClusterPlan, new: ClusterPlan) -> QuotaChange:
    """Return what happens while the control plane stays."""
    if old.kubernetes is None or new.kubernetes is None or old.name != new.name:
        return QuotaChange()
    pools, now = old.kubernetes.pools, {_flavor(pool) for pool in new.kubernetes.pools}
    kept = {pool.of for pool in new.kubernetes.pools}
    return QuotaChange(
        flavors=tuple(pool.name for pool in pools if pool.of in kept and _flavor(pool) not in now),
        less=tuple(_less(old.kubernetes, new.kubernetes, [one for one in pools if _flavor(one) in now])),
        most=tuple(_most(old.kubernetes, new.kubernetes)),
        gone=_gone(old.kubernetes, new.kubernetes),
        leaving=tuple(_leaving(old.kubernetes, new.kubernetes)),
        reclaims=new.kubernetes.preemption.reclaim_within_cohort != RECLAIM[NEVER],
    )


def running(found: QuotaChange) -> Iterator[str]:
    if found.flavors:
        yield f"those of {listed(found.flavors)} stay in the old flavor, and the quota of the new one does not count them"
    rest = (
        ": Kueue ends them, and queues them again, when another team needs its quota"
        if found.reclaims
        else ""
    )
    for team, pairs in groupby(found.less, lambda pair: pair[0]):
        pools = listed([pool for _, pool in pairs])
        yield f"those of the team {team} above its smaller quota of {pools} count as borrowed{rest}"


def queued(found: QuotaChange) -> Iterator[str]:
    if found.flavors:
        yield f"those for {listed(found.flavors)} can be admitted while others still have the nodes, and then wait for them"

    if found.gone:
        yield f"those that need {' or '.join(found.gone)} never start: no pool has it any more"
    for team, resource, most in found.most:
        rest = f"that need more than {most} {resource} in one pool" if most else f"that need {resource}"
        yield f"those of the team {team} {rest} are not admitted any more: the team can have no more, also borrowed"
    if found.leaving:
        teams = listed(found.leaving)
        yield (
            f"those of other teams can be admitted for nodes that the pods of {teams} have, and then wait for them:"
            f" the queue of {teams} keeps its quota until `gpucluster k8s up {CLUSTER} --prune`"
        )


def _gone(old: Kubernetes, new: Kubernetes) -> tuple[str, ...]:
    left = {resource for pool in new.pools for resource in pool.allocatable}
    return tuple(sorted({resource for pool in old.pools for resource in pool.shared_by} - left))


def _most(old: Kubernetes, new: Kubernetes) -> Iterator[tuple[str, str, int]]:
    """Yield what falls for a team that stays, other than by smaller pools. Kueue admits a gang or a replica in one pool."""
    offered = _highest(pool.offers() for pool in new.pools)
    before = {team.name: team for team in old.teams}
    for team in (team for team in new.teams if team.name in before):
        was, now = _reach(before[team.name]), _reach(team)
        for resource in sorted({resource for pool in old.pools for resource in pool.shared_by}):
            most = now.get(resource, 0)
            if most < min(was.get(resource, 0), offered.get(resource, 0)):
                yield team.name, resource, most


def _reach(team: Team) -> Mapping[str, int]:
    """Return the most of each resource that a team can have in one pool."""
    return _highest(
        {resource: amount + share.borrow.get(resource, 0) for resource, amount in share.nominal.items()}
        for share in team.shares
    )


def _highest(amounts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for some in amounts:
        found |= {resource: max(amount, found.get(resource, 0)) for resource, amount in some.items()}
    return found


def _leaving(old: Kubernetes, new: Kubernetes) -> Iterator[str]:
    """Yield the teams that leave with a quota in a flavor that stays: their quota is also that of others, or spare."""
    stay, flavors = {team.name for team in new.teams}, {_flavor(pool) for pool in new.pools}
    kept = [pool for pool in old.pools if _flavor(pool) in flavors]
    for team in (team for team in old.teams if team.name not in stay):
        if any(any(_nominal(team, pool.name).values()) for pool in kept):
            yield team.name


def _less(old: Kubernetes, new: Kubernetes, pools: list[NodePool]) -> Iterator[tuple[str, str]]:
    after = {team.name: team for team in new.teams}
    for team in (team for team in old.teams if team.name in after):
        for pool in pools:
            was, now = _nominal(team, pool.name), _nominal(after[team.name], pool.name)
            if any(now.get(resource, 0) < was.get(resource, 0) for resource in pool.shared_by):
                yield team.name, pool.name


def _nominal(team: Team, pool: str) -> Mapping[str, int]:
    return next((share.nominal for share in team.shares if share.pool == pool), _NONE)


def _flavor(pool: NodePool) -> object:
    """Return what makes another ResourceFlavor (`plan.names.flavor`)."""
    return (pool.name, pool.levels)
