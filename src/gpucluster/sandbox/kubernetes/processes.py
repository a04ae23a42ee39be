"""The processes of a control plane: started, awaited, and killed by their handles. They end with the thread that started them."""

import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

from gpucluster.errors import HostError
from gpucluster.sandbox.kubernetes.loopback import SERVER_PORTS, reserved
from gpucluster.shell import ending_with_us

READY_S = 600.0  # only a program that hangs takes so long, not one on a busy machine
TAIL = 2000  # characters of a log in an error
_POLL_S = 0.05


class Processes:
    """Programs with one log each in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._reserved: list[socket.socket] = []

    def start(self, name: str, argv: list[str]) -> None:
        """Start a program without the variables of a proxy: all traffic stays on this machine."""
        kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        with (self.folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                [*ending_with_us(), *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**kept, "HOME": str(self.folder)},
                cwd=self.folder,
                start_new_session=True,
            )

    def await_ready(self, name: str, url: str, context: ssl.SSLContext | None = None) -> None:
        """Return when `url` answers 200. HostError shows the end of the log if the program ended or hangs."""
        deadline = time.monotonic() + READY_S
        while not _answers(url, context):
            if self._running[name].poll() is not None:
                raise HostError(f"{name} ended with code {self._running[name].returncode}: {self._tail(name)}",
                                next_step="read the whole log beside it")  # fmt: skip
            if time.monotonic() > deadline:
                raise HostError(f"{name} is not ready after {READY_S:g} s: {self._tail(name)}",
                                next_step="repeat it on a machine with less load")  # fmt: skip
            threading.Event().wait(_POLL_S)

    def ports(self) -> Iterator[int]:
        """Yield ports of 127.0.0.1 that nobody listens on. They are reserved until `stop`."""
        for port in SERVER_PORTS:
            if (mark := reserved(port)) is not None:
                self._reserved.append(mark)
                yield port

    def pids(self) -> dict[str, int]:
        """Return the process id of each program that runs."""
        return {name: process.pid for name, process in self._running.items() if process.poll() is None}

    def end(self, name: str) -> None:
        """Kill one program, and wait for its end."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Kill all programs: nothing that they hold is kept."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()
        self._running.clear()
        for mark in self._reserved:
            mark.close()
        self._reserved.clear()

    def _tail(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-TAIL:]


def _answers(url: str, context: ssl.SSLContext | None) -> bool:
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    try:
        with opener.open(url, timeout=5) as answer:
            return answer.status == 200
    except (OSError, HTTPException):
        return False
