"""The control plane itself: its version, what listens, and what is left at the end."""

import os
from pathlib import Path

from real_kubernetes import Kubernetes

from gpucluster.sandbox.kubernetes import control_plane, loopback, programs

PROCESSES = {
    "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kueue", "jobset",
    "kubeflow-trainer",
}  # fmt: skip


def test_version_is_the_pinned_one(kubernetes: Kubernetes) -> None:
    assert kubernetes.client.version() == "v1.36.2"


def test_every_program_runs(kubernetes: Kubernetes) -> None:
    assert kubernetes.plane.processes.pids().keys() == PROCESSES


def test_nothing_is_left_at_the_end(tmp_path: Path) -> None:
    built = programs.find()
    assert built is not None
    with control_plane.running(built, tmp_path) as plane:
        pids, port = plane.processes.pids(), plane.port
        assert not loopback.is_free(port)
    assert [name for name, pid in pids.items() if Path(f"/proc/{pid}").exists()] == []
    assert loopback.is_free(port)
    assert _with(str(tmp_path)) == []


def _with(mark: str) -> list[str]:
    """Processes that name the folder in their command."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if mark in words and int(entry.parent.name) != os.getpid():
            found.append(words)
    return found
