"""Clusters and jobs of Ray: what KubeRay's definitions and its validation refuse, and what it adds to pods.

Source: helm-chart/kuberay-operator/crds and ray-operator/controllers/ray/{utils/validation.go,common/pod.go} of
ray-project/kuberay."""

from collections.abc import Iterator
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods
from gpucluster.k8s.lint.tree import Path, at, below, items, mapping

GROUP = "ray.io"
_JOB = "RayJob"
_LONGEST = {"RayCluster": 53, "RayService": 47, _JOB: 47}  # KubeRay adds suffixes for its pods and services
_PARAMETERS = "rayStartParams"


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        if thing.group == GROUP:
            yield from _name(thing)
            yield from _texts(thing, thing.body.get("spec"), ("spec",))
            yield from _end(thing) if thing.kind == _JOB else ()


def parameters(pods: Pods) -> tuple[Path, Any]:
    """Return the parameters of `ray start` for a group of pods, and their place."""
    where = (*pods.path[:-1], _PARAMETERS)
    return where, below(pods.owner.body, where)


def has_shared_memory(pods: Pods, container: Path) -> bool:
    """Return whether KubeRay mounts a memory volume at /dev/shm, of the size of the container's memory."""
    is_ray = pods.owner.group == GROUP and container == pods.where("spec", "containers", 0)
    return is_ray and at(parameters(pods)[1], "plasma-directory") is None


def _name(thing: Obj) -> Iterator[Finding]:
    longest = _LONGEST.get(thing.kind, len(thing.name))
    if len(thing.name) > longest:
        words = f"{len(thing.name)} characters: KubeRay takes {longest} at most"
        yield thing.found("name", words, ("metadata", "name"))


def _texts(thing: Obj, value: Any, path: Path) -> Iterator[Finding]:
    """Each parameter of `ray start` is text: `num-gpus: "8"`."""
    for key, inner in (*mapping(value).items(), *enumerate(items(value))):
        if key == _PARAMETERS:
            for name, written in mapping(inner).items():
                if not isinstance(written, str) and written is not None:
                    words = f"expected text: write it in quotes, found {type(written).__name__}"
                    yield thing.found("schema", words, (*path, _PARAMETERS, name))
        elif key != "template":
            yield from _texts(thing, inner, (*path, key))


def _end(thing: Obj) -> Iterator[Finding]:
    spec = mapping(thing.body.get("spec"))
    ends = spec.get("shutdownAfterJobFinishes") is True
    after = spec.get("ttlSecondsAfterFinished")
    if type(after) is int and after > 0 and not ends:
        words = "without shutdownAfterJobFinishes: true the cluster stays, and KubeRay from 1.4 on refuses the job"
        yield thing.warned("one-of", words, ("spec", "ttlSecondsAfterFinished"))
    if spec.get("suspend") is True and not ends:
        words = "KubeRay suspends a job only with shutdownAfterJobFinishes: true"
        yield thing.found("one-of", words, ("spec", "suspend"))
    if not mapping(spec.get("rayClusterSpec")) and not mapping(spec.get("clusterSelector")):
        yield thing.found("one-of", "one of `rayClusterSpec` and `clusterSelector` is required", ("spec",))
