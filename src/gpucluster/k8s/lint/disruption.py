"""What stops pods: budgets, grace periods, retries of one pod of a gang, and nodes that end."""

import re
from collections.abc import Iterator
from math import ceil
from typing import Any

from gpucluster.k8s.lint import hosts, storage
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.gangs import devices, is_gang, is_launched
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import JOBSET, LWS, Pods, pods_of, selects
from gpucluster.k8s.lint.tree import Path, at, below, entries, items, mapping, text

_BUDGET, _NODE_POOL = "PodDisruptionBudget.policy", "NodePool.karpenter.sh"
_GRACE = 30  # seconds; the API server's default
_SHARE = re.compile(r"(\d{1,3})%", re.ASCII)
_SLEEP = re.compile(r"(?:^|[;&\s])sleep\s+(\d{1,6})([smh]?)\b", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_REPLICATED = frozenset({"Deployment.apps", "StatefulSet.apps", "ReplicaSet.apps"})
_DEFAULT_RETRIES = 6


def check(manifests: ManifestSet) -> Iterator[Finding]:
    all_pods = [pods for thing in manifests.objects for pods in pods_of(thing)]
    for pods in all_pods:
        yield from _pre_stop(pods)
        yield from _retries(pods)
    budgets = list(manifests.all(_BUDGET))
    yield from _overlaps(budgets, all_pods)
    for budget in budgets:
        yield from _budget(manifests, budget, all_pods)
    gangs = any(is_gang(pods) for pods in all_pods)
    for maker in manifests.all(_NODE_POOL):
        yield from _node_pool(maker, gangs=gangs)
    for node_class in manifests.all("EC2NodeClass.karpenter.k8s.aws"):
        yield from _images(node_class)


def _budget(manifests: ManifestSet, budget: Obj, all_pods: list[Pods]) -> Iterator[Finding]:
    least, most = at(budget.body, "spec", "minAvailable"), at(budget.body, "spec", "maxUnavailable")
    count = _replicas(manifests, _protected(budget, all_pods))
    if most in (0, "0", "0%"):
        yield budget.warned(
            "budget", "no pod may be evicted, so a node with one is never drained", ("spec", "maxUnavailable")
        )
    elif least == "100%" or 0 < count <= _of(least, count):
        yield budget.warned(
            "budget", "all pods must stay, so a node with one is never drained", ("spec", "minAvailable")
        )
    elif most == "100%" or (least in (0, "0", "0%")):
        yield budget.warned(
            "budget", "all pods may be evicted at once: the budget protects nothing", ("spec",)
        )


def _of(amount: Any, count: int) -> int:
    """Return a number or a share of the pods as the controller counts it: a share is rounded up."""
    share = _SHARE.fullmatch(text(amount))
    return ceil(int(share[1]) * count / 100) if share else amount if type(amount) is int else 0


def _protected(budget: Obj, all_pods: list[Pods]) -> list[Pods]:
    """Return the pods that a budget selects by labels; none for an empty selector."""
    selector = at(budget.body, "spec", "selector")
    here = (pods for pods in all_pods if pods.owner.namespace == budget.namespace)
    return [pods for pods in here if selects(selector, pods.labels)]


def _replicas(manifests: ManifestSet, chosen: list[Pods]) -> int:
    """Return how many pods there are at most; 0 if the number is not written."""
    if not all(pods.owner.key in _REPLICATED for pods in chosen):
        return 0
    numbers = [_most(manifests, pods) for pods in chosen]
    return sum(numbers) if all(numbers) else 0


def _most(manifests: ManifestSet, pods: Pods) -> int:
    """Without a number there is one pod, unless somebody scales it."""
    scaled = storage.scaled(manifests, pods)
    written = at(pods.owner.body, "spec", "replicas")
    if scaled > 1:
        return scaled
    return written if type(written) is int else int(written is None and not _scales(manifests, pods))


def _scales(manifests: ManifestSet, pods: Pods) -> bool:
    """Return whether an object of the namespace scales something: an autoscaler, or a ScaledObject of KEDA."""
    return any(
        at(one.body, "spec", "scaleTargetRef") is not None and one.namespace == pods.owner.namespace
        for one in manifests.objects
    )


def _overlaps(budgets: list[Obj], all_pods: list[Pods]) -> Iterator[Finding]:
    """The eviction API refuses a pod with two budgets, whatever they allow."""
    seen: dict[int, Obj] = {}
    for budget in budgets:
        others = {seen.setdefault(id(pods), budget).name for pods in _protected(budget, all_pods)} - {
            budget.name
        }
        for other in sorted(others):
            yield budget.warned(
                "budget",
                f"budget {other!r} has the same pods: none of them can be evicted",
                ("spec", "selector"),
            )


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
    return sum(int(number) * _SECONDS[unit] for number, unit in found)


def _group(pods: Pods) -> Iterator[Finding]:
    """`Default` is the old word for `None`. Without a word the whole group is made again."""
    where: Path = ("spec", "leaderWorkerTemplate")
    template = at(pods.owner.body, *map(str, where)) if pods.owner.key == LWS else None
    policy, size = at(template, "restartPolicy"), at(template, "size")
    if (
        "workerTemplate" in pods.path
        and devices(pods)
        and policy in ("None", "Default")
        and size not in (None, 1)
    ):
        words = (
            "one pod of a group is made again while the others hold their GPUs: use RecreateGroupOnPodRestart"
        )
        yield pods.owner.warned("gang-retries", words, (*where, "restartPolicy"))


def _retries(pods: Pods) -> Iterator[Finding]:
    """The other pods of a gang wait for one that starts again, with all their GPUs, until their collective times out."""
    yield from _group(pods)
    if not is_gang(pods) or pods.owner.key not in (JOBSET, "Job.batch"):
        return
    where: Path = (*pods.path[:-1], "backoffLimit")
    spec = mapping(below(pods.owner.body, pods.path[:-1]))
    limit = spec.get("backoffLimit")
    absent = limit is None and "podFailurePolicy" not in spec
    if at(pods.owner.body, "spec", "failurePolicy", "restartStrategy") == "InPlaceRestart":
        return  # JobSet's own: the pods of the gang start again together
    each = spec.get("backoffLimitPerIndex")
    if type(each) is int and each > 0 and pods.owner.key == "Job.batch" and is_launched(pods):
        words = f"an index of the gang is tried again ({each}) while the others hold their GPUs: use backoffLimit 0, and restart the whole job"
        yield pods.owner.warned("gang-retries", words, (*pods.path[:-1], "backoffLimitPerIndex"))
    elif each is None and (absent or (type(limit) is int and limit > 0)):
        words = f"{_DEFAULT_RETRIES} by default" if absent else str(limit)
        yield pods.owner.warned("gang-retries", f"one pod of the gang is tried again ({words}) while the others hold their GPUs: use 0, and restart the whole set", where)  # fmt: skip


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
    """Return whether a NodePool makes GPU nodes, by its limits, taints, requirements or machines."""
    wanted = [one for _, one in entries(maker.body, "spec", "template", "spec", "requirements")]
    keys = [
        *mapping(at(maker.body, "spec", "limits")),
        *(text(at(taint, "key")) for _, taint in entries(maker.body, "spec", "template", "spec", "taints")),
        *(text(at(one, "key")) for one in wanted),
    ]
    named = [text(value) for one in wanted if at(one, "key") == hosts.TYPE and at(one, "operator") == "In" for value in items(at(one, "values"))]  # fmt: skip
    machines = [hosts.machines().get(name) for name in named]
    with_gpus = bool(machines) and all(machine and machine.gpu for machine in machines)
    return with_gpus or any(key.startswith(("nvidia.com/", "karpenter.k8s.aws/instance-gpu")) for key in keys)


def _images(node_class: Obj) -> Iterator[Finding]:
    for path, term in entries(node_class.body, "spec", "amiSelectorTerms"):
        if text(at(term, "alias")).endswith("@latest"):
            words = "nodes of one gang can differ in driver, and a new image replaces nodes with jobs: name a release"
            yield node_class.warned("node-image", words, (*path, "alias"))
