"""Check workloads against their cluster: teams, resources, quotas, and the topology domain of each gang."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpucluster.catalog import Catalog
from gpucluster.plan import names, quota_shares
from gpucluster.plan.kubernetes import WORDS
from gpucluster.plan.model.values import (
    CPU,
    GPU,
    MEMORY,
    MIG_PREFIX,
    TRAINJOB,
    Distribution,
    quantity,
)
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.kubernetes import distribution
from gpucluster.spec.model import ClusterSpec, Pool
from gpucluster.spec.part import require
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.resources import in_unit
from gpucluster.spec.rules import secrets, workload_fabric, workload_memory, workload_names
from gpucluster.spec.rules.findings import collect, error, or_none, parsed, warning
from gpucluster.spec.rules.kubernetes import gives_of, offered
from gpucluster.spec.rules.places import amounts, has_room, limit_of, places_of, pools_of
from gpucluster.spec.workloads import Serve, Train, WorkloadsSpec
from gpucluster.text import quoted


@dataclass(frozen=True, slots=True)
class _On:
    """The workloads file and its cluster. The cluster is None if its spec is not found or has an error."""

    spec: WorkloadsSpec
    cluster: ClusterSpec | None
    catalog: Catalog


def check(spec: WorkloadsSpec, cluster: ClusterSpec | None, catalog: Catalog) -> list[Finding]:
    """Return all findings about the parts that are valid."""
    on = _On(spec, cluster, catalog)
    found = [*collect(_named_twice(on)), *collect(_its_cluster(on)), *collect(_not_empty(on))]
    found += collect(workload_names.nccl_test(spec, cluster, catalog))
    for kind, rules in _RULES.items():
        for index in range(len(parsed(lambda kind=kind: getattr(spec, kind)))):
            for rule in rules:
                found += collect(rule(on, index))
    return found


def _not_empty(on: _On) -> Iterator[Finding]:
    if not on.spec.serve and not on.spec.train:
        yield error(id="missing-key", message="'serve' or 'train' is missing: the workloads")


def _its_cluster(on: _On) -> Iterator[Finding]:
    cluster = on.cluster
    if cluster is None:
        return
    if cluster.kubernetes is None:
        message = f"the cluster {quoted(on.spec.cluster)} has no Kubernetes"
        yield error("cluster", id="no-kubernetes", message=message)
    if cluster.name != on.spec.cluster:
        message = f"stacks/{on.spec.cluster}.yaml has the name {quoted(cluster.name)}"
        yield error("cluster", id="unknown-cluster", message=message)


def _named_twice(on: _On) -> Iterator[Finding]:
    """A Service and a JobSet of one name in one namespace would share a DNS name."""
    seen: dict[tuple[object, object], str] = {}
    for kind in _RULES:
        for index, one in enumerate(parsed(lambda kind=kind: getattr(on.spec, kind))):
            named: Any = one
            team = or_none(lambda named=named: str(named.team))
            name = or_none(lambda named=named: str(named.name))
            groups = or_none(lambda named=named: named.nodes > 1) and kind == "serve"
            for made in (name, names.group_name(str(name))) if groups else (name,):
                key = (team, made)
                if None not in key and key in seen:
                    message = f"{quoted(made)} is already the name of {seen[key]}"
                    yield error(kind, index, "name", id="duplicate-name", message=message)
                seen.setdefault(key, f"{kind}[{index}]")


def _serve_replicas(on: _On, index: int) -> Iterator[Finding]:
    one = on.spec.serve[index]
    if one.replicas.min > one.replicas.max:
        message = f"min {one.replicas.min} is above max {one.replicas.max}"
        yield error("serve", index, "replicas", "min", id="min-above-max", message=message)
    elif one.replicas.min != one.replicas.max and one.scale_on is None:
        message = "'scale_on' is missing: the reason to scale between min and max, such as `scale_on: {queue_depth: 10}`"
        yield error("serve", index, "replicas", id="never-scaled", message=message)


def _serve_amounts(on: _On, index: int) -> Iterator[Finding]:
    for resource, thousandths in on.spec.serve[index].resources.items():
        path = ("serve", index, "resources", resource)
        amount = in_unit(resource, thousandths)
        if amount is None:
            unit = "in MiB or more, such as 16Gi" if resource == MEMORY else "in whole numbers"
            yield error(*path, id="bad-amount", message=f"{resource} is counted {unit}")
        elif amount == 0:
            yield error(*path, id="bad-amount", message="0 is not an amount; remove this key")


def _serve_team(on: _On, index: int) -> Iterator[Finding]:
    yield from _team(on, on.spec.serve[index].team, ("serve", index, "team"))


def _train_team(on: _On, index: int) -> Iterator[Finding]:
    yield from _team(on, on.spec.train[index].team, ("train", index, "team"))


def _train_kind(on: _On, index: int) -> Iterator[Finding]:
    if on.spec.train[index].kind == TRAINJOB and require(require(on.cluster).kubernetes).trainer is None:
        message = "the cluster has no Kubeflow Trainer; add `kubernetes.trainer` to its spec"
        yield error("train", index, "kind", id="no-trainer", message=message)


def _team(on: _On, name: str, path: Path) -> Iterator[Finding]:
    teams = [team.name for team in require(require(on.cluster).kubernetes).teams]
    if name not in teams:
        near = did_you_mean(name, teams) or f"; there are {', '.join(teams)}"
        yield error(*path, id="unknown-team", message=f"{quoted(name)} is not a team of the cluster{near}")


def _serve_fits(on: _On, index: int) -> Iterator[Finding]:
    """Check that a replica has at most one kind of accelerator, and fits on a node and in the quota."""
    cluster, one = require(on.cluster), on.spec.serve[index]
    path, known = ("serve", index, "resources"), {CPU, MEMORY, *offered(cluster, on.catalog)}
    for resource in one.resources:
        if resource not in known:
            near = did_you_mean(resource, known) or f"; there are {', '.join(sorted(known))}"
            yield error(
                *path, resource, id="unknown-resource", message=f"no pool offers {quoted(resource)}{near}"
            )
            return
    wanted = amounts(one.resources)
    if not all(wanted.values()):
        return  # `_serve_amounts` reports it
    if sum(resource == GPU or resource.startswith(MIG_PREFIX) for resource in wanted) > 1:
        yield error(
            *path, id="two-accelerators", message="a replica can have one kind of GPU or slice, found two"
        )
    elif not any(
        has_room(wanted, gives_of(pool, on.catalog))
        for pool in pools_of(one.team, require(on.cluster), on.catalog, wanted)
    ):
        message = "one replica fits on no node of the team's pools"
        yield error(*path, id="no-room", message=message)
    elif above := list(_within_quota(on, one, wanted, path)):
        yield from above
    elif one.nodes > 1:
        yield from _groups_fit(on, one, wanted, path)
    elif not quota_shares.of_service(
        found := places_of(one.team, require(on.cluster), on.catalog), wanted, one.replicas.max
    ):
        message = f"{one.replicas.max} replicas must be in pools of one kind; {_by_kind(found, wanted)}"
        yield error(*path, id="above-quota", message=message)


def _groups_fit(on: _On, one: Serve, wanted: Mapping[str, int], path: Path) -> Iterator[Finding]:
    places = places_of(one.team, require(on.cluster), on.catalog)
    if not quota_shares.of_groups(places, wanted, one.nodes, one.replicas.max):
        room = ", ".join(f"{place.pods(wanted)} in {place.pool}" for place in places)
        message = f"{one.replicas.max} replicas of {one.nodes} nodes must be in one pool; there is room for pods: {room}"
        yield error(*path, id="above-quota", message=message)


def _serve_together(on: _On, index: int) -> Iterator[Finding]:
    """Check that the least replicas of this service and of those before it are within the team's quota together."""
    one, cluster = on.spec.serve[index], require(on.cluster)
    mine = [other for other in on.spec.serve[: index + 1] if other.team == one.team]
    for resource in one.resources:
        each = [amounts(o.resources).get(resource, 0) * o.nodes * o.replicas.min for o in mine]
        limit = limit_of(one.team, cluster, on.catalog, resource)
        if max(sum(each[:-1]), each[-1]) <= limit < sum(each):
            all_, has = quantity(resource, sum(each)), quantity(resource, limit)
            message = f"the services of '{one.team}' take at least {all_} of {resource} together, the team has {has}: some replicas wait for ever; lower 'replicas' or 'resources' of one, or raise the quota"
            yield warning("serve", index, "replicas", id="services-above-quota", message=message)


def _serve_nodes(on: _On, index: int) -> Iterator[Finding]:
    """Check what only replicas of several nodes have: a program for the other pods, and GPUs."""
    one = on.spec.serve[index]
    if one.worker_command and one.nodes == 1:
        message = "a replica has one pod, so there is no other; write `nodes`"
        yield error("serve", index, "worker_command", id="no-workers", message=message)
    named = {r for r in one.resources if r == GPU or r.startswith(MIG_PREFIX)}
    if one.nodes > 1 and GPU not in named:
        message = f"a replica of {one.nodes} nodes needs {GPU}; without it one pod can do its work"
        yield error("serve", index, "nodes", id="nodes-without-gpus", message=message)


def _within_quota(on: _On, one: Serve, wanted: Mapping[str, int], path: Path) -> Iterator[Finding]:
    for resource, amount in wanted.items():
        limit = limit_of(one.team, require(on.cluster), on.catalog, resource, beside=wanted)
        if amount * one.nodes * one.replicas.max > limit:
            all_, has = (
                quantity(resource, amount * one.nodes * one.replicas.max),
                quantity(resource, limit),
            )
            of = f" of {one.nodes} nodes" if one.nodes > 1 else ""
            message = f"{one.replicas.max} replicas{of} take {all_} of {resource}, the team has {has}"
            yield error(*path, resource, id="above-quota", message=message)


def _by_kind(found: Sequence[quota_shares.TeamPool], wanted: Mapping[str, int]) -> str:
    """Return the capacity by kind. Kueue places the pods of one template in pools with a topology, or in pools without one."""
    kinds = (
        f"{'with' if some[0].words else 'without'} a topology ({', '.join(p.pool for p in some)}) there is room for {quota_shares.pods_of(some, wanted)}"
        for some in quota_shares.alike(found)
    )
    return ", ".join(kinds)


def _train_fits(on: _On, index: int) -> Iterator[Finding]:
    one, path = on.spec.train[index], ("train", index)
    wanted = one.nodes * one.gpus_per_node
    pools = [
        (pool, gives_of(pool, on.catalog)[GPU])
        for pool in pools_of(one.team, require(on.cluster), on.catalog, {GPU: one.gpus_per_node})
    ]
    if not pools:
        yield error(*path, "team", id="no-gpus", message=f"the team '{one.team}' has no quota of {GPU}")
        return
    counts = sorted({gpus for _, gpus in pools})
    if not any(gpus % one.gpus_per_node == 0 for gpus in counts):
        message = f"{one.gpus_per_node} does not divide the {' or '.join(map(str, counts))} GPUs of a node"
        yield error(*path, "gpus_per_node", id="gpus-per-node", message=message)
        return
    limit = limit_of(one.team, require(on.cluster), on.catalog, GPU)
    if wanted > limit:
        message = f"{one.nodes} x {one.gpus_per_node} = {wanted} GPUs, the team has {limit}"
        yield error(*path, "nodes", id="above-quota", message=message)
        return
    yield from _domain(on, one, pools, path)


def _domain(on: _On, one: Train, pools: list[tuple[Pool, int]], path: Path) -> Iterator[Finding]:
    """Check that one pool, and one topology domain, holds the gang."""
    part = one.topology
    word = None if part is None else part.required or part.preferred
    required = part is not None and part.required is not None
    fit = [p for p, gpus in pools if require(p.nodes).max * (gpus // one.gpus_per_node) >= one.nodes]
    mine = places_of(one.team, require(on.cluster), on.catalog)
    if not fit:
        message = f"no pool has room for {one.nodes} pods of {one.gpus_per_node} GPUs at its max"
        yield error(*path, "nodes", id="gang-above-domain", message=message)
    elif not quota_shares.of_gang(mine, one.nodes, one.gpus_per_node, None):
        has = ", ".join(f"{place.reach.get(GPU, 0)} in {place.pool}" for place in mine if GPU in place.node)
        zones = " and, with EFA, in one zone" if any("." in place.pool for place in mine) else ""
        message = f"{one.nodes} x {one.gpus_per_node} GPUs must be in one pool{zones}; the team has {has}"
        yield error(*path, "nodes", id="above-quota", message=message)
    elif word in _known(on) and not quota_shares.of_gang(mine, one.nodes, one.gpus_per_node, word):
        yield error(*path, "topology", id="gang-above-domain", message=_no_level(word, one.nodes, mine))
    elif word in _known(on) and not quota_shares.of_gang(
        mine, one.nodes, one.gpus_per_node, word, required=required
    ):
        message = f"the always-on nodes of no pool of the team have room for {one.nodes} pods in one zone; they fill the sources in their order"
        yield error(*path, "topology", id="gang-above-domain", message=message)


def _no_level(word: str, nodes: int, mine: Sequence[quota_shares.TeamPool]) -> str:
    if any(place.words and word not in place.words for place in mine):
        return f"EC2 does not report the {word} of every machine of the team's pools (only of p, trn and hpc)"
    return (
        f"Kueue counts only always-on nodes for a place in one {word}: "
        f"no pool of the team has {nodes} of them (min = max)"
    )


def _train_topology(on: _On, index: int) -> Iterator[Finding]:
    part, path = require(on.spec.train[index].topology), ("train", index, "topology")
    if (part.required is None) == (part.preferred is None):
        yield error(*path, id="topology", message="write exactly one of 'required' and 'preferred'")
        return
    word, key = (part.required, "required") if part.required is not None else (part.preferred, "preferred")
    known = _known(on)
    if word not in known:
        near = did_you_mean(str(word), known) or f"; there are {', '.join(known)}"
        yield error(
            *path, key, id="unknown-level", message=f"{quoted(word)} is not a level of the topology{near}"
        )


def _known(on: _On) -> tuple[str, ...]:
    """Return the words for topology levels. All words if the cluster was not read."""
    kubernetes = None if on.cluster is None else on.cluster.kubernetes
    return WORDS[Distribution.EKS if kubernetes is None else distribution(kubernetes)]


def _train_checkpoint(on: _On, index: int) -> Iterator[Finding]:
    yield from workload_memory.checkpoint(on.spec.train[index], on.cluster, on.catalog, ("train", index))


def _of_both(kind: str) -> Iterator[Callable[[_On, int], Iterator[Finding]]]:
    for rule in (
        secrets.literal,
        secrets.variables,
        workload_names.variables,
        workload_names.references,
        workload_names.dollars,
        workload_names.own,
        workload_names.pull_secrets,
    ):
        yield lambda on, index, rule=rule: rule(getattr(on.spec, kind)[index], (kind, index))
    for of_cluster in (workload_memory.shm, workload_memory.memory, workload_fabric.efa):
        yield lambda on, index, rule=of_cluster: rule(
            getattr(on.spec, kind)[index], on.cluster, on.catalog, (kind, index)
        )
    for name in (workload_names.priority, workload_names.service_account):
        yield lambda on, index, rule=name: rule(getattr(on.spec, kind)[index], on.cluster, (kind, index))


_RULES: dict[str, tuple[Callable[[_On, int], Iterator[Finding]], ...]] = {
    "serve": (
        _serve_replicas,
        _serve_amounts,
        _serve_team,
        _serve_nodes,
        _serve_fits,
        _serve_together,
        *_of_both("serve"),
    ),
    "train": (
        _train_team,
        _train_kind,
        _train_topology,
        _train_fits,
        _train_checkpoint,
        *_of_both("train"),
    ),
}
