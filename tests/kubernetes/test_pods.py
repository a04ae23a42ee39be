"""`validate`'s own pods on a real node: what they reach is decided by the kernel, from the rendered network policies.

kubelet, containerd, kube-proxy, kube-router and CoreDNS are real. EKS has another program for network policies, the VPC CNI, which is
not tried here. Volumes are folders of this machine under the names of the rendered claims.
"""

import http.server
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import node_programs
import pytest
import real_node
from real_node import RealNode
from slurm_lab import fuse_folder
from slurm_lab.fuse_folder import FuseFolder
from support.builders import a_kube_plan, kubernetes_of
from support.kube_steps import kube_steps
from support.waiting import BOUND_S, eventually

from gpucluster.checks.check import CheckStatus
from gpucluster.k8s_apply.access import Access
from gpucluster.k8s_apply.clock import Clock
from gpucluster.k8s_apply.faults import RefusedError
from gpucluster.k8s_apply.kubectl import Kubectl
from gpucluster.plan import names
from gpucluster.sandbox.kubernetes import programs
from gpucluster.sandbox.paths import METADATA_ADDRESS
from gpucluster.shell import run
from gpucluster.validate import pod_manifests, validation_pods
from gpucluster.validate.kubernetes_expectations import kubernetes_expectations
from gpucluster.validate.kubernetes_session import KubernetesSession
from gpucluster.validate.pod_manifests import chosen_sets, pod_sets
from gpucluster.validate.results import Result
from gpucluster.validate.run import run_session
from gpucluster.validate.validation_pods import ValidationPods

pytestmark = [
    pytest.mark.in_order,
    pytest.mark.skipif(os.geteuid() != 0, reason="a kubelet and containerd need root"),
]
POOL, TEAM = "tune", "research"
SOON = 5.0  # seconds: how long a way that stays open is tried
CHECKS = ("kube.reach", "kube.dns", "kube.metadata", "kube.isolation", "kube.gpus", "kube.volumes")
APPLIED = ("Namespace", "LimitRange", "ResourceQuota", "NetworkPolicy", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")  # fmt: skip
POLICY = ("networking.k8s.io/v1", "NetworkPolicy")
PLAN, STEPS = a_kube_plan(), kube_steps()
PART = kubernetes_of(PLAN)
IMAGE = PART.validation_image


@dataclass(frozen=True, slots=True)
class Site:
    """The team's part of the usual spec on one real node."""

    node: RealNode
    last_volume: FuseFolder
    said: list[str]

    def results(self, *, image: str = IMAGE, told: str = "") -> dict[str, Result]:
        """Run the checks in pods of the pool, as `gpucluster validate` does.

        `told`: the time for the start of pods is over once the events of each pod that does not run have these words.
        """
        over = [0.0]

        def sleep(seconds: float) -> None:
            time.sleep(seconds)
            if told and not over[0] and self._is_told(told):
                over[0] = validation_pods.START_S

        clock = Clock(lambda: datetime.now(UTC), lambda: time.monotonic() + over[0], sleep)
        access = Access(Kubectl("sandbox"), None, clock, self.said.append)
        every = kubernetes_expectations(PLAN, STEPS, charts=True, containers=True)
        chosen = [one for one in every if one.check in CHECKS and one.target == POOL]
        sets = chosen_sets(tuple(pod_sets(PART, STEPS)), chosen)
        pods = ValidationPods(access, PLAN.name, image, sets)
        found = run_session(PLAN.name, KubernetesSession(access, STEPS, None, pods), chosen)
        return {one.check: one for one in found.results}

    def apply_policies(self) -> None:
        for one in STEPS.objects:
            if one["kind"] == "NetworkPolicy":
                self.node.client.apply(one)

    def _is_told(self, words: str) -> bool:
        pods = [
            one
            for one in self.node.client.list("v1", "Pod", TEAM)
            if names.LABEL_VALIDATION in one["metadata"].get("labels", {})
        ]
        events = self.node.client.list("v1", "Event", TEAM)
        known = {one["involvedObject"]["name"] for one in events if words in one.get("message", "")}
        left = {one["metadata"]["name"] for one in pods if one["status"]["phase"] != "Running"}
        return bool(left) and left <= known

    def phases(self) -> set[str]:
        """The phases of the pods in the team's namespace."""
        return {one["status"]["phase"] for one in self.node.client.list("v1", "Pod", TEAM)}

    def ours(self) -> set[str]:
        found = [*self.node.client.list("v1", "Pod"), *self.node.client.list("v1", "Namespace")]
        return {
            one["metadata"]["name"]
            for one in found
            if names.LABEL_VALIDATION in one["metadata"].get("labels", {})
        }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("node")
    built = programs.find_or_build(print)
    (pool,) = (one for one in PART.pools if one.name == POOL)
    # a mount cannot be renamed, the folder around it can
    folders = [folder / f"volume-{number}" / "data" for number, _ in enumerate(_claims())]
    for one in folders:
        one.mkdir(parents=True)
    with (
        fuse_folder.mounted(folders[-1]) as last,  # before the node: it has mounts of its own
        real_node.running(built, node_programs.find_or_build(print), folder, pool, IMAGE) as node,
        pytest.MonkeyPatch.context() as patch,
    ):
        node.use(patch)
        for one in STEPS.objects:
            if one["kind"] in APPLIED:
                node.client.apply(one)
        for claim, one in zip(_claims(), folders, strict=True):
            _bind(node, claim, one)
        with _metadata_service():
            yield Site(node, last, [])


def _claims() -> list[str]:
    (found,) = (one for one in pod_sets(PART, STEPS) if one.pool == POOL)
    assert found.claims
    return list(found.claims)


def _bind(node: RealNode, claim: str, folder: Path) -> None:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": ""}
    name = f"{TEAM}-{claim}"
    host = {
        "hostPath": {"path": str(folder), "type": "Directory"},
        "claimRef": {"name": claim, "namespace": TEAM},
    }
    node.client.apply(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {**spec, **host}}
    )
    wants = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "volumeName": name,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    node.client.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim, "namespace": TEAM},
            "spec": wants,
        }
    )


def _metadata_service() -> "_Serving":
    """Something that answers where EC2 has the metadata service: without it every attempt would end in a timeout."""
    return _Serving((METADATA_ADDRESS, 80))


class _Serving:
    def __init__(self, at: tuple[str, int]) -> None:
        self._server = http.server.ThreadingHTTPServer(at, http.server.SimpleHTTPRequestHandler)

    def __enter__(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def verdicts(found: dict[str, Result]) -> dict[str, CheckStatus]:
    return {name: one.verdict for name, one in found.items()}


def test_policies_that_nothing_enforces_are_found(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation_pods, "SETTLE_S", SOON)
    found = site.results()
    assert verdicts(found) == {
        "kube.reach": CheckStatus.PASS,
        "kube.dns": CheckStatus.PASS,
        "kube.metadata": CheckStatus.FAIL,
        "kube.isolation": CheckStatus.FAIL,
        "kube.gpus": CheckStatus.PASS,  # this machine has none
        "kube.volumes": CheckStatus.PASS,
    }, {name: one.found for name, one in found.items()}
    assert f"reaches {METADATA_ADDRESS}:80" in found["kube.metadata"].found
    assert found["kube.isolation"].found.count(" reaches ") == 2


def test_enforced_policies_pass(site: Site) -> None:
    site.node.enforce_policies()
    found = site.results()
    assert {name: one.found for name, one in found.items() if one.verdict is not CheckStatus.PASS} == {}
    eventually("nothing of validation is left", lambda: not site.ours())


FAULTS = [("within-team", "kube.reach", "REFUSED"), ("dns", "kube.dns", "DNS: ")]


@pytest.mark.parametrize(("policy", "check", "words"), FAULTS)
def test_policy_that_is_gone_is_found(site: Site, policy: str, check: str, words: str) -> None:
    site.node.client.delete(*POLICY, policy, TEAM)
    found = site.results()
    site.apply_policies()
    bad = {name: one for name, one in found.items() if one.verdict is CheckStatus.FAIL}
    assert bad.keys() == {check}, {name: one.found for name, one in found.items()}
    assert words in bad[check].found


def test_no_policies_are_found(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation_pods, "SETTLE_S", SOON)
    for one in site.node.client.list(*POLICY, TEAM):
        site.node.client.delete(*POLICY, one["metadata"]["name"], TEAM)
    found = site.results()
    site.apply_policies()
    assert {name for name, one in found.items() if one.verdict is CheckStatus.FAIL} == {
        "kube.metadata",
        "kube.isolation",
    }


def test_image_that_no_node_has_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation_pods, "START_S", BOUND_S)
    found = site.results(image="registry.example.org/none:1", told="Failed to pull image")
    assert found["kube.reach"].verdict is CheckStatus.FAIL
    assert "image registry.example.org/none:1" in found["kube.reach"].found
    assert {one.blocked_by for name, one in found.items() if name != "kube.reach"} == {f"kube.reach[{POOL}]"}


def test_volume_that_cannot_be_mounted_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation_pods, "START_S", BOUND_S)
    (folder, *_) = sorted(site.node.folder.glob("volume-*"))
    folder.rename(folder.with_name("away"))
    found = site.results(told="hostPath type check failed")
    folder.with_name("away").rename(folder)
    assert {name for name, one in found.items() if one.verdict is not CheckStatus.PASS} == {"kube.volumes"}
    assert "hostPath type check failed" in found["kube.volumes"].found


def test_volume_that_hangs_is_told(site: Site) -> None:
    with site.last_volume.hanging():
        found = site.results()
    assert {name for name, one in found.items() if one.verdict is not CheckStatus.PASS} == {"kube.volumes"}
    assert f"{_claims()[-1]}: no answer after {validation_pods.EXEC_S:g} s" in found["kube.volumes"].found
    eventually("nothing of validation is left", lambda: not site.ours())


def test_pods_of_a_killed_run_end_by_themselves(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_manifests, "DEADLINE_S", 5)
    monkeypatch.setattr(pod_manifests, "OF_A_POOL_S", 0)
    monkeypatch.setattr(ValidationPods, "close", lambda _: None)
    site.results()
    eventually("the kubelet has ended them", lambda: site.phases() == {"Failed"})
    monkeypatch.undo()
    monkeypatch.setattr(pod_manifests, "DEADLINE_S", 1)
    before = site.ours()
    site.results()
    eventually("the next run has deleted them", lambda: not before & site.ours())


def test_pods_that_could_not_be_deleted_go_by_the_printed_command(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Kubectl, manifests: Sequence[object]) -> None:
        if manifests:
            raise RefusedError("kubectl delete: you may not")

    with monkeypatch.context() as patch:
        patch.setattr(Kubectl, "delete", refused)
        site.results()
    assert site.ours()
    told = next(line for line in site.said if line.startswith("delete them: "))
    run(told.removeprefix("delete them: ").split(), timeout_s=BOUND_S)
    assert not site.ours()
