"""The Deployments and DaemonSets of EKS's add-ons. kwok marks their pods as running; no container runs."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from gpucluster import catalog
from gpucluster.plan.names import KUBERNETES_ARCH
from gpucluster.sandbox.kubernetes.client import Client

NAMESPACE = "kube-system"
TYPE = "node.kubernetes.io/instance-type"
_REPLICAS = 2  # of each Deployment; the add-ons' own default


class Addons:
    """The controllers of one cluster's add-ons."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._there: Mapping[str, str] = {}  # configuration by name

    def follow(self, wanted: Mapping[str, str]) -> None:
        """Make what new and changed add-ons run, by name and configuration; delete what those run that are gone."""
        for name in sorted(wanted):
            if self._there.get(name) != wanted[name]:
                for one in manifests(name, wanted[name]):
                    self._client.apply(one)
        for name in sorted({*self._there} - {*wanted}):
            for one in manifests(name, self._there[name]):
                self._client.delete("apps/v1", one["kind"], one["metadata"]["name"], NAMESPACE)
        self._there = dict(wanted)


def manifests(addon: str, configuration: str = "") -> Iterator[dict[str, Any]]:
    """Yield what the add-on runs. Pods of DaemonSets tolerate every taint, as AWS's do, but for those on nodes with GPUs."""
    for name in catalog.eks_addon_gpu_daemon_sets(addon):
        values = json.loads(configuration or "{}")
        term = {"matchExpressions": [{"key": TYPE, "operator": "In", "values": list(_with_gpus())}]}
        pod: dict[str, Any] = {
            "containers": [{"name": name, "image": f"sandbox.invalid/{addon}"}],
            "tolerations": values.get("dcgmAgent", {}).get("tolerations", []),
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}},
        }  # fmt: skip
        yield _controller("DaemonSet", name, pod, {})
    for kind, name in catalog.eks_addon_controllers(addon):
        pod = {"containers": [{"name": name, "image": f"sandbox.invalid/{addon}"}]}
        if kind == "DaemonSet":
            yield _controller(kind, name, {**pod, "tolerations": [{"operator": "Exists"}]}, {})
        else:
            yield _controller(kind, name, pod, {"replicas": _REPLICAS})


def _controller(kind: str, name: str, pod: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    marks = {"app.kubernetes.io/name": name}
    template = {"metadata": {"labels": marks}, "spec": dict(pod)}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": marks},
        "spec": {**more, "selector": {"matchLabels": marks}, "template": template},
    }


@cache
def _with_gpus() -> tuple[str, ...]:
    """Return the machine types for which the DCGM server has an image: NVIDIA GPUs and amd64."""
    machines = catalog.load().machines.items()
    return tuple(
        name for name, one in machines if one.gpu is not None and KUBERNETES_ARCH[one.arch] == "amd64"
    )
