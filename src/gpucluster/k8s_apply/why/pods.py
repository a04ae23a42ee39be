"""Why a pod does not run, in the words of kube-scheduler, the kubelet and Karpenter. Pure.

Sources: Kubernetes v1.36.2, pkg/kubelet (images/types.go, kuberuntime, events/event.go: reasons of waiting containers and of events),
pkg/scheduler/framework/plugins (reasons that a node does not fit; of device claims: dynamicresources, and the module
dynamic-resource-allocation, resourceclaim and structured); Karpenter, pkg/events/reason.go and
pkg/controllers/provisioning/scheduling/events.go (226646810).
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.objects import condition, is_true, rows, section
from gpucluster.k8s_apply.why.cause import Cause, CauseKind
from gpucluster.k8s_apply.why.evidence import Evidence, message, name_of, newest, seen_at

SCHEDULER, KUBELET, KARPENTER = "kube-scheduler", "kubelet", "Karpenter"
_OF_KUEUE = "kueue.x-k8s.io/"  # its gates: admission, topology
_UNFIT: tuple[tuple[str, CauseKind], ...] = (  # the first row that matches; a claim prevents the use of any node
    (r"persistentvolumeclaim|PersistentVolume|persistent volumes|volume zone|volume count|non-existent pv|enough free storage|no available disk", CauseKind.VOLUME),
    (r"[Rr]esource ?[Cc]laim|allocate all claims|device class|\bclaim \S+, (request|constraint)", CauseKind.DEVICE),
    (r"Insufficient [a-z]|free ports|Too many pods", CauseKind.RESOURCES),
    (r"untolerated taint|taints that the pod didn't tolerate", CauseKind.TAINT),
    (r"unschedulable", CauseKind.NODE),
    (r"node affinity/selector|requested node name|pod affinity|anti-affinity|topology spread", CauseKind.SELECTOR),
)  # fmt: skip
_SICK = re.compile(
    r"node\.kubernetes\.io/(not-ready|unreachable|disk-pressure|memory-pressure|pid-pressure|network-unavailable)"
)
_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"})  # fmt: skip
_CONFIG = frozenset({"CreateContainerConfigError"})
_CREATING = frozenset({"ContainerCreating", "PodInitializing", ""})
_OF_KARPENTER = frozenset({"FailedScheduling", "Nominated"})
_PULLS, _PROBES = frozenset({"Failed", "InspectFailed"}), frozenset({"Unhealthy"})
_REPEATED = re.compile(
    r"Error: \w+"
)  # the kubelet's second event of a pull names only its class: `Error: ImagePullBackOff`
_PROGRESS = frozenset(
    {"Pulling", "Pulled", "Created", "Started"}
)  # of a container: its volumes and its sandbox are there
_MOUNT = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})
_SANDBOX = frozenset({"FailedCreatePodSandBox", "NetworkNotReady", "FailedPrepareDynamicResources"})
_MISSING = re.compile(
    r"(secret|configmap|serviceaccount) \"(?:[^\"/]*/)?([a-z0-9.-]+)\" not found", re.IGNORECASE
)
_CREATE: Mapping[str, str] = {
    "secret": "kubectl create secret generic %s --namespace %s --from-file=KEY=FILE",
    "configmap": "kubectl create configmap %s --namespace %s --from-file=KEY=FILE",
    "serviceaccount": "kubectl create serviceaccount %s --namespace %s",
}


def causes(evidence: Evidence) -> Iterator[Cause]:
    """Yield what each pod that is not ready waits for."""
    for pod in evidence.pods:
        yield from _of_pod(pod, evidence)


def phase(pod: Manifest) -> str:
    """Return the phase as people see it: a pod that is being deleted is Terminating, one that runs is Ready or not."""
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    found = str(section(pod, "status").get("phase", "Pending"))
    return "Ready" if found == "Running" and is_true(pod, "Ready") else found


def unschedulable(pod: Manifest) -> bool:
    return condition(pod, "PodScheduled").get("reason") == "Unschedulable"


def _of_pod(pod: Manifest, evidence: Evidence) -> Iterator[Cause]:
    match phase(pod):
        case "Succeeded" | "Ready":
            return
        case "Terminating":
            yield from _deleted(pod, evidence)
        case "Failed":
            yield from _ended(pod)
        case _ if not section(pod, "spec").get("nodeName"):
            yield from _unplaced(pod, evidence)
        case _:
            yield from _on_node(pod, evidence)


# --- before it has a node --------------------------------------------------------------------------------
def _unplaced(pod: Manifest, evidence: Evidence) -> Iterator[Cause]:
    subject = name_of(pod)
    if gates := [str(row.get("name")) for row in rows(section(pod, "spec"), "schedulingGates")]:
        by = "Kueue" if any(gate.startswith(_OF_KUEUE) for gate in gates) else "its spec"
        words = f"the pod has the scheduling gates {', '.join(gates)}"
        yield Cause(kind=CauseKind.GATE, subject=subject, by=by, words=words)
        return
    row = condition(pod, "PodScheduled")
    if row.get("status") == "False" and row.get("message"):
        words = str(row["message"])
        yield Cause(
            kind=_unfit(words),
            subject=subject,
            by=SCHEDULER,
            words=words,
            details=tuple(_claims(pod, evidence)),
            next_step=_step_of(words, pod),
        )
    else:
        name = section(pod, "spec").get("schedulerName", "default-scheduler")
        yield Cause(
            kind=CauseKind.OTHER,
            subject=subject,
            by=SCHEDULER,
            words=f"{name} has set no condition on the pod",
        )
    if said := newest(evidence.events(pod), _OF_KARPENTER, by="karpenter"):
        yield Cause(kind=CauseKind.MACHINE, subject=subject, by=KARPENTER, words=message(said))


def _unfit(words: str) -> CauseKind:
    if _SICK.search(words):
        return CauseKind.NODE
    return next((kind for pattern, kind in _UNFIT if re.search(pattern, words)), CauseKind.OTHER)


def _step_of(words: str, pod: Manifest) -> str:
    namespace = pod["metadata"].get("namespace", "")
    kind = _unfit(words)
    if kind is CauseKind.VOLUME:
        return f"kubectl describe pvc --namespace {namespace}"
    if kind is CauseKind.DEVICE:
        return f"kubectl describe resourceclaims --namespace {namespace}"
    return "kubectl get nodes" if kind is CauseKind.NODE else ""


def _claims(pod: Manifest, evidence: Evidence) -> Iterator[str]:
    """Yield the claims of a pod that are not bound, with what their newest event says."""
    namespace = pod["metadata"].get("namespace", "")
    if "PersistentVolumeClaim" in evidence.unread:
        return
    for volume in rows(section(pod, "spec"), "volumes"):
        name = section(volume, "persistentVolumeClaim").get("claimName")
        if not name:
            continue
        claim = evidence.named("PersistentVolumeClaim", str(name), namespace)
        if claim is None:
            yield f"{namespace}/PersistentVolumeClaim/{name} does not exist"
        elif section(claim, "status").get("phase") != "Bound":
            said = next((message(event) for event in evidence.events(claim)), "no event")
            yield f"{name_of(claim)} is {section(claim, 'status').get('phase', 'Pending')}: {said}"


# --- on a node -------------------------------------------------------------------------------------------
def _on_node(pod: Manifest, evidence: Evidence) -> Iterator[Cause]:
    if sick := _sick_node(pod, evidence):
        yield sick
        return
    found = [cause for row in _statuses(pod) for cause in _of_container(row, pod, evidence)]
    if found or phase(pod) == "Running":
        yield from found or _unready(pod, evidence)
        return
    events = evidence.events(pod)
    said, done = newest(events, _MOUNT | _SANDBOX), newest(events, _PROGRESS, by="kubelet")
    if said is not None and (done is None or seen_at(said) >= seen_at(done)):
        words = message(said)
        kind = CauseKind.VOLUME if re.search(r"MountVolume|AttachVolume|volume", words) else CauseKind.NODE
        yield _by_kubelet(kind, pod, words)
    elif running := _initializing(pod):
        words = f"its init container {running} runs, and the containers after it wait for its end"
        step = _logs(pod, running).removesuffix(" --previous")
        yield _by_kubelet(CauseKind.CONTAINER, pod, words, step=step)
    elif done is not None and done.get("reason") == "Pulling":
        yield _by_kubelet(CauseKind.IMAGE, pod, f"since {seen_at(done)}: {message(done)}")
    else:
        yield _by_kubelet(CauseKind.CONTAINER, pod, "its containers are being created")


def _initializing(pod: Manifest) -> str:
    """Return the init container that runs and is no sidecar that has started; empty if there is none."""
    specs = rows(section(pod, "spec"), "initContainers")
    sidecars = {one.get("name") for one in specs if one.get("restartPolicy") == "Always"}
    for row in rows(section(pod, "status"), "initContainerStatuses"):
        started = row.get("name") in sidecars and row.get("started")
        if "running" in section(row, "state") and not started:
            return str(row.get("name"))
    return ""


def _sick_node(pod: Manifest, evidence: Evidence) -> Cause | None:
    """Return the cause of a pod whose node is gone or does not answer. Nothing if the nodes could not be read."""
    name = str(pod["spec"]["nodeName"])
    node = evidence.named("Node", name)
    if "Node" in evidence.unread:
        return None
    step = f"kubectl describe node {name}"
    if node is None:
        return Cause(
            kind=CauseKind.NODE,
            subject=name_of(pod),
            by="the API server",
            words=f"its node {name} does not exist",
        )
    if is_true(node, "Ready"):
        return None
    row = condition(node, "Ready")
    words = f"its node {name} is not Ready: {row.get('message') or row.get('reason') or 'no condition'}"
    return Cause(kind=CauseKind.NODE, subject=name_of(pod), by=KUBELET, words=words, next_step=step)


def _statuses(pod: Manifest) -> Iterator[Mapping[str, object]]:
    status = section(pod, "status")
    for key in ("initContainerStatuses", "containerStatuses"):
        yield from rows(status, key)


def _of_container(row: Mapping[str, object], pod: Manifest, evidence: Evidence) -> Iterator[Cause]:
    waits = section(section(row, "state"), "waiting")
    reason, words = str(waits.get("reason", "")), str(waits.get("message", ""))
    if ended := _end_of(row):
        step = _logs(pod, row.get("name")).removesuffix(" --previous")
        yield _by_kubelet(CauseKind.CONTAINER, pod, ended, step=step)
        return
    if not waits or reason in _CREATING:
        return
    name = row.get("name")
    if reason in _IMAGE:
        said = _pull_of(str(name), pod, evidence) or words or reason
        named = f"container {name}, image {row.get('image')}: {said}"
        yield _by_kubelet(CauseKind.IMAGE, pod, named, tuple(_pull_secrets(pod)))
    elif reason in _CONFIG:
        yield _by_kubelet(CauseKind.REFERENCE, pod, f"container {name}: {words or reason}")
    else:
        yield _by_kubelet(
            CauseKind.CONTAINER,
            pod,
            f"container {name}: {reason}: {words}",
            tuple(_last_end(row)),
            _logs(pod, name),
        )


def _pull_of(container: str, pod: Manifest, evidence: Evidence) -> str:
    """Return the newest event that says why the image of a container was not pulled; empty if there is none."""
    fields = ("", f"spec.containers{{{container}}}", f"spec.initContainers{{{container}}}")
    mine = (
        one
        for one in evidence.events(pod)
        if str(section(one, "involvedObject").get("fieldPath", "")) in fields
        and not _REPEATED.fullmatch(message(one))
    )
    found = newest(mine, _PULLS, by="kubelet")
    return "" if found is None else message(found)


def _end_of(row: Mapping[str, object]) -> str:
    """Return how a container ended that failed; empty for another one."""
    ended = section(section(row, "state"), "terminated")
    if not ended.get("exitCode"):
        return ""
    said = f": {ended['message']}" if ended.get("message") else ""
    return f"container {row.get('name')} ended with exit code {ended['exitCode']}, {ended.get('reason', 'no reason')}{said}"


def _last_end(row: Mapping[str, object]) -> Iterator[str]:
    """Yield how the container ended before."""
    ended = section(section(row, "lastState"), "terminated")
    if ended:
        said = f": {ended['message']}" if ended.get("message") else ""
        yield f"it ended with exit code {ended.get('exitCode')}, {ended.get('reason', 'no reason')}{said}; restarts: {row.get('restartCount', 0)}"


def _unready(pod: Manifest, evidence: Evidence) -> Iterator[Cause]:
    """Yield the cause of a pod that runs and is not ready: the newest answer of a probe."""
    probe, row = newest(evidence.events(pod), _PROBES), condition(pod, "Ready")
    words = str(row.get("message") or "the pod is not ready") if probe is None else message(probe)
    yield _by_kubelet(CauseKind.PROBE, pod, words)


def _pull_secrets(pod: Manifest) -> Iterator[str]:
    named = [str(row.get("name")) for row in rows(section(pod, "spec"), "imagePullSecrets")]
    yield f"imagePullSecrets of the pod: {', '.join(named) or 'none'}"


def _by_kubelet(
    kind: CauseKind, pod: Manifest, words: str, details: tuple[str, ...] = (), step: str = ""
) -> Cause:
    return Cause(
        kind=CauseKind.REFERENCE if _MISSING.search(words) else kind,
        subject=name_of(pod),
        by=KUBELET,
        words=words,
        details=details,
        next_step=missing_step(words, pod["metadata"].get("namespace", "")) or step,
    )


def missing_step(words: str, namespace: str) -> str:
    """Return the command that makes what is said to be missing; empty if nothing is."""
    found = _MISSING.search(words)
    return _CREATE[found[1].lower()] % (found[2], namespace) if found else ""


def _logs(pod: Manifest, container: object) -> str:
    name, namespace = pod["metadata"]["name"], pod["metadata"].get("namespace", "")
    return f"kubectl logs {name} --namespace {namespace} --container {container} --previous"


# --- after it --------------------------------------------------------------------------------------------
def _deleted(pod: Manifest, evidence: Evidence) -> Iterator[Cause]:
    """Yield why a pod is still there after its deletion."""
    finalizers: Sequence[str] = pod["metadata"].get("finalizers") or ()
    why = condition(pod, "DisruptionTarget")
    words = "it is being deleted"
    if why.get("message"):
        words += f": {why['message']}"
    details = [f"finalizers: {', '.join(finalizers)}"] if finalizers else []
    name = section(pod, "spec").get("nodeName")
    if name and (sick := _sick_node(pod, evidence)):
        details.append(sick.words)
    yield Cause(kind=CauseKind.DELETED, subject=name_of(pod), by=KUBELET, words=words, details=tuple(details))


def _ended(pod: Manifest) -> Iterator[Cause]:
    """Yield how a pod failed."""
    status = section(pod, "status")
    why = condition(pod, "DisruptionTarget")
    if words := status.get("message") or why.get("message"):
        reason = status.get("reason") or why.get("reason") or "Failed"
        yield Cause(kind=CauseKind.EVICTED, subject=name_of(pod), by=KUBELET, words=f"{reason}: {words}")
        return
    for row in _statuses(pod):
        if words := _end_of(row):
            step = _logs(pod, row.get("name")).removesuffix(" --previous")
            yield Cause(
                kind=CauseKind.CONTAINER, subject=name_of(pod), by=KUBELET, words=words, next_step=step
            )
