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
            if one["kind"] == "Namespace":
                for other in [
                    k
                    for k, o in self.objects.items()
                    if o["metadata"].get("namespace") == one["metadata"]["name"]
                ]:
                    del self.objects[other]
            for other in self.objects.values():
                owners = other["metadata"].get("ownerReferences", [])
                if any(owner["uid"] == one["metadata"].get("uid") for owner in owners):
                    other["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if gone:
            self.collect()

    def _held(self, one: Object) -> bool:
        karpenter = any(row["name"] == "karpenter" for row in self.values["releases"])
        claims = [o for o in self.objects.values() if o["kind"] == "NodeClaim"]
        if one["kind"] == "NodeClaim":
            return not karpenter or one["metadata"]["name"] in self.values["stuck"]
        if one["kind"] == "NodePool":
            mine = [
                o
                for o in claims
                if o["metadata"]["labels"]["karpenter.sh/nodepool"] == one["metadata"]["name"]
            ]
            for claim in mine:
                claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            return bool(mine) or not karpenter
        if one["kind"] == "EC2NodeClass":
            return bool(claims) or not karpenter
        return f"{one['kind']}/{one['metadata']['name']}" in self.values["stuck"]
