"""`kube.rights`: who may do everything in a cluster, beside Kubernetes, EKS, the charts and the spec. Add-ons of others are known by their owner."""

import json
from typing import Any

import pytest
from support.kube_rights import binding, role, standing, subject

from gpucluster.checks.check import CheckResult, CheckStatus, ParseError, QueryOutput
from gpucluster.checks.kubernetes.rights import RightsWant
from gpucluster.checks.kubernetes.table import KUBERNETES

Object = dict[str, Any]
WANT = RightsWant(
    whole=True,
    teams=("research", "serving"),
    groups=("kube:research", "kube:serving"),
    namespaces=("karpenter", "kube-system", "kueue-system", "research", "serving"),
    tree=("ClusterRoleBinding/kube-runtimes", "RoleBinding/research/team-member"),
    releases=("karpenter/karpenter", "kueue-system/kueue"),
)
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
SECRETS = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}]
READS = [{"apiGroups": ["", "apps"], "resources": ["pods", "nodes", "deployments"], "verbs": ["get", "list"]}]
HELM = {"meta.helm.sh/release-name": "argocd", "meta.helm.sh/release-namespace": "argocd"}


def judged(*added: Object, want: RightsWant = WANT) -> CheckResult:
    check = KUBERNETES["kube.rights"]
    answer = QueryOutput(code=0, stdout=json.dumps({"kind": "List", "items": [*standing(), *added]}))
    return check.evaluate(check.parse((answer,)), want)


def test_cluster_as_kubernetes_and_eks_make_it_passes() -> None:
    found = judged()
    assert (found.verdict, found.found) == (CheckStatus.PASS, "nobody has them by hand")


def test_list_without_bindings_proves_nothing() -> None:
    check = KUBERNETES["kube.rights"]
    with pytest.raises(ParseError, match="no ClusterRoleBinding"):
        check.parse((QueryOutput(code=0, stdout='{"items": []}'),))


FAULTS: dict[str, tuple[list[Object], str, str]] = {
    "a person": (
        [binding("ops", "cluster-admin", subject("User", "bob"))],
        "User bob may do everything by ClusterRoleBinding/ops",
        "kubectl delete clusterrolebinding ops",
    ),
    "a person beside system:masters": (
        [binding("cluster-admin", "cluster-admin", subject("Group", "system:masters"), subject("User", "bob"), bootstrap=True)],
        "User bob may do everything by ClusterRoleBinding/cluster-admin",
        "kubectl edit clusterrolebinding cluster-admin",
    ),
    "a service account of a team": (
        [binding("runner", "cluster-admin", subject("ServiceAccount", "default", "research"), annotations=HELM)],
        "ServiceAccount research/default may do everything by ClusterRoleBinding/runner",
        "kubectl delete clusterrolebinding runner",
    ),
    "a service account by its user name": (
        [binding("runner", "cluster-admin", subject("User", "system:serviceaccount:research:default"))],
        "ServiceAccount research/default may do everything by ClusterRoleBinding/runner",
        "kubectl delete clusterrolebinding runner",
    ),
    "a service account without an owner": (
        [binding("tiller", "cluster-admin", subject("ServiceAccount", "tiller", "kube-system"))],
        "ServiceAccount kube-system/tiller may do everything by ClusterRoleBinding/tiller",
        "kubectl delete clusterrolebinding tiller",
    ),
    "everybody": (
        [binding("open", "cluster-admin", subject("Group", "system:authenticated"))],
        "Group system:authenticated may do everything by ClusterRoleBinding/open",
        "kubectl delete clusterrolebinding open",
    ),
    "nobody's name": (
        [binding("open", "cluster-admin", subject("User", "system:anonymous"))],
        "User system:anonymous may do everything",
        "kubectl delete clusterrolebinding open",
    ),
    "each pod of a team": (
        [binding("pods", "cluster-admin", subject("Group", "system:serviceaccounts:research"))],
        "Group system:serviceaccounts:research may do everything",
        "kubectl delete clusterrolebinding pods",
    ),
    "a role of its own with everything": (
        [role("helper", EVERYTHING), binding("helper", "helper", subject("Group", "helpers"))],
        "Group helpers may do everything by ClusterRoleBinding/helper",
        "kubectl delete clusterrolebinding helper",
    ),
    "a role that takes more": (
        [role("helper", [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["escalate", "update"]}]),
         binding("helper", "helper", subject("User", "bob"))],
        "User bob may take every right by ClusterRoleBinding/helper",
        "kubectl delete clusterrolebinding helper",
    ),
    "a role that takes names": (
        [role("helper", [{"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]}]),
         binding("helper", "helper", subject("User", "bob"))],
        "User bob may take every right by ClusterRoleBinding/helper",
        "kubectl delete clusterrolebinding helper",
    ),
    "the secrets of all": (
        [role("helper", SECRETS), binding("helper", "helper", subject("Group", "kube:research"))],
        "Group kube:research may read every secret by ClusterRoleBinding/helper",
        "kubectl delete clusterrolebinding helper",
    ),
    "a role of Kubernetes that was widened": (
        [role("system:basic-user", EVERYTHING, bootstrap=True),
         binding("system:basic-user", "system:basic-user", subject("Group", "system:authenticated"), bootstrap=True)],
        "Group system:authenticated may do everything by ClusterRoleBinding/system:basic-user",
        "kubectl edit clusterrole system:basic-user",
    ),
    "admin in a team's namespace": (
        [binding("helper", "admin", subject("User", "bob"), namespace="research")],
        "User bob is admin in research by RoleBinding/research/helper",
        "kubectl delete rolebinding --namespace research helper",
    ),
    "cluster-admin in a chart's namespace": (
        [binding("helper", "cluster-admin", subject("Group", "devs"), namespace="kueue-system")],
        "Group devs is cluster-admin in kueue-system by RoleBinding/kueue-system/helper",
        "kubectl delete rolebinding --namespace kueue-system helper",
    ),
    "edit for a service account of the team": (
        [binding("ci", "edit", subject("ServiceAccount", "default", "research"), namespace="research")],
        "ServiceAccount research/default is edit in research by RoleBinding/research/ci",
        "kubectl delete rolebinding --namespace research ci",
    ),
    "a role of its own in a team's namespace": (
        [role("all", EVERYTHING, namespace="serving"), binding("all", "all", subject("User", "bob"), namespace="serving", kind="Role")],
        "User bob may do everything in serving by RoleBinding/serving/all",
        "kubectl delete rolebinding --namespace serving all",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("added", "words", "remedy"), FAULTS.values(), ids=FAULTS)
def test_right_by_hand_is_a_fault(added: list[Object], words: str, remedy: str) -> None:
    found = judged(*added)
    assert found.verdict is CheckStatus.FAIL
    assert words in found.found
    assert found.remedy == remedy


ORDINARY: dict[str, list[Object]] = {
    "system:masters under another name": [binding("ours", "cluster-admin", subject("Group", "system:masters"))],
    "kubeadm's": [binding("kubeadm:cluster-admins", "cluster-admin", subject("Group", "kubeadm:cluster-admins"))],
    "a chart of ours": [
        role("kueue-manager", EVERYTHING),
        binding("kueue-manager", "kueue-manager", subject("ServiceAccount", "kueue", "kueue-system"),
                annotations={"meta.helm.sh/release-name": "kueue", "meta.helm.sh/release-namespace": "kueue-system"}),
    ],
    "an add-on of EKS": [
        role("efs-csi", SECRETS),
        binding("efs-csi", "efs-csi", subject("ServiceAccount", "efs-csi-controller-sa", "kube-system"), labels={"app.kubernetes.io/managed-by": "EKS"}),
    ],
    "a reader": [role("datadog", READS), binding("datadog", "datadog", subject("ServiceAccount", "datadog", "datadog"))],
    "a person who reads": [binding("viewers", "view", subject("Group", "auditors"))],
    "view in a team's namespace": [binding("viewers", "view", subject("Group", "auditors"), namespace="research")],
    "admin in a namespace of others": [binding("owner", "admin", subject("User", "ann"), namespace="grafana")],
    "one secret by name": [
        role("one", [{**SECRETS[0], "resourceNames": ["token"]}]), binding("one", "one", subject("User", "bob")),
    ],
    "a role that does not exist": [binding("lost", "gone", subject("User", "bob"))],
    "nobody": [binding("empty", "cluster-admin")],
}  # fmt: skip


@pytest.mark.parametrize("added", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_right_is_no_fault(added: list[Object]) -> None:
    found = judged(*added)
    assert (found.verdict, found.found) == (CheckStatus.PASS, "nobody has them by hand")


NOTES: dict[str, tuple[list[Object], str]] = {
    "Argo CD by helm": (
        [role("argocd", EVERYTHING), binding("argocd", "argocd", subject("ServiceAccount", "application-controller", "argocd"), annotations=HELM)],
        "argocd/application-controller may do everything (the release argocd in argocd)",
    ),
    "Flux": (
        [binding("cluster-reconciler", "cluster-admin", subject("ServiceAccount", "kustomize-controller", "flux-system"), labels={"app.kubernetes.io/part-of": "flux"})],
        "flux-system/kustomize-controller may do everything (flux)",
    ),
    "cert-manager": (
        [role("cert-manager", SECRETS), binding("cert-manager", "cert-manager", subject("ServiceAccount", "cert-manager", "cert-manager"), labels={"app.kubernetes.io/name": "cert-manager"})],
        "cert-manager/cert-manager may read every secret (cert-manager)",
    ),
    "an agent without labels that reads secrets": (
        [role("agent", SECRETS), binding("agent", "agent", subject("ServiceAccount", "agent", "agents"))],
        "agents/agent may read every secret (no owner is named)",
    ),
    "a controller of others in a team's namespace": (
        [binding("ray", "edit", subject("ServiceAccount", "ray", "ray-system"), namespace="research", annotations=HELM)],
        "ray-system/ray is edit in research (the release argocd in argocd)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("added", "words"), NOTES.values(), ids=NOTES)
def test_addon_of_others_is_a_note_with_its_owner(added: list[Object], words: str) -> None:
    found = judged(*added)
    assert found.verdict is CheckStatus.PASS
    assert found.found == f"nobody has them by hand; of others: ServiceAccount {words}"


def test_copy_of_our_labels_is_no_owner() -> None:
    ours = {"app.kubernetes.io/managed-by": "gpucluster"}
    found = judged(binding("x", "cluster-admin", subject("ServiceAccount", "x", "default"), labels=ours))
    assert found.verdict is CheckStatus.FAIL


EXISTING = RightsWant(
    whole=False, teams=WANT.teams, groups=WANT.groups, namespaces=WANT.teams, tree=(), releases=()
)


def test_administrators_of_an_existing_cluster_are_its_sites() -> None:
    """It was there before us, so only what our teams and everybody get is a fault."""
    people = binding("platform", "cluster-admin", subject("Group", "oidc:platform"))
    assert judged(people, want=EXISTING).verdict is CheckStatus.PASS
    team = binding("team", "cluster-admin", subject("Group", "kube:research"))
    assert judged(people, team, want=EXISTING).found.startswith("Group kube:research may do everything")
    everybody = binding("open", "cluster-admin", subject("Group", "system:unauthenticated"))
    assert judged(everybody, want=EXISTING).verdict is CheckStatus.FAIL
