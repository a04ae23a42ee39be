"""The nodes of some pool have each named label, taint and topology level, and pods fit on them."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint import kueue
from gpucluster.k8s.lint.facts import PoolFacts
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, amounts, needs, pods_of, selects
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text, texts
from gpucluster.text import quoted

_NODE_POOL = "NodePool.karpenter.sh"
_HARD = ("NoSchedule", "NoExecute")
_SYSTEM_TAINTS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
)  # set and removed by the cluster


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for topology in manifests.all(kueue.TOPOLOGY):
        yield from _hostname_last(topology)
    for thing in manifests.objects:
        for pods in pods_of(thing):
            yield from _annotations(manifests, pods)
    if manifests.facts.pools is not None:
        yield from _with_pools(manifests, manifests.facts.pools)


def _with_pools(manifests: ManifestSet, pools: tuple[PoolFacts, ...]) -> Iterator[Finding]:
    for topology in manifests.all(kueue.TOPOLOGY):
        for path, label in kueue.levels(topology):
            if not any(kueue.has_label(pool, label) for pool in pools):
                yield topology.found("topology-label", f"no pool has the label {quoted(label)}", path)
    for flavor in manifests.all(kueue.FLAVOR):
        yield from _flavor(manifests, flavor, pools)
    for maker in manifests.all(_NODE_POOL):
        yield from _node_pool(maker, pools)
    for thing in manifests.objects:
        for pods in pods_of(thing):
            yield from _pods(manifests, pods, pools)


def _hostname_last(topology: Obj) -> Iterator[Finding]:
    labels = [label for _, label in kueue.levels(topology)]
    if kueue.HOSTNAME in labels[:-1]:
        yield topology.found(
            "topology-order", "kubernetes.io/hostname can only be the last level", ("spec", "levels")
        )


def _annotations(manifests: ManifestSet, pods: Pods) -> Iterator[Finding]:
    """Check that a workload with a topology request is in a queue whose flavors have that level."""
    yield from _one_place(pods)
    for queued in kueue.queued_with(manifests, pods.owner):
        yield from _levels(manifests, pods, kueue.queue_of(manifests, queued))


def _levels(manifests: ManifestSet, pods: Pods, queue: Obj | None) -> Iterator[Finding]:
    flavors = kueue.flavors_of(manifests, queue) if queue else ()
    complete = queue is not None and kueue.is_complete(manifests, queue)
    for key, asked in (
        kueue.asked_levels(pods.annotations).items() if complete or manifests.facts.whole else ()
    ):
        known = sorted({level for flavor in flavors for level in kueue.levels_of(manifests, flavor)})
        if asked not in known:
            where = pods.where("metadata", "annotations", key)
            have = ", ".join(known) or "none"
            yield pods.owner.found("topology-level", f"{quoted(asked)} is not a level of the queue's topologies (their levels: {have})", where)  # fmt: skip


def _one_place(pods: Pods) -> Iterator[Finding]:
    """As Kueue's webhook: one topology request, on the pod template."""
    requests = [key for key in kueue.TOPOLOGY_REQUESTS if key in pods.annotations]
    if len(requests) > 1:
        where = pods.where("metadata", "annotations")
        yield pods.owner.found("topology-request", f"{' and '.join(requests)} exclude each other", where)
    for key in kueue.TOPOLOGY_REQUESTS if pods.path else ():
        if key in mapping(at(pods.owner.body, "metadata", "annotations")):
            words = "Kueue reads this at the pods' template, here it means nothing"
            yield pods.owner.found("topology-request", words, ("metadata", "annotations", key))


def _flavor(manifests: ManifestSet, flavor: Obj, pools: tuple[PoolFacts, ...]) -> Iterator[Finding]:
    spec = mapping(flavor.body.get("spec"))
    chosen = kueue.pools_behind(manifests, flavor)
    if not chosen:
        yield flavor.found("flavor-pool", "no pool's nodes have these labels", ("spec", "nodeLabels"))
    yield from _toleration_keys(flavor, ("spec", "tolerations"), spec.get("tolerations"), pools)
    for level in kueue.levels_of(manifests, flavor):
        for pool in chosen:
            if not kueue.has_label(pool, level):
                yield flavor.found("topology-label", f"nodes of pool {pool.name!r} have no label {quoted(level)}", ("spec", "topologyName"))  # fmt: skip
    yield from _flavor_taints(flavor, chosen)


def _flavor_taints(flavor: Obj, chosen: tuple[PoolFacts, ...]) -> Iterator[Finding]:
    """Topology-aware placement ignores tolerations that a webhook adds to pods later. So the flavor must have them."""
    spec = mapping(flavor.body.get("spec"))
    level = Severity.ERROR if spec.get("topologyName") else Severity.WARNING
    for pool in chosen:
        for taint in pool.taints:
            if taint.effect in _HARD and not kueue.tolerates(spec.get("tolerations"), taint.key, taint.value, taint.effect):  # fmt: skip
                words = f"does not tolerate {taint.key}:{taint.effect} of pool {pool.name!r}"
                yield flavor.found("flavor-toleration", words, ("spec", "tolerations"), level)


def _node_pool(maker: Obj, pools: tuple[PoolFacts, ...]) -> Iterator[Finding]:
    """Karpenter's nodes must carry the labels and taints of their pool. Without them selectors and taints do not work."""
    labels = texts(at(maker.body, "spec", "template", "metadata", "labels"))
    joined = [pool for pool in pools if _fixed(pool).items() <= labels.items()]
    if not joined:
        yield maker.found("node-pool", "no pool has these labels on its nodes", ("spec", "template", "metadata", "labels"))  # fmt: skip
    taints = [mapping(taint) for _, taint in entries(maker.body, "spec", "template", "spec", "taints")]
    made = {tuple(text(taint.get(part)) for part in ("key", "value", "effect")) for taint in taints}
    for pool in joined:
        for taint in pool.taints:
            if (taint.key, taint.value, taint.effect) not in made:
                words = (
                    f"its nodes lack the taint {taint.key}={taint.value}:{taint.effect} of pool {pool.name!r}"
                )
                yield maker.found("node-pool", words, ("spec", "template", "spec", "taints"))


def _fixed(pool: PoolFacts) -> dict[str, str]:
    """Return the labels that are equal on each node of the pool and that the cluster does not set."""
    ours = {key: values for key, values in pool.labels.items() if key not in kueue.ON_EVERY_NODE}
    return {key: next(iter(values)) for key, values in ours.items() if len(values) == 1}


def _pods(manifests: ManifestSet, pods: Pods, pools: tuple[PoolFacts, ...]) -> Iterator[Finding]:
    yield from _toleration_keys(pods.owner, pods.where("spec", "tolerations"), pods.spec.get("tolerations"), pools)  # fmt: skip
    for path, key in _label_keys(pods.spec):
        if not any(kueue.has_label(pool, key) for pool in pools):
            yield pods.owner.found("node-label", f"no pool has the label {quoted(key)}", pods.where(*path))
    if pods.owner.kind != "DaemonSet":
        yield from _fits(manifests, pods, pools)


def _toleration_keys(
    owner: Obj, path: Path, tolerations: Any, pools: tuple[PoolFacts, ...]
) -> Iterator[Finding]:
    taints = [taint for pool in pools for taint in pool.taints]
    for number, entry in enumerate(items(tolerations)):
        key = text(at(entry, "key"))
        meant = any(kueue.tolerates([entry], taint.key, taint.value, taint.effect) for taint in taints)
        if key and not key.startswith(_SYSTEM_TAINTS) and not meant:
            yield owner.found("toleration", f"no pool has a taint {quoted(key)} for this toleration", (*path, number))  # fmt: skip


def _label_keys(spec: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    for key in texts(spec.get("nodeSelector")):
        yield ("spec", "nodeSelector", key), key
    for path, term in _required_terms(spec):
        for inner, expression in entries(term, "matchExpressions"):
            if key := text(at(expression, "key")):
                yield ("spec", *path, *inner), key
    for path, constraint in entries(spec, "topologySpreadConstraints"):
        if key := text(at(constraint, "topologyKey")):
            yield ("spec", *path), key
    for kind in ("podAffinity", "podAntiAffinity"):
        for path, term in entries(spec, "affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution"):
            if key := text(at(term, "topologyKey")):
                yield ("spec", *path), key


def _required_terms(spec: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    hard = "requiredDuringSchedulingIgnoredDuringExecution"
    yield from entries(spec, "affinity", "nodeAffinity", hard, "nodeSelectorTerms")


def _fits(manifests: ManifestSet, pods: Pods, pools: tuple[PoolFacts, ...]) -> Iterator[Finding]:
    """Check that some pool can run such a pod: labels match, taints are tolerated, and an empty node has room."""
    if not needs(pods) and not pods.spec.get("nodeSelector"):
        return  # it may run on the cluster's own nodes, which belong to none of the pools
    flavors = _flavors(manifests, pods)
    chosen = [pool for pool in pools if selected(pods, pool)]
    if flavors:
        behind = {pool.name for flavor in flavors for pool in kueue.pools_behind(manifests, flavor)}
        chosen = [pool for pool in chosen if pool.name in behind]
    if not chosen:
        yield pods.owner.found("node-selector", "no pool's nodes have all these labels", pods.where("spec"))
        return
    must = _must(pods)
    tolerated = chosen if flavors is None else _with_tolerations(manifests, pods, flavors, chosen)
    if not tolerated and must:
        names = ", ".join(pool.name for pool in chosen)
        yield pods.owner.found("untolerated", f"does not tolerate the taints of {names}: it would stay pending", pods.where("spec", "tolerations"))  # fmt: skip
    elif must and (lack := [_lack(pods, pool) for pool in tolerated]) and all(lack):
        yield pods.owner.found("too-large", f"fits no node: {'; '.join(lack)}", pods.where("spec"))
    elif must:
        yield from _apart(pods, sum(pool.max_nodes for pool in tolerated))


def _apart(pods: Pods, nodes: int) -> Iterator[Finding]:
    """Pods that may not share a host need as many nodes."""
    hard = ("affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    for path, term in entries(pods.spec, *hard):
        own = selects(at(term, "labelSelector"), pods.labels)
        if own and at(term, "topologyKey") == kueue.HOSTNAME and pods.count > nodes:
            words = f"{pods.count} pods exclude each other by host, and their pools have {nodes} nodes at most: some wait forever"
            yield pods.owner.warned("spread", words, pods.where("spec", *path))


def _flavors(manifests: ManifestSet, pods: Pods) -> tuple[Obj, ...] | None:
    """Return the flavors of the pods' queues, () without a queue, and None if a flavor or a queue is not among the
    manifests: Kueue gives the tolerations of the flavor to the pods (pkg/podset/podset.go)."""
    queued = kueue.queued_with(manifests, pods.owner)
    found: dict[str, Obj] = {}
    for one in queued:
        queue = kueue.queue_of(manifests, one)
        if queue is None and kueue.QUEUE_LABEL not in one.labels:
            continue
        if queue is None or not kueue.has_all_flavors(manifests, queue):
            return None
        found.update((flavor.name, flavor) for flavor in kueue.flavors_of(manifests, queue))
    return tuple(found.values()) if queued else None


def _with_tolerations(
    manifests: ManifestSet, pods: Pods, flavors: tuple[Obj, ...], pools: list[PoolFacts]
) -> list[PoolFacts]:
    """Return the pools whose taints the pods tolerate. Kueue gives them the tolerations of one flavor, and its labels."""
    own = items(pods.spec.get("tolerations"))
    if not flavors:
        return [pool for pool in pools if _tolerated(own, pool)]
    able = {
        pool.name
        for flavor in flavors
        for pool in kueue.pools_behind(manifests, flavor)
        if _tolerated([*own, *items(at(flavor.body, "spec", "tolerations"))], pool)
    }
    return [pool for pool in pools if pool.name in able]


def _must(pods: Pods) -> bool:
    """Return whether the pod needs our pools: by a device, a label, or a queue. Other pods may run on system nodes."""
    devices = any(kueue.is_device(resource) for resource in needs(pods))
    return devices or bool(pods.spec.get("nodeSelector")) or kueue.QUEUE_LABEL in pods.owner.labels


def selected(pods: Pods, pool: PoolFacts) -> bool:
    if not all(kueue.carries(pool, *pair) for pair in texts(pods.spec.get("nodeSelector")).items()):
        return False
    terms = list(_required_terms(pods.spec))
    return not terms or any(_term(term, pool) for _, term in terms)


def _term(term: Any, pool: PoolFacts) -> bool:
    """Return whether an affinity allows the pool. Only `In` and `Exists` can exclude a pool by its known labels."""
    for _, expression in entries(term, "matchExpressions"):
        key, values = text(at(expression, "key")), items(at(expression, "values"))
        operator = at(expression, "operator")
        if operator == "In" and not any(kueue.carries(pool, key, text(value)) for value in values):
            return False
        if operator == "Exists" and not kueue.has_label(pool, key):
            return False
    return True


def _tolerated(tolerations: Sequence[Any], pool: PoolFacts) -> bool:
    hard = (taint for taint in pool.taints if taint.effect in _HARD)
    return all(kueue.tolerates(tolerations, taint.key, taint.value, taint.effect) for taint in hard)


def _lack(pods: Pods, pool: PoolFacts) -> str:
    """Return the resource that a node of the pool lacks, after its daemons' requests; "" if it has room."""
    have, daemons = amounts(pool.allocatable), amounts(pool.daemons)
    for resource, amount in needs(pods).items():
        free = have.get(resource, Decimal(0)) - daemons.get(resource, Decimal(0))
        if amount > free:
            return f"{quantity.shown(amount)} {resource} requested, a node of {pool.name} has {quantity.shown(free)}"  # fmt: skip
    return ""
