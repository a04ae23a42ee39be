"""The real effects on loopback: metadata service, controller, S3, Secrets Manager, Prolog socket."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.waiting import BOUND_S

from gpucluster.agent import effects
from gpucluster.agent.boot.imds import Metadata
from gpucluster.agent.machine import NotYetError, StoredObject
from gpucluster.agent.monitors.prolog_socket import PrologSocket
from gpucluster.agent.services import AwsServices

PROLOG = Path(effects.__file__).parent / "units/opt/gpucluster/bin/prolog"
Answer = tuple[int, dict[str, str], bytes]


class Server:
    """A server with a queue of answers, of which the last repeats. It records the requests."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.asked = list(answers), []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.asked.append((self.command, self.path, dict(self.headers), body))
                status, headers, answer = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 304:
                    self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_PUT = do_POST = do_any  # noqa: N815

            def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.port = self.http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def serve(socket_enabled) -> Iterator[object]:
    servers: list[Server] = []

    def start(*answers: Answer) -> Server:
        servers.append(Server(*answers))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def said(text: str, status: int = 200, **headers: str) -> Answer:
    return status, headers, text.encode()


def test_metadata_token_is_requested_once_and_sent_each_time(serve):
    server = serve(said("T1"), said("i-1"), said("10.0.0.1\n"))
    ask = Metadata(server.url)
    assert (ask("meta-data/instance-id"), ask("meta-data/local-ipv4")) == ("i-1", "10.0.0.1")
    assert [(m, p) for m, p, _, _ in server.asked] == [
        ("PUT", "/latest/api/token"),
        ("GET", "/latest/meta-data/instance-id"),
        ("GET", "/latest/meta-data/local-ipv4"),
    ]
    assert server.asked[0][2]["X-aws-ec2-metadata-token-ttl-seconds"] == "21600"
    assert {a[2].get("X-aws-ec2-metadata-token") for a in server.asked[1:]} == {"T1"}


def test_expired_token_is_renewed(serve):
    server = serve(said("T1"), said("", 401), said("T2"), said("i-1"))
    assert Metadata(server.url)("meta-data/instance-id") == "i-1"
    assert server.asked[-1][2]["X-aws-ec2-metadata-token"] == "T2"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (said("", 404), "answered 404 for meta-data/x"),
        (said("", 403), "answered 403 for meta-data/x"),
    ],
)
def test_refused_metadata_request_is_not_yet(serve, answer, reason):
    with pytest.raises(NotYetError, match=reason):
        Metadata(serve(answer).url)("meta-data/x")


def test_unreachable_metadata_service_is_not_yet(serve):
    server = serve(said(""))
    server.close()
    with pytest.raises(NotYetError, match="does not answer"):
        Metadata(server.url)("meta-data/x")


def test_post_returns_status_and_body_without_a_proxy(serve, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server = serve(said('{"node": 1}', 503))
    reply = effects.post("127.0.0.1", server.port, "/v1/node", b"MUNGE:x")
    assert (reply.status, reply.body) == (503, b'{"node": 1}')
    assert server.asked[0][:2] == ("POST", "/v1/node")
    assert server.asked[0][3] == b"MUNGE:x"


def test_closed_port_is_an_os_error_and_not_listening(serve):
    server = serve(said(""))
    assert effects.listening("127.0.0.1", server.port)
    server.close()
    assert not effects.listening("127.0.0.1", server.port)
    with pytest.raises(OSError, match="refused"):
        effects.post("127.0.0.1", server.port, "/", b"")


@pytest.fixture
def store(serve, monkeypatch):
    for name, value in (("AWS_ACCESS_KEY_ID", "AKIAX"), ("AWS_SECRET_ACCESS_KEY", "s")):
        monkeypatch.setenv(name, value)

    def at(*answers: Answer) -> tuple[AwsServices, Server]:
        server = serve(*answers)
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        return AwsServices("us-east-1"), server

    return at


def s3_error(code: str, status: int) -> Answer:
    return said(f"<Error><Code>{code}</Code><Message>no</Message></Error>", status)


def secret_error(code: str, status: int = 400) -> Answer:
    return said(f'{{"__type": "{code}", "Message": "no"}}', status)


def test_object_has_an_etag_and_is_not_sent_twice(store):
    role, server = store(said("body", ETag='"e1"'), (304, {}, b""))
    assert role.get_object("bkt", "k", if_none_match=None) == StoredObject(b"body", '"e1"')
    assert role.get_object("bkt", "k", if_none_match='"e1"') is None
    assert [a[2].get("If-None-Match") for a in server.asked] == [None, '"e1"']
    assert server.asked[0][1] == "/bkt/k"


@pytest.mark.parametrize(
    ("answer", "reason", "limit"),
    [
        (s3_error("NoSuchKey", 404), "s3://bkt/k: .*NoSuchKey", None),
        (s3_error("SlowDown", 503), "s3://bkt/k: .*SlowDown", None),
        (s3_error("AccessDenied", 403), "s3://bkt/k: .*AccessDenied", 180.0),
        (said("gibberish", 500), "s3://bkt/k: ", None),
    ],
)
def test_unavailable_object_is_not_yet(store, answer, reason, limit):
    role, _ = store(answer)
    with pytest.raises(NotYetError, match=reason) as caught:
        role.get_object("bkt", "k", if_none_match=None)
    assert caught.value.limit_s == limit


def test_secret_without_value_is_none_and_with_value_is_bytes(store):
    role, _ = store(secret_error("ResourceNotFoundException"), said('{"SecretBinary": "S0VZ"}'))
    assert (role.get_secret("arn"), role.get_secret("arn")) == (None, b"KEY")


def test_put_secret_with_a_used_token_is_no_error(store):
    role, server = store(secret_error("ResourceExistsException"))
    role.put_secret("arn", b"KEY", token="t" * 32)
    assert b'"ClientRequestToken": "' + b"t" * 32 in server.asked[0][3]


def test_unreachable_api_is_not_yet(store):
    role, server = store(said(""))
    server.close()
    with pytest.raises(NotYetError, match="Could not connect"):
        role.get_object("bkt", "k", if_none_match=None)


def ring(path: Path, hostlist: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "SLURM_JOB_NODELIST": hostlist, "GPUCLUSTER_PROLOG_SOCKET": str(path)}
    return subprocess.Popen([sys.executable, "-IS", str(PROLOG)], env=env)


def test_prolog_waits_for_its_reply(tmp_path, socket_enabled):
    with PrologSocket(tmp_path / "run/prolog_socket") as prolog_socket:
        assert (tmp_path / "run/prolog_socket").stat().st_mode & 0o777 == 0o600
        caller = ring(tmp_path / "run/prolog_socket", "h200-1a-[1-2]")
        received = prolog_socket.wait(BOUND_S)
        assert received is not None
        assert received.hostlist == "h200-1a-[1-2]"
        assert caller.poll() is None, "it waits"
        prolog_socket.reply(received, "ok")
        assert caller.wait(BOUND_S) == 0
        prolog_socket.reply(received, "ok")  # to one that is gone
        assert prolog_socket.wait(0) is None


def test_prolog_succeeds_without_an_agent(tmp_path):
    assert ring(tmp_path / "nobody", "n1").wait(BOUND_S) == 0


def test_socket_file_of_a_killed_agent_is_replaced(tmp_path, socket_enabled):
    first = PrologSocket(tmp_path / "prolog_socket")
    with PrologSocket(tmp_path / "prolog_socket") as second:
        caller = ring(tmp_path / "prolog_socket", "n1")
        received = second.wait(BOUND_S)
        assert received is not None
        second.reply(received, "ok")
        assert caller.wait(BOUND_S) == 0
    first.close()
