"""Check parts of manifests that must agree, beyond schemas: selectors and labels, claims and volumes, jobs and policies."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint import kueue
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import JOBSET, Pods, pods_of, selects
from gpucluster.k8s.lint.references import CLAIM, VOLUME
from gpucluster.k8s.lint.tree import along, at, entries, items, mapping, text
from gpucluster.text import quoted

_SELECTING = frozenset({"Deployment.apps", "ReplicaSet.apps", "StatefulSet.apps", "DaemonSet.apps"})
_JOBS = frozenset({"Job.batch", "CronJob.batch", JOBSET})
_BACKEND = ["spec", "rules", "*", "http", "paths", "*", "backend", "service"]
_UNITS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "y": 31_536_000_000,
}
_DURATION = re.compile(r"(\d{1,9})(ms|[smhdwy])", re.ASCII)
_BY_CONTROLLERS = (  # the beginning of labels that a controller gives to its pods
    "alpha.jobset.sigs.k8s.io/", "apps.kubernetes.io/", "batch.kubernetes.io/", "controller-uid", "job-name",
    "jobset.sigs.k8s.io/", "leaderworkerset.sigs.k8s.io/", "ray.io/", "serving.kserve.io/", "serving.knative.dev/", "spark-",
    "statefulset.kubernetes.io/", "training.kubeflow.org/", "volcano.sh/",
)  # fmt: skip


def check(manifests: ManifestSet) -> Iterator[Finding]:
    pods = [made for thing in manifests.objects for made in pods_of(thing)]
    for made in pods:
        yield from _own_selector(made)
        yield from _restart(made)
        yield from _mounts(made)
        yield from _priority(manifests, made)
    for thing in manifests.objects:
        yield from _service(thing, pods, whole=manifests.facts.whole)
        if manifests.facts.whole:
            yield from _budget(thing, pods)
        yield from _ingress(manifests, thing)
        yield from _monitor(manifests, thing)
        yield from _queue(manifests, thing)
        yield from _class(thing)
        yield from _scaler(thing)
        yield from _dependencies(thing)
        yield from _claim(manifests, thing)
    yield from _handles(manifests)


def _own_selector(pods: Pods) -> Iterator[Finding]:
    wanted = mapping(at(pods.owner.body, "spec", "selector", "matchLabels"))
    if pods.owner.key in _SELECTING and not _selects(wanted, pods.labels):
        yield pods.owner.found("selector", "does not select its own template's labels", ("spec", "selector"))


def _restart(pods: Pods) -> Iterator[Finding]:
    policy = pods.spec.get("restartPolicy", "Always")
    if pods.owner.key in _JOBS and policy == "Always":
        yield pods.owner.found("restart-policy", "restartPolicy must be Never or OnFailure in a job", pods.where("spec", "restartPolicy"))  # fmt: skip


def _priority(manifests: ManifestSet, pods: Pods) -> Iterator[Finding]:
    """The API server computes the number from the class, and refuses a pod with another (plugin/pkg/admission/priority)."""
    said, name = pods.spec.get("priority"), text(pods.spec.get("priorityClassName"))
    chosen = manifests.get("PriorityClass.scheduling.k8s.io", name)
    value = chosen.body.get("value") if chosen else None
    if type(said) is type(value) is int and said != value:
        words = f"{said} is not the value of class {quoted(name)}, {value}: the API server refuses the pod"
        yield pods.owner.found("range", words, pods.where("spec", "priority"))


def _mounts(pods: Pods) -> Iterator[Finding]:
    volumes = {at(volume, "name") for _, volume in entries(pods.spec, "volumes") if isinstance(at(volume, "name"), str)}  # fmt: skip
    volumes |= set(_claim_templates(pods))
    for path, container in pods.containers():
        for inner, mount in entries(container, "volumeMounts"):
            name = text(at(mount, "name"))
            if name not in volumes and pods.complete:
                yield pods.owner.found("volume", f"the pod has no volume {quoted(name)}", (*path, *inner))


def _claim_templates(pods: Pods) -> Iterator[str]:
    """Return the names of the volumes that a StatefulSet or a JobSet adds to its pods."""
    spec = pods.owner.body.get("spec")
    for way in ("volumeClaimTemplates.*.metadata.name", "volumeClaimPolicies.*.templates.*.metadata.name"):
        yield from (text(name) for _, name in along(spec, way.split(".")))


def _service(thing: Obj, pods: list[Pods], *, whole: bool) -> Iterator[Finding]:
    """A service of a set or job can select by labels that a controller adds. Only our own labels are compared."""
    wanted = mapping(at(thing.body, "spec", "selector"))
    if thing.key != "Service" or not wanted or any(key.startswith(_BY_CONTROLLERS) for key in wanted):
        return
    here = [made for made in pods if made.owner.namespace == thing.namespace]
    chosen = [made for made in here if _selects(wanted, made.labels)]
    if not chosen and whole:
        yield thing.warned("selector", "selects no pod of these manifests", ("spec", "selector"))
    names = {
        text(at(p, "name")) for made in chosen for _, c in made.containers() for _, p in entries(c, "ports")
    }
    for path, port in entries(thing.body, "spec", "ports") if chosen else ():
        target = at(port, "targetPort")
        if isinstance(target, str) and target not in names:
            level = Severity.ERROR if whole else Severity.WARNING  # a patch can add a container with the port
            words = f"its pods have no port {quoted(target)}"
            yield thing.found("port", words, (*path, "targetPort"), level)
        number = at(port, "port") if target is None else target
        numbers = [_numbers(made) for made in chosen]
        if type(number) is int and all(numbers) and not any(number in some for some in numbers):
            yield thing.warned("port", f"its pods name other ports than {number}", (*path, "targetPort"))


def _numbers(pods: Pods) -> frozenset[int]:
    """Return the ports that pods name; none if a container names none: it can listen anywhere."""
    found = [
        {port for _, one in entries(container, "ports") if type(port := at(one, "containerPort")) is int}
        for path, container in pods.containers()
        if "initContainers" not in path
    ]
    return (
        frozenset(port for ports in found for port in ports) if pods.complete and all(found) else frozenset()
    )


def _ingress(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    for path, backend in along(thing.body, _BACKEND) if thing.key == "Ingress.networking.k8s.io" else ():
        service = manifests.get("Service", text(at(backend, "name")), thing.namespace)
        port = mapping(at(backend, "port"))
        ports = [mapping(one) for _, one in entries(service.body, "spec", "ports")] if service else []
        given = port.get("number"), port.get("name")
        if ports and not any(given in ((one.get("port"), None), (None, one.get("name"))) for one in ports):
            words = f"service {quoted(at(backend, 'name'))} has no port {given[0] or given[1]}: the path gives an error"
            yield thing.warned("port", words, (*path, "port"))


def _monitor(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    """Prometheus reads services by their labels. It reads nothing of a monitor that selects none."""
    selector = at(thing.body, "spec", "selector")
    if thing.key != "ServiceMonitor.monitoring.coreos.com" or not mapping(selector):
        return
    yield from _timeouts(thing)
    spaces = mapping(at(thing.body, "spec", "namespaceSelector"))
    named = items(spaces.get("matchNames")) or [thing.namespace]
    services = [
        one for one in manifests.all("Service") if spaces.get("any") is True or one.namespace in named
    ]
    chosen = [one for one in services if selects(selector, one.labels)]
    if not chosen and manifests.facts.whole:
        yield thing.warned("selector", "selects no service of these manifests", ("spec", "selector"))
    names = {text(at(port, "name")) for one in chosen for _, port in entries(one.body, "spec", "ports")}
    for path, endpoint in entries(thing.body, "spec", "endpoints") if chosen else ():
        if text(port := at(endpoint, "port")) and port not in names:
            yield thing.warned("port", f"its services have no port {quoted(port)}", (*path, "port"))


def _timeouts(thing: Obj) -> Iterator[Finding]:
    """The Prometheus operator leaves out a whole monitor with an endpoint that it cannot configure."""
    for path, endpoint in entries(thing.body, "spec", "endpoints"):
        most, every = (_milliseconds(text(at(endpoint, part))) for part in ("scrapeTimeout", "interval"))
        if most > every > 0:
            words = "is above the interval: the Prometheus operator leaves the monitor out"
            yield thing.warned("range", words, (*path, "scrapeTimeout"))


def _milliseconds(written: str) -> int:
    """Return a duration of Prometheus such as `1m30s`; 0 for none."""
    parts = _DURATION.findall(written)
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def _budget(thing: Obj, pods: list[Pods]) -> Iterator[Finding]:
    selector = mapping(at(thing.body, "spec", "selector"))
    if thing.key != "PodDisruptionBudget.policy" or not any(selector.values()):
        return
    if not any(selects(selector, made.labels) for made in pods if made.owner.namespace == thing.namespace):
        yield thing.warned("selector", "selects no pod of these manifests", ("spec", "selector"))


def _queue(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    """Kueue admits workloads only from namespaces that the cluster queue selects."""
    name = text(at(thing.body, "spec", "clusterQueue")) if thing.key == kueue.LOCAL_QUEUE else ""
    queue, namespace = manifests.get(kueue.CLUSTER_QUEUE, name), manifests.get("Namespace", thing.namespace)
    if queue is None or namespace is None:
        return
    selector = at(queue.body, "spec", "namespaceSelector")
    labels = {**namespace.labels, "kubernetes.io/metadata.name": namespace.name}
    if selector is None or not _selects(mapping(at(selector, "matchLabels")), labels):
        words = f"cluster queue {name!r} does not select namespace {namespace.name!r}: its workloads are never admitted"
        yield thing.found("selector", words, ("spec", "clusterQueue"))


def _class(thing: Obj) -> Iterator[Finding]:
    """Karpenter for AWS supports one kind of node class."""
    ref = at(thing.body, "spec", "template", "spec", "nodeClassRef")
    aws, kind = at(ref, "group") == "karpenter.k8s.aws", text(at(ref, "kind"))
    if thing.key == "NodePool.karpenter.sh" and aws and kind != "EC2NodeClass":
        where = ("spec", "template", "spec", "nodeClassRef", "kind")
        yield thing.found("reference", f"{quoted(kind)} is not a node class; expected EC2NodeClass", where)


def _scaler(thing: Obj) -> Iterator[Finding]:
    least, most = at(thing.body, "spec", "minReplicas"), at(thing.body, "spec", "maxReplicas")
    if (
        thing.key == "HorizontalPodAutoscaler.autoscaling"
        and type(least) is type(most) is int
        and least > most
    ):
        yield thing.found("replicas", f"minReplicas {least} is above maxReplicas {most}", ("spec", "minReplicas"))  # fmt: skip


def _dependencies(thing: Obj) -> Iterator[Finding]:
    """As JobSet's webhook: a job may depend only on an earlier one."""
    before: set[str] = set()
    for path, job in entries(thing.body, "spec", "replicatedJobs") if thing.key == JOBSET else ():
        for inner, dependency in entries(job, "dependsOn"):
            if (name := text(at(dependency, "name"))) not in before:
                yield thing.found("depends-on", f"no job {quoted(name)} is listed before it", (*path, *inner))
        before.add(text(at(job, "name")))


def _claim(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    volume = manifests.get(VOLUME, text(at(thing.body, "spec", "volumeName"))) if thing.key == CLAIM else None
    if volume is None:
        return
    asked, has = mapping(thing.body.get("spec")), mapping(volume.body.get("spec"))
    size = quantity.parse(at(asked, "resources", "requests", "storage"))
    capacity = quantity.parse(at(has, "capacity", "storage"))
    if size is not None and capacity is not None and size > capacity:
        yield thing.found("claim", f"asks for {quantity.shown(size)}, volume {volume.name!r} has {quantity.shown(capacity)}", ("spec", "resources"))  # fmt: skip
    lacking = [mode for mode in map(text, items(asked.get("accessModes"))) if mode not in items(has.get("accessModes"))]  # fmt: skip
    if lacking:
        yield thing.found("claim", f"volume {volume.name!r} has no {', '.join(lacking)}", ("spec", "accessModes"))  # fmt: skip
    if text(asked.get("storageClassName")) != text(has.get("storageClassName")):
        words = f"storageClassName is required, and must equal that of volume {volume.name!r} ({text(has.get('storageClassName'))!r})"  # fmt: skip
        yield thing.found("claim", words, ("spec", "storageClassName"))
    elif "storageClassName" not in asked:
        words = "without storageClassName the claim gets the cluster's default class, if it has one, and then does not fit its volume"
        yield thing.warned("claim", words, ("spec", "storageClassName"))
    bound = mapping(has.get("claimRef"))
    if bound and (text(bound.get("name")), text(bound.get("namespace"))) != (thing.name, thing.namespace):
        yield thing.found(
            "claim", f"volume {volume.name!r} is reserved for another claim", ("spec", "volumeName")
        )


def _handles(manifests: ManifestSet) -> Iterator[Finding]:
    """Two volumes with one handle confuse the kubelet's mounts. Two files of a part can be of two clusters."""
    seen: dict[tuple[str, str, str], str] = {}
    for volume in manifests.all(VOLUME):
        csi = mapping(at(volume.body, "spec", "csi"))
        file = "" if manifests.facts.whole else volume.document.file
        handle = (text(csi.get("driver")), text(csi.get("volumeHandle")), file)
        if all(handle[:2]) and seen.setdefault(handle, volume.name) != volume.name:
            yield volume.found("volume-handle", f"volume {seen[handle]!r} has the same handle", ("spec", "csi", "volumeHandle"))  # fmt: skip


def _selects(wanted: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    return all(key in labels and labels[key] == value for key, value in wanted.items())
