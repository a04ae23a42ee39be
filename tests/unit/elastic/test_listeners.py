"""The thread that polls the queue continues after an error; the servers wait for no DNS."""

import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest
from support.waiting import BOUND_S

from gpucluster.cloud.port import QueueNotice
from gpucluster.elastic import listeners
from gpucluster.plan.messages import Notice, NoticeKind

EVENT = QueueNotice(instance="i-1", notice=Notice(kind=NoticeKind.SPOT), handle="h")


class Queue:
    """Raises an unexpected error, then returns one message."""

    def __init__(self, ended: threading.Event) -> None:
        self.answers: list[Exception | tuple[QueueNotice, ...]] = [RuntimeError("no such thing"), (EVENT,)]
        self.ended = ended

    def receive(self, wait_s: float) -> tuple[QueueNotice, ...]:
        if not self.answers:
            self.ended.set()
            return ()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def forget(self, handles: Sequence[str]) -> None:
        """Not called here."""


def test_unexpected_error_is_noted_and_next_message_is_received(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "QUEUE_PAUSE_S", 0.01)
    ended = threading.Event()
    received: list[QueueNotice] = []
    notes: list[str] = []
    listeners.listen_to_queue(Queue(ended), ended, receive=received.extend, note=notes.append)
    assert ended.wait(BOUND_S)
    assert received == [EVENT]
    assert notes[:3] == ["no such thing", "", ""]


LOOK_UPS = """
import sys
from http.server import BaseHTTPRequestHandler
asked = []
sys.addaudithook(lambda event, _: asked.append(event) if event in ("socket.gethostbyaddr", "socket.gethostbyname") else None)
from gpucluster.elastic import status_endpoint, registration
from gpucluster.elastic.status_endpoint import StatusSnapshot
server = status_endpoint.serve(0, bytes, StatusSnapshot)
service = registration.RegistrationService(registration.unmunge, receive=print, observe=print)
other = registration.serve("127.0.0.1", 0, service)
for one in (server, other):
    one.shutdown()
    one.server_close()
print(asked)
"""


def test_servers_of_the_daemon_look_up_no_name() -> None:
    """http.server asks DNS for the name of its address, in the thread that owns the state: half a minute without DNS."""
    done = subprocess.run([sys.executable, "-c", LOOK_UPS], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
