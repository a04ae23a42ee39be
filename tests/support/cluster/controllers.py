"""The controllers of the stand-in: they set the status of objects, and remove what is being deleted and nothing holds."""

from typing import Any

from support.cluster.pods import run_pod

Object = dict[str, Any]
READY = {
    "NodePool": "Ready",
    "EC2NodeClass": "Ready",
    "ClusterQueue": "Active",
    "LocalQueue": "Active",
    "LeaderWorkerSet": "Available",
}


class Controllers:
    """The objects of the server, by `apiVersion|kind|namespace|name`."""

    def __init__(self, values: Object) -> None:
        self.values, self.objects = values, values["objects"]

    def read(self, key: str) -> Object:
        """Return the object with the status that its controller has set by now."""
        one = self.objects[key]
        late = self.values["slow"].get(one["kind"], 0)
        if late:
            self.values["slow"][one["kind"]] = late - 1
            return one
        if one["kind"] in READY:
            one["status"] = {
                **one.get("status", {}),
                "conditions": [{"type": READY[one["kind"]], "status": "True"}],
            }
        elif one["kind"] == "Pod":
            run_pod(one)
        elif one["kind"] == "Deployment":
            count = one["spec"].get("replicas", 1)
            one["status"] = {"observedGeneration": one["metadata"]["generation"], "replicas": count, "updatedReplicas": count, "availableReplicas": count}  # fmt: skip
        elif (
            one["kind"] == "PersistentVolumeClaim"
            and f"v1|PersistentVolume||{one['spec'].get('volumeName')}" in self.objects
        ):
            one["status"] = {"phase": "Bound"}
        return one

    def collect(self) -> None:
        """Remove what is being deleted and nothing holds. Karpenter ends machines only while it runs."""
        gone = [
            key
            for key, one in self.objects.items()
            if "deletionTimestamp" in one["metadata"] and not self._held(one)
        ]
        for key in gone:
            one = self.objects.pop(key, None)
            if one is None:
                continue
            for other in self.objects.values():
                owners = other["metadata"].get("ownerReferences", [])
                if any(owner["uid"] == one["metadata"].get("uid") for owner in owners):
                    other["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if gone:
            self.collect()

    def _held(self, one: Object) -> bool:
        """Return whether something keeps an object that is being deleted: `stuck`, or its controller."""
        kind, name = one["kind"], one["metadata"]["name"]
        stuck = self.values["stuck"]
        if f"{kind}/{name}" in stuck or (kind == "NodeClaim" and name in stuck):
            return True
        holds = {
            "Namespace": self._namespace,
            "PersistentVolumeClaim": self._claim,
            "PersistentVolume": self._volume,
            "NodePool": self._node_pool,
            "NodeClaim": lambda _: not self._karpenter(),
            "EC2NodeClass": lambda _: bool(self._of("NodeClaim")) or not self._karpenter(),
        }
        return kind in holds and holds[kind](one)

    def _of(self, kind: str) -> list[Object]:
        return [one for one in self.objects.values() if one["kind"] == kind]

    def _karpenter(self) -> bool:
        return any(row["name"] == "karpenter" for row in self.values["releases"])

    def _node_pool(self, one: Object) -> bool:
        """Delete the machines of the pool first."""
        label, name = "karpenter.sh/nodepool", one["metadata"]["name"]
        mine = [claim for claim in self._of("NodeClaim") if claim["metadata"]["labels"][label] == name]
        for claim in mine:
            claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return bool(mine) or not self._karpenter()

    def _claim(self, one: Object) -> bool:
        """The finalizer kubernetes.io/pvc-protection."""
        return any(_mounts(pod, one) for pod in self._of("Pod"))

    def _volume(self, one: Object) -> bool:
        """The finalizer kubernetes.io/pv-protection."""
        name = one["metadata"]["name"]
        bound = [o for o in self._of("PersistentVolumeClaim") if o.get("status", {}).get("phase") == "Bound"]
        return any(claim["spec"].get("volumeName") == name for claim in bound)

    def _namespace(self, one: Object) -> bool:
        """Delete what is in it first."""
        name = one["metadata"]["name"]
        inside = [o for o in self.objects.values() if o["metadata"].get("namespace") == name]
        for other in inside:
            other["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
        return bool(inside)


def _mounts(pod: Object, claim: Object) -> bool:
    volumes = pod["spec"].get("volumes", [])
    named = [one.get("persistentVolumeClaim", {}).get("claimName") for one in volumes]
    return (
        pod["metadata"].get("namespace") == claim["metadata"]["namespace"]
        and claim["metadata"]["name"] in named
    )
