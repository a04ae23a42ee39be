"""What an upgrade of Kubernetes to the spec's version needs, one minor version at a time, and what is in its way. Nothing changes.

Sources: Kubernetes' version skew policy (a kubelet is at most three minor versions older than the API server); its metric
apiserver_requested_deprecated_apis; EKS user guide, "Update existing cluster to new Kubernetes version" (one minor version at a time, no way
back) and "Understand each phase of node updates" (15 minutes for the pods of a node, then PodEvictionFailure).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.kubectl import Kubectl
from gpucluster.k8s_apply.objects import labels, ref_of, section
from gpucluster.k8s_apply.selectors import selects
from gpucluster.plan import names

SKEW = 3  # minor versions that a kubelet may be older than the API server
EVICTS_S = 900  # of a node's pods, before EKS fails the update
OF_GROUP = "eks.amazonaws.com/nodegroup"  # a label of the nodes that EKS replaces with its group
_METRIC = "apiserver_requested_deprecated_apis"
_MINOR = re.compile(r"v?1\.(\d{1,4})")
_SYSTEM = "add-ons"
_OTHERS = "others"


@dataclass(frozen=True, slots=True, kw_only=True)
class OldApi:
    """A version of an API that a client has asked for, and the release that no longer has it."""

    resource: str
    version: str  # of its group: `flowcontrol.apiserver.k8s.io/v1beta3`
    removed_in: int  # minor version


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read of the cluster."""

    minor: int  # of the API server
    nodes: tuple[Manifest, ...]
    budgets: tuple[Manifest, ...]  # PodDisruptionBudgets
    pods: tuple[Manifest, ...]
    old_apis: tuple[OldApi, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """The versions to go through, and what is known of them. `blocked` prevents it, `ends` is what it costs."""

    server: str
    wanted: str
    path: tuple[str, ...]  # empty: there is nothing to do
    nodes: dict[str, dict[str, int]]  # pool -> version of the kubelets -> nodes
    blocked: tuple[str, ...]
    slow: tuple[str, ...]  # budgets and pods that hold the drain of a node
    ends: tuple[str, ...]  # what has pods on nodes that EKS replaces


def read(kubectl: Kubectl) -> Seen:
    """Read the cluster with the rights of an administrator."""
    _, minor = kubectl.version()
    found = kubectl.find((("v1", "Node"), ("v1", "Pod"), ("policy/v1", "PodDisruptionBudget")))
    by_kind = {
        kind: tuple(one for one in found if one["kind"] == kind)
        for kind in ("Node", "Pod", "PodDisruptionBudget")
    }
    return Seen(
        minor=minor,
        nodes=by_kind["Node"],
        budgets=by_kind["PodDisruptionBudget"],
        pods=by_kind["Pod"],
        old_apis=tuple(old_apis(kubectl.read("get", "--raw", "/metrics"))),
    )


def old_apis(metrics: str) -> Iterator[OldApi]:
    """Yield the old versions of APIs that clients have used, by the metrics of the API server that answers: since its own start."""
    lines = [line for line in metrics.splitlines() if line.startswith(_METRIC)]
    for family in text_string_to_metric_families("\n".join((*lines, ""))):
        for sample in family.samples:
            found = _MINOR.fullmatch(sample.labels.get("removed_release", ""))
            if found:  # of the others nobody knows when they go
                group, version = sample.labels["group"], sample.labels["version"]
                whole = f"{group}/{version}" if group else version
                yield OldApi(resource=sample.labels["resource"], version=whole, removed_in=int(found[1]))


def upgrade(seen: Seen, wanted: str) -> Upgrade:
    """Return the way from the cluster's version to the wanted one."""
    last = int(wanted.partition(".")[2])
    path = range(seen.minor + 1, last + 1)
    return Upgrade(
        server=f"1.{seen.minor}",
        wanted=wanted,
        path=tuple(f"1.{minor}" for minor in path),
        nodes=_nodes(seen.nodes),
        blocked=tuple(_blocked(seen, last)),
        slow=(*_slow(seen), *_late(seen)) if path else (),
        ends=tuple(_ends(seen)) if path else (),
    )


def _nodes(nodes: Iterable[Manifest]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for one in nodes:
        kubelet = _kubelet(one)
        found.setdefault(_pool(one), Counter())[
            "an unknown version" if kubelet is None else f"1.{kubelet}"
        ] += 1
    return {pool: dict(sorted(counts.items())) for pool, counts in sorted(found.items())}


def _pool(node: Manifest) -> str:
    return labels(node).get(names.LABEL_POOL) or (_SYSTEM if names.LABEL_SYSTEM in labels(node) else _OTHERS)


def _kubelet(node: Manifest) -> int | None:
    """Return the minor version of a node's kubelet; None if it says something else, as kwok does."""
    found = _MINOR.match(str(section(section(node, "status"), "nodeInfo").get("kubeletVersion", "")))
    return None if found is None else int(found[1])


def _blocked(seen: Seen, last: int) -> Iterator[str]:
    if last < seen.minor:
        yield f"the cluster has 1.{seen.minor}, and Kubernetes has no way back to an older minor version"
        return
    for one in sorted(seen.nodes, key=lambda node: node["metadata"]["name"]):
        kubelet = _kubelet(one)
        # EKS replaces the nodes of its groups at each step, so they must only be new enough for the first
        needed = min(seen.minor + 1, last) if OF_GROUP in labels(one) else last
        if kubelet is not None and kubelet + SKEW < needed:
            name, newest = one["metadata"]["name"], kubelet + SKEW
            yield f"the node {name} has 1.{kubelet}, which an API server above 1.{newest} does not take: replace it before that step"
    for api in sorted(seen.old_apis, key=lambda one: (one.removed_in, one.version, one.resource)):
        if seen.minor < api.removed_in <= last:
            yield f"clients use {api.resource} of {api.version}, which 1.{api.removed_in} no longer has: find them in the audit log"


def _slow(seen: Seen) -> Iterator[str]:
    """Yield the budgets that allow no eviction now, of pods on nodes that EKS replaces."""
    replaced = _replaced(seen)
    for one in seen.budgets:
        status = section(one, "status")
        if status.get("disruptionsAllowed", 0) == 0 and status.get("expectedPods", 0) > 0:
            mine = [pod for pod in seen.pods if _selects(one, pod) and _node(pod) in replaced]
            if mine:
                yield f"{ref_of(one)} allows no eviction of {len(mine)} pods: EKS waits 15 minutes for a node, then the update fails"


def _late(seen: Seen) -> Iterator[str]:
    """Yield the gangs and jobs on nodes that EKS replaces whose pods may end too late, such as a gang with a long checkpoint."""
    replaced, found = _replaced(seen), dict[str, int]()
    for one in seen.pods:
        grace = section(one, "spec").get("terminationGracePeriodSeconds")
        if _node(one) in replaced and _runs(one) and isinstance(grace, int) and grace >= EVICTS_S:
            found[_job(one)] = max(grace, found.get(_job(one), 0))
    for name, grace in sorted(found.items()):
        if name:
            yield f"{name} has {grace // 60} minutes to end: EKS waits 15 minutes for a node, then the update fails"


def _selects(budget: Manifest, pod: Manifest) -> bool:
    """Return whether a budget is about a pod."""
    same = budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return same and selects(section(budget, "spec").get("selector"), labels(pod))


def _ends(seen: Seen) -> Iterator[str]:
    """Yield the gangs and jobs with pods on nodes that EKS replaces: those pods end. What starts again depends on the restarts of each."""
    replaced = _replaced(seen)
    found = {_job(one) for one in seen.pods if _node(one) in replaced and _runs(one)}
    yield from sorted(name for name in found if name)


def _job(pod: Manifest) -> str:
    """Return the JobSet or the Job of a pod; empty for another pod."""
    marks, namespace = labels(pod), pod["metadata"].get("namespace", "")
    name = marks.get("jobset.sigs.k8s.io/jobset-name") or marks.get("batch.kubernetes.io/job-name")
    return f"{namespace}/{name}" if name else ""


def _replaced(seen: Seen) -> frozenset[str]:
    return frozenset(one["metadata"]["name"] for one in seen.nodes if OF_GROUP in labels(one))


def _node(pod: Manifest) -> str:
    return str(section(pod, "spec").get("nodeName", ""))


def _runs(pod: Manifest) -> bool:
    return section(pod, "status").get("phase") in ("Pending", "Running")


def commands(name: str, file: str, version: str, *, eks: bool) -> Sequence[str]:
    """Return what to type for one step. The first line is a change of the spec. `eks`: the control plane is the spec's."""
    committed = f"HEAD:{file}"
    changed = (
        (f"pulumi up --stack {name}", f"pulumi stack output bindings --stack {name} > bindings.json")
        if eks
        else (f"upgrade the control plane and its nodes to {version}, as whoever runs them does",)
    )
    return (
        f'in {file}: kubernetes.version: "{version}"',
        f"gpucluster diff {committed} {file}",
        *changed,
        f"gpucluster k8s up {name} --bindings bindings.json",
        f"gpucluster validate {name} --bindings bindings.json",
    )
