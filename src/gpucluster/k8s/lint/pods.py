"""The pods of a workload: their template, how many run at once, and the requests of each.

Every other kind is searched for pod specs, such as RayCluster, LeaderWorkerSet, InferenceService and TrainJob. Its controller can complete such a pod, so `complete` is False and the rules about missing parts leave it out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint.manifest_set import Obj, is_built_in
from gpucluster.k8s.lint.tree import Path, at, below, entries, items, mapping, text

_TEMPLATES: dict[str, Path] = {
    "Pod": (),
    "ReplicationController": ("spec", "template"),
    "Deployment.apps": ("spec", "template"),
    "ReplicaSet.apps": ("spec", "template"),
    "StatefulSet.apps": ("spec", "template"),
    "DaemonSet.apps": ("spec", "template"),
    "Job.batch": ("spec", "template"),
    "CronJob.batch": ("spec", "jobTemplate", "spec", "template"),
}
LWS = "LeaderWorkerSet.leaderworkerset.x-k8s.io"
JOBSET = "JobSet.jobset.x-k8s.io"
TRAIN_JOB = "TrainJob.trainer.kubeflow.org"
_ALONE = ("spec", "containers", 0)
_POLICY_GROUPS = ("kyverno.io", "gatekeeper.sh")
_JOBSET_TEMPLATE = ("template", "spec", "template")
_WIDTHS = ("size", "numNodes", "replicas", "minReplicas", "parallelism")  # of a kind that is searched
_COUNTS: dict[str, Path] = {  # path to the number of pods at once; 1 if it is absent
    "Deployment.apps": ("spec", "replicas"),
    "ReplicaSet.apps": ("spec", "replicas"),
    "StatefulSet.apps": ("spec", "replicas"),
    "Job.batch": ("spec", "parallelism"),
    "CronJob.batch": ("spec", "jobTemplate", "spec", "parallelism"),
}


@dataclass(frozen=True, slots=True)
class Pods:
    """`path` leads to the template (metadata and spec) inside its owner. The fields of an `inline` pod spec are there themselves."""

    owner: Obj
    path: Path
    template: Mapping[str, Any]
    count: int
    complete: bool = True
    inline: bool = False
    alone: bool = False  # one container, of which the path leads to the fields

    @property
    def spec(self) -> Mapping[str, Any]:
        return mapping(self.template.get("spec"))

    @property
    def labels(self) -> Mapping[str, Any]:
        return mapping(at(self.template, "metadata", "labels"))

    @property
    def annotations(self) -> Mapping[str, Any]:
        return mapping(at(self.template, "metadata", "annotations"))

    def where(self, *inner: str | int) -> Path:
        if self.alone and inner[: len(_ALONE)] == _ALONE:
            return (*self.path, *inner[len(_ALONE) :])
        skipped = inner[1:] if self.inline and inner[:1] == ("spec",) else inner
        return (*self.path, *skipped)

    def containers(self) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        """Return the containers, init containers first, each with its path inside the owner."""
        for kind in ("initContainers", "containers"):
            for path, container in entries(self.spec, kind):
                yield self.where("spec", *path), mapping(container)


def pods_of(thing: Obj) -> tuple[Pods, ...]:
    """Return one template for a plain workload, one for each replicated job of a JobSet, and all pod specs of other kinds.

    Thirty checkers ask for them, and the search in other kinds reads all of the object: it is read once.
    """
    if "pods" not in thing.made:
        thing.made["pods"] = tuple(_pods_of(thing))
    return thing.made["pods"]


def _pods_of(thing: Obj) -> Iterator[Pods]:
    if (path := _TEMPLATES.get(thing.key)) is not None:
        template = mapping(at(thing.body, *(str(key) for key in path)))
        count = at(thing.body, *(str(key) for key in _COUNTS.get(thing.key, ("",))))
        yield Pods(thing, path, template, _whole(count, 1))
    elif thing.key == JOBSET:
        for where, job in entries(thing.body, "spec", "replicatedJobs"):
            width = _whole(at(job, "replicas"), 1) * _whole(at(job, "template", "spec", "parallelism"), 1)
            yield Pods(thing, (*where, *_JOBSET_TEMPLATE), mapping(at(job, *_JOBSET_TEMPLATE)), width)
    elif thing.key == LWS:
        yield from _of_groups(thing)
    elif not is_built_in(thing.api_version) and not thing.is_client_file and not _is_policy(thing):
        yield from _search(thing, thing.body, (), 1)


def parts_of(thing: Obj) -> Iterator[Pods]:
    """Return the pods, and the container that a TrainJob gives to its runtime: what the runtime has is not there, such as
    volumes, tolerations and labels."""
    yield from pods_of(thing)
    trainer = mapping(at(thing.body, "spec", "trainer") if thing.key == TRAIN_JOB else None)
    if trainer:
        container = {key: trainer[key] for key in ("args", "command", "env", "image") if key in trainer}
        container |= {"name": "node", "resources": trainer.get("resourcesPerNode")}
        template = {"spec": {"containers": [container]}}
        nodes = _whole(trainer.get("numNodes"), 1)
        yield Pods(thing, ("spec", "trainer"), template, nodes, complete=False, inline=True, alone=True)


def _is_policy(thing: Obj) -> bool:
    """Return whether the object has patterns of pods, such as `name: "*"`, and no pods: a policy of Kyverno or Gatekeeper."""
    return thing.group.endswith(_POLICY_GROUPS)


def _of_groups(thing: Obj) -> Iterator[Pods]:
    """Yield both templates of a LeaderWorkerSet. A replica has `size` pods, and the leader is one of them."""
    base = ("spec", "leaderWorkerTemplate")
    replicas, size = _whole(at(thing.body, "spec", "replicas"), 1), _whole(at(thing.body, *base, "size"), 1)
    leads = bool(mapping(at(thing.body, *base, "leaderTemplate")))
    for key, each in (("leaderTemplate", 1), ("workerTemplate", size - 1 if leads else size)):
        if template := mapping(at(thing.body, *base, key)):
            yield Pods(thing, (*base, key), template, replicas * each, complete=False, inline=False)


def _search(thing: Obj, value: Any, path: Path, count: int) -> Iterator[Pods]:
    """Yield the pod specs at any depth; `count` is the number of pods by the fields beside them."""
    if _is_pod_spec(value):
        named = path[-1:] == ("spec",)
        above = mapping(below(thing.body, path[:-1])) if named else {"spec": value}
        yield Pods(thing, path[:-1] if named else path, above, count, complete=False, inline=not named)
        return
    for key, inner in mapping(value).items():
        if key not in ("metadata", "status"):
            yield from _search(thing, inner, (*path, key), _count_of(mapping(value), count))
    for number, inner in enumerate(items(value)):
        yield from _search(thing, inner, (*path, number), count)


def _is_pod_spec(value: Any) -> bool:
    containers = items(mapping(value).get("containers"))
    return bool(containers) and all("name" in mapping(one) or "image" in mapping(one) for one in containers)


def _count_of(fields: Mapping[str, Any], count: int) -> int:
    """A replica of a worker group of Ray is `numOfHosts` pods."""
    width = next((_whole(fields[name], 1) for name in _WIDTHS if name in fields), count)
    return width * _whole(fields.get("numOfHosts"), 1)


def selects(selector: Any, labels: Mapping[str, Any]) -> bool:
    """Return whether a selector takes an object with such labels. An empty selector takes none here."""
    wanted = mapping(mapping(selector).get("matchLabels"))
    terms = [mapping(term) for _, term in entries(selector, "matchExpressions")]
    if not wanted and not terms:
        return False
    same = all(key in labels and labels[key] == value for key, value in wanted.items())
    return same and all(_holds(term, labels) for term in terms)


def _holds(term: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    key, values = text(term.get("key")), items(term.get("values"))
    match term.get("operator"):
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels


def asked(container: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return the requests as the API server completes them: a limit without a request becomes the request."""
    resources = mapping(container.get("resources"))
    return {**amounts(resources.get("limits")), **amounts(resources.get("requests"))}


def amounts(value: Any) -> dict[str, Decimal]:
    """Return the quantities of a resource list. `names` reports values that are no quantity."""
    return {
        key: amount
        for key, written in mapping(value).items()
        if (amount := quantity.parse(written)) is not None
    }


def needs(pods: Pods) -> dict[str, Decimal]:
    """Return what the scheduler reserves for one pod: the sum of its containers, or its largest init container."""
    running: dict[str, Decimal] = {}
    largest: dict[str, Decimal] = {}
    for path, container in pods.containers():
        sidecar = text(container.get("restartPolicy")) == "Always"
        for resource, amount in asked(container).items():
            if "initContainers" in path and not sidecar:
                largest[resource] = max(largest.get(resource, Decimal(0)), amount)
            else:
                running[resource] = running.get(resource, Decimal(0)) + amount
    both = sorted({*running, *largest})
    return {name: max(running.get(name, Decimal(0)), largest.get(name, Decimal(0))) for name in both}


def _whole(value: Any, otherwise: int) -> int:
    return value if type(value) is int and 0 <= value < 10**9 else otherwise
