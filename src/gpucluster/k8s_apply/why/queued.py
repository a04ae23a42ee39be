"""Why Kueue does not start a workload, by the conditions of its Workload. Pure.

Sources: Kueue v0.19.2, apis/kueue/v1beta2/workload_types.go (conditions and reasons), pkg/scheduler/flavorassigner (quota and flavors),
pkg/cache/scheduler/tas_flavor_snapshot.go (topology), pkg/controller/core/workload_controller.go (queues). A message is cut at 32 KiB.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s.views.pods import QUEUE_LABEL
from gpucluster.k8s_apply.objects import condition, is_true, rows, section
from gpucluster.k8s_apply.why.cause import Cause, CauseKind
from gpucluster.k8s_apply.why.evidence import Evidence, name_of
from gpucluster.plan import names

BY = "Kueue"
_HOLDERS = 5
_SILENT = "has set no condition on it"
_CONTROLLER = "kubectl get pods --namespace kueue-system"  # whether it runs
_UNUSED = re.compile(r"insufficient unused quota for (\S+) in flavor ([^\s,]+)")
_ROWS: tuple[tuple[re.Pattern[str], CauseKind], ...] = (
    (re.compile(r"(LocalQueue|ClusterQueue) \S+ (doesn't exist|not found|is terminating|is stopped|is inactive)"), CauseKind.QUEUE),
    (re.compile(r"insufficient (unused )?quota|cannot borrow|quota"), CauseKind.QUOTA),
    (re.compile(r"topology \"[^\"]*\" (doesn't allow|allows to fit only)|topology"), CauseKind.TOPOLOGY),
    (re.compile(r"flavor|taint|affinity"), CauseKind.FLAVOR),
)  # fmt: skip
_TOO_LARGE = re.compile(r"> maximum capacity")


def causes(evidence: Evidence) -> Iterator[Cause]:
    """Yield what prevents the admission of each Workload of the subject."""
    for one in evidence.workloads:
        if not is_true(one, "Finished"):
            yield from _of_workload(one, evidence)
    if not evidence.workloads:
        yield from _unseen(evidence)


def _of_workload(one: Manifest, evidence: Evidence) -> Iterator[Cause]:
    subject = _owner_name(one)
    if section(one, "spec").get("active") is False:
        yield _deactivated(one, subject)
        return
    if is_true(one, "Admitted"):
        return
    if is_true(one, "Evicted"):
        evicted = condition(one, "Evicted")
        words = f"{evicted.get('reason', '')}: {evicted.get('message', '')}"
        yield Cause(kind=CauseKind.EVICTED, subject=subject, by=BY, words=words)
    if not is_true(one, "QuotaReserved"):
        words = str(condition(one, "QuotaReserved").get("message") or _SILENT)
        yield _unreserved(words, one, subject, evidence)
        return
    for check in rows(section(one, "status"), "admissionChecks"):
        if check.get("state") != "Ready":
            words = f"{check.get('name')} is {check.get('state')}: {check.get('message') or 'no message'}"
            yield Cause(kind=CauseKind.CHECK, subject=subject, by=BY, words=words)


def _deactivated(one: Manifest, subject: str) -> Cause:
    row = condition(one, "Evicted")
    name, namespace = one["metadata"]["name"], one["metadata"]["namespace"]
    patch = """kubectl patch workloads.kueue.x-k8s.io %s --namespace %s --type merge --patch '{"spec":{"active":true}}'"""
    return Cause(
        kind=CauseKind.STOPPED,
        subject=subject,
        by=BY,
        words=str(row.get("message") or "spec.active of its Workload is false"),
        next_step=patch % (name, namespace),
    )


def _unreserved(words: str, one: Manifest, subject: str, evidence: Evidence) -> Cause:
    kind = next((kind for pattern, kind in _ROWS if pattern.search(words)), CauseKind.OTHER)
    details: tuple[str, ...] = ()
    step = ""
    if kind is CauseKind.QUEUE:
        details, step = _of_queue(one, evidence)
    elif _TOO_LARGE.search(words):
        step = "it does not fit into an empty queue: request less, or raise the quota of the team in kubernetes.teams"
    elif kind is CauseKind.QUOTA:
        details = tuple(_holders(words, evidence))
        step = (
            "wait until one of them ends, or raise the quota of the team in kubernetes.teams"
            if details
            else ""
        )
    elif kind is CauseKind.TOPOLOGY:
        step = "kubectl get nodes --show-labels"
    elif words == _SILENT:
        step = _CONTROLLER
    return Cause(kind=kind, subject=subject, by=BY, words=words, details=details, next_step=step)


def _of_queue(one: Manifest, evidence: Evidence) -> tuple[tuple[str, ...], str]:
    """Return what the queues of a Workload say of themselves, and the command that shows them."""
    namespace, name = one["metadata"]["namespace"], str(section(one, "spec").get("queueName", ""))
    local = evidence.named("LocalQueue", name, namespace)
    if local is None:
        return tuple(_others(namespace, evidence)), f"kubectl get localqueues --namespace {namespace}"
    whole = evidence.named("ClusterQueue", str(section(local, "spec").get("clusterQueue", "")))
    queues = [queue for queue in (local, whole) if queue is not None]
    said = [f"{name_of(queue)}: {words}" for queue in queues if (words := _inactive(queue))]
    if len(queues) == 2 and all(is_true(queue, "Active") for queue in queues):
        said = ["both queues are active now: Kueue has not updated the Workload since"]
    return tuple(said), f"kubectl describe localqueues {name} --namespace {namespace}"


def _inactive(queue: Manifest) -> str:
    """Return why a queue is not active; empty if it is, or says nothing."""
    return "" if is_true(queue, "Active") else str(condition(queue, "Active").get("message", ""))


def _others(namespace: str, evidence: Evidence) -> Iterator[str]:
    """Yield the queues of a namespace, if they could be read."""
    if "LocalQueue" not in evidence.unread:
        found = (one["metadata"] for one in evidence.of("LocalQueue"))
        names = sorted(one["name"] for one in found if one["namespace"] == namespace)
        yield f"queues of {namespace}: {', '.join(names) or 'none'}"


def _left_out(name: str, evidence: Evidence) -> Iterator[str]:
    """Yield why Kueue, as gpucluster configures it, leaves a namespace out, if the namespace could be read."""
    found = evidence.named("Namespace", name)
    if found is not None and names.LABEL_CLUSTER not in section(found["metadata"], "labels"):
        yield f"the namespace {name} has no label {names.LABEL_CLUSTER}: Kueue's managedJobsNamespaceSelector leaves it out"


def _holders(words: str, evidence: Evidence) -> Iterator[str]:
    """Yield the workloads that hold most of the quota that is missing."""
    lacks = list(dict.fromkeys(_UNUSED.findall(words)))
    of_gpus = [row for row in lacks if "gpu" in row[0] or "/mig-" in row[0]]
    for resource, flavor in of_gpus or lacks:  # who holds the GPUs holds the rest of their nodes, too
        held = [(amount, one) for one in evidence.of("Workload") if (amount := _held(one, resource, flavor))]
        for amount, one in sorted(held, key=lambda row: (-row[0], name_of(row[1])))[:_HOLDERS]:
            yield f"{_owner_name(one)} holds {quantity.shown(amount)} {resource} of {flavor}"
        if rest := sorted(amount for amount, _ in held)[:-_HOLDERS]:
            yield f"{len(rest)} others hold {quantity.shown(sum(rest, Decimal(0)))} {resource} of {flavor}"


def _held(one: Manifest, resource: str, flavor: str) -> Decimal:
    assigned = rows(section(section(one, "status"), "admission"), "podSetAssignments")
    mine = (row for row in assigned if section(row, "flavors").get(resource) == flavor)
    amounts = (quantity.parse(section(row, "resourceUsage").get(resource, "0")) for row in mine)
    return sum((amount or Decimal(0) for amount in amounts), Decimal(0))


def _owner_name(one: Manifest) -> str:
    """Return the name of what Kueue made the Workload of."""
    for owner in rows(one["metadata"], "ownerReferences"):
        return f"{one['metadata']['namespace']}/{owner['kind']}/{owner['name']}"
    return name_of(one)


def _unseen(evidence: Evidence) -> Iterator[Cause]:
    """Yield the cause of a suspended object that Kueue has made no Workload of."""
    root = evidence.root
    spec: Mapping[str, object] = section(root, "spec")
    if spec.get("suspend") is not True or "Workload" in evidence.unread or root["kind"] == "CronJob":
        return
    label = section(root["metadata"], "labels").get(QUEUE_LABEL)
    if label:
        words = f"it has made no Workload of the queue {label}"
        yield Cause(
            kind=CauseKind.QUEUE,
            subject=name_of(root),
            by=BY,
            words=words,
            details=tuple(_left_out(root["metadata"]["namespace"], evidence)),
            next_step=_CONTROLLER,
        )
    else:
        yield Cause(
            kind=CauseKind.STOPPED,
            subject=name_of(root),
            by="its spec",
            words=f"spec.suspend is true, and it has no label {QUEUE_LABEL}: nothing starts it",
        )
