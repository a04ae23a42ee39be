"""Two `up` at once, and an `up` that was killed at each step."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cluster import CONTEXT, Cluster
from support.kube import USUAL_WAVES

from gpucluster.errors import StateError
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.kubectl import Kubectl
from gpucluster.k8s_apply.lease import DURATION_S, RENEW_S, acquire, held
from gpucluster.k8s_apply.steps import Steps
from gpucluster.k8s_apply.up import up

TESTS = Path(__file__).parents[2]
PROGRAM = f"""
import sys
sys.path[:0] = [{str(TESTS)!r}]
from pathlib import Path
from support.cluster import CONTEXT, Cluster
from support.kube_steps import kube_steps
from gpucluster.k8s_apply.up import up
up(Cluster(Path(sys.argv[1])).access(), kube_steps(), holder="killed@desk")
"""


def take(cluster: Cluster, holder: str) -> object:
    access = cluster.access()
    return acquire(access.kubectl, "kube", holder, access.clock, access.report)


def test_second_up_is_refused_and_names_the_holder(cluster: Cluster, bound: Steps) -> None:
    take(cluster, "ann@desk, process 7")
    with pytest.raises(StateError, match="ann@desk, process 7 works on kube now") as found:
        up(cluster.access(), bound, holder="bob@desk")
    assert f"{DURATION_S} s after the last renewal" in str(found.value)
    assert cluster.objects().keys() == {"Lease/gpucluster-kube"}
    assert cluster.calls(" apply ") == cluster.calls("upgrade") == []


def test_lease_of_a_dead_holder_is_taken_over_after_its_duration(cluster: Cluster) -> None:
    take(cluster, "ann@desk")
    cluster.elapsed = DURATION_S - 1
    with pytest.raises(StateError):
        take(cluster, "bob@desk")
    cluster.elapsed = DURATION_S + 1
    take(cluster, "bob@desk")
    spec = cluster.objects("Lease")["gpucluster-kube"]["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("bob@desk", 1)
    assert any("lease of ann@desk expired" in line for line in cluster.said)


def test_holder_with_a_slow_clock_keeps_its_lease(cluster: Cluster) -> None:
    """Its renewals look old here. While the expired lease is watched, it renews, and the server refuses the takeover."""
    access = cluster.access()
    ann = acquire(access.kubectl, "kube", "ann@desk", access.clock, access.report)
    cluster.elapsed = DURATION_S + 1
    cluster.while_asleep = ann.renew
    with pytest.raises(StateError, match="ann@desk works on kube now"):
        take(cluster, "bob@desk")


def test_holder_that_lost_its_lease_changes_nothing_more(cluster: Cluster) -> None:
    access = cluster.access()
    lease = acquire(access.kubectl, "kube", "ann@desk", access.clock, access.report)
    cluster.elapsed = DURATION_S + 1
    take(cluster, "bob@desk")
    with pytest.raises(StateError, match="not ours any more"):
        lease.require()


class Hanging(Kubectl):
    """kubectl whose writes take their time."""

    def __init__(self, cluster: Cluster, hangs_s: float) -> None:
        super().__init__(CONTEXT)
        self.cluster, self.hangs_s = cluster, hangs_s

    def replace(self, manifest: Manifest) -> Manifest:
        self.cluster.elapsed += self.hangs_s
        return super().replace(manifest)


@pytest.mark.parametrize("fault", ["", "Unable to connect to the server: net/http: TLS handshake timeout"])
@pytest.mark.parametrize(("hangs_s", "lost"), [(10.0, False), (400.0, True)])
def test_renewal_that_hangs_longer_than_the_lease_loses_it(
    cluster: Cluster, hangs_s: float, fault: str, *, lost: bool
) -> None:
    """Regression: the age was measured before the call, so the lease counted as ours while another could take it."""
    clock = cluster.access().clock
    lease = acquire(Hanging(cluster, hangs_s), "kube", "ann@desk", clock, cluster.said.append)
    cluster.elapsed = RENEW_S + 1
    if fault:
        cluster.plant("replace", fault)
    if not lost:
        lease.require()
        return
    with pytest.raises(StateError, match="not ours any more"):
        lease.require()


def test_lease_that_was_taken_slowly_is_as_old_as_its_call(cluster: Cluster) -> None:
    """Regression: it counted from the answer, and its time of renewal was that before the watch."""
    take(cluster, "bob@desk")
    cluster.elapsed = DURATION_S + 1
    access = cluster.access()
    lease = acquire(Hanging(cluster, 400.0), "kube", "ann@desk", access.clock, access.report)
    assert lease.renewed == cluster.elapsed - 400.0
    assert lease.manifest["spec"]["renewTime"] == "2026-11-25T12:01:21.000000Z"
    with pytest.raises(StateError, match="not ours any more"):
        lease.require()


def test_lease_that_nobody_renewed_is_free(cluster: Cluster) -> None:
    """Regression: a lease without a time of renewal ended the run with a KeyError."""
    take(cluster, "ann@desk")
    lease = cluster.objects("Lease")["gpucluster-kube"]
    cluster.put({**lease, "spec": {"holderIdentity": "ann@desk"}})
    take(cluster, "bob@desk")
    assert cluster.objects("Lease")["gpucluster-kube"]["spec"]["holderIdentity"] == "bob@desk"


def test_lease_is_free_after_the_run(cluster: Cluster) -> None:
    access = cluster.access()
    with held(access.kubectl, "kube", "ann@desk", access.clock, access.report):
        pass
    take(cluster, "bob@desk")


@pytest.mark.parametrize(("call", "when"), [("get", "before"), ("create", "before"), ("create", "after"), ("replace", "after")])  # fmt: skip
def test_lease_is_taken_when_the_api_server_is_away_for_a_moment(
    cluster: Cluster, call: str, when: str
) -> None:
    """One failed call ended the run; a lease whose answer was lost was told as that of another run."""
    if call == "replace":
        take(cluster, "bob@desk")
        cluster.elapsed += 300
    cluster.plant(f" {call} ", "Unable to connect to the server: unexpected EOF", times=2, when=when)
    take(cluster, "ann@desk")
    with pytest.raises(StateError, match="ann@desk works on kube now"):
        take(cluster, "bob@desk")


def test_race_for_a_new_lease_has_one_winner(cluster: Cluster) -> None:
    cluster.plant(
        "create",
        'Error from server (AlreadyExists): leases.coordination.k8s.io "gpucluster-kube" already exists',
    )
    with pytest.raises(StateError, match="works on kube now"):
        take(cluster, "bob@desk")


def in_a_process(cluster: Cluster, _steps: Steps) -> int:
    """Run `up` as a process of its own, which starts kubectl and helm; return its exit status."""
    argv = [sys.executable, "-c", PROGRAM, str(cluster.folder)]
    return subprocess.run(argv, check=False, capture_output=True).returncode


def in_a_fork(cluster: Cluster, steps: Steps) -> int:
    child = os.fork()
    if not child:
        try:
            up(cluster.access(), steps, holder="killed@desk")
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def own_temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary folder of this test: a killed `up` leaves its files there."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


APPLIED = USUAL_WAVES
KILLS = [
    ("upgrade --install jobset", "during", in_a_process),
    ("upgrade --install karpenter", "after", in_a_process),
    *((wave.folder, when, in_a_fork) for wave, when in zip(APPLIED, ["before", "after"] * 4, strict=False)),
]


@pytest.mark.usefixtures("own_temp")
@pytest.mark.parametrize(("step", "when", "run"), KILLS, ids=[f"{step}-{when}" for step, when, _ in KILLS])
def test_up_that_was_killed_goes_on(
    cluster: Cluster, bound: Steps, step: str, when: str, run: Callable[[Cluster, Steps], int]
) -> None:
    cluster.plant(step, kill=True, when=when)
    assert run(cluster, bound) == -signal.SIGKILL
    cluster.elapsed = 3600.0
    cluster.forget_calls()
    up(cluster.access(), bound, holder="bob@desk")
    assert set(cluster.objects()) >= {f"{one['kind']}/{one['metadata']['name']}" for one in bound.objects}
    assert {row["status"] for row in cluster.values()["releases"]} == {"deployed"}
    assert cluster.objects("ConfigMap")["gpucluster-kube"]["data"] == {
        "cluster": "kube",
        "complete": "true",
        "digest": bound.digest,
        "uid": "uid-kube-system",
        "account": "",
        "definitions": "gpu-operator-v26.7.0 jobset-0.12.0 karpenter-1.14.1",
    }
    first = cluster.versions()
    assert up(cluster.access(), bound, holder="bob@desk").charts == ()
    assert cluster.versions() == first
