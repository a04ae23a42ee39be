"""What stands for EKS's add-ons in a cluster: their Deployments and DaemonSets, whose pods kwok plays. No container runs."""

from collections.abc import Iterable, Iterator
from typing import Any

from gpucluster import catalog
from gpucluster.sandbox.kubernetes.client import Client

NAMESPACE = "kube-system"
_REPLICAS = 2  # of each Deployment; the add-ons' own default


class Addons:
    """The controllers of one cluster's add-ons."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._there: frozenset[str] = frozenset()

    def follow(self, wanted: Iterable[str]) -> None:
        """Make what new add-ons run, and delete what those run that are gone."""
        now = frozenset(wanted)
        for name in sorted(now - self._there):
            for one in manifests(name):
                self._client.apply(one)
        for name in sorted(self._there - now):
            for kind, controller in catalog.eks_addon_controllers(name):
                self._client.delete("apps/v1", kind, controller, NAMESPACE)
        self._there = now


def manifests(addon: str) -> Iterator[dict[str, Any]]:
    """Yield what the add-on runs. Pods of DaemonSets tolerate every taint, as AWS's do."""
    for kind, name in catalog.eks_addon_controllers(addon):
        marks = {"app.kubernetes.io/name": name}
        pod: dict[str, Any] = {"containers": [{"name": name, "image": f"sandbox.invalid/{addon}"}]}
        own: dict[str, Any] = {"selector": {"matchLabels": marks}}
        if kind == "DaemonSet":
            pod["tolerations"] = [{"operator": "Exists"}]
        else:
            own["replicas"] = _REPLICAS
        yield {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": marks},
            "spec": {**own, "template": {"metadata": {"labels": marks}, "spec": pod}},
        }
