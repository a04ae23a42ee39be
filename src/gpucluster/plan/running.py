"""What runs on Kubernetes, resolved against the plan: each pod's part of its node, and where a gang may stand. Pure."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from gpucluster.plan import defaults_kubernetes as kube
from gpucluster.plan import places
from gpucluster.plan.kubernetes import CPU, EFA, GPU, HUGE_PAGES, MEMORY, Kubernetes, NodePool, Share
from gpucluster.plan.model import there
from gpucluster.plan.shares import of_node
from gpucluster.plan.workloads import Gang, Service, Workloads
from gpucluster.spec.resources import in_unit
from gpucluster.spec.workloads import Serve, Train, WorkloadsSpec

_FABRIC = (EFA, HUGE_PAGES)


def workloads(spec: WorkloadsSpec, kubernetes: Kubernetes) -> Workloads:
    """Everything of the file; one that `inspect_workloads` passed always resolves."""
    return Workloads(
        services=tuple(_service(one, kubernetes) for one in spec.serve),
        gangs=tuple(_gang(one, kubernetes) for one in spec.train),
    )


def _service(wish: Serve, kubernetes: Kubernetes) -> Service:
    wanted = {resource: there(in_unit(resource, amount)) for resource, amount in wish.resources.items()}
    found = places.of_service(_places(kubernetes, wish.team), wanted, wish.replicas.max)
    resources = _least([_of_replica(wanted, kubernetes.pool(place.pool)) for place in found])
    return Service(
        name=wish.name,
        team=wish.team,
        image=wish.image,
        args=wish.args,
        env=dict(wish.env),
        port=int(kube.SERVICE_PORT.value) if wish.port is None else wish.port,
        resources=resources,
        shm_mib=_shm_mib(resources),
        pools=tuple(place.pool for place in found),
        anywhere=any(place.words for place in found),
        surge=places.held(found, wanted) > wish.replicas.max,
        replicas_min=wish.replicas.min,
        replicas_max=wish.replicas.max,
        queue_depth=None if wish.scale_on is None else wish.scale_on.queue_depth,
    )


def _gang(wish: Train, kubernetes: Kubernetes) -> Gang:
    word = None if wish.topology is None else wish.topology.required or wish.topology.preferred
    found = places.of_gang(_places(kubernetes, wish.team), wish.nodes, wish.gpus_per_node, word)
    pools = [kubernetes.pool(place.pool) for place in found]
    resources = _least([of_node(pool, {GPU: wish.gpus_per_node}) for pool in pools])
    fabric = resources.get(EFA, 0) > 0
    labels = {level.word: level.label for level in pools[0].levels}
    required = wish.topology is not None and wish.topology.required is not None
    return Gang(
        name=wish.name,
        team=wish.team,
        image=wish.image,
        args=wish.args,
        env=dict(wish.env),
        nodes=wish.nodes,
        gpus_per_node=wish.gpus_per_node,
        resources=resources if fabric else _without(resources, _FABRIC),
        shm_mib=_shm_mib(resources),
        pools=tuple(pool.name for pool in pools),
        fabric=fabric,
        required_level=labels[word] if word is not None and required else None,
        preferred_level=labels[word] if word is not None and not required else None,
        anywhere=word is None and bool(labels),
        restarts=int(kube.RESTARTS.value) if wish.restarts is None else wish.restarts,
    )


def _places(kubernetes: Kubernetes, team: str) -> list[places.Place]:
    """The team's pools."""
    return [_place(kubernetes.pool(share.pool), share) for share in kubernetes.team(team).shares]


def _place(pool: NodePool, share: Share) -> places.Place:
    return places.Place(
        pool=pool.name,
        node=pool.allocatable,
        most=pool.max,
        reach={r: amount + share.borrow.get(r, 0) for r, amount in share.nominal.items()},
        shared_by=pool.shared_by,
        words=tuple(level.word for level in pool.levels),
    )


def _of_replica(wanted: Mapping[str, int], pool: NodePool) -> dict[str, int]:
    """What was wished, and beside it the CPU and memory that go with it."""
    named = {r: wanted[r] for r in pool.shared_by if r in wanted}
    beside = of_node(pool, named) if named else _by_size(wanted, pool)
    return {**{r: beside[r] for r in (CPU, MEMORY)}, **wanted}


def _by_size(wanted: Mapping[str, int], pool: NodePool) -> dict[str, int]:
    """For a replica that asks for CPU or memory only: as much of the one as of the other."""
    part = max(Fraction(wanted.get(r, 0), pool.allocatable[r]) for r in (CPU, MEMORY))
    return {r: int(pool.allocatable[r] * part) for r in (CPU, MEMORY)}


def _least(found: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Fits each of the pools: of each resource the least, none of what one of them lacks."""
    least = {r: min(one.get(r, 0) for one in found) for r in found[0]}
    return {r: amount for r, amount in sorted(least.items()) if amount}


def _without(resources: Mapping[str, int], left_out: Sequence[str]) -> dict[str, int]:
    return {r: amount for r, amount in resources.items() if r not in left_out}


def _shm_mib(resources: Mapping[str, int]) -> int:
    part = resources[MEMORY] // int(kube.SHM_PART.value)
    return max(64, min(part, int(kube.SHM_MOST_MIB.value)))
