"""`python -m gpucluster.engine.provider ENGINE`: serve on a port of loopback, and print it."""

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from gpucluster.engine.provider.servicer import AwsStandIn

MESSAGE_BYTES = 400 * 1024 * 1024  # the engine's own limit


def main() -> int:
    """Serve until the engine ends us. We stand in a process group of our own: SIGINT is the engine's goodbye."""
    server = grpc.server(
        ThreadPoolExecutor(max_workers=32),
        options=[
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.max_send_message_length", MESSAGE_BYTES),
        ],
    )
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(AwsStandIn(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")  # the first line is the port, and nothing before it
    sys.stdout.flush()
    _leave_with_parent()
    for goodbye in (signal.SIGINT, signal.SIGTERM):  # ignored, it would cost the engine's patience of 5 s
        signal.signal(goodbye, _leave)
    server.wait_for_termination()
    return 0


def _leave(_: int, __: FrameType | None) -> None:
    os._exit(0)  # at once: every answer that is due has been given


def _leave_with_parent() -> None:
    """End when the engine is gone, however it went: an orphan would hold its keys."""
    import ctypes  # noqa: PLC0415  Linux only, as the sandbox is

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
    if os.getppid() == 1:
        sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
