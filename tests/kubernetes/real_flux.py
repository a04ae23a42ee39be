"""Flux's own kustomize-controller, built from its module (tools/flux). Flux's other controllers are not here.

The test gives it the repository's files as source-controller does: a GitRepository whose status names an archive on the loopback.
Charts are not installed: the test sets the status of a HelmRelease as helm-controller does.
"""

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gpucluster.engine.go import Go, Progress
from gpucluster.k8s.flux import NAMESPACE, SOURCE
from gpucluster.sandbox.kubernetes import programs
from gpucluster.sandbox.kubernetes.control_plane import HOST, ControlPlane

Manifest = dict[str, Any]
PACKAGE = "github.com/fluxcd/kustomize-controller"
NAME = "kustomize-controller"
# what a HelmRelease and a source have before a controller reads them (kubebuilder:default of their status):
# without it they count as ready at once
UNSEEN = {"observedGeneration": -1}


def find_or_build(progress: Progress) -> Path:
    """Return the program."""
    flags = ("-buildvcs=false", "-ldflags=-s -w")
    module = programs.module_of("flux", "Flux's kustomize-controller", programs.source_of("flux"), flags)

    def work(go: Go, folder: Path) -> None:
        progress("building Flux's kustomize-controller: about seven minutes of CPU the first time")
        go.build(folder / NAME, [PACKAGE])

    return module.find_or_build(work, progress) / NAME


def start(plane: ControlPlane, program: Path) -> None:
    """Start it for all namespaces, and return when it is ready."""
    plane.client.apply(_bucket())
    plane.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    ports = plane.processes.ports()
    metrics, health = next(ports), next(ports)
    argv = ["env", f"KUBECONFIG={plane.kubeconfig}", f"RUNTIME_NAMESPACE={NAMESPACE}", str(program)]
    argv += [
        f"--metrics-addr={HOST}:{metrics}",
        f"--health-addr={HOST}:{health}",
        "--watch-all-namespaces=true",
    ]
    argv += ["--requeue-dependency=1s", "--log-level=debug"]
    plane.processes.start(NAME, argv)
    plane.processes.await_ready(NAME, f"http://{HOST}:{health}/readyz")


@contextmanager
def repository(plane: ControlPlane, files: Mapping[str, str]) -> Iterator[None]:
    """The GitRepository `flux-system` with these files, until the end."""
    packed = _archive(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(packed)))
            self.end_headers()
            self.wfile.write(packed)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        plane.client.apply(_source())
        digest = hashlib.sha256(packed).hexdigest()
        artifact = {
            "url": f"http://{HOST}:{server.server_address[1]}/{digest}.tar.gz",
            "path": f"gitrepository/{NAMESPACE}/{SOURCE}/{digest}.tar.gz",
            "revision": f"main@sha1:{hashlib.sha1(packed).hexdigest()}",  # noqa: S324  a name as git has it
            "digest": f"sha256:{digest}",
            "lastUpdateTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "size": len(packed),
        }
        plane.client.patch_status({**_source(), "status": {"artifact": artifact, "conditions": [ready()]}})
        try:
            yield
        finally:
            server.shutdown()


def ready() -> Manifest:
    """The condition of a source or a HelmRelease that its controller has brought to its end."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "Ready",
        "status": "True",
        "reason": "Succeeded",
        "message": "set by the test",
        "lastTransitionTime": now,
    }


def with_unseen(definition: Manifest) -> Manifest:
    """Return the definition of a kind of Flux with the status that the real one gives to a new object."""
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    status = {**schema["properties"]["status"], "default": UNSEEN}
    changed = {**schema, "properties": {**schema["properties"], "status": status}}
    spec = {**definition["spec"], "versions": [{**version, "schema": {"openAPIV3Schema": changed}}]}
    return {**definition, "spec": spec}


def _bucket() -> Manifest:
    """A definition of the kind that kustomize-controller also watches, and that the catalog does not have."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "buckets.source.toolkit.fluxcd.io"},
        "spec": {
            "group": "source.toolkit.fluxcd.io",
            "scope": "Namespaced",
            "names": {"kind": "Bucket", "plural": "buckets", "singular": "bucket", "listKind": "BucketList"},
            "versions": [version],
        },
    }


def _source() -> Manifest:
    return {
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "GitRepository",
        "metadata": {"name": SOURCE, "namespace": NAMESPACE},
        "spec": {"interval": "10m", "url": "https://git.example.org/clusters"},
    }


def _archive(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
