"""The processes of programs, forked from one process for all programs of this process of ours: see `forks`.

It has a clean environment, and a session of its own: Ctrl-C in a terminal must reach only us.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

_START: Final = (  # as multiprocessing does: the child uses the same import path
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " from gpucluster.engine.offline.forks import serve; serve()"
)
_KEPT: Final = ("LANG", "LC_ALL", "PATH", "SYSTEMROOT")  # without the user's Python settings


class Program:
    """The process of one program."""

    def __init__(self, line: socket.socket, ends: Sequence[int]) -> None:
        self._line = line
        self.stdin = os.fdopen(ends[0], "wb")
        self.stdout = os.fdopen(ends[1], "rb")
        self.stderr = os.fdopen(ends[2], "rb")

    def kill(self) -> None:
        """Kill it, with what it started."""
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)

    def wait(self) -> int:
        """Return its exit code, which comes once."""
        return int(self._line.recv(16) or -signal.SIGKILL)  # nothing: the common process was killed


class Host:
    """The common process. It starts with the first program."""

    def __init__(self) -> None:
        self._started: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._one = threading.Lock()  # `diff` runs two programs in two threads

    @contextmanager
    def program(self, module: str) -> Generator[Program]:
        """Fork a process, which reads its order from its standard input. It is killed at the end of the block."""
        line, their_line = socket.socketpair()
        (their_in, stdin), (stdout, their_out), (stderr, their_err) = os.pipe(), os.pipe(), os.pipe()
        theirs = (their_line.detach(), their_in, their_out, their_err)
        with line:
            try:
                self._send(module, theirs)
            finally:
                for end in theirs:
                    os.close(end)
            yield Program(line, (stdin, stdout, stderr))

    def close(self) -> None:
        """End it, and the programs that still run."""
        if self._started is not None:
            process, orders = self._started
            orders.close()
            process.wait()
            self._started = None

    def _send(self, module: str, ends: Sequence[int]) -> None:
        with self._one:
            try:
                socket.send_fds(self._orders(), [module.encode()], ends)
            except ConnectionError:  # a program killed it
                self.close()
                socket.send_fds(self._orders(), [module.encode()], ends)

    def _orders(self) -> socket.socket:
        self._started = self._started or _start()
        return self._started[1]


@cache
def host() -> Host:
    """Return the one host of this process. They end together."""
    one = Host()
    atexit.register(one.close)
    return one


def _start() -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-c",
                _START,
                json.dumps([str(Path(root).absolute()) for root in sys.path]),
            ],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # a fork meets the same errors, and tells them
            env={
                **{name: os.environ[name] for name in _KEPT if name in os.environ},
                "GRPC_VERBOSITY": "NONE",
            },
            start_new_session=True,
        )
    return process, ours
