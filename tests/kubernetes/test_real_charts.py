"""`gpucluster k8s up`, `status` and `down` with the real helm and charts of their projects, on a control plane of their own.

Only the place of a chart differs: a program in front of helm names a package of the module's folder instead of a registry. kwok plays the
pods, so no webhook answers: Kueue's, which judges every pod, is left out, and so is the GPU operator, whose module has no chart.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import real_helm
from real_kubernetes import Kubernetes
from support.kube_steps import GROUPS, kube_steps

from gpucluster import shell
from gpucluster.errors import StateError
from gpucluster.k8s.releases import Release
from gpucluster.k8s.waves import FIELD_MANAGER
from gpucluster.k8s_apply.access import Access
from gpucluster.k8s_apply.clock import Clock
from gpucluster.k8s_apply.down import down
from gpucluster.k8s_apply.helm import Helm
from gpucluster.k8s_apply.kubectl import MANAGERS, Kubectl
from gpucluster.k8s_apply.objects import is_written_by
from gpucluster.k8s_apply.status import status
from gpucluster.k8s_apply.steps import CHART_S, Steps
from gpucluster.k8s_apply.up import up
from gpucluster.sandbox.kubernetes import control_plane, nodes, programs

CONTEXT, HOLDER, LIMIT_S = "sandbox", "ann@desk", 600.0
RECORDED = Path(__file__).parents[1] / "recorded/chart-definitions.json"
DEFINITION = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
LEFT_OUT = ("gpu-operator", "kueue")
pytestmark = [pytest.mark.in_order]
SHIM = """\
#!{python} -IS
import os, sys
words, packages = sys.argv[1:], {packages!r}
if "--version" in words:
    version = words[words.index("--version") + 1]
    if "--repo" in words:
        at = words.index("--repo")
        del words[at : at + 2]
        words[at - 1] = f"{{packages}}/{{words[at - 1]}}-{{version}}.tgz"
    words = [f"{{packages}}/{{w.rpartition('/')[2]}}-{{version}}.tgz" if w.startswith("oci://") else w for w in words]
os.execv({helm!r}, [{helm!r}, *words])
"""


class Desk:
    """helm and kubectl on PATH, the charts of a spec, and what a run says."""

    def __init__(self, kubernetes: Kubernetes, steps: Steps) -> None:
        self.kubernetes, self.steps = kubernetes, steps
        self.said: list[str] = []
        self.access = self.at(timedelta())

    def at(self, later: timedelta) -> Access:
        clock = Clock(lambda: datetime.now(UTC) + later, time.monotonic, time.sleep)
        return Access(Kubectl(CONTEXT), Helm(CONTEXT, self.steps.cluster), clock, self.said.append)

    def apply(self, access: Access | None = None) -> tuple[str, ...]:
        """Return the charts that changed."""
        return tuple(up(access or self.access, self.steps, holder=HOLDER, limit_s=LIMIT_S).charts)

    def unsettled(self) -> tuple[str, ...]:
        return status(self.access, self.steps).unsettled

    def release(self, name: str) -> Release:
        return next(one for one in self.steps.releases if one.name == name)

    def upgrade(self, name: str) -> tuple[str, ...]:
        """Return the words of helm that install or upgrade a chart, without our values and label."""
        one = self.release(name)
        return (
            "upgrade",
            "--install",
            name,
            *one.chart,
            "--version",
            one.version,
            "--namespace",
            one.namespace,
        )

    def helm(self, *words: str) -> str:
        return shell.run(["helm", "--kube-context", CONTEXT, *words], timeout_s=LIMIT_S).stdout


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("charts")
    steps = kube_steps(running=GROUPS)
    steps = replace(
        steps, waves=(), releases=tuple(one for one in steps.releases if one.name not in LEFT_OUT)
    )
    built = real_helm.find_or_build(print)
    _put_in_front(built, folder / "bin", folder / "packages", steps)
    with (
        control_plane.running(programs.find_or_build(print), folder) as plane,
        pytest.MonkeyPatch.context() as patch,
    ):
        kubernetes = Kubernetes(plane, 0)
        kubernetes.use(patch)
        patch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        for number in range(2):
            nodes.start(plane.client, _machine(number))
        yield Desk(kubernetes, steps)


def _put_in_front(built: Path, programs: Path, packages: Path, steps: Steps) -> None:
    programs.mkdir()
    helm = str(built / "helm")
    for one in steps.releases:
        argv = [helm, "package", str(built / "charts" / one.name), "--version", one.version]
        shell.run([*argv, "--destination", str(packages)], env={"HOME": str(packages)})
    text = SHIM.format(python=sys.executable, packages=str(packages), helm=helm)
    (programs / "helm").write_text(text)
    (programs / "helm").chmod(0o755)


def _machine(number: int) -> dict[str, object]:
    """A node for the pods of the charts."""
    name, amounts = f"system-{number}", {"cpu": "8", "memory": "32Gi", "pods": "58"}
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": f"us-west-2{'ab'[number]}",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def test_charts_are_installed_once(desk: Desk) -> None:
    """All of them; a second run changes nothing."""
    wanted = tuple(one.name for one in desk.steps.releases)
    assert {"aws-efa-k8s-device-plugin", "jobset", "karpenter"} <= {*wanted}
    assert desk.apply() == wanted
    assert desk.unsettled() == ()
    assert desk.apply() == ()


def test_every_definition_of_a_folder_crds_is_applied(desk: Desk) -> None:
    """Regression: `helm show crds` puts no `---` between files, and of two in one document kubectl takes the last."""
    there = desk.access.kubectl.find([DEFINITION], "", "", "", MANAGERS)
    written = {
        f"{one['spec']['group']}/{one['spec']['names']['kind']}"
        for one in there
        if is_written_by(one, FIELD_MANAGER)
    }
    recorded = json.loads(RECORDED.read_text())
    assert written == {kind for one in desk.steps.releases for kind in recorded[one.name]["crds"]}


@pytest.mark.parametrize("sabotage", [
    (("scale", "deployment", "karpenter", "--namespace", "karpenter", "--replicas", "0"), "is scaled to 0"),
    (("delete", "clusterrole", "karpenter-core"), "is missing"),
    (("delete", "serviceaccount", "karpenter", "--namespace", "karpenter"), "is missing"),
])  # fmt: skip
def test_part_that_somebody_deleted_or_stopped_comes_back(
    desk: Desk, sabotage: tuple[tuple[str, ...], str]
) -> None:
    words, said = sabotage
    desk.kubernetes.kubectl(*words)
    (found,) = desk.unsettled()
    assert said in found
    assert desk.apply() == ("karpenter",)
    assert desk.unsettled() == ()


def test_values_that_somebody_changed_are_set_again(desk: Desk) -> None:
    desk.helm(
        *desk.upgrade("karpenter"), "--reuse-values", "--set", "settings.interruptionQueue=other", "--wait"
    )
    assert len(desk.unsettled()) == 1
    assert desk.apply() == ("karpenter",)
    assert desk.unsettled() == ()


def test_upgrade_whose_helm_was_killed_is_rolled_back(desk: Desk) -> None:
    """Then the release is as the spec says, so nothing else changes."""
    words = (*desk.upgrade("karpenter"), "--reuse-values", "--set", "replicas=3", "--wait")
    argv = ["helm", "--kube-context", CONTEXT, *words]
    with subprocess.Popen([*argv, "--set", "controller.resources.requests.cpu=1000"]) as killed:
        desk.kubernetes.wait(
            lambda: "pending-upgrade" in desk.helm("list", "--all-namespaces", "--pending"), "helm works"
        )
        killed.kill()
    assert desk.apply(desk.at(timedelta(seconds=CHART_S))) == ()
    assert any("rolled back" in line for line in desk.said)
    assert desk.unsettled() == ()


def test_release_of_others_is_refused(desk: Desk) -> None:
    space = desk.release("lws").namespace
    desk.helm("uninstall", "lws", "--namespace", space, "--wait")
    desk.helm(*desk.upgrade("lws"))
    with pytest.raises(StateError, match=f"have no label .*: lws in {space}"):
        desk.apply()
    desk.helm(*desk.upgrade("lws"), "--labels", f"gpucluster/cluster={desk.steps.cluster}")
    desk.apply()
    assert desk.unsettled() == ()


def test_controller_of_others_is_refused(desk: Desk) -> None:
    """Regression: `up` put a second one beside it, and its own definitions over those of the other."""
    desk.helm("uninstall", "lws", "--namespace", desk.release("lws").namespace, "--wait")
    verb, how, _, *chart = desk.upgrade("lws")
    place = ("--namespace", "elsewhere")
    desk.helm(verb, how, "theirs", *chart[:-2], *place, "--create-namespace")
    with pytest.raises(StateError, match="LeaderWorkerSet or a part of it is there, and is not of") as found:
        desk.apply()
    assert "elsewhere/Deployment/" in found.value.message
    assert "the release theirs in elsewhere (lws-" in found.value.message
    desk.helm("uninstall", "theirs", *place, "--wait")
    assert desk.apply() == ("lws",)
    assert desk.unsettled() == ()


def test_down_uninstalls_all(desk: Desk) -> None:
    down(desk.access, desk.steps, holder=HOLDER, delete_data=True, limit_s=LIMIT_S)
    assert desk.helm("list", "--all-namespaces", "--all", "--short") == ""
