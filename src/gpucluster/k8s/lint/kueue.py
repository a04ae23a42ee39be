"""The links of Kueue's objects: workload -> local queue -> cluster queue -> flavors -> topology, and their pools."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint.facts import ANY, PoolFacts
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text, texts

_GROUP = "kueue.x-k8s.io"
LOCAL_QUEUE, CLUSTER_QUEUE = f"LocalQueue.{_GROUP}", f"ClusterQueue.{_GROUP}"
COHORT, FLAVOR, TOPOLOGY = f"Cohort.{_GROUP}", f"ResourceFlavor.{_GROUP}", f"Topology.{_GROUP}"
ADMISSION_CHECK, PRIORITY_CLASS = f"AdmissionCheck.{_GROUP}", f"WorkloadPriorityClass.{_GROUP}"
QUEUE_LABEL, PRIORITY_LABEL = f"{_GROUP}/queue-name", f"{_GROUP}/priority-class"
REQUIRED, PREFERRED = f"{_GROUP}/podset-required-topology", f"{_GROUP}/podset-preferred-topology"
SLICE = f"{_GROUP}/podset-slice-required-topology"
UNCONSTRAINED = f"{_GROUP}/podset-unconstrained-topology"
TOPOLOGY_REQUESTS = (REQUIRED, PREFERRED, UNCONSTRAINED)
TRAIN_JOB = "TrainJob.trainer.kubeflow.org"
RUNTIMES = (
    "ClusterTrainingRuntime",
    "TrainingRuntime",
)  # the first is the default of a TrainJob's runtimeRef
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"  # the label of the jobs of a runtime
HOSTNAME = "kubernetes.io/hostname"
QUEUED = frozenset(  # the kinds that Kueue queues by default
    {"Pod", "Deployment.apps", "StatefulSet.apps", "Job.batch", "JobSet.jobset.x-k8s.io"}
)
ON_EVERY_NODE = frozenset(  # set by the kubelet and the cloud provider
    {
        HOSTNAME,
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)


@dataclass(frozen=True, slots=True)
class Quota:
    """One resource of one flavor in a queue or cohort."""

    owner: Obj
    path: Path
    flavor: str
    resource: str
    nominal: Decimal
    borrowing: Decimal | None  # None: no limit


def quotas(owner: Obj) -> Iterator[Quota]:
    """Return all quotas of a ClusterQueue or Cohort."""
    for group_path, group in entries(owner.body, "spec", "resourceGroups"):
        for flavor_path, flavor in entries(group, "flavors"):
            for path, resource in entries(flavor, "resources"):
                nominal = quantity.parse(at(resource, "nominalQuota"))
                yield Quota(
                    owner,
                    (*group_path, *flavor_path, *path, "nominalQuota"),
                    text(at(flavor, "name")),
                    text(at(resource, "name")),
                    nominal if nominal is not None else Decimal(0),
                    quantity.parse(at(resource, "borrowingLimit")),
                )


def asked_levels(annotations: Mapping[str, Any]) -> dict[str, str]:
    """Return annotation -> the topology level that a pod template requests."""
    return {key: text(annotations[key]) for key in (REQUIRED, PREFERRED, SLICE) if text(annotations.get(key))}


def given(manifests: ManifestSet, queue: Obj, annotations: Mapping[str, Any]) -> tuple[Obj, ...]:
    """Return the queue's flavors that Kueue can assign to such pods: with the requested levels. Pods without a request
    get only flavors without a topology, unless all flavors of the queue have one."""
    flavors, asked = flavors_of(manifests, queue), {*asked_levels(annotations).values()}
    plain = tuple(flavor for flavor in flavors if not at(flavor.body, "spec", "topologyName"))
    if asked or annotations.get(UNCONSTRAINED) == "true":
        return tuple(f for f in flavors if f not in plain and asked <= {*levels_of(manifests, f)})
    return plain or flavors


def queued_with(manifests: ManifestSet, owner: Obj) -> tuple[Obj, ...]:
    """Return the objects that Kueue queues with these pods: for a runtime of Kubeflow Trainer the TrainJobs that name it."""
    if owner.kind not in RUNTIMES:
        return (owner,)
    return tuple(
        one
        for one in manifests.all(TRAIN_JOB)
        if text(at(one.body, "spec", "runtimeRef", "name")) == owner.name
        and (text(at(one.body, "spec", "runtimeRef", "kind")) or RUNTIMES[0]) == owner.kind
        and (owner.kind == RUNTIMES[0] or one.namespace == owner.namespace)
    )


def runtime_of(manifests: ManifestSet, job: Obj) -> Obj | None:
    """Return the runtime of a TrainJob, if it is among the manifests."""
    ref = mapping(at(job.body, "spec", "runtimeRef") if job.key == TRAIN_JOB else None)
    kind = text(ref.get("kind")) or RUNTIMES[0]
    space = "" if kind == RUNTIMES[0] else job.namespace
    return manifests.get(f"{kind}.trainer.kubeflow.org", text(ref.get("name")), space) if ref else None


def queue_of(manifests: ManifestSet, workload: Obj) -> Obj | None:
    """Return the cluster queue of a workload's label. Without a label Kueue uses the local queue `default`, if it exists."""
    named = text(workload.labels.get(QUEUE_LABEL)) or ("default" if workload.key in QUEUED else "")
    local = manifests.get(LOCAL_QUEUE, named, workload.namespace)
    return manifests.get(CLUSTER_QUEUE, text(at(local.body, "spec", "clusterQueue"))) if local else None


def covered(queue: Obj) -> frozenset[str]:
    return frozenset(
        text(name)
        for _, group in entries(queue.body, "spec", "resourceGroups")
        for name in items(at(group, "coveredResources"))
    )


def flavors_of(manifests: ManifestSet, queue: Obj) -> tuple[Obj, ...]:
    names = dict.fromkeys(quota.flavor for quota in quotas(queue))
    found = (manifests.get(FLAVOR, name) for name in names)
    return tuple(flavor for flavor in found if flavor is not None)


def has_all_flavors(manifests: ManifestSet, queue: Obj) -> bool:
    return len(flavors_of(manifests, queue)) == len({quota.flavor for quota in quotas(queue)})


def is_complete(manifests: ManifestSet, queue: Obj) -> bool:
    """Return whether the manifests hold all flavors of a queue with their topologies."""
    flavors = flavors_of(manifests, queue)
    topologies = [text(at(flavor.body, "spec", "topologyName")) for flavor in flavors]
    found = all(not name or manifests.get(TOPOLOGY, name) is not None for name in topologies)
    return found and has_all_flavors(manifests, queue)


def levels_of(manifests: ManifestSet, flavor: Obj) -> tuple[str, ...]:
    """Return the node labels of a flavor's topology, widest first; none without a topology."""
    topology = manifests.get(TOPOLOGY, text(at(flavor.body, "spec", "topologyName")))
    return tuple(label for _, label in levels(topology)) if topology else ()


def levels(topology: Obj) -> tuple[tuple[Path, str], ...]:
    return tuple((path, text(at(level, "nodeLabel"))) for path, level in entries(topology.body, "spec", "levels"))  # fmt: skip


def family(manifests: ManifestSet, queue: Obj) -> tuple[Obj, ...]:
    """Return a queue with all cohorts above it and every queue and cohort below their root: it may borrow from these."""
    root = _root(manifests, cohort_of(queue))
    if not root:
        return (queue,)
    under = tuple(
        thing
        for thing in manifests.all(CLUSTER_QUEUE, COHORT)
        if _root(manifests, _parent(thing) or (thing.name if thing.key == COHORT else "")) == root
    )
    return under if queue in under else (queue, *under)


def pools_behind(manifests: ManifestSet, flavor: Obj) -> tuple[PoolFacts, ...]:
    """Return the pools whose nodes match a flavor's labels."""
    wanted = texts(at(flavor.body, "spec", "nodeLabels"))
    return tuple(pool for pool in manifests.facts.pools or () if all(carries(pool, *pair) for pair in wanted.items()))  # fmt: skip


def carries(pool: PoolFacts, key: str, value: str) -> bool:
    """Return whether nodes of the pool can have the label with the value."""
    values = pool.labels.get(key)
    if values is None:
        return key in ON_EVERY_NODE
    return values == ANY or value in values


def has_label(pool: PoolFacts, key: str) -> bool:
    return key in pool.labels or key in ON_EVERY_NODE


def is_device(resource: str) -> bool:
    """Return whether it is an extended resource: GPUs, MIG slices, network interfaces."""
    return "/" in resource and not resource.rpartition("/")[0].endswith("kubernetes.io")


def tolerates(tolerations: Any, key: str, value: str, effect: str) -> bool:
    """Return whether a list of tolerations covers one taint, by the scheduler's comparison."""
    return any(_tolerates(mapping(entry), key, value, effect) for entry in items(tolerations))


def _tolerates(toleration: Mapping[str, Any], key: str, value: str, effect: str) -> bool:
    exists = toleration.get("operator") == "Exists"
    wanted, wanted_effect = text(toleration.get("key")), text(toleration.get("effect"))
    if wanted_effect not in ("", effect) or (wanted != key and not (exists and not wanted)):
        return False
    return exists or text(toleration.get("value")) == value


def cohort_field(queue: Obj) -> str:
    """Return the field with the name of a queue's cohort. `v1beta1` has another than `v1beta2`."""
    return "cohort" if queue.api_version == f"{_GROUP}/v1beta1" else "cohortName"


def cohort_of(queue: Obj) -> str:
    return text(at(queue.body, "spec", cohort_field(queue)))


def _parent(thing: Obj) -> str:
    return cohort_of(thing) if thing.key == CLUSTER_QUEUE else text(at(thing.body, "spec", "parentName"))


def _root(manifests: ManifestSet, name: str) -> str:
    """Return the topmost cohort. In a circle, which `references` reports, return the first by name."""
    seen: set[str] = set()
    while name and name not in seen:
        seen.add(name)
        cohort = manifests.get(COHORT, name)
        above = _parent(cohort) if cohort else ""
        if not above:
            return name
        name = above
    return min(seen, default="")
