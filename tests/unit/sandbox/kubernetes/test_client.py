"""The client of the rehearsal's API server, over a server that closes idle connections."""

import socket
import ssl
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from gpucluster.sandbox.kubernetes.client import Client, RefusedError

pytestmark = pytest.mark.loopback
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\n{"gitVersion": "v1.36.2"}\n'


class Server:
    """It answers one request on each connection, and closes it when the next one comes."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.requests = list[bytes]()
        self.first = list[bytes]()  # answers before the usual one
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            link, _ = self.listener.accept()
            with link:
                first = link.recv(4096)
                if not first:  # of `end`
                    return
                self.requests.append(first)
                link.sendall(self.first.pop() if self.first else ANSWER)
                self.requests.append(link.recv(4096))

    def end(self) -> None:
        socket.create_connection(self.listener.getsockname()).close()
        self.thread.join()
        self.listener.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """Without TLS."""
    made = Client.__new__(Client)
    made._connection = HTTPConnection(*server.listener.getsockname())  # pyright: ignore[reportAttributeAccessIssue]
    made._resources = {}
    yield made
    made.close()


def test_closed_idle_connection_is_opened_again(server: Server, client: Client) -> None:
    """Regression: `RemoteDisconnected` after minutes without a request."""
    assert [client.version() for _ in range(2)] == ["v1.36.2", "v1.36.2"]
    assert len([one for one in server.requests if one.startswith(b"GET /version")]) == 3


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
def test_server_that_says_when_to_ask_again_is_asked_again(
    server: Server, client: Client, status: str
) -> None:
    """Regression: `storage is (re)initializing`, while the definition of a kind changes."""
    server.first += [f"HTTP/1.1 {status}\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{{}}".encode()]
    assert client.version() == "v1.36.2"


def test_refusal_without_a_time_is_one(server: Server, client: Client) -> None:
    server.first += [b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}"]
    with pytest.raises(RefusedError) as found:
        client.version()
    assert found.value.status == 429


@pytest.mark.parametrize("error", [ssl.SSLEOFError, ssl.SSLZeroReturnError])
def test_tls_connection_that_the_server_closed_is_opened_again(
    server: Server, client: Client, error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: TLS has errors of its own for a connection that the server closes while a request is sent."""
    client.version()
    send, refused = client._connection.request, [error]

    def request(*words: Any) -> None:
        if refused:
            raise refused.pop()
        send(*words)

    monkeypatch.setattr(client._connection, "request", request)
    assert client.version() == "v1.36.2"


def test_request_that_must_not_run_twice_is_not_sent_again(server: Server, client: Client) -> None:
    client.version()
    with pytest.raises(ConnectionError):
        client.token("default", "default")
    assert len([one for one in server.requests if one.startswith(b"POST ")]) == 1
