"""Write src/gpucluster/catalog/data/kubernetes-versions.json: which Kubernetes version has which built-in resource.

    .venv/bin/python tools/make_kubernetes_facts.py

Resources come from the schemas of PyPI's kubernetes-validate (made from Kubernetes' own OpenAPI documents). The rule for
enabled resources is Kubernetes' own: alpha is off by default, and so are the betas that came since 1.24 (KEP-3136), which
are all betas of 1.34 and later. EKS cannot enable a resource that is off by default (EKS documentation).
Scope and deprecations are not in the schemas: the tables below have them.
"""

import json
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "src/gpucluster/catalog/data"
READ_ON = "2026-11-21"
VERSIONS = ("1.34", "1.35", "1.36", "1.37")
CLUSTER_SCOPED = {
    "APIService", "CSIDriver", "CSINode", "CertificateSigningRequest", "ClusterRole", "ClusterRoleBinding",
    "ClusterTrustBundle", "ComponentStatus", "CustomResourceDefinition", "DeviceClass", "DeviceTaintRule", "FlowSchema",
    "IPAddress", "IngressClass", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration", "Namespace", "Node", "PersistentVolume", "PriorityClass",
    "PriorityLevelConfiguration", "ResourcePoolStatusRequest", "ResourceSlice", "RuntimeClass", "ServiceCIDR",
    "StorageClass", "StorageVersion", "StorageVersionMigration", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration", "VolumeAttachment", "VolumeAttributesClass",
}  # fmt: skip
REQUESTS = {"Binding", "Eviction", "Scale", "TokenRequest"}  # sent by clients, never stored
DEPRECATED = {  # still served; source: the descriptions in the schemas
    "v1 ComponentStatus": "deprecated since 1.19: ask the components' own health endpoints",
    "v1 Endpoints": "deprecated since 1.33: discovery.k8s.io/v1 EndpointSlice",
}


def build() -> dict[str, Any]:
    served: dict[str, dict[str, list[str]]] = {}
    for release in VERSIONS:
        for api_version, kind in _resources(release):
            served.setdefault(api_version, {}).setdefault(kind, []).append(release)
    return {
        "source": f"kubernetes-validate {version('kubernetes-validate')} (schemas of Kubernetes' OpenAPI documents, "
        "Apache-2.0); what is on by default: KEP-3136; scope and deprecations: tools/make_kubernetes_facts.py",
        "date": READ_ON,
        "licence": "Apache-2.0",
        "versions": list(VERSIONS),
        "off_by_default": sorted(name for name in served if "alpha" in name or "beta" in name),
        "deprecated": DEPRECATED,
        "cluster_scoped": sorted(CLUSTER_SCOPED),
        "served": {name: dict(sorted(kinds.items())) for name, kinds in sorted(served.items())},
    }


def _resources(release: str) -> list[tuple[str, str]]:
    """Whether a manifest can contain it: it has metadata, and is no list and no request of a client."""
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{release}.0-local-strict"
    definitions = json.loads((folder / "_definitions.json").read_text())["$defs"]
    found: set[tuple[str, str]] = set()
    for schema in definitions.values():
        for name in schema.get("x-kubernetes-group-version-kind", []):
            about = str(schema.get("properties", {}).get("metadata", {}))
            if "ObjectMeta" in about and not name["kind"].endswith("Review") and name["kind"] not in REQUESTS:
                group = f"{name['group']}/" if name["group"] else ""
                found.add((f"{group}{name['version']}", name["kind"]))
    return sorted(found)


if __name__ == "__main__":
    (DATA / "kubernetes-versions.json").write_text(json.dumps(build(), indent=1) + "\n")
