"""How Kueue's objects hang together: workload -> local queue -> cluster queue -> flavors -> topology, and the pools behind."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpucluster.k8s.lint import quantity
from gpucluster.k8s.lint.facts import ANY, PoolFacts
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text, texts
from gpucluster.k8s.lint.world import Obj, World

_GROUP = "kueue.x-k8s.io"
LOCAL_QUEUE, CLUSTER_QUEUE = f"LocalQueue.{_GROUP}", f"ClusterQueue.{_GROUP}"
COHORT, FLAVOR, TOPOLOGY = f"Cohort.{_GROUP}", f"ResourceFlavor.{_GROUP}", f"Topology.{_GROUP}"
ADMISSION_CHECK, PRIORITY_CLASS = f"AdmissionCheck.{_GROUP}", f"WorkloadPriorityClass.{_GROUP}"
QUEUE_LABEL, PRIORITY_LABEL = f"{_GROUP}/queue-name", f"{_GROUP}/priority-class"
REQUIRED, PREFERRED = f"{_GROUP}/podset-required-topology", f"{_GROUP}/podset-preferred-topology"
SLICE = f"{_GROUP}/podset-slice-required-topology"
UNCONSTRAINED = f"{_GROUP}/podset-unconstrained-topology"
WISHES = (REQUIRED, PREFERRED, UNCONSTRAINED)
HOSTNAME = "kubernetes.io/hostname"
QUEUED = frozenset(  # what Kueue takes in of itself
    {"Pod", "Deployment.apps", "StatefulSet.apps", "Job.batch", "JobSet.jobset.x-k8s.io"}
)
ON_EVERY_NODE = frozenset(  # the kubelet's and the cloud provider's
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
    borrowing: Decimal | None  # None: as much as there is


def quotas(owner: Obj) -> Iterator[Quota]:
    """All of a ClusterQueue or Cohort."""
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
    """Annotation -> the topology level that a pod template asks for."""
    return {key: text(annotations[key]) for key in (REQUIRED, PREFERRED, SLICE) if text(annotations.get(key))}


def given(world: World, queue: Obj, annotations: Mapping[str, Any]) -> tuple[Obj, ...]:
    """The queue's flavors that Kueue gives to such pods: with the levels that they ask for, and those that ask for no
    place only flavors without a topology, unless all of the queue's have one."""
    flavors, asked = flavors_of(world, queue), {*asked_levels(annotations).values()}
    plain = tuple(flavor for flavor in flavors if not at(flavor.body, "spec", "topologyName"))
    if asked or annotations.get(UNCONSTRAINED) == "true":
        return tuple(f for f in flavors if f not in plain and asked <= {*levels_of(world, f)})
    return plain or flavors


def queue_of(world: World, workload: Obj) -> Obj | None:
    """The cluster queue that a workload's label leads to; without one Kueue takes the queue `default`, if it is there."""
    named = text(workload.labels.get(QUEUE_LABEL)) or ("default" if workload.key in QUEUED else "")
    local = world.get(LOCAL_QUEUE, named, workload.namespace)
    return world.get(CLUSTER_QUEUE, text(at(local.body, "spec", "clusterQueue"))) if local else None


def covered(queue: Obj) -> frozenset[str]:
    return frozenset(
        text(name)
        for _, group in entries(queue.body, "spec", "resourceGroups")
        for name in items(at(group, "coveredResources"))
    )


def flavors_of(world: World, queue: Obj) -> tuple[Obj, ...]:
    names = dict.fromkeys(quota.flavor for quota in quotas(queue))
    found = (world.get(FLAVOR, name) for name in names)
    return tuple(flavor for flavor in found if flavor is not None)


def levels_of(world: World, flavor: Obj) -> tuple[str, ...]:
    """The node labels of a flavor's topology, widest first; none without a topology."""
    topology = world.get(TOPOLOGY, text(at(flavor.body, "spec", "topologyName")))
    return tuple(label for _, label in levels(topology)) if topology else ()


def levels(topology: Obj) -> tuple[tuple[Path, str], ...]:
    return tuple((path, text(at(level, "nodeLabel"))) for path, level in entries(topology.body, "spec", "levels"))  # fmt: skip


def family(world: World, queue: Obj) -> tuple[Obj, ...]:
    """A queue with all cohorts above it and every queue and cohort below their root: what it may borrow from."""
    root = _root(world, text(at(queue.body, "spec", "cohortName")))
    if not root:
        return (queue,)
    under = tuple(
        thing
        for thing in world.all(CLUSTER_QUEUE, COHORT)
        if _root(world, _parent(thing) or (thing.name if thing.key == COHORT else "")) == root
    )
    return under if queue in under else (queue, *under)


def pools_of(world: World, flavor: Obj) -> tuple[PoolFacts, ...]:
    """The pools whose nodes a flavor's labels select."""
    wanted = texts(at(flavor.body, "spec", "nodeLabels"))
    return tuple(pool for pool in world.facts.pools or () if all(carries(pool, *pair) for pair in wanted.items()))  # fmt: skip


def carries(pool: PoolFacts, key: str, value: str) -> bool:
    """Whether nodes of the pool can have the label with the value."""
    values = pool.labels.get(key)
    if values is None:
        return key in ON_EVERY_NODE
    return values == ANY or value in values


def knows(pool: PoolFacts, key: str) -> bool:
    return key in pool.labels or key in ON_EVERY_NODE


def is_device(resource: str) -> bool:
    """An extended resource: GPUs, MIG slices, network interfaces."""
    return "/" in resource and not resource.rpartition("/")[0].endswith("kubernetes.io")


def tolerates(tolerations: Any, key: str, value: str, effect: str) -> bool:
    """As the scheduler compares a list of tolerations with one taint."""
    return any(_tolerates(mapping(entry), key, value, effect) for entry in items(tolerations))


def _tolerates(toleration: Mapping[str, Any], key: str, value: str, effect: str) -> bool:
    exists = toleration.get("operator") == "Exists"
    wanted, wanted_effect = text(toleration.get("key")), text(toleration.get("effect"))
    if wanted_effect not in ("", effect) or (wanted != key and not (exists and not wanted)):
        return False
    return exists or text(toleration.get("value")) == value


def _parent(thing: Obj) -> str:
    return text(at(thing.body, "spec", "cohortName" if thing.key == CLUSTER_QUEUE else "parentName"))


def _root(world: World, name: str) -> str:
    """The topmost cohort; in a circle, which `references` reports, the first by name."""
    seen: set[str] = set()
    while name and name not in seen:
        seen.add(name)
        cohort = world.get(COHORT, name)
        above = _parent(cohort) if cohort else ""
        if not above:
            return name
        name = above
    return min(seen, default="")
