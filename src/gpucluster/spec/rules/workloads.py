"""What runs, against the cluster that it runs on: teams, resources, quotas, and whether a gang fits its domain."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from gpucluster.catalog import Catalog
from gpucluster.plan.kubernetes import CPU, GPU, MEMORY, MIG_PREFIX
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.model import ClusterSpec, Pool
from gpucluster.spec.part import AbsentError, written
from gpucluster.spec.pools import of_kubernetes
from gpucluster.spec.problem import Finding, Path, quoted
from gpucluster.spec.resources import in_unit
from gpucluster.spec.rules.findings import error, or_none, parsed, run
from gpucluster.spec.rules.kubernetes import gives_of, offered, shared_by
from gpucluster.spec.workloads import Serve, Train, WorkloadsSpec

LEVELS = {"eks": ("zone", "spine", "block", "leaf"), "existing": ("zone",)}  # words for `topology`
MAX_ENV = 200  # variables of one container
OURS = ("PET_", "MASTER_")  # torch's words for where the peers are


@dataclass(frozen=True, slots=True)
class _On:
    """The file, and the cluster that it names if its spec stands where specs stand and has no error."""

    spec: WorkloadsSpec
    cluster: ClusterSpec | None
    catalog: Catalog


def check(spec: WorkloadsSpec, cluster: ClusterSpec | None, catalog: Catalog) -> list[Finding]:
    """Everything that the rules have to say about the parts that parsed."""
    on = _On(spec, cluster, catalog)
    found = [*run(_named_twice(on)), *run(_its_cluster(on)), *run(_something(on))]
    for kind, rules in _RULES.items():
        for index in range(len(parsed(lambda kind=kind: getattr(spec, kind)))):
            for rule in rules:
                found += run(rule(on, index))
    return found


def _something(on: _On) -> Iterator[Finding]:
    if not on.spec.serve and not on.spec.train:
        yield error(id="missing-key", says="'serve' or 'train' is missing: what runs")


def _its_cluster(on: _On) -> Iterator[Finding]:
    cluster = on.cluster
    if cluster is None:
        return
    if cluster.kubernetes is None:
        says = f"the cluster {quoted(on.spec.cluster)} has no Kubernetes"
        yield error("cluster", id="no-kubernetes", says=says)
    if cluster.name != on.spec.cluster:
        says = f"stacks/{on.spec.cluster}.yaml is of a cluster called {quoted(cluster.name)}"
        yield error("cluster", id="unknown-cluster", says=says)


def _named_twice(on: _On) -> Iterator[Finding]:
    """A Service and a JobSet of one name in one namespace would share a DNS name."""
    seen: dict[tuple[object, object], str] = {}
    for kind in _RULES:
        for index, one in enumerate(parsed(lambda kind=kind: getattr(on.spec, kind))):
            key = (or_none(lambda one=one: one.team), or_none(lambda one=one: one.name))  # type: ignore[attr-defined]
            if None not in key and key in seen:
                says = f"{quoted(key[1])} is already the name of {seen[key]}"
                yield error(kind, index, "name", id="duplicate-name", says=says)
            seen.setdefault(key, f"{kind}[{index}]")


def _serve_replicas(on: _On, index: int) -> Iterator[Finding]:
    one = on.spec.serve[index]
    if one.replicas.min > one.replicas.max:
        says = f"min {one.replicas.min} is above max {one.replicas.max}"
        yield error("serve", index, "replicas", "min", id="min-above-max", says=says)
    elif one.replicas.min != one.replicas.max and one.scale_on is None:
        says = "between min and max something must ask for more: `scale_on: {queue_depth: 10}`"
        yield error("serve", index, "replicas", id="never-scaled", says=says)


def _serve_amounts(on: _On, index: int) -> Iterator[Finding]:
    for resource, thousandths in on.spec.serve[index].resources.items():
        path = ("serve", index, "resources", resource)
        amount = in_unit(resource, thousandths)
        if amount is None:
            unit = "in MiB or more, such as 16Gi" if resource == MEMORY else "in whole numbers"
            yield error(*path, id="bad-amount", says=f"{resource} is counted {unit}")
        elif amount == 0:
            yield error(*path, id="bad-amount", says="nothing is not an amount; leave it out")


def _serve_team(on: _On, index: int) -> Iterator[Finding]:
    yield from _team(on, on.spec.serve[index].team, ("serve", index, "team"))


def _train_team(on: _On, index: int) -> Iterator[Finding]:
    yield from _team(on, on.spec.train[index].team, ("train", index, "team"))


def _team(on: _On, name: str, path: Path) -> Iterator[Finding]:
    names = [team.name for team in written(written(on.cluster).kubernetes).teams]
    if name not in names:
        near = did_you_mean(name, names) or f"; there are {', '.join(names)}"
        yield error(*path, id="unknown-team", says=f"{quoted(name)} is not a team of the cluster{near}")


def _serve_fits(on: _On, index: int) -> Iterator[Finding]:
    """One kind of accelerator at most, and a node that has room for a replica."""
    cluster, one = written(on.cluster), on.spec.serve[index]
    path, known = ("serve", index, "resources"), {CPU, MEMORY, *offered(cluster, on.catalog)}
    for resource in one.resources:
        if resource not in known:
            near = did_you_mean(resource, known) or f"; there are {', '.join(sorted(known))}"
            yield error(
                *path, resource, id="unknown-resource", says=f"no pool offers {quoted(resource)}{near}"
            )
            return
    wanted = _amounts(one.resources)
    if sum(resource == GPU or resource.startswith(MIG_PREFIX) for resource in wanted) > 1:
        yield error(*path, id="two-accelerators", says="a replica has one kind of GPU or slice, found two")
    elif not any(_room(wanted, gives_of(pool, on.catalog)) for pool in _pools_of(on, one.team, wanted)):
        says = "no node of the pools that the team has a quota of has room for one replica"
        yield error(*path, id="no-room", says=says)
    else:
        yield from _within_quota(on, one, wanted, path)


def _within_quota(on: _On, one: Serve, wanted: Mapping[str, int], path: Path) -> Iterator[Finding]:
    for resource, amount in wanted.items():
        limit = _limit(on, one.team, resource)
        if amount * one.replicas.max > limit:
            says = f"{one.replicas.max} replicas take {amount * one.replicas.max} of {resource}, the team has {limit}"
            yield error(*path, resource, id="above-quota", says=says)


def _train_fits(on: _On, index: int) -> Iterator[Finding]:
    one, path = on.spec.train[index], ("train", index)
    wanted = one.nodes * one.gpus_per_node
    pools = [
        (pool, gives_of(pool, on.catalog)[GPU]) for pool in _pools_of(on, one.team, {GPU: one.gpus_per_node})
    ]
    if not pools:
        yield error(*path, "team", id="no-gpus", says=f"the team '{one.team}' has no quota of {GPU}")
        return
    counts = sorted({gpus for _, gpus in pools})
    if not any(gpus % one.gpus_per_node == 0 for gpus in counts):
        says = f"{one.gpus_per_node} does not divide the {' or '.join(map(str, counts))} GPUs of a node"
        yield error(*path, "gpus_per_node", id="gpus-per-node", says=says)
        return
    limit = _limit(on, one.team, GPU)
    if wanted > limit:
        says = f"{one.nodes} x {one.gpus_per_node} = {wanted} GPUs, the team has {limit}"
        yield error(*path, "nodes", id="above-quota", says=says)
        return
    yield from _domain(on, one, pools, path)


def _domain(on: _On, one: Train, pools: list[tuple[Pool, int]], path: Path) -> Iterator[Finding]:
    """A pool's nodes that stand are in one zone, so that is the most that any domain holds."""
    wish = one.topology
    word = None if wish is None else wish.required or wish.preferred
    fit = [p for p, gpus in pools if written(p.nodes).max * (gpus // one.gpus_per_node) >= one.nodes]
    if not fit:
        says = f"no pool has room for {one.nodes} pods of {one.gpus_per_node} GPUs at its max"
        yield error(*path, "nodes", id="gang-above-domain", says=says)
    elif word is not None and not any(written(p.nodes).min == written(p.nodes).max for p in fit):
        says = (
            f"for a place in one {word} Kueue counts on nodes that stand: "
            f"no pool of the team's has {one.nodes} of them always (min = max)"
        )
        yield error(*path, "topology", id="gang-above-domain", says=says)


def _train_topology(on: _On, index: int) -> Iterator[Finding]:
    wish, path = written(on.spec.train[index].topology), ("train", index, "topology")
    if (wish.required is None) == (wish.preferred is None):
        yield error(*path, id="topology", says="exactly one of 'required' and 'preferred'")
        return
    word, key = (wish.required, "required") if wish.required is not None else (wish.preferred, "preferred")
    kubernetes = None if on.cluster is None else on.cluster.kubernetes
    known = LEVELS["existing" if kubernetes is not None and kubernetes.existing is not None else "eks"]
    if word not in known:
        near = did_you_mean(str(word), known) or f"; there are {', '.join(known)}"
        yield error(
            *path, key, id="unknown-level", says=f"{quoted(word)} is not a level of the topology{near}"
        )


def _env(kind: str) -> Callable[[_On, int], Iterator[Finding]]:
    def rule(on: _On, index: int) -> Iterator[Finding]:
        one: Serve | Train = getattr(on.spec, kind)[index]
        if len(one.env) > MAX_ENV:
            says = f"{len(one.env)} variables; a container has at most {MAX_ENV} here"
            yield error(kind, index, "env", id="too-many", says=says)
        for name in one.env:
            if kind == "train" and name.startswith(OURS):
                says = f"'{name}' is set for the gang; its value would be lost"
                yield error(kind, index, "env", name, id="reserved-name", says=says)

    return rule


_RULES: dict[str, tuple[Callable[[_On, int], Iterator[Finding]], ...]] = {
    "serve": (_serve_replicas, _serve_amounts, _serve_team, _serve_fits, _env("serve")),
    "train": (_train_team, _train_topology, _train_fits, _env("train")),
}


def _amounts(resources: Mapping[str, int]) -> dict[str, int]:
    """In the plan's units; AbsentError for what `_serve_amounts` refuses."""
    found = {resource: in_unit(resource, amount) for resource, amount in resources.items()}
    if None in found.values():
        raise AbsentError
    return {resource: amount for resource, amount in found.items() if amount is not None}


def _pools_of(on: _On, team: str, wanted: Mapping[str, int]) -> list[Pool]:
    """Pools that offer what is wanted to this team: it has a quota of what shares them out."""
    cluster = written(on.cluster)
    mine = next((t for t in written(cluster.kubernetes).teams if t.name == team), None)
    if mine is None:
        raise AbsentError
    named = [resource for resource in wanted if resource not in (CPU, MEMORY)]
    return [
        pool
        for pool in of_kubernetes(cluster)
        if (gives := gives_of(pool, on.catalog))
        and set(mine.quota) & set(gives)
        and all(resource in gives and resource in mine.quota for resource in named)
    ]


def _room(wanted: Mapping[str, int], gives: Mapping[str, int]) -> bool:
    return all(gives.get(resource, 0) >= amount for resource, amount in wanted.items())


def _limit(on: _On, team: str, resource: str) -> int:
    """The most that the team may hold at once; of CPU and memory, what goes with its quota at the best."""
    cluster = written(on.cluster)
    mine = next(t for t in written(cluster.kubernetes).teams if t.name == team)
    offers = offered(cluster, on.catalog)
    if resource in offers:
        own = in_unit(resource, mine.quota.get(resource, 0)) or 0
        return offers[resource] if mine.may_borrow else min(own, offers[resource])
    total = 0
    for pool in _pools_of(on, team, {}):
        gives, most = gives_of(pool, on.catalog), written(pool.nodes).max
        part = sum(Fraction(_limit(on, team, r), gives[r] * most) for r in shared_by(pool, on.catalog))
        total += int(gives[resource] * most * min(part, Fraction(1)))
    return total
