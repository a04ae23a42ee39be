"""Probes that end a server before its model is loaded."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.gangs import GPU
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import asked, pods_of
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text

_LEAST = 120  # seconds; a model of some GB takes longer from an empty cache


_SERVERS = (  # the program, the option of its port, and the port without it
    (re.compile(r"\bvllm serve\b|\bvllm\.entrypoints\.openai\.api_server\b", re.ASCII), 8000),
    (re.compile(r"\bsglang\.launch_server\b", re.ASCII), 30000),
)
_PORT = re.compile(r"--port[= ](\S+)", re.ASCII)
_IMAGE = "vllm/vllm-openai"  # its entry point is the server of vLLM
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        for pods in pods_of(thing):
            for path, container in pods.containers():
                yield from _elsewhere(thing, path, container)
                name = "startupProbe" if container.get("startupProbe") else "livenessProbe"
                probe = mapping(container.get(name))
                budget = _budget(probe)
                if probe and asked(container).get(GPU) and budget < _LEAST:
                    mend = "add a startupProbe" if name == "livenessProbe" else "raise its failureThreshold"
                    words = f"ends the container after {budget} s, and a model can load longer: {mend}"
                    yield thing.warned("slow-start", words, (*path, name))


def _elsewhere(thing: Obj, path: Path, container: Mapping[str, Any]) -> Iterator[Finding]:
    """A server of a model answers its health at its one port. A pod with a probe at another port never gets ready."""
    written = " ".join(text(word) for part in ("command", "args") for word in items(container.get(part)))
    usual = next((port for sign, port in _SERVERS if sign.search(written)), None)
    if usual is None and not container.get("command") and text(container.get("image")).startswith(f"{_IMAGE}:"):  # fmt: skip
        usual = _SERVERS[0][1]
    said = _PORT.findall(written)
    if usual is None or any(not one.isdecimal() for one in said):
        return
    port = int(said[-1]) if said else usual
    names = {text(at(one, "name")): at(one, "containerPort") for _, one in entries(container, "ports")}
    for probe in _PROBES:
        for way in ("httpGet", "tcpSocket"):
            asked_for = at(container, probe, way, "port")
            number = names.get(text(asked_for)) if isinstance(asked_for, str) else asked_for
            if type(number) is int and number != port:
                words = f"the server listens at port {port}, and the probe asks {number}: it never answers"
                yield thing.warned("port", words, (*path, probe, way, "port"))


def _budget(probe: Mapping[str, Any]) -> int:
    """Return the seconds from the start to the end of a container that does not answer, with the API server's defaults."""
    delay, period, failures = (
        value if type(value := probe.get(field)) is int else otherwise
        for field, otherwise in (("initialDelaySeconds", 0), ("periodSeconds", 10), ("failureThreshold", 3))
    )
    return delay + period * failures
