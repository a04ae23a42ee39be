"""The query whether the elastic daemon answers, with the real curl."""

import socket
import subprocess
import threading

import pytest

from gpucluster.checks import cloud
from gpucluster.checks.check import CheckStatus, QueryOutput

AFTER_S = 1.5  # a daemon that has just started does not listen yet
ANSWER = b"HTTP/1.1 501 Unsupported method\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def verdict_of(port: int) -> CheckStatus:
    want = cloud.Daemon(url=f"http://127.0.0.1:{port}/v1/node")
    (query,) = cloud.query_daemon(want)
    done = subprocess.run(query.argv, capture_output=True, text=True, check=False, timeout=query.limit_s)
    output = QueryOutput(code=done.returncode, stdout=done.stdout, stderr=done.stderr)
    return cloud.evaluate_daemon(cloud.parse_daemon((output,)), want).verdict


@pytest.mark.loopback
def test_daemon_that_starts_is_waited_for():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))

        def serve() -> None:
            server.listen()
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(ANSWER)

        start = threading.Timer(AFTER_S, serve)
        start.start()
        assert verdict_of(server.getsockname()[1]) is CheckStatus.PASS
        start.join()


@pytest.mark.loopback
def test_daemon_that_never_listens_does_not_answer(monkeypatch):
    monkeypatch.setattr(cloud, "STARTS_S", 1)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        assert verdict_of(server.getsockname()[1]) is CheckStatus.FAIL
