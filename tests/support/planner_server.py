"""The offline planner's child processes, forked from a process that has imported Pulumi already.

An import of Pulumi costs most of a second of CPU, and the unit tests plan about a hundred programs. A child is still a
separate process, with its own `sys.path`, pipes, session and environment. The tests of `engine/offline` about a fresh
process need the real start, so they do not use this server.
"""

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from gpucluster.engine.offline import planner
from gpucluster.engine.offline.messages import Order
from gpucluster.plan.codec import dumps

_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from support.planner_server import serve; serve(sys.argv[2])"


class Child:
    """The part of `subprocess.Popen` that the planner uses."""

    def __init__(self, server: socket.socket, ends: list[int]) -> None:
        self._server, self._code = server, None
        self.stdin: IO[bytes] = os.fdopen(ends[0], "wb")
        self.stdout: IO[bytes] = os.fdopen(ends[1], "rb")
        self.stderr: IO[bytes] = os.fdopen(ends[2], "rb")
        self.pid = int(server.recv(32))

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        if self._code is None:
            self._code = int(self._server.recv(32) or b"-9")
        return self._code


class Server:
    """It starts with the first child and ends with `close`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gpucluster-")
        self._path = str(Path(self._folder.name) / "planner")
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = threading.Lock()  # `diff` runs two programs in two threads

    @contextmanager
    def child(self) -> Generator[Child]:
        """Replacement of `planner._child`."""
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        ours = [pipes[0][1], pipes[1][0], pipes[2][0]]
        with self._connected() as server:
            roots = json.dumps([str(Path(root).absolute()) for root in sys.path])
            socket.send_fds(server, [roots.encode()], theirs)
            for end in theirs:
                os.close(end)
            one = Child(server, ours)
            try:
                yield one
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(one.pid, signal.SIGKILL)
                one.wait()

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate(timeout=300)
        self._folder.cleanup()

    def _connected(self) -> socket.socket:
        with self._starts:
            if self._process is None:
                self._process = self._started()
        made = socket.socket(socket.AF_UNIX)
        made.connect(self._path)
        return made

    def _started(self) -> "subprocess.Popen[bytes]":
        roots = json.dumps([str(Path(root).absolute()) for root in sys.path])
        kept = {name: os.environ[name] for name in planner._KEPT if name in os.environ}
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, roots, self._path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**kept, "GRPC_VERBOSITY": "NONE"},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process


class Answers:
    """Answers of children by their whole input: some forty tests plan twenty different orders.

    Tests of `engine/offline` hold that the same order gives the same answer in fresh processes.
    """

    def __init__(self) -> None:
        self._answer = planner._answer
        self._known: dict[tuple[str, ...], tuple[tuple[bytes, int, list[str]], list[str]]] = {}

    def answer(self, order: Order, report: planner.Report) -> tuple[bytes, int, list[str]]:
        """Replacement of `planner._answer`. It repeats what the child reported, too."""
        key = (dumps(order), *sys.path)
        if key not in self._known:
            lines: list[str] = []
            self._known[key] = self._answer(order, lines.append), lines
        answer, lines = self._known[key]
        for line in lines:
            report(line)
        return answer


def serve(path: str) -> None:
    """Fork a child for each connection until stdin ends."""
    for name in (
        "gpucluster.aws.program",
        "gpucluster.engine.offline.child",
    ):  # with Pulumi: the modules that a child needs
        importlib.import_module(name)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(8)
        print("ready", flush=True)  # noqa: T201 -- the one who waits reads it
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            connection, _ = listener.accept()
            if not os.fork():
                listener.close()
                _supervise(connection)
            connection.close()
    with suppress(ChildProcessError):
        while os.wait():
            pass


def _supervise(connection: socket.socket) -> None:
    """Fork the child, report its id and its exit status."""
    roots, ends, *_ = socket.recv_fds(connection, 1 << 20, 3)
    child = os.fork()
    if not child:
        connection.close()
        _become(json.loads(roots), ends)
    for end in ends:
        os.close(end)
    connection.send(str(child).encode().ljust(32))
    _, status = os.waitpid(child, 0)
    with suppress(OSError):
        connection.send(str(os.waitstatus_to_exitcode(status)).encode().ljust(32))
    os._exit(0)


def _become(roots: list[str], ends: list[int]) -> None:
    os.setsid()
    for number, end in enumerate(ends):
        os.dup2(end, number)
        os.close(end)
    sys.path[:] = roots
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(n, "r" if n == 0 else "w", closefd=False) for n in range(3)
    )
    code = 1
    try:
        from gpucluster.engine.offline.child import main

        main()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 -- as a fresh interpreter would
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
