"""What stops pods: budgets, grace periods, retries of one pod of a gang, and nodes that end."""

import re
from collections.abc import Iterator
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.gangs import is_gang
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import JOBSET, Pods, pods_of
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text

_BUDGET, _NODE_POOL = "PodDisruptionBudget.policy", "NodePool.karpenter.sh"
_GRACE = 30  # seconds; the API server's default
_SLEEP = re.compile(r"(?:^|[;&\s])sleep\s+(\d{1,6})(?:s\b|\b)", re.ASCII)
_REPLICATED = frozenset({"Deployment.apps", "StatefulSet.apps", "ReplicaSet.apps"})
_DEFAULT_RETRIES = 6


def check(manifests: ManifestSet) -> Iterator[Finding]:
    all_pods = [pods for thing in manifests.objects for pods in pods_of(thing)]
    for pods in all_pods:
        yield from _pre_stop(pods)
        yield from _retries(pods)
    for budget in manifests.all(_BUDGET):
        yield from _budget(budget, all_pods)
    gangs = any(is_gang(pods) for pods in all_pods)
    for maker in manifests.all(_NODE_POOL):
        yield from _node_pool(maker, gangs=gangs)


def _budget(budget: Obj, all_pods: list[Pods]) -> Iterator[Finding]:
    least, most = at(budget.body, "spec", "minAvailable"), at(budget.body, "spec", "maxUnavailable")
    if most in (0, "0", "0%"):
        yield budget.warned(
            "budget", "no pod may be evicted, so a node with one is never drained", ("spec", "maxUnavailable")
        )
    elif least == "100%" or (type(least) is int and 0 < _replicas(budget, all_pods) <= least):
        yield budget.warned(
            "budget", "all pods must stay, so a node with one is never drained", ("spec", "minAvailable")
        )
    elif most == "100%" or (least in (0, "0", "0%")):
        yield budget.warned(
            "budget", "all pods may be evicted at once: the budget protects nothing", ("spec",)
        )


def _replicas(budget: Obj, all_pods: list[Pods]) -> int:
    """Return how many pods the budget protects; 0 if the number is not written."""
    wanted = mapping(at(budget.body, "spec", "selector", "matchLabels"))
    chosen = [
        pods
        for pods in all_pods
        if wanted and pods.owner.namespace == budget.namespace and wanted.items() <= dict(pods.labels).items()
    ]
    written = all(type(at(pods.owner.body, "spec", "replicas")) is int for pods in chosen)
    known = written and all(pods.owner.key in _REPLICATED for pods in chosen)
    return sum(pods.count for pods in chosen) if known else 0


def _pre_stop(pods: Pods) -> Iterator[Finding]:
    """The API server refuses a `sleep` action beyond the grace period. A command that sleeps longer is killed."""
    written = pods.spec.get("terminationGracePeriodSeconds")
    grace = written if type(written) is int else _GRACE
    for path, container in pods.containers():
        hook, where = mapping(at(container, "lifecycle", "preStop")), (*path, "lifecycle", "preStop")
        action, command = at(hook, "sleep", "seconds"), _sleep(items(at(hook, "exec", "command")))
        words = (
            f"the hook takes {{}} s, terminationGracePeriodSeconds is {grace}: the container is killed before"
        )
        if type(action) is int and action > grace:
            yield pods.owner.found("pre-stop", words.format(action), where)
        elif command >= grace > 0:
            yield pods.owner.warned("pre-stop", words.format(command), where)


def _sleep(command: Any) -> int:
    found = _SLEEP.findall(" ".join(text(word) for word in command))
    return sum(map(int, found))


def _retries(pods: Pods) -> Iterator[Finding]:
    """The other pods of a gang wait for one that starts again, with all their GPUs, until their collective times out."""
    if not is_gang(pods) or pods.owner.key not in (JOBSET, "Job.batch"):
        return
    where: Path = (*pods.path[:-1], "backoffLimit")
    spec = mapping(_below(pods.owner.body, pods.path[:-1]))
    limit = spec.get("backoffLimit")
    absent = limit is None and pods.spec.get("restartPolicy") == "Never" and "podFailurePolicy" not in spec
    if "backoffLimitPerIndex" not in spec and (absent or (type(limit) is int and limit > 0)):
        words = f"{_DEFAULT_RETRIES} by default" if absent else str(limit)
        yield pods.owner.warned("gang-retries", f"one pod of the gang is tried again ({words}) while the others hold their GPUs: use 0, and restart the whole set", where)  # fmt: skip


def _below(value: Any, path: Path) -> Any:
    for key in path:
        value = items(value)[key] if isinstance(key, int) else mapping(value).get(key)
    return value


def _node_pool(maker: Obj, *, gangs: bool) -> Iterator[Finding]:
    """Karpenter replaces each node after `expireAfter`, 30 days by default, and ends what runs on it."""
    if not has_gpus(maker):
        return
    spec = mapping(at(maker.body, "spec", "template", "spec"))
    expiry = spec.get("expireAfter", "720h" if gangs else "Never")
    if isinstance(expiry, str) and expiry != "Never":
        words = f"its nodes end after {expiry}, with the jobs on them: use Never for nodes of gangs"
        yield maker.warned("node-expiry", words, ("spec", "template", "spec", "expireAfter"))
    policy = at(maker.body, "spec", "disruption", "consolidationPolicy")
    if policy == "WhenEmptyOrUnderutilized" and gangs:
        words = "moves running jobs to other nodes: use WhenEmpty for nodes of gangs"
        yield maker.warned("node-expiry", words, ("spec", "disruption", "consolidationPolicy"))


def has_gpus(maker: Obj) -> bool:
    """Return whether a NodePool makes GPU nodes, by its limits, taints or requirements."""
    keys = [
        *mapping(at(maker.body, "spec", "limits")),
        *(text(at(taint, "key")) for _, taint in entries(maker.body, "spec", "template", "spec", "taints")),
        *(text(at(one, "key")) for _, one in entries(maker.body, "spec", "template", "spec", "requirements")),
    ]
    return any(key.startswith(("nvidia.com/", "karpenter.k8s.aws/instance-gpu")) for key in keys)
