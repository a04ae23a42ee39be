"""Roles and bindings as kubectl prints them, and those of a new EKS cluster that may do much.

Kubernetes': its testdata of `plugin/pkg/auth/authorizer/rbac/bootstrappolicy`. EKS': user guide, "Understand Amazon EKS created RBAC roles
and users" and "Amazon EKS add-ons", and public lists of `kubectl get clusterrolebindings`.
"""

from typing import Any

Object = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
_DEFAULTS = {"kubernetes.io/bootstrapping": "rbac-defaults"}


def subject(kind: str, name: str, namespace: str = "") -> Object:
    if kind == "ServiceAccount":
        return {"kind": kind, "name": name, "namespace": namespace}
    return {"kind": kind, "name": name, "apiGroup": RBAC}


def role(name: str, rules: list[Object], *, namespace: str = "", bootstrap: bool = False) -> Object:
    metadata: Object = {"name": name, **({"namespace": namespace} if namespace else {})}
    metadata |= {"labels": _DEFAULTS} if bootstrap else {}
    kind = "Role" if namespace else "ClusterRole"
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}


def binding(
    name: str,
    of: str,
    *subjects: Object,
    namespace: str = "",
    kind: str = "ClusterRole",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    bootstrap: bool = False,
) -> Object:
    """A binding of the cluster, or of a namespace. Without subjects it has no such key, as kubectl prints it."""
    metadata: Object = {"name": name, **({"namespace": namespace} if namespace else {})}
    marks = {**(labels or {}), **(_DEFAULTS if bootstrap else {})}
    metadata |= {
        **({"labels": marks} if marks else {}),
        **({"annotations": annotations} if annotations else {}),
    }
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": of},
        **({"subjects": list(subjects)} if subjects else {}),
    }  # fmt: skip


def standing() -> list[Object]:
    """Those of Kubernetes and EKS that may do everything, take every right or read every secret, and the roles of people."""
    all_of = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    secrets = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}]
    escalate = [
        {
            "apiGroups": [RBAC],
            "resources": ["clusterroles"],
            "verbs": ["escalate", "get", "list", "patch", "update", "watch"],
        }
    ]
    lists = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list", "watch"]}]
    reads = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    found = [
        role("cluster-admin", all_of, bootstrap=True),
        role("admin", secrets, bootstrap=True),
        role("edit", secrets, bootstrap=True),
        role("view", reads, bootstrap=True),
        binding("cluster-admin", "cluster-admin", subject("Group", "system:masters"), bootstrap=True),
        role("system:node", secrets, bootstrap=True),
        binding("system:node", "system:node", bootstrap=True),
        role("system:kube-controller-manager", lists, bootstrap=True),
        binding("system:kube-controller-manager", "system:kube-controller-manager", subject("User", "system:kube-controller-manager"), bootstrap=True),
        binding("eks:addon-cluster-admin", "cluster-admin", subject("User", "eks:addon-manager")),
        role("eks:kms-storage-migrator", secrets),
        binding("eks:kms-storage-migrator", "eks:kms-storage-migrator", subject("ServiceAccount", "eks-kms-storage-migrator", "kube-system")),
    ]  # fmt: skip
    rules = {"clusterrole-aggregation-controller": escalate, "generic-garbage-collector": lists, "resourcequota-controller": lists, "namespace-controller": all_of}  # fmt: skip
    for name, some in rules.items():
        whole = f"system:controller:{name}"
        found.append(role(whole, some, bootstrap=True))
        found.append(binding(whole, whole, subject("ServiceAccount", name, "kube-system"), bootstrap=True))
    return found
