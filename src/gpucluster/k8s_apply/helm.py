"""helm for one context: releases, their values, and the commands that change them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from gpucluster.errors import StateError
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s.releases import Release, definitions, divided, has_definitions, install
from gpucluster.k8s_apply import program
from gpucluster.plan import names
from gpucluster.text import short

CALL_S = 120.0
GRACE_S = 60.0  # helm ends by its own limit before ours
_ALL = ("--max", "0")  # a list without it ends after 256 releases
_GO_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? ([+-]\d{4})\b")
_INSTALL = "install it (helm.sh), or use --no-charts"
_VERSION = re.compile(r"v(\d{1,4})\.(\d{1,4})\.", re.ASCII)
_OLDEST = (3, 13)  # `helm upgrade --labels` (helm/helm, pull request 10533)
_EVERY_STATE = ("--deployed", "--failed", "--pending", "--superseded", "--uninstalling")


@dataclass(frozen=True, slots=True)
class Installed:
    """A release in the cluster."""

    name: str
    namespace: str
    chart: str  # NAME-VERSION
    status: str
    revision: int
    ours: bool  # has the label of this cluster
    changed: datetime | None  # when its last operation began; None: helm says nothing that we read

    @property
    def place(self) -> str:
        """Return the release for people."""
        return f"{self.name} in {self.namespace}"

    @property
    def pending(self) -> bool:
        """Return whether an operation has not ended: it runs, or its program was killed."""
        return self.status.startswith("pending-")


class Helm:
    """One context of the kubeconfig, for one cluster of ours."""

    def __init__(self, context: str, cluster: str) -> None:
        self.context, self.cluster = context, cluster

    def require_version(self) -> None:
        """StateError: this helm is too old, and would fail in the middle of the work."""
        said = self._call(("version", "--template", "{{.Version}}")).strip()
        found = _VERSION.match(said)
        if found is not None and (int(found[1]), int(found[2])) < _OLDEST:
            raise StateError(
                f"helm is {short(said, 40)}, and gpucluster needs 3.13 or newer, which labels a release: nothing was changed",
                next_step=_INSTALL,
            )

    def installed(self) -> dict[tuple[str, str], Installed]:
        """Return all releases by namespace and name."""
        ours = {
            (row["namespace"], row["name"]) for row in self._rows(f"{names.LABEL_CLUSTER}={self.cluster}")
        }
        found = (_installed(row, ours) for row in self._rows(""))
        return {(one.namespace, one.name): one for one in found}

    def values(self, release: Release) -> Mapping[str, Any]:
        """Return the values that the release was installed with, without the chart's own."""
        words = ("get", "values", release.name, "--namespace", release.namespace, "--output", "json")
        return program.parsed(self._call(words) or "null", "helm get")

    def manifests(self, release: Release) -> list[Manifest]:
        """Return the objects that helm made of the chart's templates, without its hooks."""
        text = self._call(("get", "manifest", release.name, "--namespace", release.namespace))
        found = (one for one in yaml.load_all(text, Loader=yaml.CSafeLoader) if one)
        return [part for one in found for part in (one["items"] if one["kind"] == "List" else [one])]

    def definitions(self, release: Release) -> str:
        """Return the definitions of the chart's folder `crds`, each as a document; an empty text without one."""
        return divided(self._call(tuple(definitions(release))[1:])) if has_definitions(release) else ""

    def upgrade(self, release: Release, folder: Path, timeout_s: float) -> None:
        """Install or upgrade it, and wait until its objects are ready."""
        words = tuple(install(release, self.cluster))[1:]
        self._call((*words, "--timeout", f"{timeout_s:g}s"), cwd=folder, timeout_s=timeout_s + GRACE_S)

    def rollback(self, release: Release | Installed, timeout_s: float) -> None:
        """Return to the revision before the last one."""
        words = ("rollback", release.name, "--namespace", release.namespace)
        self._call((*words, "--timeout", f"{timeout_s:g}s"), timeout_s=timeout_s + GRACE_S)

    def uninstall(self, release: Release | Installed, timeout_s: float) -> None:
        """Uninstall it, and wait until its objects are gone."""
        words = ("uninstall", release.name, "--namespace", release.namespace, "--wait")
        self._call((*words, "--timeout", f"{timeout_s:g}s"), timeout_s=timeout_s + GRACE_S)

    def _rows(self, selector: str) -> list[dict[str, Any]]:
        match = ("--selector", selector) if selector else ()
        words = ("list", "--all-namespaces", *_EVERY_STATE, *_ALL, *match, "--output", "json")
        return program.parsed(self._call(words) or "null", "helm list", list)

    def _call(self, words: Sequence[str], *, cwd: Path | None = None, timeout_s: float = CALL_S) -> str:
        argv = ("helm", "--kube-context", self.context, *words)
        done = program.run(argv, install=_INSTALL, limit_s=timeout_s, cwd=cwd)
        return program.output(done, f"helm {words[0]}")


def _installed(row: Mapping[str, Any], ours: set[tuple[str, str]]) -> Installed:
    name, namespace = row["name"], row["namespace"]
    return Installed(
        name=name,
        namespace=namespace,
        chart=row["chart"],
        status=row["status"],
        revision=int(row["revision"]),
        ours=(namespace, name) in ours,
        changed=_time(str(row.get("updated", ""))),
    )


def _time(text: str) -> datetime | None:
    """Read Go's form of a time: `2026-11-25 12:00:00.123456789 +0100 CET`."""
    found = _GO_TIME.match(text)
    return datetime.strptime(f"{found[1]} {found[2]}", "%Y-%m-%d %H:%M:%S %z") if found else None
