"""`gpucluster k8s` with the real kubectl on the real control plane: up, again, refusals in the server's own words, status, down.

The charts are of others (--no-charts): Kueue and JobSet run as processes. No Karpenter runs, so the spec has no elastic nodes.
"""

import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from real_kubernetes import Kubernetes, Manifest
from support.kube import BOUND, renamed
from support.kube_steps import kube_steps

from gpucluster.artifacts import Artifact
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.gitops.pod_storage import Swapped, delete
from gpucluster.k8s.manifest import dump
from gpucluster.k8s_apply import record
from gpucluster.k8s_apply.access import Access, require_version
from gpucluster.k8s_apply.clock import Clock
from gpucluster.k8s_apply.down import down
from gpucluster.k8s_apply.faults import NotFoundError
from gpucluster.k8s_apply.kubectl import Kubectl, kubeconfig
from gpucluster.k8s_apply.lease import acquire
from gpucluster.k8s_apply.objects import Ref, ref_of, set_fields
from gpucluster.k8s_apply.status import status
from gpucluster.k8s_apply.steps import File, Steps, WaveStep
from gpucluster.k8s_apply.up import up
from gpucluster.plan import names
from gpucluster.plan.model import Bindings

CONTEXT = "sandbox"  # of the control plane's kubeconfig
LIMIT_S = 600.0


def steps_named(name: str, *changes: tuple[str, str], bindings: Bindings = BOUND) -> Steps:
    """The usual spec under another name, with always-on nodes only."""
    return kube_steps(
        *renamed(name),
        ("nodes: {min: 1, max: 6}", "nodes: 1"),
        *changes,
        running=None,
        bindings=bindings,
    )


class Desk:
    """kubectl on PATH, and what a run says."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self.kubernetes = kubernetes
        self.said: list[str] = []
        clock = Clock(lambda: datetime.now(UTC), time.monotonic, time.sleep)
        self.access = Access(Kubectl(CONTEXT), None, clock, self.said.append)

    def there(self, steps: Steps) -> dict[Ref, Manifest]:
        """Every object of the steps that exists, with its uid, without its status. `test_waves` shows that an apply writes nothing."""
        return {ref_of(one): set_fields(one) for one in self.access.kubectl.get(steps.objects)}

    def apply(self, steps: Steps) -> None:
        up(self.access, steps, holder="ann@desk", limit_s=LIMIT_S)


@pytest.fixture
def desk(kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> Desk:
    kubernetes.use(monkeypatch)
    return Desk(kubernetes)


@pytest.fixture
def stale(desk: Desk) -> Iterator[Desk]:
    """Objects of the steps `stale` go at the end."""
    yield desk
    down(desk.access, steps_named("stale"), holder="ann@desk", delete_data=True, limit_s=LIMIT_S)


def test_context_and_version_are_read(desk: Desk) -> None:
    assert [row["name"] for row in kubeconfig()["contexts"]] == [CONTEXT]
    require_version(desk.access, "1.36")
    with pytest.raises(StateError, match=r"leads to Kubernetes 1\.36, the spec says 1\.35"):
        require_version(desk.access, "1.35")


def test_up_status_and_down(desk: Desk) -> None:
    """Everything is there, a second run changes nothing, and after `down` nothing is left."""
    steps = steps_named("whole")
    desk.apply(steps)
    wanted = {ref_of(one) for one in steps.objects}
    assert desk.there(steps).keys() == wanted
    assert status(desk.access, steps).unsettled == ()
    first, recorded = desk.there(steps), record.read(desk.access.kubectl, "whole")
    desk.apply(steps)
    assert desk.there(steps) == first
    assert record.read(desk.access.kubectl, "whole") == recorded
    done = down(desk.access, steps, holder="ann@desk", delete_data=True, limit_s=LIMIT_S)
    assert (desk.there(steps), done.retained) == ({}, ())
    assert record.read(desk.access.kubectl, "whole") is None
    assert (
        desk.kubernetes.client.get("coordination.k8s.io/v1", "Lease", "gpucluster-whole", "kube-system")
        is None
    )


@pytest.mark.parametrize("kind", ["ClusterQueue", "LocalQueue"])
def test_command_of_a_stopped_queue_starts_it(desk: Desk, kind: str) -> None:
    """`k8s up` sets no stopPolicy, so a queue that a person has stopped stays so, and its folder waits."""
    name = f"held-{kind[0].lower()}"
    steps = steps_named(name)
    desk.apply(steps)
    one = next(one for one in steps.objects if one["kind"] == kind)
    where = ["--namespace", one["metadata"]["namespace"]] if kind == "LocalQueue" else []
    held = '{"spec": {"stopPolicy": "Hold"}}'
    desk.kubernetes.kubectl(
        "patch", kind, one["metadata"]["name"], *where, "--type", "merge", "--patch", held
    )

    def words() -> str:
        return next((line for line in status(desk.access, steps).unsettled if f"{kind}/" in line), "")

    desk.kubernetes.wait(lambda: "stopPolicy is Hold" in words(), "the queue is stopped")
    command = re.search("`kubectl (.+)`", words())
    assert command is not None
    desk.kubernetes.kubectl(*shlex.split(command[1]))
    desk.kubernetes.wait(lambda: status(desk.access, steps).unsettled == (), "the queue is active again")
    down(desk.access, steps, holder="ann@desk", delete_data=True, limit_s=LIMIT_S)


def test_claims_and_their_namespaces_stay(desk: Desk) -> None:
    steps = steps_named("data")
    desk.apply(steps)
    done = down(desk.access, steps, holder="ann@desk", limit_s=LIMIT_S)
    assert {"Namespace/data-research", "data-research/PersistentVolumeClaim/data"} <= set(done.retained)
    assert {ref.kind for ref in desk.there(steps)} == {
        "Namespace",
        "PersistentVolume",
        "PersistentVolumeClaim",
    }
    down(desk.access, steps, holder="ann@desk", delete_data=True, limit_s=LIMIT_S)


def test_larger_file_system_is_applied(desk: Desk) -> None:
    """Regression: the claim asked for the size, and the API server refuses another one for ever."""
    desk.apply(steps_named("grows"))
    larger = steps_named("grows", ("2400GiB", "4800GiB"))
    desk.apply(larger)
    found = desk.access.kubectl.get(larger.objects)
    volumes = [one["spec"]["capacity"]["storage"] for one in found if one["kind"] == "PersistentVolume"]
    assert volumes == ["4800Gi", "4800Gi"]
    down(desk.access, larger, holder="ann@desk", delete_data=True, limit_s=LIMIT_S)


def test_volume_with_another_file_system_is_refused_until_the_commands_of_diff_delete_it(desk: Desk) -> None:
    one, other = (steps_named("swaps", bindings=_bound_to(name)) for name in ("abcdefgh", "zyxwvuts"))
    desk.apply(one)
    with pytest.raises(GpuclusterError, match="persistentvolumesource is immutable after creation"):
        desk.apply(other)
    for team in ("serving", "research"):
        volume = names.persistent_volume("swaps", f"swaps-{team}", "/data")
        swapped = Swapped(path="/data", namespace=f"swaps-{team}", claim="data", volume=volume)
        for command in delete(swapped).split("; "):
            desk.kubernetes.kubectl(*command.split()[1:])
    desk.apply(other)
    assert status(desk.access, other).unsettled == ()
    down(desk.access, other, holder="ann@desk", delete_data=True, limit_s=LIMIT_S)


def _bound_to(mount_name: str) -> Bindings:
    found = {path: replace(one, mount_name=mount_name) for path, one in BOUND.file_systems.items()}
    return replace(BOUND, file_systems=found)


@pytest.mark.parametrize(("change", "words"), [
    ({"queueingStrategy": "Wrong"}, "is invalid"),
    ({"unknown": 1}, "unknown"),
])  # fmt: skip
def test_refused_manifest_is_named(stale: Desk, change: Manifest, words: str) -> None:
    """The words of the real server lead to the file, the object and the field of the spec."""
    steps = spoiled(steps_named("stale"), "30-queues/clusterqueue-stale-research.yaml", change)
    with pytest.raises(GpuclusterError) as found:
        stale.apply(steps)
    text = str(found.value)
    assert "30-queues/clusterqueue-stale-research.yaml: ClusterQueue/stale-stale-research" in text
    assert "the team stale-research in kubernetes.teams" in text
    assert words in text


def spoiled(steps: Steps, path: str, change: Manifest) -> Steps:
    """The steps with other values in the spec of one file's object."""

    def of(file: File) -> File:
        (one,) = file.objects
        return File(path, ({**one, "spec": {**one["spec"], **change}},))

    (bad,) = (of(file) for wave in steps.waves for file in wave.files if file.path == path)
    tree = tuple(
        Artifact(path, dump(list(bad.objects)).encode()) if a.path == path else a for a in steps.tree
    )
    waves = tuple(
        WaveStep(wave.wave, tuple(bad if file.path == path else file for file in wave.files))
        for wave in steps.waves
    )
    return replace(steps, tree=tree, waves=waves)


def test_object_of_others_is_not_touched(desk: Desk) -> None:
    steps = steps_named("taken")
    theirs = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "taken-research"}}
    desk.kubernetes.client.apply(theirs)
    before = desk.kubernetes.client.read(theirs)
    with pytest.raises(StateError, match="Namespace/taken-research exists and has no label"):
        desk.apply(steps)
    assert desk.kubernetes.client.read(theirs) == before
    assert desk.there(steps).keys() == {ref_of(theirs)}
    desk.kubernetes.client.delete("v1", "Namespace", "taken-research")


def test_lease_keeps_two_runs_apart(desk: Desk) -> None:
    """The real server decides: the second is refused, and a write with an old resourceVersion, too."""
    access = desk.access
    lease = acquire(access.kubectl, "leased", "ann@desk", access.clock, access.report)
    with pytest.raises(StateError, match="ann@desk works on leased now"):
        acquire(access.kubectl, "leased", "bob@desk", access.clock, access.report)
    old = lease.manifest
    lease.renew()
    lease.manifest = old
    lease.renewed -= 30.0
    with pytest.raises(StateError, match="not ours any more"):
        lease.require()
    access.kubectl.delete([old])


def test_words_of_the_real_kubectl(desk: Desk) -> None:
    """Kinds that are not served have no objects; a missing object is not found."""
    kubectl = desk.access.kubectl
    unknown = Ref("nothing.example.org/v1", "Nothing", "", "x").manifest()
    there = Ref("v1", "Namespace", "", "default").manifest()
    assert [ref_of(one).name for one in kubectl.get([unknown, there])] == ["default"]
    kinds = [("nothing.example.org/v1", "Nothing"), ("v1", "Namespace")]
    assert "default" in [one["metadata"]["name"] for one in kubectl.find(kinds)]
    assert kubectl.served("nothing.example.org/v1") == frozenset()
    assert "Deployment" in kubectl.served("apps/v1")
    with pytest.raises(NotFoundError):
        kubectl.replace(Ref("v1", "ConfigMap", "default", "missing").manifest())
