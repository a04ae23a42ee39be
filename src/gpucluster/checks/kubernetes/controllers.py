"""Check that controllers and add-ons run: the Deployments and DaemonSets of their namespaces have all their pods."""

from dataclasses import dataclass

from gpucluster.checks import json_fields
from gpucluster.checks.check import CheckResult, Location, Query, QueryOutput, failed, listed, passed
from gpucluster.checks.kubernetes import objects

_DEPLOYMENT, _DAEMON_SET = "Deployment", "DaemonSet"
_LOOK = "kubectl get pods --all-namespaces"
_REPLICAS = 2  # of each Deployment of EKS's add-ons, by default
_IDLE = {  # kind -> the words for one that wants no pod, and the command
    _DEPLOYMENT: (
        "scaled to 0 pods",
        f"kubectl scale deployment --namespace {{namespace}} {{name}} --replicas={_REPLICAS}",
    ),
    _DAEMON_SET: (
        "selects none of {nodes} nodes",
        "kubectl rollout undo daemonset --namespace {namespace} {name}",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """The namespaces of add-ons and charts, and `NAMESPACE/NAME` of what must be there."""

    namespaces: tuple[str, ...]
    needed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A Deployment or a DaemonSet: how many pods it wants, and how many are available with its newest template."""

    kind: str
    name: str
    wanted: int
    available: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllersFound:
    """All controllers of the cluster, and the number of its nodes."""

    controllers: tuple[Controller, ...]
    nodes: int


def query_controllers(_: Controllers) -> tuple[Query, ...]:
    argv = ("get", "Deployment.v1.apps,DaemonSet.v1.apps", "--all-namespaces", "--output=json")
    return (
        Query(at=Location.API, argv=argv),
        Query(at=Location.API, argv=("get", "Node.v1.", "--output=json")),
    )


def parse_controllers(outputs: tuple[QueryOutput, ...]) -> ControllersFound:
    output, nodes = outputs
    staying = [one for one in objects.items(nodes) if not _leaves(one)]
    return ControllersFound(controllers=tuple(map(_controller, objects.items(output))), nodes=len(staying))


def evaluate_controllers(found: ControllersFound, want: Controllers) -> CheckResult:
    """Judge the number of pods. What must be there also wants pods: EKS's DaemonSets run on every node."""
    ours = {one.name: one for one in found.controllers if one.name.partition("/")[0] in want.namespaces}
    expected = f"all pods of {', '.join(want.namespaces)}"
    faults = {name: "missing" for name in want.needed if name not in ours}
    idle = [one for one in ours.values() if one.name in want.needed and _is_idle(one, found.nodes)]
    faults |= {one.name: _IDLE[one.kind][0].format(nodes=found.nodes) for one in idle}
    for one in ours.values():
        if one not in idle and one.available < one.wanted:
            faults[one.name] = f"{one.available} of {one.wanted} pods"
    if faults:
        words = listed([f"{name}: {words}" for name, words in faults.items()])
        others = [_LOOK] if len(faults) > len(idle) else []
        remedy = "; ".join([*map(_run_again, idle), *others]) if idle else ""
        return failed(words, expected, tuple(faults), remedy)
    return passed(f"{len(ours)} controllers have all their pods", expected)


def _is_idle(one: Controller, nodes: int) -> bool:
    return one.wanted == 0 and (one.kind == _DEPLOYMENT or nodes > 0)


def _run_again(one: Controller) -> str:
    namespace, _, name = one.name.partition("/")
    return _IDLE[one.kind][1].format(namespace=namespace, name=name)


def _leaves(item: objects.Object) -> bool:
    return "deletionTimestamp" in objects.section(item, "metadata")


def _controller(item: objects.Object) -> Controller:
    kind = json_fields.text(item, "kind")
    spec, status = objects.section(item, "spec"), objects.section(item, "status")
    seen = objects.count(status, "observedGeneration") >= objects.count(
        objects.section(item, "metadata"), "generation"
    )
    if kind == _DAEMON_SET:
        wanted = objects.count(status, "desiredNumberScheduled")
        available = min(
            objects.count(status, "numberAvailable"), objects.count(status, "updatedNumberScheduled")
        )
    else:
        wanted = objects.count(spec, "replicas") if "replicas" in spec else 1
        available = min(objects.count(status, "availableReplicas"), objects.count(status, "updatedReplicas"))
    return Controller(
        kind=kind,
        name=objects.name_of(item),
        wanted=wanted,
        available=available if seen else min(available, wanted - 1),
    )
