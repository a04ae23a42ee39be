"""Controllers of others: `up` refuses to put a second one beside them, or older definitions over theirs."""

from typing import Any

import pytest
from support.cluster import Cluster
from support.kube import STATIC, TRAINED
from support.kube_steps import GROUPS, kube_steps

from gpucluster.errors import StateError
from gpucluster.k8s_apply.foreign_controllers import PROJECTS
from gpucluster.k8s_apply.objects import is_written_by
from gpucluster.k8s_apply.steps import Steps
from gpucluster.k8s_apply.up import up

IMAGES = {
    "gpu-operator": "nvcr.io/nvidia/gpu-operator:v25.3.0",
    "jobset": "registry.k8s.io/jobset/jobset:v0.8.0",
    "karpenter": "public.ecr.aws/karpenter/controller:1.6.0@sha256:0123",
    "kubeflow-trainer": "ghcr.io/kubeflow/trainer/trainer-controller-manager:v2.0.0",
    "kueue": "registry.k8s.io/kueue/kueue:v0.12.0",
    "lws": "registry.k8s.io/lws/lws:v0.6.0",
}
FIELDS = {  # what the message says to leave out
    "gpu-operator": "no field leaves the GPU operator out",
    "jobset": "no field leaves JobSet out",
    "karpenter": "give each pool of kubernetes one number of `nodes`",
    "kubeflow-trainer": "leave `kubernetes.trainer` out",
    "kueue": "no field leaves Kueue out",
    "lws": "give no service more than one node",
}


@pytest.fixture(scope="module")
def steps() -> Steps:
    return kube_steps(TRAINED, running=GROUPS)


def controller(image: str, *, name: str = "controller", **metadata: Any) -> dict[str, Any]:
    spec = {"replicas": 1, "template": {"spec": {"containers": [{"name": "manager", "image": image}]}}}
    place = {"name": name, "namespace": "elsewhere", **metadata}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": place, "spec": spec}


def definition(plural: str, group: str, *versions: str, **metadata: Any) -> dict[str, Any]:
    spec = {"group": group, "names": {"plural": plural}, "versions": [{"name": one, "served": True} for one in versions]}  # fmt: skip
    made = {"name": f"{plural}.{group}", **metadata}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": made, "spec": spec}  # fmt: skip


def of_release(name: str, namespace: str) -> dict[str, str]:
    return {"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace}


def refusal(cluster: Cluster, steps: Steps) -> StateError:
    """What `up` says; nothing was changed."""
    before = cluster.objects().keys()
    cluster.forget_calls()
    with pytest.raises(StateError) as found:
        up(cluster.access(), steps, holder="ann")
    assert cluster.calls(" upgrade ") == cluster.calls(" apply ") == []
    assert cluster.objects().keys() - before == {"Lease/gpucluster-kube"}
    return found.value


@pytest.mark.parametrize("chart", IMAGES)
def test_controller_of_others_is_refused_before_the_first_change(
    cluster: Cluster, steps: Steps, chart: str
) -> None:
    """Regression: `up` applied older definitions over a Karpenter in another namespace, and installed a second one."""
    cluster.put(controller(IMAGES[chart]))
    said = refusal(cluster, steps)
    title = PROJECTS[chart].title
    assert (
        said.message
        == f"{title} or a part of it is there, and is not of kube: elsewhere/Deployment/controller ({IMAGES[chart]})"
    )
    assert str(said.next_step).startswith(FIELDS[chart])
    assert "--no-charts" in str(said.next_step)


@pytest.mark.parametrize("chart", IMAGES)
def test_controller_of_a_copy_of_the_image_is_known_by_its_label(
    cluster: Cluster, steps: Steps, chart: str
) -> None:
    (label, *_) = PROJECTS[chart].labels
    image = "registry.example.org/copy:1"
    cluster.put(controller(image, labels={"app.kubernetes.io/name": label}))
    assert f"elsewhere/Deployment/controller ({image})" in refusal(cluster, steps).message


def test_every_controller_of_others_is_named_at_once(cluster: Cluster, steps: Steps) -> None:
    cluster.put(*(controller(image, name=chart) for chart, image in IMAGES.items()))
    said = refusal(cluster, steps)
    assert all(f"elsewhere/Deployment/{chart} ({image})" in said.message for chart, image in IMAGES.items())
    assert all(words in str(said.next_step) for words in FIELDS.values())


def test_release_of_another_name_is_refused(cluster: Cluster, steps: Steps) -> None:
    """It may have no object yet, or a program in another image."""
    row = {"name": "autoscaling", "namespace": "infra", "revision": 3, "status": "deployed", "values": None}
    many = [{**row, "name": f"a-{number}", "chart": "redis-1.0.0", "labels": {}} for number in range(300)]
    cluster.change(releases=[*many, {**row, "chart": "karpenter-1.6.0", "labels": {}}])
    said = refusal(cluster, steps)
    assert (
        said.message
        == "Karpenter or a part of it is there, and is not of kube: the release autoscaling in infra (karpenter-1.6.0)"
    )


@pytest.mark.parametrize(("metadata", "whose"), [
    ({"annotations": of_release("karpenter-crd", "kube-system")}, "of the release karpenter-crd in kube-system"),
    ({"labels": {"app.kubernetes.io/managed-by": "eks"}}, "managed by eks"),
    ({}, "without an owner"),
])  # fmt: skip
def test_definitions_of_others_are_refused_with_version_and_owner(
    cluster: Cluster, steps: Steps, metadata: dict[str, Any], whose: str
) -> None:
    """EKS Auto Mode has Karpenter's definitions, and its controller nowhere."""
    cluster.put(definition("nodepools", "karpenter.sh", "v1", "v1beta1", **metadata))
    said = refusal(cluster, steps)
    assert said.message == (
        f"Karpenter or a part of it is there, and is not of kube: the definition nodepools.karpenter.sh (v1, v1beta1), {whose}"
    )
    assert "kubectl label customresourcedefinition nodepools.karpenter.sh gpucluster/cluster=kube" in str(
        said.next_step
    )


@pytest.mark.parametrize("one", [
    definition("nodepools", "karpenter.sh", "v1", labels={"gpucluster/cluster": "kube"}),
    definition("provisioningrequests", "autoscaling.x-k8s.io", "v1"),
    definition("certificates", "cert-manager.io", "v1"),
    controller("registry.example.org/jobset-dashboard:1"),
    controller("registry.example.org/gpu-operator-metrics:1", labels={"app.kubernetes.io/name": "karpenter-dashboard"}),
])  # fmt: skip
def test_what_is_given_to_the_cluster_or_of_another_project_is_no_hindrance(
    cluster: Cluster, steps: Steps, one: dict[str, Any]
) -> None:
    cluster.put(one)
    up(cluster.access(), steps, holder="ann")


def test_own_controllers_and_definitions_are_no_hindrance(cluster: Cluster, steps: Steps) -> None:
    up(cluster.access(), steps, holder="ann")
    cluster.put(definition("nodepools", "karpenter.sh", "v1"), manager="gpucluster")
    cluster.put(
        *(
            controller(IMAGES[one.name], name=one.name, annotations=of_release(one.name, one.namespace))
            for one in steps.releases
            if one.name in IMAGES
        ),
        definition(
            "clusterqueues", "kueue.x-k8s.io", "v1beta2", annotations=of_release("kueue", "kueue-system")
        ),
    )
    assert up(cluster.access(), steps, holder="ann").charts == ()


def test_every_definition_of_a_folder_crds_is_applied(cluster: Cluster, steps: Steps) -> None:
    """Regression: files of lws begin without `---`, so kubectl took the last one only, and helm's first one was never upgraded."""
    up(cluster.access(), steps, holder="ann")
    unwritten = {
        name
        for name, one in cluster.objects("CustomResourceDefinition").items()
        if not is_written_by(one, "gpucluster") and "annotations" not in one["metadata"]
    }
    assert unwritten == set()
    assert "disaggregatedsets.disaggregatedset.x-k8s.io" in cluster.objects("CustomResourceDefinition")


def test_definitions_that_an_uninstall_left_are_no_hindrance(cluster: Cluster, steps: Steps) -> None:
    """Regression: helm puts no owner on a definition of a folder `crds`, so `up` refused those of its own LeaderWorkerSet."""
    up(cluster.access(), steps, holder="ann")
    cluster.change(releases=[row for row in cluster.values()["releases"] if row["name"] != "lws"])
    assert up(cluster.access(), steps, holder="ann").charts == ("lws",)


def test_definition_without_an_owner_beside_our_release_is_no_hindrance(
    cluster: Cluster, steps: Steps
) -> None:
    """Of a cluster that an earlier version of gpucluster made."""
    up(cluster.access(), steps, holder="ann")
    cluster.put(definition("disaggregatedsets", "disaggregatedset.x-k8s.io", "v1"), manager="helm")
    up(cluster.access(), steps, holder="ann")


def test_definition_of_others_beside_our_release_is_refused(cluster: Cluster, steps: Steps) -> None:
    up(cluster.access(), steps, holder="ann")
    theirs = of_release("theirs", "elsewhere")
    cluster.put(definition("disaggregatedsets", "disaggregatedset.x-k8s.io", "v1", annotations=theirs))
    with pytest.raises(StateError, match=r"disaggregatedsets.* of the release theirs in elsewhere"):
        up(cluster.access(), steps, holder="ann")


def test_own_release_in_an_older_place_is_no_hindrance(cluster: Cluster, steps: Steps) -> None:
    """`--prune` uninstalls it."""
    row = {"name": "kueue", "namespace": "older", "revision": 1, "status": "deployed", "values": None}
    cluster.change(releases=[{**row, "chart": "kueue-0.19.2", "labels": {"gpucluster/cluster": "kube"}}])
    up(cluster.access(), steps, holder="ann")


def test_chart_that_the_spec_does_not_need_is_of_no_interest(cluster: Cluster) -> None:
    small = kube_steps(STATIC, running=None)
    assert {"karpenter", "kubeflow-trainer", "lws"}.isdisjoint(one.name for one in small.releases)
    cluster.put(
        *(controller(IMAGES[chart], name=chart) for chart in ("karpenter", "kubeflow-trainer", "lws"))
    )
    up(cluster.access(), small, holder="ann")


def test_without_charts_those_of_others_are_used(cluster: Cluster, steps: Steps) -> None:
    cluster.change(crds=dict.fromkeys(IMAGES, "1"))
    cluster.put(*(controller(image, name=chart) for chart, image in IMAGES.items()))
    assert up(cluster.access(charts=False), steps, holder="ann").charts == ()


def test_every_chart_with_a_controller_has_a_row() -> None:
    assert PROJECTS.keys() == IMAGES.keys() == FIELDS.keys()
