"""Kustomize's list of what a folder has."""

from collections.abc import Iterable

from gpucluster.k8s.manifest import dump

FILE = "kustomization.yaml"
_HEAD = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}


def kustomization(resources: Iterable[str], **more: object) -> str:
    """Return the text of FILE with these resources and fields."""
    return dump([{**_HEAD, "resources": list(resources), **more}])
