"""A client of the API server: server-side apply with strict validation, read, list, delete."""

import json
import ssl
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from gpucluster.errors import GpuclusterError

TIMEOUT_S = 60.0
AGAIN = 10  # times that client-go asks again when the server says how many seconds later (rest/with_retry.go)
MANAGER = "kubectl"  # the name that kubectl gives itself, so that either continues what the other applied

Manifest = Mapping[str, Any]


class RefusedError(GpuclusterError):
    """The API server, an admission policy or a webhook refused a request."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f"{what}: {status}: {message}")
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class _Resource:
    plural: str
    namespaced: bool


class Client:
    """One connection to the API server at 127.0.0.1:`port`, as the user of a client certificate."""

    def __init__(self, port: int, authority: Path, certificate: Path, key: Path) -> None:
        context = ssl.create_default_context(cafile=str(authority))
        context.load_cert_chain(certificate, key)
        self._connection = HTTPSConnection("127.0.0.1", port, context=context, timeout=TIMEOUT_S)
        self._resources: dict[tuple[str, str], _Resource] = {}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def apply(self, manifest: Manifest) -> dict[str, Any]:
        """Apply as `kubectl apply --server-side --validate=strict` does, and return the object."""
        query = urlencode({"fieldManager": MANAGER, "fieldValidation": "Strict"})
        return self._call("PATCH", f"{self._path_of(manifest)}?{query}", manifest, _APPLY)

    def patch_status(self, manifest: Manifest) -> dict[str, Any]:
        """Apply the status of an object."""
        query = urlencode({"fieldManager": MANAGER, "force": "true"})
        return self._call("PATCH", f"{self._path_of(manifest)}/status?{query}", manifest, _APPLY)

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        """Return an object; None if there is none."""
        return self.read({"apiVersion": api_version, "kind": kind, "metadata": _names(name, namespace)})

    def read(self, manifest: Manifest) -> dict[str, Any] | None:
        """Return the object that a manifest names; None if there is none."""
        try:
            return self._call("GET", self._path_of(manifest))
        except RefusedError as refused:
            if refused.status == 404:
                return None
            raise

    def list(self, api_version: str, kind: str, namespace: str = "", **query: str) -> list[dict[str, Any]]:
        """Return the objects of a kind, in one namespace or in all."""
        path = self._folder(api_version, kind, namespace)
        return self._call("GET", f"{path}?{urlencode(query)}").get("items") or []

    def delete(self, api_version: str, kind: str, name: str, namespace: str = "") -> None:
        """Delete an object, and at the end what it owns."""
        path = f"{self._folder(api_version, kind, namespace)}/{name}?propagationPolicy=Background"
        try:
            self._call("DELETE", path)
        except RefusedError as refused:
            if refused.status != 404:
                raise

    def token(self, account: str, namespace: str) -> str:
        """Return a token of a service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        made = self._call("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})
        return made["status"]["token"]

    def version(self) -> str:
        """Return the version that the server says it has."""
        return self._call("GET", "/version")["gitVersion"]

    def ready(self) -> bool:
        """Say whether the server answers `ok` at /readyz."""
        try:
            self._call("GET", "/readyz", raw=True)
        except (OSError, RefusedError):
            return False
        return True

    def _path_of(self, manifest: Manifest) -> str:
        metadata = manifest["metadata"]
        folder = self._folder(manifest["apiVersion"], manifest["kind"], metadata.get("namespace", ""))
        return f"{folder}/{metadata['name']}"

    def _folder(self, api_version: str, kind: str, namespace: str) -> str:
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        if (api_version, kind) not in self._resources:
            found = self._call("GET", root)["resources"]
            self._resources |= {(api_version, name): known for name, known in _resources(found)}
        known = self._resources.get((api_version, kind))
        if known is None:
            raise RefusedError(f"{api_version} {kind}", 404, "the server has no such kind")
        inside = f"/namespaces/{namespace}" if known.namespaced and namespace else ""
        return f"{root}{inside}/{known.plural}"

    def _call(
        self, method: str, path: str, body: Manifest | None = None, kind: str = "", *, raw: bool = False
    ) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        status, text = self._sent(method, path, data, kind or "application/json")
        if status >= 300:
            raise RefusedError(f"{method} {path.partition('?')[0]}", status, _message(text))
        return {} if raw else json.loads(text)

    def _sent(self, method: str, path: str, data: bytes | None, kind: str) -> tuple[int, bytes]:
        """Send a request, also again while the server says when to ask again, as it does when the storage of a kind changes."""
        status, text, later = self._connected(method, path, data, kind)
        for _ in range(AGAIN):
            if later is None:
                break
            threading.Event().wait(later)
            status, text, later = self._connected(method, path, data, kind)
        return status, text

    def _connected(
        self, method: str, path: str, data: bytes | None, kind: str
    ) -> tuple[int, bytes, float | None]:
        """Send a request. The server may have closed an idle connection: then it goes over a new one, if it may run twice (RFC 9110, 9.2.2)."""
        reused = self._connection.sock is not None
        try:
            return self._exchanged(method, path, data, kind)
        except (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            if not reused or method == "POST":
                raise
        return self._exchanged(method, path, data, kind)

    def _exchanged(
        self, method: str, path: str, data: bytes | None, kind: str
    ) -> tuple[int, bytes, float | None]:
        """Return status, text, and after how many seconds the server takes the request."""
        try:
            self._connection.request(method, path, data, {"Content-Type": kind})
            answer = self._connection.getresponse()
            return answer.status, answer.read(), _later(answer.status, answer.getheader("Retry-After"))
        except (OSError, HTTPException):
            self._connection.close()  # the next call connects again
            raise


_APPLY = "application/apply-patch+yaml"  # JSON is YAML


def _names(name: str, namespace: str) -> dict[str, str]:
    return {"name": name, "namespace": namespace} if namespace else {"name": name}


def _resources(found: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, _Resource]]:
    for one in found:
        if "/" not in one["name"]:  # else a subresource, such as pods/status
            yield one["kind"], _Resource(one["name"], one["namespaced"])


def _later(status: int, after: str | None) -> float | None:
    refused = status == 429 or status >= 500
    return float(after) if refused and after is not None and after.isdecimal() else None


def _message(text: bytes) -> str:
    try:
        return json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace").strip()
