"""A plugin of the engine as a process: it serves on loopback, prints its port first, and leaves with its engine."""

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import grpc

from gpucluster import collector

MESSAGE_BYTES = 400 * 1024 * 1024  # the engine's own limit


def serve(add: Callable[[grpc.Server], None], goodbye: Callable[[], None] = lambda: None) -> int:
    """Serve until the engine ends us. We stand in a process group of our own: SIGINT is the engine's goodbye."""
    server = grpc.server(
        ThreadPoolExecutor(max_workers=32),
        options=[
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.max_send_message_length", MESSAGE_BYTES),
        ],
    )
    add(server)
    port = server.add_insecure_port("127.0.0.1:0")
    collector.settle()
    server.start()
    sys.stdout.write(f"{port}\n")  # the first line is the port, and nothing before it
    sys.stdout.flush()
    leave_with_parent()

    def leave(_: int, __: FrameType | None) -> None:
        goodbye()
        os._exit(0)  # at once: every answer that is due has been given

    for number in (signal.SIGINT, signal.SIGTERM):  # ignored, it would cost the engine's patience of 5 s
        signal.signal(number, leave)
    server.wait_for_termination()
    return 0


def leave_with_parent() -> None:
    """End when whoever started us is gone, however it went: an orphan would hold keys."""
    import ctypes  # noqa: PLC0415  Linux only, as the sandbox is

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
    if os.getppid() == 1:
        sys.exit(0)
