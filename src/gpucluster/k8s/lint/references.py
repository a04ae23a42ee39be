"""Rule 6: whatever an object names exists, in its namespace where it has one; parents do not go in a circle."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from gpucluster.catalog import crd_schemas, kubernetes_facts
from gpucluster.k8s.lint import kueue, policies
from gpucluster.k8s.lint.finding import Finding, Level
from gpucluster.k8s.lint.pods import Pods, pods_of
from gpucluster.k8s.lint.tree import Path, along, at, entries, items, mapping, text
from gpucluster.k8s.lint.world import CLIENT_GROUPS, Obj, World, is_namespaced
from gpucluster.spec.problem import quoted

CONFIG_MAP, CLAIM, VOLUME = "ConfigMap", "PersistentVolumeClaim", "PersistentVolume"
STORAGE_CLASS = "StorageClass.storage.k8s.io"
ROLES = {kind: f"{kind}.rbac.authorization.k8s.io" for kind in ("Role", "ClusterRole")}
NODE_CLASS = "EC2NodeClass.karpenter.k8s.aws"

# owner, path (`*` is each entry), target
_TABLE: tuple[tuple[str, str, str], ...] = (
    (kueue.LOCAL_QUEUE, "spec.clusterQueue", kueue.CLUSTER_QUEUE),
    (kueue.CLUSTER_QUEUE, "spec.cohortName", kueue.COHORT),
    (kueue.CLUSTER_QUEUE, "spec.resourceGroups.*.flavors.*.name", kueue.FLAVOR),
    (kueue.CLUSTER_QUEUE, "spec.admissionChecksStrategy.admissionChecks.*.name", kueue.ADMISSION_CHECK),
    (kueue.COHORT, "spec.parentName", kueue.COHORT),
    (kueue.COHORT, "spec.resourceGroups.*.flavors.*.name", kueue.FLAVOR),
    (kueue.FLAVOR, "spec.topologyName", kueue.TOPOLOGY),
    ("NodePool.karpenter.sh", "spec.template.spec.nodeClassRef.name", NODE_CLASS),
    (CLAIM, "spec.volumeName", VOLUME),
    ("StatefulSet.apps", "spec.serviceName", "Service"),
    (f"{policies.POLICY_KIND}Binding.{policies.GROUP}", "spec.policyName", policies.POLICY),
    ("Ingress.networking.k8s.io", "spec.rules.*.http.paths.*.backend.service.name", "Service"),
)  # fmt: skip
_IN_PODS: tuple[tuple[str, str], ...] = (
    ("spec.serviceAccountName", "ServiceAccount"),
    ("spec.priorityClassName", "PriorityClass.scheduling.k8s.io"),
    ("spec.runtimeClassName", "RuntimeClass.node.k8s.io"),
    ("spec.volumes.*.persistentVolumeClaim.claimName", CLAIM),
    ("spec.volumes.*.configMap.name", CONFIG_MAP),
    ("spec.containers.*.envFrom.*.configMapRef.name", CONFIG_MAP),
    ("spec.containers.*.env.*.valueFrom.configMapKeyRef.name", CONFIG_MAP),
)
_ALWAYS = frozenset(  # what each cluster has by itself
    {
        *(("Namespace", name) for name in ("default", "kube-node-lease", "kube-public", "kube-system")),
        *(("ClusterRole.rbac.authorization.k8s.io", name) for name in ("admin", "cluster-admin", "edit", "view")),
        *(("PriorityClass.scheduling.k8s.io", f"system-{name}-critical") for name in ("cluster", "node")),
        ("ServiceAccount", "default"),
        (CONFIG_MAP, "kube-root-ca.crt"),
    }
)  # fmt: skip


def check(world: World) -> Iterator[Finding]:
    for thing in world.objects:
        if thing.group in CLIENT_GROUPS:
            continue
        for owner, path, target in _TABLE:
            if owner == thing.key:
                yield from _follow(world, thing, path, target)
        for special in (_namespace, _claim, _admission_check, _binding, _scaler, _queue):
            yield from special(world, thing)
        for pods in pods_of(thing):
            yield from _in_pods(world, pods)
    yield from _circles(world)


def _follow(world: World, thing: Obj, path: str, target: str) -> Iterator[Finding]:
    for where, value in along(thing.body, path.split(".")):
        yield from _resolve(world, thing, where, target, text(value))


def _resolve(world: World, thing: Obj, where: Path, target: str, name: str) -> Iterator[Finding]:
    namespace = "" if target in _cluster_scoped() else thing.namespace
    if name and (target, name) not in _ALWAYS and not world.has(target, name, namespace):
        kind, place = target.partition(".")[0], f" in namespace {quoted(namespace)}" if namespace else ""
        level = Level.ERROR if world.facts.whole else Level.WARNING
        yield thing.found("reference", f"there is no {kind} {quoted(name)}{place}", where, level)


@cache
def _cluster_scoped() -> frozenset[str]:
    """The keys of what lives in no namespace."""
    own = {
        f"{kind}.{api.rpartition('/')[0]}" for (api, kind), crd in crd_schemas().items() if crd.cluster_scoped
    }
    facts = kubernetes_facts()
    pairs = ((api.rpartition("/")[0], kind) for api, kind in facts.served if kind in facts.cluster_scoped)
    return frozenset(own | {f"{kind}.{group}" if group else kind for group, kind in pairs})


def _namespace(world: World, thing: Obj) -> Iterator[Finding]:
    if is_namespaced(thing.api_version, thing.kind):
        yield from _resolve(world, thing, ("metadata", "namespace"), "Namespace", thing.namespace)


def _claim(world: World, thing: Obj) -> Iterator[Finding]:
    """A claim that names its volume only compares class names; another one needs the class."""
    if thing.key == CLAIM and not text(at(thing.body, "spec", "volumeName")):
        yield from _follow(world, thing, "spec.storageClassName", STORAGE_CLASS)


def _admission_check(world: World, thing: Obj) -> Iterator[Finding]:
    parameters = mapping(at(thing.body, "spec", "parameters"))
    if thing.key == kueue.ADMISSION_CHECK and parameters.get("kind") == "ProvisioningRequestConfig":
        target = "ProvisioningRequestConfig.kueue.x-k8s.io"
        yield from _follow(world, thing, "spec.parameters.name", target)


def _binding(world: World, thing: Obj) -> Iterator[Finding]:
    if thing.kind not in ("RoleBinding", "ClusterRoleBinding"):
        return
    role = mapping(at(thing.body, "roleRef"))
    kind, name = text(role.get("kind")), text(role.get("name"))
    if kind in ROLES and not name.startswith("system:"):
        yield from _resolve(world, thing, ("roleRef", "name"), ROLES[kind], name)
    for path, subject in entries(thing.body, "subjects"):
        if at(subject, "kind") == "ServiceAccount":
            name, namespace = text(at(subject, "name")), text(at(subject, "namespace"))
            if name != "default" and not world.has("ServiceAccount", name, namespace or thing.namespace):
                yield thing.found("reference", f"there is no ServiceAccount {quoted(name)} in namespace {quoted(namespace)}", path)  # fmt: skip


def _scaler(world: World, thing: Obj) -> Iterator[Finding]:
    if thing.key != "HorizontalPodAutoscaler.autoscaling":
        return
    target = mapping(at(thing.body, "spec", "scaleTargetRef"))
    group = text(target.get("apiVersion")).rpartition("/")[0]
    key = f"{text(target.get('kind'))}.{group}" if group else text(target.get("kind"))
    yield from _resolve(world, thing, ("spec", "scaleTargetRef", "name"), key, text(target.get("name")))  # fmt: skip


def _queue(world: World, thing: Obj) -> Iterator[Finding]:
    """Kueue never takes in a workload whose queue is not in its namespace: it stays suspended in silence."""
    for label, target in (
        (kueue.QUEUE_LABEL, kueue.LOCAL_QUEUE),
        (kueue.PRIORITY_LABEL, kueue.PRIORITY_CLASS),
    ):
        where = ("metadata", "labels", label)
        yield from _resolve(world, thing, where, target, text(thing.labels.get(label)))


def _in_pods(world: World, pods: Pods) -> Iterator[Finding]:
    for path, target in _IN_PODS:
        for where, value in along(pods.template, path.split(".")):
            parent = _parent(pods.template, where)
            if at(parent, "optional") is not True:
                yield from _resolve(world, pods.owner, pods.where(*where), target, text(value))


def _parent(value: Any, path: Path) -> Any:
    for key in path[:-1]:
        value = items(value)[key] if isinstance(key, int) else mapping(value).get(key)
    return value


def _circles(world: World) -> Iterator[Finding]:
    """Kueue stops all admission in a tree of cohorts that is none."""
    for cohort in world.all(kueue.COHORT):
        seen, parent = {cohort.name}, text(at(cohort.body, "spec", "parentName"))
        while parent and parent not in seen:
            seen.add(parent)
            above = world.get(kueue.COHORT, parent)
            parent = text(at(above.body, "spec", "parentName")) if above else ""
        if parent == cohort.name:
            yield cohort.found("cycle", "the cohort is its own ancestor", ("spec", "parentName"))
