"""Probes that end a server before its model is loaded."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.gangs import GPU
from gpucluster.k8s.lint.manifest_set import ManifestSet
from gpucluster.k8s.lint.pods import asked, pods_of
from gpucluster.k8s.lint.tree import mapping

_LEAST = 120  # seconds; a model of some GB takes longer from an empty cache


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        for pods in pods_of(thing):
            for path, container in pods.containers():
                name = "startupProbe" if container.get("startupProbe") else "livenessProbe"
                probe = mapping(container.get(name))
                budget = _budget(probe)
                if probe and asked(container).get(GPU) and budget < _LEAST:
                    mend = "add a startupProbe" if name == "livenessProbe" else "raise its failureThreshold"
                    words = f"ends the container after {budget} s, and a model can load longer: {mend}"
                    yield thing.warned("slow-start", words, (*path, name))


def _budget(probe: Mapping[str, Any]) -> int:
    """Return the seconds from the start to the end of a container that does not answer, with the API server's defaults."""
    delay, period, failures = (
        value if type(value := probe.get(field)) is int else otherwise
        for field, otherwise in (("initialDelaySeconds", 0), ("periodSeconds", 10), ("failureThreshold", 3))
    )
    return delay + period * failures
