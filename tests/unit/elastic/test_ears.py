"""The thread that hears the queue outlives whatever goes wrong there."""

import threading
from collections.abc import Sequence

import pytest

from gpucluster.cloud.port import Told
from gpucluster.elastic import ears
from gpucluster.plan.messages import Notice, NoticeKind

NEWS = Told(instance="i-1", notice=Notice(kind=NoticeKind.SPOT), handle="h")


class Queue:
    """Fails in a way that nobody foresaw, then has one message."""

    def __init__(self, ended: threading.Event) -> None:
        self.answers: list[Exception | tuple[Told, ...]] = [RuntimeError("no such thing"), (NEWS,)]
        self.ended = ended

    def receive(self, wait_s: float) -> tuple[Told, ...]:
        if not self.answers:
            self.ended.set()
            return ()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def forget(self, handles: Sequence[str]) -> None:
        """Nobody asks here."""


def test_an_unforeseen_error_is_told_and_the_next_message_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ears, "QUEUE_PAUSE_S", 0.01)
    ended = threading.Event()
    heard: list[Told] = []
    complaints: list[str] = []
    ears.listen_to_queue(Queue(ended), ended, told=heard.extend, complain=complaints.append)
    assert ended.wait(5)
    assert heard == [NEWS]
    assert complaints == ["the queue: no such thing"]
