"""What an object still waits for, by its status. An empty text: nothing.

Sources: Kubernetes' API reference (Deployment, PersistentVolumeClaim, CustomResourceDefinition), Kueue's v1beta2 (Active of ClusterQueue
and LocalQueue), LeaderWorkerSet's v1 (Available), Karpenter's v1 (Ready of NodePool and EC2NodeClass).
"""

from collections.abc import Callable, Mapping
from typing import Any

from gpucluster.k8s.awaited import CONDITIONS
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.objects import condition, ref_of, section

LATER = "WaitForFirstConsumer"  # a claim of such a class is bound when a pod uses it


def waiting(one: Manifest, later: frozenset[str] = frozenset()) -> str:
    """Return what the object waits for. `later`: storage classes that bind at the first pod."""
    row = _ROWS.get(one["kind"])
    words = "" if row is None else row(one, later)
    return f"{ref_of(one)}: {words}" if words else ""


def binding_later(classes: list[Manifest]) -> frozenset[str]:
    """Return the names of the storage classes that bind at the first pod."""
    return frozenset(one["metadata"]["name"] for one in classes if one.get("volumeBindingMode") == LATER)


def _true(name: str) -> Callable[[Manifest, frozenset[str]], str]:
    def check(one: Manifest, _: frozenset[str]) -> str:
        row = condition(one, name)
        fresh = row.get("observedGeneration", 0) in (0, one["metadata"].get("generation", 0))
        return "" if row.get("status") == "True" and fresh else _because(name, row)

    return check


def _queue(one: Manifest, later: frozenset[str]) -> str:
    """Say how a queue that a person has stopped starts again: no controller does it."""
    policy = section(one, "spec").get("stopPolicy", "None")
    if policy == "None":
        return _true("Active")(one, later)
    kind, names = one["kind"].lower(), one["metadata"]
    inside = f" --namespace {names['namespace']}" if "namespace" in names else ""
    start = f"kubectl patch {kind} {names['name']}{inside} --type merge --patch '{_STARTED}'"
    return f"its stopPolicy is {policy}, which somebody has set: `{start}`"


def _deployment(one: Manifest, _: frozenset[str]) -> str:
    status = section(one, "status")
    if status.get("observedGeneration", 0) < one["metadata"].get("generation", 0):
        return "its controller has not seen it"
    wanted = one["spec"].get("replicas", 1)
    new, old = status.get("updatedReplicas", 0), status.get("replicas", 0)
    ready = status.get("availableReplicas", 0)
    if new >= wanted and old <= new and ready >= new:
        return ""
    return f"{ready} of {wanted} replicas are available"


def _claim(one: Manifest, later: frozenset[str]) -> str:
    phase = section(one, "status").get("phase", "Pending")
    if phase == "Bound" or (phase == "Pending" and one["spec"].get("storageClassName") in later):
        return ""
    volume = one["spec"].get("volumeName")
    return f"{phase}, for the volume {volume}" if volume else str(phase)


def _because(name: str, row: Mapping[str, Any]) -> str:
    if not row:
        return f"no controller has set {name}"
    words = row.get("message") or row.get("reason")
    return f"not {name}" + (f": {words}" if words else "")


_STARTED = '{"spec": {"stopPolicy": "None"}}'
_ROWS: Mapping[str, Callable[[Manifest, frozenset[str]], str]] = {
    **{kind: _true(name) for (_, kind), name in CONDITIONS.items()},
    "CustomResourceDefinition": _true("Established"),
    "ClusterQueue": _queue,
    "LocalQueue": _queue,
    "Deployment": _deployment,
    "PersistentVolumeClaim": _claim,
}
CHECKED = frozenset(_ROWS)  # kinds
