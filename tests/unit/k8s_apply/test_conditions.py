"""What an object waits for, by its status."""

from typing import Any

import pytest

from gpucluster.k8s_apply.conditions import waiting


def an(kind: str, *, status: Any = None, spec: Any = None) -> dict[str, Any]:
    metadata = {"name": "a", "generation": 2}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec or {}, "status": status}


def rows(name: str, value: str, **more: Any) -> dict[str, Any]:
    return {"conditions": [{"type": name, "status": value, **more}]}


STARTED = '{"spec": {"stopPolicy": "None"}}'
DONE = {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}


@pytest.mark.parametrize(("one", "words"), [
    (an("NodePool"), "NodePool/a: no controller has set Ready"),
    (an("NodePool", status=rows("Ready", "True")), ""),
    (an("NodePool", status=rows("Ready", "True", observedGeneration=1)), "NodePool/a: not Ready"),
    (an("EC2NodeClass", status=rows("Ready", "False", message="no subnets")), "EC2NodeClass/a: not Ready: no subnets"),
    (an("ClusterQueue", status=rows("Active", "False", reason="FlavorNotFound")), "ClusterQueue/a: not Active: FlavorNotFound"),
    (an("ClusterQueue", spec={"stopPolicy": "None"}, status=rows("Active", "True")), ""),
    (an("ClusterQueue", spec={"stopPolicy": "Hold"}, status=rows("Active", "False")), f"ClusterQueue/a: its stopPolicy is Hold, which somebody has set: `kubectl patch clusterqueue a --type merge --patch '{STARTED}'`"),
    (an("LocalQueue", spec={"stopPolicy": "HoldAndDrain"}), f"LocalQueue/a: its stopPolicy is HoldAndDrain, which somebody has set: `kubectl patch localqueue a --type merge --patch '{STARTED}'`"),
    (an("Deployment", spec={"replicas": 2}, status=DONE), ""),
    (an("Deployment", spec={"replicas": 2}, status={**DONE, "availableReplicas": 1}), "Deployment/a: 1 of 2 replicas are available"),
    (an("Deployment", spec={"replicas": 2}, status={**DONE, "observedGeneration": 1}), "Deployment/a: its controller has not seen it"),
    (an("Deployment", spec={"replicas": 2}, status={**DONE, "replicas": 3}), "Deployment/a: 2 of 2 replicas are available"),
    (an("Deployment", spec={"replicas": 0}, status={"observedGeneration": 2}), ""),
    (an("PersistentVolumeClaim", status={"phase": "Bound"}), ""),
    (an("PersistentVolumeClaim", spec={"volumeName": "v"}), "PersistentVolumeClaim/a: Pending, for the volume v"),
    (an("PersistentVolumeClaim", spec={"storageClassName": "later"}, status={"phase": "Pending"}), ""),
    (an("PersistentVolumeClaim", spec={"storageClassName": "now"}, status={"phase": "Pending"}), "PersistentVolumeClaim/a: Pending"),
    (an("PersistentVolumeClaim", spec={"storageClassName": "later"}, status={"phase": "Lost"}), "PersistentVolumeClaim/a: Lost"),
    (an("ConfigMap"), ""),
])  # fmt: skip
def test_waiting(one: dict[str, Any], words: str) -> None:
    assert waiting(one, frozenset({"later"})) == words
