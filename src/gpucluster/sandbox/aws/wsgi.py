"""WSGI for the front end: read a request, call moto in memory, drop a connection."""

import importlib
import io
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from gpucluster.sandbox.aws.moto_state import Moto
from gpucluster.sandbox.aws.protocols import Answer
from gpucluster.sandbox.aws.signature import SignedRequest

_BODY_LIMIT = 256 * 1024 * 1024
Environ = dict[str, Any]
Start = Callable[..., Any]


class MotoError(Exception):
    """moto failed on a valid request; the message is one line."""


class Forward:
    """moto's application, called for one request at a time."""

    def __init__(self, moto: Moto) -> None:
        self._moto = moto
        server: Any = importlib.import_module(
            "moto.moto_server.werkzeug_app"
        )  # takes seconds and has no types
        self._backend: Any = server.DomainDispatcherApplication(server.create_backend_app)

    def __call__(self, environ: Environ, body: bytes) -> Answer:
        """Return moto's answer to the request of `environ` with `body`."""
        inner: Environ = {**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        inner["wsgi.input_terminated"] = True
        inner["HTTP_HOST"] = (
            "127.0.0.1"  # otherwise moto could read another bucket from this header than the one that was checked
        )
        inner.pop("HTTP_TRANSFER_ENCODING", None)
        got: list[tuple[str, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]], *_: object) -> None:
            got.append((status, headers))

        with self._moto.lock:
            try:
                text = b"".join(self._backend(inner, start))
            except NotImplementedError:
                raise
            except Exception as error:
                raise MotoError(f"{type(error).__name__}: {error}"[:200]) from error
        status, headers = got[0]
        kept = {k: v for k, v in headers if k.lower() not in ("content-type", "date", "server", "connection")}
        kind = next((v for k, v in headers if k.lower() == "content-type"), "application/octet-stream")
        return Answer(status=int(status.split()[0]), body=text, content_type=kind, headers=kept)


def read(environ: Environ) -> SignedRequest:
    """The request as received."""
    headers = {
        name[5:].replace("_", "-").lower(): str(value)
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    headers |= {
        name.lower().replace("_", "-"): str(environ[name])
        for name in ("CONTENT_TYPE", "CONTENT_LENGTH")
        if environ.get(name)
    }
    return SignedRequest(
        method=str(environ["REQUEST_METHOD"]),
        target=str(environ.get("REQUEST_URI") or environ["PATH_INFO"]),
        headers=headers,
        body=_body(environ),
    )


def _body(environ: Environ) -> bytes:
    stream = environ["wsgi.input"]
    if environ.get("wsgi.input_terminated"):
        return cast(bytes, stream.read(_BODY_LIMIT))
    return cast(bytes, stream.read(min(int(environ.get("CONTENT_LENGTH") or 0), _BODY_LIMIT)))


def drop(environ: Environ) -> None:
    """Close the connection without an answer: the client cannot know what was done."""
    connection = environ.get("werkzeug.socket")
    if isinstance(connection, socket.socket):
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError("the reply was lost, as the scenario asked")


def reason(status: int) -> str:
    """The reason phrase of a status line; no client reads it."""
    return {
        200: "OK",
        204: "No Content",
        404: "Not Found",
        403: "Forbidden",
        500: "Internal Server Error",
    }.get(status, "Status")
