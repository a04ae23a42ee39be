"""Threads that only listen: at the hooks' bell, and at the queue of interruptions."""

import socket
import threading
from collections.abc import Callable
from pathlib import Path

from gpucluster.cloud.port import NoticePort, Told

QUEUE_WAIT_S = 20.0  # SQS's longest
QUEUE_PAUSE_S = 5.0  # after a queue that could not be read; notices come from the nodes too


def listen(path: Path, ring: Callable[[], object]) -> socket.socket:
    """The hooks' bell: a datagram socket that a thread reads. It ends with the socket."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    bell.bind(str(path))

    def hear() -> None:
        while True:
            try:
                bell.recv(64)
            except OSError:
                return
            ring()

    threading.Thread(target=hear, name="bell", daemon=True).start()
    return bell


def listen_to_queue(
    notices: NoticePort,
    ended: threading.Event,
    *,
    told: Callable[[tuple[Told, ...]], object],
    complain: Callable[[str], object],
) -> None:
    """Poll the queue until `ended`; a message that nobody takes is delivered again."""

    def hear() -> None:
        while not ended.is_set():
            try:
                messages = notices.receive(QUEUE_WAIT_S)
            except Exception as error:  # noqa: BLE001 -- whatever it is, a thread that ends would never hear again
                complain(f"the queue: {error}")
                ended.wait(QUEUE_PAUSE_S)
                continue
            if messages:
                told(messages)

    threading.Thread(target=hear, name="queue", daemon=True).start()
