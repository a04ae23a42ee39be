"""What runs, against the cluster that it runs on: teams, resources, quotas, and whether a gang fits its domain."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gpucluster.catalog import Catalog
from gpucluster.plan import places
from gpucluster.plan.kubernetes import CPU, GPU, MEMORY, MIG_PREFIX, Distribution, quantity
from gpucluster.plan.levels import WORDS
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.kubernetes import distribution
from gpucluster.spec.model import ClusterSpec, Pool
from gpucluster.spec.part import AbsentError, written
from gpucluster.spec.pools import of_kubernetes
from gpucluster.spec.problem import Finding, Path, quoted
from gpucluster.spec.resources import in_unit
from gpucluster.spec.rules.findings import error, or_none, parsed, run
from gpucluster.spec.rules.kubernetes import gives_of, offered, shared_by
from gpucluster.spec.rules.places import amounts, places_of
from gpucluster.spec.workloads import Serve, Train, WorkloadsSpec

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
    wanted = amounts(one.resources)
    if not all(wanted.values()):
        return  # said by `_serve_amounts`
    if sum(resource == GPU or resource.startswith(MIG_PREFIX) for resource in wanted) > 1:
        yield error(*path, id="two-accelerators", says="a replica has one kind of GPU or slice, found two")
    elif not any(_room(wanted, gives_of(pool, on.catalog)) for pool in _pools_of(on, one.team, wanted)):
        says = "no node of the pools that the team has a quota of has room for one replica"
        yield error(*path, id="no-room", says=says)
    elif above := list(_within_quota(on, one, wanted, path)):
        yield from above
    elif not places.of_service(
        found := places_of(one.team, written(on.cluster), on.catalog), wanted, one.replicas.max
    ):
        says = f"{one.replicas.max} replicas in pools of one kind; {_by_kind(found, wanted)}"
        yield error(*path, id="above-quota", says=says)


def _within_quota(on: _On, one: Serve, wanted: Mapping[str, int], path: Path) -> Iterator[Finding]:
    for resource, amount in wanted.items():
        limit = _limit(on, one.team, resource)
        if amount * one.replicas.max > limit:
            all_, has = quantity(resource, amount * one.replicas.max), quantity(resource, limit)
            says = f"{one.replicas.max} replicas take {all_} of {resource}, the team has {has}"
            yield error(*path, resource, id="above-quota", says=says)


def _by_kind(found: Sequence[places.Place], wanted: Mapping[str, int]) -> str:
    """Kueue gives the pods of one template either pools with a topology or pools without."""
    kinds = (
        f"{'with' if some[0].words else 'without'} a topology ({', '.join(p.pool for p in some)}) is room for {places.held(some, wanted)}"
        for some in places.alike(found)
    )
    return ", ".join(kinds)


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
    """A gang stands in one pool. A pool's nodes that stand are in one zone, so that is the most that any domain holds."""
    wish = one.topology
    word = None if wish is None else wish.required or wish.preferred
    fit = [p for p, gpus in pools if written(p.nodes).max * (gpus // one.gpus_per_node) >= one.nodes]
    mine = places_of(one.team, written(on.cluster), on.catalog)
    if not fit:
        says = f"no pool has room for {one.nodes} pods of {one.gpus_per_node} GPUs at its max"
        yield error(*path, "nodes", id="gang-above-domain", says=says)
    elif not places.of_gang(mine, one.nodes, one.gpus_per_node, None):
        has = ", ".join(f"{place.reach.get(GPU, 0)} in {place.pool}" for place in mine if GPU in place.node)
        says = f"{one.nodes} x {one.gpus_per_node} GPUs must be in one pool; the team has {has}"
        yield error(*path, "nodes", id="above-quota", says=says)
    elif word in _known(on) and not places.of_gang(mine, one.nodes, one.gpus_per_node, word):
        yield error(*path, "topology", id="gang-above-domain", says=_no_level(word, one.nodes, mine))


def _no_level(word: str, nodes: int, mine: Sequence[places.Place]) -> str:
    if any(place.words and word not in place.words for place in mine):
        return (
            f"EC2 does not tell the {word} of every machine of the team's pools (it does of p, trn and hpc)"
        )
    return (
        f"for a place in one {word} Kueue counts on nodes that stand: "
        f"no pool of the team's has {nodes} of them always (min = max)"
    )


def _train_topology(on: _On, index: int) -> Iterator[Finding]:
    wish, path = written(on.spec.train[index].topology), ("train", index, "topology")
    if (wish.required is None) == (wish.preferred is None):
        yield error(*path, id="topology", says="exactly one of 'required' and 'preferred'")
        return
    word, key = (wish.required, "required") if wish.required is not None else (wish.preferred, "preferred")
    known = _known(on)
    if word not in known:
        near = did_you_mean(str(word), known) or f"; there are {', '.join(known)}"
        yield error(
            *path, key, id="unknown-level", says=f"{quoted(word)} is not a level of the topology{near}"
        )


def _known(on: _On) -> tuple[str, ...]:
    """The words for levels; of a cluster that nobody read, all that there are."""
    kubernetes = None if on.cluster is None else on.cluster.kubernetes
    return WORDS[Distribution.EKS if kubernetes is None else distribution(kubernetes)]


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
