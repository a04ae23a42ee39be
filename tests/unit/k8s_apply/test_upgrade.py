"""`k8s upgrade`: the versions to go through, and what is in the way of each."""

from typing import Any

import pytest

from gpucluster.cli.k8s_text import upgrade_lines
from gpucluster.k8s_apply.upgrade import OldApi, Seen, Upgrade, commands, old_apis, upgrade

GROUP = {"eks.amazonaws.com/nodegroup": "tune-0", "gpucluster/pool": "tune"}
GANG, JOB = "jobset.sigs.k8s.io/jobset-name", "batch.kubernetes.io/job-name"
KARPENTER = {"karpenter.sh/nodepool": "kube-serve-0", "gpucluster/pool": "serve"}


def node(name: str, version: str, labels: dict[str, str]) -> dict[str, Any]:
    info = {"kubeletVersion": f"v{version}.3-eks-0123abc"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"nodeInfo": info},
    }


def pod(name: str, where: str, labels: dict[str, str], phase: str = "Running") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "research", "labels": labels},
        "spec": {"nodeName": where},
        "status": {"phase": phase},
    }


def budget(allowed: int, **chosen: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "chat", "namespace": "research"},
        "spec": {"selector": chosen},
        "status": {"disruptionsAllowed": allowed, "expectedPods": 2},
    }


def seen(*nodes: Any, minor: int = 35, budgets: Any = (), pods: Any = (), old: Any = ()) -> Seen:
    return Seen(minor, nodes, tuple(budgets), tuple(pods), tuple(old))


def test_one_minor_version_after_the_other() -> None:
    found = upgrade(
        seen(node("a", "1.35", GROUP), node("b", "1.34", KARPENTER), node("c", "1.35", {})), "1.37"
    )
    assert (found.server, found.path) == ("1.35", ("1.36", "1.37"))
    assert found.nodes == {"others": {"1.35": 1}, "serve": {"1.34": 1}, "tune": {"1.35": 1}}
    assert found.blocked == ()


def test_nothing_to_do_says_nothing_of_what_ends() -> None:
    busy = pod("tune-node-0-0", "a", {GANG: "tune"})
    found = upgrade(
        seen(node("a", "1.35", GROUP), pods=[busy], budgets=[budget(0, matchLabels={"a": "b"})]), "1.35"
    )
    assert (found.path, found.blocked, found.slow, found.ends) == ((), (), (), ())


def test_older_version_is_in_the_way() -> None:
    assert upgrade(seen(minor=36), "1.35").blocked == (
        "the cluster has 1.36, and Kubernetes has no way back to an older minor version",
    )


@pytest.mark.parametrize(("version", "labels", "blocked"), [
    ("1.34", KARPENTER, False),
    ("1.33", KARPENTER, True),  # 1.36 still takes it, 1.37 does not
    ("1.33", GROUP, False),  # renewed with its group at the first step
    ("1.32", GROUP, True),  # too old for the first step already
])  # fmt: skip
def test_kubelet_that_is_too_old(version: str, labels: dict[str, str], blocked: bool) -> None:
    found = upgrade(seen(node("old", version, labels)), "1.37")
    assert [one for one in found.blocked if "the node old" in one] == list(found.blocked)
    assert bool(found.blocked) == blocked


def test_node_of_a_rehearsal_has_no_version() -> None:
    one = node("a", "1.35", GROUP)
    one["status"]["nodeInfo"]["kubeletVersion"] = "kwok-v0.8.0"
    found = upgrade(seen(one), "1.37")
    assert (found.nodes, found.blocked) == ({"tune": {"an unknown version": 1}}, ())


METRICS = """\
# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs that have been requested.
# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"} 1
apiserver_requested_deprecated_apis{group="flowcontrol.apiserver.k8s.io",removed_release="1.36",resource="flowschemas",subresource="",version="v1beta3"} 1
apiserver_requested_deprecated_apis{group="storage.k8s.io",removed_release="1.38",resource="csinodes",subresource="",version="v1beta1"} 1
apiserver_request_total{code="200"} 7
"""


def test_apis_that_go_are_read_from_the_metrics() -> None:
    assert list(old_apis(METRICS)) == [
        OldApi(resource="flowschemas", version="flowcontrol.apiserver.k8s.io/v1beta3", removed_in=36),
        OldApi(resource="csinodes", version="storage.k8s.io/v1beta1", removed_in=38),
    ]
    assert list(old_apis("")) == []


def test_api_that_the_new_version_lacks_is_in_the_way() -> None:
    found = upgrade(seen(old=old_apis(METRICS)), "1.37")
    assert found.blocked == (
        "clients use flowschemas of flowcontrol.apiserver.k8s.io/v1beta3, which 1.36 no longer has: find them in the audit log",
    )


@pytest.mark.parametrize(("found", "slow"), [
    (budget(0, matchLabels={"app": "chat"}), True),
    (budget(1, matchLabels={"app": "chat"}), False),
    (budget(0, matchLabels={"app": "other"}), False),
    (budget(0, matchLabels={"app": "chat"}, matchExpressions=[{"key": "x", "operator": "Exists"}]), False),
    (budget(0, matchExpressions=[{"key": "app", "operator": "In", "values": ["chat", "web"]}]), True),
    (budget(0), True),
])  # fmt: skip
def test_budget_that_holds_a_drain(found: dict[str, Any], slow: bool) -> None:
    nodes = (node("a", "1.35", GROUP), node("b", "1.35", KARPENTER))
    mine = pod("chat-1", "a", {"app": "chat"})
    assert bool(upgrade(seen(*nodes, pods=[mine], budgets=[found]), "1.36").slow) == slow
    elsewhere = pod("chat-1", "b", {"app": "chat"})  # EKS does not replace Karpenter's nodes
    assert upgrade(seen(*nodes, pods=[elsewhere], budgets=[found]), "1.36").slow == ()


@pytest.mark.parametrize(
    ("where", "grace", "late"), [("a", 900, True), ("a", 899, False), ("b", 900, False), ("a", None, False)]
)
def test_gang_with_a_checkpoint_that_eks_does_not_await(where: str, grace: int | None, late: bool) -> None:
    """EKS user guide, "Understand each phase of node updates": 15 minutes, then PodEvictionFailure."""
    nodes = (node("a", "1.35", GROUP), node("b", "1.35", KARPENTER))
    pods = [pod(f"tune-{n}", where, {GANG: "tune"}) for n in range(2)]
    for one in pods:
        one["spec"]["terminationGracePeriodSeconds"] = grace
    words = "research/tune has 15 minutes to end: EKS waits 15 minutes for a node, then the update fails"
    assert upgrade(seen(*nodes, pods=pods), "1.36").slow == ((words,) if late else ())


def test_gangs_on_nodes_that_eks_replaces_are_named_once() -> None:
    nodes = (node("a", "1.35", GROUP), node("b", "1.35", KARPENTER))
    pods = [
        pod("tune-0", "a", {GANG: "tune"}),
        pod("tune-1", "a", {GANG: "tune"}),
        pod("other-0", "b", {GANG: "other"}),
        pod("ended", "a", {JOB: "ended"}, "Succeeded"),
        pod("alone", "a", {JOB: "alone"}),
        pod("chat", "a", {"app": "chat"}),
    ]
    assert upgrade(seen(*nodes, pods=pods), "1.36").ends == ("research/alone", "research/tune")


def test_text_has_the_commands_of_each_step() -> None:
    found = upgrade(seen(node("a", "1.35", GROUP)), "1.37")
    steps = {version: commands("kube", "stacks/kube.yaml", version, eks=True) for version in found.path}
    text = list(upgrade_lines(found, steps, "kube"))
    assert (
        text[0] == "kube: Kubernetes 1.35 in the cluster, 1.37 in the spec: 2 upgrades, one after the other"
    )
    assert text[1:5] == [
        "  tune: 1 nodes of 1.35",
        "  old versions of APIs: one API server counted them, since its start; EKS has several and replaces them,"
        " so read the audit log, too",
        "1. to 1.36",
        '   in stacks/kube.yaml: kubernetes.version: "1.36"',
    ]
    assert "   pulumi up --stack kube" in text
    own = commands("kube", "stacks/kube.yaml", "1.36", eks=False)
    assert not [one for one in own if "pulumi" in one]


def test_nothing_to_upgrade_says_nothing_of_old_apis() -> None:
    found = upgrade(seen(node("a", "1.36", GROUP), minor=36), "1.36")
    assert not [one for one in upgrade_lines(found, {}, "kube") if "old versions" in one]


def test_words_of_the_cluster_are_made_printable() -> None:
    found = Upgrade(
        server="1.35", wanted="1.35", path=(), nodes={"a\x1b[31m": {"1.35": 1}}, blocked=(), slow=(), ends=()
    )
    assert "\x1b" not in "".join(upgrade_lines(found, {}, "kube"))
