"""Run the queries of all checks side by side, each bounded in time and output.

A program that hangs in the kernel cannot be killed at once, so nobody waits for its end.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpucluster.agent.monitors.kernel_log import FaultTable, KernelLog
from gpucluster.checks.check import TIMED_OUT, QueryOutput
from gpucluster.checks.health import KERNEL_LOG, PORTS, fault_line

MOST_BYTES = 1 << 20  # of one stream: nvidia-smi of 16 GPUs prints some kB
MOST_OF_SLURM = 1 << 27  # scontrol prints 4 kB for each node of the pool
NOT_FOUND, TOO_LONG = 127, 125
DEAD_S = 0.5  # after SIGKILL; a program that waits in the driver stays
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}

Argv = tuple[str, ...]


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    streams: dict[str, bytearray] = field(
        default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()}
    )
    open: int = 2
    too_long: bool = False
    killed: bool = False


def run_all(argvs: Sequence[Argv], limit_s: float, most: int = MOST_BYTES) -> Mapping[Argv, QueryOutput]:
    """Return the output of each query. After `limit_s` seconds a program without an end has the code of a time-out."""
    programs = tuple(argv for argv in dict.fromkeys(argvs) if argv[0] not in _BUILT_IN)
    found = {argv: _built_in(argv) for argv in dict.fromkeys(argvs) if argv[0] in _BUILT_IN}
    running: dict[Argv, _Running] = {}
    for argv in programs:
        try:
            running[argv] = _Running(_start(argv))
        except OSError as error:
            found[argv] = QueryOutput(code=NOT_FOUND, stdout="", stderr=f"{argv[0]}: {error.strerror}")
    _collect(running, time.monotonic() + limit_s, most)
    return {**found, **{argv: _output(one) for argv, one in running.items()}}


def _start(argv: Argv) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        start_new_session=True,
    )


def _collect(running: Mapping[Argv, _Running], end: float, most: int) -> None:
    with selectors.DefaultSelector() as selector:
        for one in running.values():
            for name in one.streams:
                stream = getattr(one.process, name)
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, (one, name))
        while selector.get_map() and (left := end - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                one, name = key.data
                chunk = os.read(key.fd, 65_536)
                one.streams[name] += chunk
                one.too_long = one.too_long or len(one.streams[name]) > most
                if not chunk or one.too_long:
                    selector.unregister(key.fileobj)
                    one.open -= 1
    for one in running.values():
        _end(one, end)


def _end(one: _Running, end: float) -> None:
    """Take the program's code if it has ended; kill it if not, and wait no longer than a program needs that can be killed."""
    if not one.open and not one.too_long:
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.process.wait(max(0.1, end - time.monotonic()))
    if one.process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(one.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.process.wait(DEAD_S)
        one.killed = True
    for stream in (one.process.stdout, one.process.stderr):
        if stream is not None:
            stream.close()


def _output(one: _Running) -> QueryOutput:
    code = one.process.returncode
    if one.too_long:
        return QueryOutput(code=TOO_LONG, stdout="", stderr="it printed without an end")
    if code is None or one.open or one.killed:
        return QueryOutput(code=TIMED_OUT, stdout="", stderr="")
    out, errors = (bytes(one.streams[name]).decode(errors="replace") for name in ("stdout", "stderr"))
    return QueryOutput(code=code, stdout=out, stderr=errors)


def _faults(path: str) -> str:
    table, now = FaultTable(), time.time()
    for line in KernelLog(Path(path)).read():
        table.add(line, now)
    return "".join(f"{fault_line(fault)}\n" for fault in table.sorted_faults())


def _ports(path: str) -> str:
    """Return a line for each port of each device; an unreadable port is a line, too."""
    lines: list[str] = []
    for state in sorted(Path(path).glob("*/ports/*/state")):
        try:
            words = state.read_text(errors="replace").strip()
        except OSError as error:
            words = f"unreadable: {error.strerror}"
        lines.append(f"{state.parts[-4]}/{state.parts[-2]} {words}\n")
    return "".join(lines)


_BUILT_IN: Mapping[str, Callable[[str], str]] = {KERNEL_LOG: _faults, PORTS: _ports}


def _built_in(argv: Argv) -> QueryOutput:
    try:
        return QueryOutput(code=0, stdout=_BUILT_IN[argv[0]](argv[1]))
    except OSError as error:
        return QueryOutput(code=1, stdout="", stderr=f"{argv[1]}: {error.strerror}")
