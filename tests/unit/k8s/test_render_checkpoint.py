"""Shared memory of pods, and the signal and time that a gang gets for a checkpoint before its pods end."""

from typing import Any

import pytest
from support.kube import Change, files, objects

TUNE = "gpus_per_node: 8"


def _pod(line: str = "", kind: str = "tune") -> Any:
    running: tuple[Change, ...] = ()
    if line:
        before = TUNE if kind == "tune" else "    scale_on:"
        after = f"{TUNE}\n    {line}" if kind == "tune" else f"    {line}\n    scale_on:"
        running = ((before, after),)
    found = objects(files(running=running))
    if kind == "chat":
        return found["Deployment/serving/chat"]["spec"]["template"]["spec"]
    return found["JobSet/research/tune"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]


def _shm(pod: Any) -> Any:
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["mountPath"] == "/dev/shm"]
    (volume,) = [one for one in pod["volumes"] if one["name"] == mount["name"]]
    return volume["emptyDir"]


@pytest.mark.parametrize("kind", ["tune", "chat"])
def test_requested_shared_memory_is_a_volume_in_memory(kind: str) -> None:
    assert _shm(_pod("shm: 12Gi", kind)) == {"medium": "Memory", "sizeLimit": "12Gi"}


@pytest.mark.parametrize("takes_s", [1, 90, 91, 600, 6 * 3600])
def test_grace_period_is_longer_than_the_checkpoint(takes_s: int) -> None:
    pod = _pod(f"checkpoint: {{mount: /data, takes: {takes_s}s}}")
    assert pod["terminationGracePeriodSeconds"] == max(120, takes_s + 30)


def test_signal_comes_first_and_the_program_has_its_time() -> None:
    """After the hook the kubelet sends TERM; the hook ends with the program."""
    pod = _pod("checkpoint: {mount: /data, takes: 10m, signal: USR1}")
    (container,) = pod["containers"]
    assert container["lifecycle"] == {
        "preStop": {"exec": {"command": ["/bin/sh", "-c", "kill -s USR1 1 && sleep 600"]}}
    }
    assert pod["terminationGracePeriodSeconds"] > 600


def test_term_needs_no_hook() -> None:
    assert "lifecycle" not in _pod("checkpoint: {mount: /data, takes: 10m}")["containers"][0]
    plain = _pod()
    assert "lifecycle" not in plain["containers"][0]
    assert plain["terminationGracePeriodSeconds"] == 120


def test_folder_of_checkpoints_is_on_a_mounted_file_system() -> None:
    (container,) = _pod("checkpoint: {mount: /data, takes: 5m}")["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert env["CHECKPOINT_DIR"] == "/data/checkpoints/research/tune"
    assert "/data" in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert "CHECKPOINT_DIR" not in {one["name"] for one in _pod()["containers"][0]["env"]}


def test_no_pod_forbids_karpenter_to_evict_it() -> None:
    """Regression: pods of gangs had `karpenter.sh/do-not-disrupt`, so a spot notice and a deleted NodePool waited for ever."""
    assert not [path for path, text in files().items() if "do-not-disrupt" in text]


def test_karpenter_removes_only_empty_nodes() -> None:
    pools = [one["spec"] for one in objects(files()).values() if one["kind"] == "NodePool"]
    assert pools
    for one in pools:
        assert one["disruption"]["consolidationPolicy"] == "WhenEmpty"
        assert {"nodes": "0", "reasons": ["Drifted"]} in one["disruption"]["budgets"]
        assert one["template"]["spec"]["expireAfter"] == "Never"


def test_drain_takes_replicas_one_by_one() -> None:
    found = objects(files())
    budgets = {key: one["spec"] for key, one in found.items() if key.startswith("PodDisruptionBudget/")}
    assert {key: one["maxUnavailable"] for key, one in budgets.items()} == {
        "PodDisruptionBudget/serving/chat": 1
    }
