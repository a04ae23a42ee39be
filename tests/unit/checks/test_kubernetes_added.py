"""`kube.added`: what opens the teams' namespaces, and nobody of the plan made. Ordinary policies and pods of others are no fault."""

import json
from typing import Any

import pytest

from gpucluster.checks.check import CheckResult, CheckStatus, QueryOutput
from gpucluster.checks.kubernetes.added import AddedWant
from gpucluster.checks.kubernetes.table import KUBERNETES

Object = dict[str, Any]
WANT = AddedWant(
    whole=True,
    teams={"research": "kube-research", "serving": "kube-serving"},
    guarded=("research",),
    tree=("NetworkPolicy/research/within-team", "LocalQueue/research/research"),
)
HELM = {"meta.helm.sh/release-name": "scraper", "meta.helm.sh/release-namespace": "monitoring"}


def judged(*added: Object, want: AddedWant = WANT) -> CheckResult:
    check = KUBERNETES["kube.added"]
    kinds = ("NetworkPolicy", "LocalQueue", "PriorityClass", "Pod")
    lists = ([one for one in added if one["kind"] == kind] for kind in kinds)
    answers = tuple(QueryOutput(code=0, stdout=json.dumps({"items": list(some)})) for some in lists)
    assert len(check.query(want)) == len(answers)
    return check.evaluate(check.parse(answers), want)


def thing(kind: str, name: str, namespace: str = "", **parts: Any) -> Object:
    marks = parts.pop("annotations", {})
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), "annotations": marks}
    return {"kind": kind, "metadata": metadata, **parts}


def policy(name: str, namespace: str = "research", pods: Object | None = None, **spec: Any) -> Object:
    marks = spec.pop("annotations", {})
    return thing(
        "NetworkPolicy", name, namespace, spec={"podSelector": pods or {}, **spec}, annotations=marks
    )


def pod(name: str, namespace: str = "research", phase: str = "Running", **spec: Any) -> Object:
    containers = [{"name": "a", "image": "a", **spec.pop("container", {})}]
    return thing("Pod", name, namespace, spec={"containers": containers, **spec}, status={"phase": phase})


def queue(name: str, of: str, namespace: str = "research") -> Object:
    return thing("LocalQueue", name, namespace, spec={"clusterQueue": of})


FAULTS: dict[str, tuple[Object, str, str]] = {
    "everybody comes in": (policy("open", ingress=[{}]), "NetworkPolicy/research/open lets everybody in", "kubectl delete networkpolicy --namespace research open"),
    "each namespace comes in": (policy("open", ingress=[{"from": [{"namespaceSelector": {}}]}]), "NetworkPolicy/research/open lets everybody in", "kubectl delete networkpolicy --namespace research open"),
    "all addresses come in": (policy("open", ingress=[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]), "NetworkPolicy/research/open lets everybody in", "kubectl delete networkpolicy --namespace research open"),
    "pods go everywhere": (policy("out", egress=[{}]), "NetworkPolicy/research/out lets all pods out to everywhere, also to the metadata service", "kubectl delete networkpolicy --namespace research out"),
    "pods go to all addresses": (policy("out", egress=[{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]), "lets all pods out to everywhere", "kubectl delete networkpolicy --namespace research out"),
    "the queue of another team": (queue("fast", "kube-serving"), "LocalQueue/research/fast leads to kube-serving, the queue of serving", "kubectl delete localqueue --namespace research fast"),
    "a privileged pod": (pod("root", container={"securityContext": {"privileged": True}}), "Pod/research/root is privileged", "kubectl delete pod --namespace research root"),
    "a pod in the host's network": (pod("root", hostNetwork=True), "Pod/research/root has hostNetwork", "kubectl delete pod --namespace research root"),
    "a pod with a folder of the host": (pod("root", volumes=[{"name": "a", "hostPath": {"path": "/"}}]), "Pod/research/root has a folder of the host", "kubectl delete pod --namespace research root"),
}  # fmt: skip


@pytest.mark.parametrize(("added", "words", "remedy"), FAULTS.values(), ids=FAULTS)
def test_addition_is_a_fault(added: Object, words: str, remedy: str) -> None:
    found = judged(added)
    assert found.verdict is CheckStatus.FAIL
    assert words in found.found
    assert found.remedy == remedy


ORDINARY: dict[str, Object] = {
    "a policy of the spec": policy("within-team", ingress=[{"from": [{"podSelector": {}}]}]),
    "one that lets nobody in": policy("closed", ingress=[]),
    "one for a namespace": policy("scrape", ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]}]),
    "one for some pods": policy("service", pods={"matchLabels": {"app": "web"}}, ingress=[{}]),
    "one for a port": policy("web", ingress=[{"ports": [{"port": 8080}]}]),
    "one out but to the metadata service": policy("out", egress=[{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}]}]),
    "one in a namespace of others": policy("open", "monitoring", ingress=[{}]),
    "a queue of the spec": queue("research", "kube-research"),
    "another queue of the same team": queue("more", "kube-research"),
    "a queue of others": queue("theirs", "kube-serving", "elsewhere"),
    "an ordinary pod": pod("train", container={"securityContext": {"privileged": False}}, volumes=[{"name": "a", "emptyDir": {}}]),
    "a pod that has ended": pod("root", phase="Succeeded", hostNetwork=True),
    "a privileged pod of a team that may": pod("root", "serving", hostNetwork=True),
    "a daemon of others": pod("agent", "kube-system", hostNetwork=True),
    "a class of others": thing("PriorityClass", "high", value=1000, globalDefault=False),
    "Kubernetes' class": thing("PriorityClass", "system-node-critical", value=2000001000),
}  # fmt: skip


@pytest.mark.parametrize("added", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_addition_is_no_fault(added: Object) -> None:
    found = judged(added)
    assert (found.verdict, found.found) == (CheckStatus.PASS, "nothing opens them")


def test_policy_of_others_with_an_owner_is_a_note() -> None:
    found = judged(policy("scrape", ingress=[{}], annotations=HELM))
    assert found.verdict is CheckStatus.PASS
    assert found.found == (
        "nothing opens them; of others: NetworkPolicy/research/scrape lets everybody in (the release scraper in monitoring)"
    )


def test_default_class_of_others_is_a_warning_in_a_cluster_of_ours() -> None:
    default = thing("PriorityClass", "first", value=1000, globalDefault=True)
    found = judged(default)
    assert found.verdict is CheckStatus.WARN
    assert found.found == "PriorityClass/first is the default of all pods that name no class"
    existing = AddedWant(whole=False, teams=WANT.teams, guarded=WANT.guarded, tree=WANT.tree)
    assert judged(default, want=existing).verdict is CheckStatus.PASS
