"""The programs on PATH: a small client each, which has the stand-in answer in the process of the tests.

A Python with the stand-in's modules takes 35 ms of CPU to start, the client 12, a call without a process 2; a test
makes up to a hundred calls.
"""

import marshal
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpucluster import shell
from gpucluster.shell import Result
from support.cluster import helm, kubectl
from support.cluster.flags import HELM, HELM_GLOBAL, KUBECTL, KUBECTL_GLOBAL, UsageError, parse
from support.cluster.state import Begun, CallerIsKilledError, EndedError, State, fail, suffer

Flags = dict[str, str]


@dataclass(frozen=True, slots=True)
class Program:
    """The words of a program, its error for others, the flag that names files, and the stand-in."""

    verbs: dict[str, Flags]
    of_all: Flags
    usage: str
    files: str
    run: Callable[[Begun], tuple[str, str]]


_PROGRAMS = {
    "helm": Program(HELM, HELM_GLOBAL, "Error: {}", "values", helm.run),
    "kubectl": Program(
        KUBECTL, KUBECTL_GLOBAL, "error: {}\nSee 'kubectl --help' for usage.", "kustomize", kubectl.run
    ),
}
_CLIENT = """#!{python} -IS
import _socket, marshal, os, sys
argv = sys.argv[1:]
stdin = sys.stdin.read() if "-" in argv else ""
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({address!r})
server.sendall(marshal.dumps(({name!r}, {folder!r}, argv, stdin, os.getcwd())))
server.shutdown(_socket.SHUT_WR)
answer = b""
while part := server.recv(1 << 20):
    answer += part
out, text, code = marshal.loads(answer)
if code is None:
    import signal, time
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)  # setpriv kills us with the parent
sys.stdout.write(out + "\\n" if out else "")
sys.stderr.write(text + "\\n" if text else "")
sys.exit(code)
"""


def without_processes(programs: Path, folder: Path, run: Callable[..., Result]) -> Callable[..., Result]:
    """Return a `shell.run` that answers calls of the programs in the folder `programs` itself; `run` takes all others.

    A planted kill ends a process that was forked from this one.
    """
    owner = os.getpid()

    def answer(argv: Sequence[str], **options: Any) -> Result:
        begin = len(shell.ending_with_us())
        name, words = argv[begin], list(argv[begin + 1 :])
        if name not in _PROGRAMS or shutil.which(name) != str(programs / name):
            return run(argv, **options)
        stdin = (options.get("stdin") or "") if "-" in words else ""
        assert options.get("check") is False
        try:
            out, text, code = (
                _run(name, str(folder), words, stdin, str(options.get("cwd") or Path.cwd())),
                "",
                0,
            )
        except EndedError as error:
            out, text, code = error.out, error.text, error.code
        except CallerIsKilledError:
            if os.getpid() != owner:
                os.kill(os.getpid(), signal.SIGKILL)
            raise
        return Result(tuple(argv), code, f"{out}\n" if out else "", f"{text}\n" if text else "")

    return answer


def install(program: Path, name: str, folder: Path) -> None:
    """Write the program `name` for the cluster in `folder`."""
    text = _CLIENT.format(python=sys.executable, address=_address(), name=name, folder=str(folder))
    program.write_text(text)
    program.chmod(0o755)


@cache
def _address() -> bytes:
    """Serve all clusters of this process; return the socket's address, which is no file: the kernel chooses it."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(b"")
    server.listen(64)
    threading.Thread(target=_serve, args=(server,), daemon=True).start()
    return server.getsockname()


def _serve(server: socket.socket) -> None:
    while True:
        connection, _ = server.accept()
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as asked:
        call = marshal.loads(asked.read())  # noqa: S302  from our own clients
        try:
            answer = (_run(*call), "", 0)
        except EndedError as error:
            answer = (error.out, error.text, error.code)
        except CallerIsKilledError:
            answer = ("", "", None)
        connection.sendall(marshal.dumps(answer))


def _run(name: str, folder: str, argv: list[str], stdin: str, cwd: str) -> str:
    """Return what the program prints; EndedError if it fails."""
    program, state = _PROGRAMS[name], State(Path(folder))
    state.log(name, argv)
    try:
        verb, words, flags = parse(argv, program.verbs, program.of_all)
    except UsageError as error:
        fail(program.usage.format(error))
    if program.files in flags:
        flags[program.files] = str(Path(cwd, flags[program.files]))
    fault = state.fault(name, argv)
    suffer(fault, "before")
    problem, out = program.run(Begun(state, verb, words, flags, stdin, fault))
    suffer(fault, "after")
    if problem:
        fail(problem, out=out)
    return out
