"""The process that forks a process for each program. It imports the SDK once, and runs no program itself.

Standard input is a socket. A message names the module of a program and carries four descriptors: a line, and the standard
input, output and error of the program's process. Its exit code is written to the line. When the other end of the line
closes, the process is killed. When standard input ends, all are killed, and this process ends.
Each program has its own process group: what a program started is killed when its process ends.
What a program loads of the SDK is loaded here before the next one: that one finds it.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from types import FrameType
from typing import Final, NoReturn

from gpucluster.engine.offline import lazy_sdk

CHILD: Final = "gpucluster.engine.offline.child"
OURS: Final = __name__.partition(".")[0]
LONGEST: Final = 4096  # bytes of a module's name


def serve() -> NoReturn:
    """Fork a process for each message, until standard input ends."""
    gc.disable()  # a program runs for a second; with 30 pools the collector took two thirds of it and freed nothing
    lazy_sdk.install()
    _import(CHILD)
    _Forks(socket.socket(fileno=0)).serve()


def _import(module: str) -> None:
    """Import what the forks share. An error is not lost: the fork imports again, and meets it."""
    with suppress(Exception):
        import_module(module)


@dataclass(slots=True)
class _Fork:
    line: socket.socket
    loaded: int  # the end of a pipe that has what the program loaded of the SDK
    killed: bool = False


class _Forks:
    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._running: dict[int, _Fork] = {}  # by process
        self._loaded: list[tuple[str, str]] = []  # by programs that ended, and not yet here
        self._ended, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        signal.signal(signal.SIGCHLD, _noted)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)

    def serve(self) -> NoReturn:
        while True:
            lines = {one.line: process for process, one in self._running.items() if not one.killed}
            ready, _, _ = select.select([self._orders, self._ended, *lines], [], [])
            for line in lines.keys() & set(ready):
                self._kill(lines[line])
            if self._ended in ready:
                self._ended.recv(LONGEST)
                self._report()
            if self._orders in ready:
                self._take()

    def _take(self) -> None:
        message, ends, *_ = socket.recv_fds(self._orders, LONGEST, 4)
        if not message:
            for process in self._running:
                self._kill(process)
            os._exit(0)
        module = message.decode()
        if module.partition(".")[0] == OURS:  # the import of another's may print, hang or exit
            _import(module)
        lazy_sdk.load(self._loaded)
        self._loaded.clear()
        gc.freeze()  # a program that collects would copy the pages of all these objects
        line, *streams = ends
        loaded, tell = os.pipe()
        process = os.fork()
        if not process:
            os.close(line)
            os.close(loaded)
            self._become(streams, tell)
        with suppress(OSError):
            os.setpgid(process, process)  # the process does it too: the first of the two counts
        for end in (*streams, tell):
            os.close(end)
        os.set_blocking(loaded, False)
        self._running[process] = _Fork(socket.socket(fileno=line), loaded)

    def _become(self, streams: Iterable[int], tell: int) -> NoReturn:
        """Run a program in this process, which is forked."""
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one in self._running.values():
            one.line.close()
            os.close(one.loaded)
        for end in (self._ended, self._wake):
            end.close()
        self._orders.detach()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        known = len(lazy_sdk.LOADED)
        try:
            import_module(CHILD).main(lambda: _tell(tell, lazy_sdk.LOADED[known:]))
        except BaseException:  # noqa: BLE001  as a Python that starts would
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)

    def _kill(self, process: int) -> None:
        self._running[process].killed = True
        with suppress(OSError):
            os.killpg(process, signal.SIGKILL)

    def _report(self) -> None:
        """Write the exit codes of the processes that ended, and kill what they started."""
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                process, status = found
                self._kill(process)
                ended = self._running.pop(process)
                with suppress(OSError), ended.line as line:
                    line.send(str(os.waitstatus_to_exitcode(status)).encode())
                with os.fdopen(ended.loaded, "rb") as told, suppress(ValueError):
                    self._loaded += json.loads(told.read() or b"[]")


def _noted(number: int, frame: FrameType | None) -> None:
    """Do nothing. Without a function, Python writes no byte to the descriptor of `set_wakeup_fd`."""


def _tell(end: int, names: Sequence[tuple[str, str]]) -> None:
    """Write what fits: a process that waits here would not end."""
    os.set_blocking(end, False)
    with suppress(OSError):
        os.write(end, json.dumps(names).encode())
