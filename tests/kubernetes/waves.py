"""Apply rendered manifests wave by wave, and compare what the server has before and after a second time."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from real_kubernetes import Kubernetes, Manifest
from support.kube import objects

from gpucluster.k8s.waves import WAVES


def by_wave(texts: Mapping[str, str]) -> Iterator[list[Manifest]]:
    """The manifests of each wave of a tree, in the order in which its README says to apply them."""
    for wave in WAVES:
        inside = {path: text for path, text in texts.items() if path.startswith(f"{wave.folder}/")}
        yield list(objects(inside).values())


def apply(kubernetes: Kubernetes, texts: Mapping[str, str]) -> None:
    """Apply a tree by the API, with strict validation."""
    for wave in by_wave(texts):
        for one in wave:
            kubernetes.client.apply(one)


def kubectl_apply(kubernetes: Kubernetes, folder: Path) -> None:
    """Apply a tree in `folder` by the command of its README."""
    for wave in WAVES:
        if (folder / wave.folder).is_dir():
            where = str(folder / wave.folder)
            kubernetes.kubectl("apply", "--server-side", "--validate=strict", "-k", where)


def written(texts: Mapping[str, str], folder: Path) -> Path:
    """Write a tree below `folder`."""
    for path, text in texts.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def remove(kubernetes: Kubernetes, texts: Mapping[str, str]) -> None:
    """Delete a tree, the last wave first, and wait until nothing of it is left: another tree may have the same names."""
    every = [one for wave in by_wave(texts) for one in wave]
    for one in reversed(every):
        names = one["metadata"]
        kubernetes.client.delete(one["apiVersion"], one["kind"], names["name"], names.get("namespace", ""))
    for one in every:
        kubernetes.wait(
            lambda one=one: kubernetes.client.read(one) is None, f"the end of {one['metadata']['name']}"
        )


def standing(kubernetes: Kubernetes, texts: Mapping[str, str]) -> dict[str, Any]:
    """The fields that the manifests set, as the server has them now, with the identity of each object."""
    found: dict[str, Any] = {}
    for key, one in objects(dict(texts)).items():
        there = kubernetes.client.read(one)
        assert there is not None, f"{key} is not there"
        found[key] = (there["metadata"]["uid"], _part(there, one))
    return found


def assert_idle(kubernetes: Kubernetes, texts: Mapping[str, str]) -> None:
    """Another apply writes nothing: the version of each object stays, unless a controller writes it between read and apply."""
    for key, one in objects(dict(texts)).items():

        def stays(one: Manifest = one) -> bool:
            there = kubernetes.client.read(one)
            assert there is not None
            again = kubernetes.client.apply(one)
            return again["metadata"]["resourceVersion"] == there["metadata"]["resourceVersion"]

        kubernetes.wait(stays, f"an apply that leaves {key} alone")


def _part(there: Any, applied: Any) -> Any:
    """The part of an object that a manifest sets; the server leaves out false and empty values."""
    if isinstance(applied, dict) and isinstance(there, dict):
        return {key: _part(there.get(key), value) for key, value in applied.items()}
    if isinstance(applied, list) and isinstance(there, list) and len(there) == len(applied):
        return [_part(*pair) for pair in zip(there, applied, strict=True)]
    return there
