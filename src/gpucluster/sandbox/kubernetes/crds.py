"""CustomResourceDefinitions of projects whose programs do not run here, made from the schemas of the catalog."""

import threading
import time
from typing import Any

from gpucluster import catalog
from gpucluster.errors import HostError
from gpucluster.sandbox.kubernetes.client import Client

ESTABLISHED_S = 600.0  # only a server that hangs takes so long
WITH_MANAGERS = (
    "kueue.x-k8s.io",
    "jobset.x-k8s.io",
    "trainer.kubeflow.org",
)  # their projects' own definitions are applied
_PLURALS = {  # where it is not the kind with an `s`
    "EC2NodeClass": "ec2nodeclasses",
    "ClusterPolicy": "clusterpolicies",
}


def from_catalog() -> list[dict[str, Any]]:
    """Return one definition for each kind of the catalog that no manager of `managers` brings."""
    named = ((*api_version.partition("/")[::2], kind) for api_version, kind in sorted(catalog.crd_schemas()))
    return [_definition(group, version, kind) for group, version, kind in named if group not in WITH_MANAGERS]


def await_established(client: Client) -> None:
    """Return when the API server serves every kind that it has a definition of."""
    deadline = time.monotonic() + ESTABLISHED_S
    while waiting := [one["metadata"]["name"] for one in _all(client) if not _established(one)]:
        if time.monotonic() > deadline:
            raise HostError(f"not established after {ESTABLISHED_S:g} s: {', '.join(waiting)}",
                            next_step="read kube-apiserver.log")  # fmt: skip
        threading.Event().wait(0.05)


def _all(client: Client) -> list[dict[str, Any]]:
    return client.list("apiextensions.k8s.io/v1", "CustomResourceDefinition")


def _established(one: dict[str, Any]) -> bool:
    conditions: list[dict[str, Any]] = one.get("status", {}).get("conditions") or []
    return any(row["type"] == "Established" and row["status"] == "True" for row in conditions)


def _definition(group: str, version: str, kind: str) -> dict[str, Any]:
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    schema = catalog.crd_schema(f"{group}/{version}", kind)
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    properties = {**schema.get("properties", {}), "status": anything}  # the catalog leaves the status out
    served: dict[str, Any] = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {**schema, "properties": properties}},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, sandbox"},
        },
        "spec": {
            "group": group,
            "scope": "Cluster"
            if catalog.crd_schemas()[f"{group}/{version}", kind].cluster_scoped
            else "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [served],
        },
    }
