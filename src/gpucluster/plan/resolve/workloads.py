"""Resolve workloads against the plan: each pod's part of its node, and the possible pools of a gang. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from gpucluster.plan import kubernetes as kube
from gpucluster.plan import quota_shares
from gpucluster.plan.model.kubernetes import Kubernetes, NodePool
from gpucluster.plan.model.values import CPU, EFA, GANG, GPU, MEMORY, SERVICE
from gpucluster.plan.model.workloads import Checkpoint, Gang, SecretVariable, Service, Workloads
from gpucluster.plan.quota_shares import of_node
from gpucluster.plan.resolve import nccl
from gpucluster.plan.resolve.pods import FABRIC, fabric_env, places_of, shm_mib, without
from gpucluster.spec.part import require
from gpucluster.spec.resources import in_unit
from gpucluster.spec.workloads import Checkpoint as CheckpointSpec
from gpucluster.spec.workloads import Serve, Train, WorkloadsSpec


def workloads(spec: WorkloadsSpec, kubernetes: Kubernetes) -> Workloads:
    """All workloads of the file. A file that `inspect_workloads` accepted always resolves."""
    services = tuple(_service(one, kubernetes) for one in spec.serve)
    return Workloads(
        services=tuple(
            replace(one, surge=one.surge and _has_room(one, services, kubernetes)) for one in services
        ),
        gangs=tuple(_gang(one, kubernetes) for one in spec.train),
        nccl_tests=() if spec.nccl_test is None else nccl.tests(spec.nccl_test, kubernetes),
    )


def _service(requested: Serve, kubernetes: Kubernetes) -> Service:
    wanted = {
        resource: require(in_unit(resource, amount)) for resource, amount in requested.resources.items()
    }
    places, several = places_of(kubernetes, requested.team), requested.nodes > 1
    found = (
        quota_shares.of_groups(places, wanted, requested.nodes, requested.replicas.max)
        if several
        else quota_shares.of_service(places, wanted, requested.replicas.max)
    )
    pools = [kubernetes.pool(place.pool) for place in found]
    resources = _least([_of_replica(wanted, pool, fabric=several) for pool in pools])
    fabric = several and resources.get(EFA, 0) > 0
    return Service(
        name=requested.name,
        team=requested.team,
        priority=requested.priority or SERVICE,
        service_account=requested.service_account,
        image=requested.image,
        pull_secrets=requested.pull_secrets,
        command=requested.command,
        args=requested.args,
        env=dict(requested.env),
        fabric_env=fabric_env(pools, requested.nodes, fabric=fabric) if several else {},
        secrets=_secrets(requested),
        port=int(kube.SERVICE_PORT.value) if requested.port is None else requested.port,
        health=requested.health,
        nodes=requested.nodes,
        worker_command=requested.worker_command,
        fabric=fabric,
        resources=resources,
        shm_mib=shm_mib(requested.shm, resources),
        pools=tuple(place.pool for place in found),
        anywhere=any(place.words for place in found),
        surge=quota_shares.pods_of(found, wanted) >= (requested.replicas.max + 1) * requested.nodes,
        replicas_min=requested.replicas.min,
        replicas_max=requested.replicas.max,
        queue_depth=None if requested.scale_on is None else requested.scale_on.queue_depth,
    )


def _has_room(one: Service, services: Sequence[Service], kubernetes: Kubernetes) -> bool:
    """Whether the team's share has room for one more replica while all services that may be in these pools have their most."""
    places = [place for place in places_of(kubernetes, one.team) if place.pool in one.pools]
    beside = [other for other in services if other.team == one.team and set(other.pools) & set(one.pools)]
    return all(
        amount * one.nodes
        + sum(other.resources.get(r, 0) * other.nodes * other.replicas_max for other in beside)
        <= sum(place.reach.get(r, 0) for place in places)
        for r, amount in one.resources.items()
    )


def _gang(requested: Train, kubernetes: Kubernetes) -> Gang:
    word = None if requested.topology is None else requested.topology.required or requested.topology.preferred
    required = requested.topology is not None and requested.topology.required is not None
    found = quota_shares.of_gang(
        places_of(kubernetes, requested.team),
        requested.nodes,
        requested.gpus_per_node,
        word,
        required=required,
    )
    pools = [kubernetes.pool(place.pool) for place in found]
    resources = _least([of_node(pool, {GPU: requested.gpus_per_node}) for pool in pools])
    fabric = resources.get(EFA, 0) > 0
    labels = {level.word: level.label for level in pools[0].levels}
    return Gang(
        name=requested.name,
        team=requested.team,
        priority=requested.priority or GANG,
        service_account=requested.service_account,
        image=requested.image,
        pull_secrets=requested.pull_secrets,
        command=requested.command,
        args=requested.args,
        env=dict(requested.env),
        secrets=_secrets(requested),
        fabric_env=fabric_env(pools, requested.nodes, fabric=fabric),
        kind=requested.kind,
        nodes=requested.nodes,
        gpus_per_node=requested.gpus_per_node,
        resources=resources if fabric else without(resources, FABRIC),
        shm_mib=shm_mib(requested.shm, resources),
        pools=tuple(pool.name for pool in pools),
        fabric=fabric,
        required_level=labels.get(word or "") if required else None,
        preferred_level=None if required else labels.get(word or ""),
        anywhere=word is None and bool(labels),
        restarts=int(kube.RESTARTS.value) if requested.restarts is None else requested.restarts,
        checkpoint=None if requested.checkpoint is None else _checkpoint(requested, requested.checkpoint),
        grace_s=_grace_s(requested),
    )


def _secrets(requested: Serve | Train) -> tuple[SecretVariable, ...]:
    return tuple(
        SecretVariable(variable=variable, secret=one.name, key=one.key)
        for variable, one in sorted(requested.secrets.items())
    )


def _of_replica(wanted: Mapping[str, int], pool: NodePool, *, fabric: bool) -> dict[str, int]:
    """The requested amounts, with the CPU and memory that go with them, and the fabric between nodes."""
    named = {r: wanted[r] for r in pool.shared_by if r in wanted}
    beside = of_node(pool, named) if named else _by_size(wanted, pool)
    more = FABRIC if fabric and beside.get(EFA) else ()
    return {**{r: beside[r] for r in (CPU, MEMORY, *more)}, **wanted}


def _by_size(wanted: Mapping[str, int], pool: NodePool) -> dict[str, int]:
    """For a replica that requests only CPU or memory: the same part of both."""
    part = max(Fraction(wanted.get(r, 0), pool.allocatable[r]) for r in (CPU, MEMORY))
    return {r: int(pool.allocatable[r] * part) for r in (CPU, MEMORY)}


def _least(found: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Resources that fit each of the pools: the least of each resource, none of a resource that one of them lacks."""
    least = {r: min(one.get(r, 0) for one in found) for r in found[0]}
    return {r: amount for r, amount in sorted(least.items()) if amount}


def _checkpoint(requested: Train, checkpoint: CheckpointSpec) -> Checkpoint:
    folder = f"{checkpoint.mount}/checkpoints/{requested.team}/{requested.name}"
    return Checkpoint(folder=folder, takes_s=checkpoint.takes, signal=checkpoint.signal)


def _grace_s(requested: Train) -> int:
    found = requested.checkpoint
    needed = 0 if found is None else found.takes + int(kube.GRACE_AFTER_S.value)
    return max(needed, int(kube.GRACE_S.value))
