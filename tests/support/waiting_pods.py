"""Objects of a cluster in which something waits. Conditions, reasons and messages have the forms of the named sources.

Kueue v0.19.2 (pkg/scheduler/flavorassigner, pkg/cache/scheduler, pkg/controller/core), Kubernetes v1.36.2 (pkg/kubelet, pkg/scheduler,
pkg/controller), Karpenter 226646810 (pkg/controllers/provisioning/scheduling, pkg/controllers/nodeclaim/lifecycle).
"""

from typing import Any

Manifest = dict[str, Any]
NAMESPACE = "research"
EARLY, LATE = "2026-11-27T10:00:00Z", "2026-11-27T10:05:00Z"
_VERSIONS = {
    "Pod": "v1", "Node": "v1", "Namespace": "v1", "Event": "v1", "PersistentVolumeClaim": "v1", "Job": "batch/v1", "CronJob": "batch/v1", "ReplicaSet": "apps/v1", "Deployment": "apps/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2", "Workload": "kueue.x-k8s.io/v1beta2", "LocalQueue": "kueue.x-k8s.io/v1beta2",
    "ClusterQueue": "kueue.x-k8s.io/v1beta2", "NodePool": "karpenter.sh/v1", "NodeClaim": "karpenter.sh/v1", "EC2NodeClass": "karpenter.k8s.aws/v1",
}  # fmt: skip
_OF_CLUSTER = ("Namespace", "Node", "ClusterQueue", "NodePool", "NodeClaim", "EC2NodeClass")


def thing(kind: str, name: str, owner: Manifest | None = None, *, at: str = EARLY, **parts: Any) -> Manifest:
    """An object. Its uid is its kind and name."""
    metadata: Manifest = {
        "name": name,
        "uid": f"{kind}-{name}",
        "creationTimestamp": at,
        **parts.pop("metadata", {}),
    }
    if kind not in _OF_CLUSTER:
        metadata["namespace"] = NAMESPACE
    if owner is not None:
        by = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        metadata["ownerReferences"] = [by]
    return {"apiVersion": _VERSIONS[kind], "kind": kind, "metadata": metadata, **parts}


def conditions(**rows: tuple[str, str, str]) -> Manifest:
    """The status with conditions: status, reason, message of each type."""
    return {
        "conditions": [
            {"type": name, "status": status, "reason": reason, "message": message}
            for name, (status, reason, message) in rows.items()
        ]
    }


def event(about: Manifest, reason: str, message: str, by: str = "kubelet", *, at: str = LATE) -> Manifest:
    involved = {"kind": about["kind"], "name": about["metadata"]["name"], "uid": about["metadata"]["uid"]}
    name = f"{about['metadata']['name']}.{reason}.{at}"
    return thing("Event", name, reason=reason, message=message, involvedObject=involved, lastTimestamp=at,
                 source={"component": by}, type="Warning")  # fmt: skip


JOBSET = thing(
    "JobSet", "tune", spec={"suspend": True}, metadata={"labels": {"kueue.x-k8s.io/queue-name": "research"}}
)
JOB = thing("Job", "tune-nodes-0", JOBSET, spec={"parallelism": 4})


def workload(
    owner: Manifest = JOBSET,
    *,
    spec: Manifest | None = None,
    status: Manifest | None = None,
    **rows: tuple[str, str, str],
) -> Manifest:
    """What Kueue made of an object."""
    name = f"{owner['kind'].lower()}-{owner['metadata']['name']}"
    whole = {"queueName": "research", "active": True, **(spec or {})}
    return thing("Workload", name, owner, spec=whole, status={**conditions(**rows), **(status or {})})


def unreserved(message: str) -> Manifest:
    return workload(QuotaReserved=("False", "Pending", message))


ADMITTED = workload(QuotaReserved=("True", "QuotaReserved", ""), Admitted=("True", "Admitted", ""))


def pod(
    name: str = "tune-nodes-0-0",
    owner: Manifest = JOB,
    *,
    spec: Manifest | None = None,
    status: Manifest | None = None,
    **metadata: Any,
) -> Manifest:
    return thing(
        "Pod", name, owner, metadata=metadata, spec=spec or {}, status={"phase": "Pending", **(status or {})}
    )


def unplaced(message: str, name: str = "tune-nodes-0-0", **spec: Any) -> Manifest:
    """A pod that the scheduler has found no node for."""
    return pod(name, spec=spec, status=conditions(PodScheduled=("False", "Unschedulable", message)))


def on_node(
    name: str = "tune-nodes-0-0",
    *,
    phase: str = "Pending",
    spec: Manifest | None = None,
    container: Manifest | None = None,
    **rows: tuple[str, str, str],
) -> Manifest:
    """A pod on the node `a`, with the status of its container `train`."""
    row = {
        "name": "train",
        "image": "registry.example.org/train:1",
        "restartCount": 0,
        **(container or {"state": {"waiting": {"reason": "ContainerCreating"}}}),
    }
    status = {"phase": phase, "containerStatuses": [row], **conditions(PodScheduled=("True", "", ""), **rows)}
    return pod(name, spec={"nodeName": "a", **(spec or {})}, status=status)


NODE = thing("Node", "a", status=conditions(Ready=("True", "KubeletReady", "")))
