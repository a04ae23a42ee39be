"""What services, gangs and tests have in common: the pools of a team, the fabric's variables, shared memory. Pure."""

from collections.abc import Mapping, Sequence

from gpucluster.catalog import environment
from gpucluster.plan import kubernetes as kube
from gpucluster.plan import quota_shares
from gpucluster.plan.model.capacity import Share
from gpucluster.plan.model.kubernetes import Kubernetes, NodePool
from gpucluster.plan.model.values import EFA, HUGE_PAGES, MEMORY
from gpucluster.plan.node_pools import in_one_zone
from gpucluster.spec.part import require
from gpucluster.spec.resources import in_unit

FABRIC = (EFA, HUGE_PAGES)


def fabric_env(pools: Sequence[NodePool], nodes: int, *, fabric: bool) -> dict[str, str]:
    """The variables of the fabric, for every machine that the gang may run on."""
    machines = [name for pool in pools for source in pool.sources for name in source.machines]
    kind = environment.EFA if fabric else environment.ETHERNET
    return {one.name: one.value for one in environment.set_for(kind, machines, several=nodes > 1)}


def places_of(kubernetes: Kubernetes, team: str) -> list[quota_shares.TeamPool]:
    """The team's pools."""
    return [_place(kubernetes.pool(share.pool), share) for share in kubernetes.team(team).shares]


def _place(pool: NodePool, share: Share) -> quota_shares.TeamPool:
    return quota_shares.TeamPool(
        pool=pool.name,
        node=pool.allocatable,
        most=pool.max,
        reach={r: amount + share.borrow.get(r, 0) for r, amount in share.nominal.items()},
        shared_by=pool.shared_by,
        words=tuple(level.word for level in pool.levels),
        one_zone=len(pool.zones) == 1,
        together=in_one_zone(pool.min, pool.sources) if pool.levels else 0,
    )


def without(resources: Mapping[str, int], left_out: Sequence[str]) -> dict[str, int]:
    return {r: amount for r, amount in resources.items() if r not in left_out}


def shm_mib(requested: int | None, resources: Mapping[str, int]) -> int:
    if requested is not None:
        return require(in_unit(MEMORY, requested))
    part = resources[MEMORY] // int(kube.SHM_PART.value)
    return max(kube.SHM_LEAST_MIB, min(part, int(kube.SHM_MOST_MIB.value)))
