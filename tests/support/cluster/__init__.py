"""A Kubernetes cluster for unit tests: stand-ins of kubectl and helm on PATH, which keep its state in one folder."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpucluster import shell
from gpucluster.k8s_apply.access import Access
from gpucluster.k8s_apply.clock import Clock
from gpucluster.k8s_apply.helm import Helm
from gpucluster.k8s_apply.kubectl import Kubectl
from support.cluster.helm import MADE
from support.cluster.programs import install, without_processes
from support.cluster.state import State

KUBE_SYSTEM = {  # of every cluster; `Cluster.objects` leaves it out
    "apiVersion": "v1", "kind": "Namespace",
    "metadata": {"name": "kube-system", "uid": "uid-kube-system", "resourceVersion": "1", "generation": 1},
}  # fmt: skip
CONTEXT = "arn:aws:eks:us-west-2:123456789012:cluster/kube"


@dataclass
class Cluster:
    """The state of the stand-ins, and a clock that sleeps at once."""

    folder: Path
    said: list[str] = field(default_factory=list)
    elapsed: float = 0.0
    while_asleep: Callable[[], object] = str  # what happens while we sleep

    def values(self) -> dict[str, Any]:
        with State(self.folder).locked() as values:
            return values

    def change(self, **new: Any) -> None:
        with State(self.folder).locked() as values:
            values.update(new)

    def plant(self, match: str, stderr: str = "", *, times: int = 1, skip: int = 0, **more: Any) -> None:
        """Let the next calls that have the words fail."""
        state = State(self.folder)
        state.planted.touch()
        with state.locked() as values:
            values["faults"].append({"match": match, "stderr": stderr, "times": times, "skip": skip, **more})

    def put(self, *objects: dict[str, Any], manager: str = "kubectl-create") -> None:
        """Objects that somebody else made."""
        with State(self.folder).locked() as values:
            for one in objects:
                values["clock"] += 1
                metadata = {
                    "resourceVersion": str(values["clock"]),
                    "generation": 1,
                    "uid": f"uid-{values['clock']}",
                    "managedFields": [{"manager": manager}],
                    **one["metadata"],
                }
                place = (one["apiVersion"], one["kind"], metadata.get("namespace", ""), metadata["name"])
                values["objects"]["|".join(place)] = {**one, "metadata": metadata}

    def objects(self, kind: str = "") -> dict[str, Any]:
        """Objects by their last name, of one kind or of all, without those that charts made, and without definitions."""
        there = self.values()["objects"].items()
        found = [
            one
            for key, one in there
            if key != "v1|Namespace||kube-system"
            and one["metadata"].get("labels") != MADE
            and (kind or one["kind"] != "CustomResourceDefinition")
        ]
        return {
            f"{o['kind']}/{o['metadata']['name']}" if not kind else o["metadata"]["name"]: o
            for o in found
            if kind in ("", o["kind"])
        }

    def versions(self) -> dict[str, str]:
        """The resourceVersion of every object but the lease."""
        found = self.values()["objects"]
        return {key: one["metadata"]["resourceVersion"] for key, one in found.items() if "|Lease|" not in key}

    def remove(self, key: str) -> None:
        """Somebody deletes an object: `apiVersion|kind|namespace|name`."""
        with State(self.folder).locked() as values:
            del values["objects"][key]

    def calls(self, words: str = "") -> list[str]:
        lines = (self.folder / "calls").read_text().splitlines() if (self.folder / "calls").exists() else []
        found = [" ".join(json.loads(line)) for line in lines]
        return [line for line in found if words in line]

    def forget_calls(self) -> None:
        (self.folder / "calls").unlink(missing_ok=True)

    def access(self, *, charts: bool = True, cluster: str = "kube", account: str = "") -> Access:
        helm = Helm(CONTEXT, cluster) if charts else None
        clock = Clock(self._now, lambda: self.elapsed, self._sleep)
        return Access(Kubectl(CONTEXT), helm, clock, self.said.append, account)

    def _now(self) -> datetime:
        return datetime(2026, 11, 25, 12, tzinfo=UTC) + timedelta(seconds=self.elapsed)

    def _sleep(self, seconds: float) -> None:
        self.elapsed += seconds
        self.while_asleep()


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, *, processes: bool = True) -> Cluster:
    """Put the stand-ins on PATH. The cluster is empty, of Kubernetes 1.36, and the kubeconfig has one context.

    Without `processes`, our own calls start none.
    """
    bin_dir, state = folder / "bin", folder / "state"
    bin_dir.mkdir()
    state.mkdir()
    for name in ("kubectl", "helm"):
        install(bin_dir / name, name, state)
    State(state).begin(
        {
            "clock": 0, "objects": {"v1|Namespace||kube-system": KUBE_SYSTEM}, "releases": [], "crds": {}, "faults": [], "slow": {}, "unserved": {}, "invalid": {}, "forbidden": {}, "stuck": [], "owned": {}, "exec": [],
            "version": {"major": "1", "minor": "36+"}, "metrics": "",
            "config": {"contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}]},
        }
    )  # fmt: skip
    monkeypatch.setenv("PATH", f"{bin_dir}:/usr/bin:/bin")
    if not processes:
        monkeypatch.setattr(shell, "run", without_processes(bin_dir, state, shell.run))
    return Cluster(state)
