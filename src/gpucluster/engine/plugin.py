"""Serve an engine plugin as a process: listen on loopback, print the port first, and exit with the engine."""

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import grpc

from gpucluster import gc_control

MESSAGE_BYTES = 400 * 1024 * 1024  # the engine's own message size limit


def serve(add: Callable[[grpc.Server], None], goodbye: Callable[[], None] = lambda: None) -> int:
    """Serve until the engine stops the plugin. The process has its own process group: the engine sends SIGINT to stop it."""
    server = grpc.server(
        ThreadPoolExecutor(max_workers=32),
        options=[
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.max_send_message_length", MESSAGE_BYTES),
        ],
    )
    leave_with_parent()
    add(server)
    port = server.add_insecure_port("127.0.0.1:0")
    gc_control.freeze_loaded()
    server.start()
    sys.stdout.write(f"{port}\n")  # the engine expects the port as the first line
    sys.stdout.flush()

    def leave(_: int, __: FrameType | None) -> None:
        goodbye()
        os._exit(0)  # no grace period: no reply is pending at this point

    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # without this exit the engine waits for its timeout of 5 s
        signal.signal(number, leave)
    server.wait_for_termination()
    return 0


def leave_with_parent() -> None:
    """Exit when the parent process is gone. An orphan process would keep AWS keys in memory.

    The kernel sends SIGKILL: a handler of Python would wait until the main thread is free.
    """
    import ctypes  # noqa: PLC0415  Linux only, as the sandbox is

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() == 1:
        sys.exit(0)
