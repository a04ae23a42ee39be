"""Run a program without an engine: a process of its own, watched, with nothing of the user's environment."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final

from gpucluster.engine.offline.answers import Recording
from gpucluster.engine.offline.messages import Answer, Order
from gpucluster.engine.offline.model import Planned
from gpucluster.errors import GpuclusterError
from gpucluster.plan.codec import dumps, loads
from gpucluster.plan.model import ClusterPlan

Report = Callable[[str], None]

PROJECT: Final = "gpucluster"
LIMIT_S: Final = 60.0
GRACE_S: Final = 10.0  # the child tells of its own limit; this is for one that cannot
TAIL: Final = 20  # lines of what it said, kept for an error
NEEDED: Final = ("grpc", "pulumi", "pulumi_aws")  # of the extra `aws`, which the light install leaves out
_START: Final = (  # as multiprocessing does: the child imports from where we do
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " from gpucluster.engine.offline.child import main; main()"
)
_KEPT: Final = ("LANG", "LC_ALL", "PATH", "SYSTEMROOT")


class ProgramError(GpuclusterError):
    """The program could not be planned; notes hold its traceback."""


def silent(_: str) -> None:
    """Nobody listens."""


def run(
    program: str,
    plan: ClusterPlan,
    *,
    answers: tuple[Recording, ...] = (),
    assume: bool = False,
    report: Report = silent,
    limit_s: float = LIMIT_S,
) -> Planned:
    """What `module:function` declares for the plan: no network, no credentials, the same each time.

    What it looks up is answered from `answers`, and else stays open. With `assume`, what only the cloud tells is made up instead of unknown, for judges of texts.
    `report` gets what the program prints and logs. ProgramError says where the program failed, or that it never ended.
    """
    for library in NEEDED:
        if find_spec(library) is None:
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)
    with tempfile.TemporaryDirectory(prefix="gpucluster-") as folder:
        order = Order(
            program=program,
            plan=plan,
            project=PROJECT,
            stack=plan.name,
            socket=str(Path(folder) / "engine"),
            limit_s=limit_s,
            answers=answers,
            assume=assume,
        )
        return _planned(order, *_answer(order, report))


def _answer(order: Order, report: Report) -> tuple[bytes, int, list[str]]:
    said: list[str] = []

    def heard(line: str) -> None:
        said.append(line)
        del said[:-TAIL]
        report(line)

    with _child() as child, _lines(child.stderr, heard):
        assert child.stdin is not None and child.stdout is not None  # noqa: S101, PT018
        watch = threading.Timer(order.limit_s + GRACE_S, child.kill)
        watch.daemon = True
        watch.start()
        try:
            with suppress(BrokenPipeError), child.stdin as sink:
                sink.write(dumps(order).encode())
            with child.stdout as source:
                told = source.read()
        finally:
            watch.cancel()
        return told, child.wait(), said


@contextmanager
def _child() -> Generator[subprocess.Popen[bytes]]:
    """Python without the user's settings; what it started ends with it."""
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", _START, json.dumps([str(Path(root).absolute()) for root in sys.path])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**{name: os.environ[name] for name in _KEPT if name in os.environ}, "GRPC_VERBOSITY": "NONE"},
        start_new_session=True,  # a terminal's Ctrl-C comes through us
    )
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@contextmanager
def _lines(stream: IO[bytes] | None, heard: Report) -> Generator[None]:
    def listen() -> None:
        with stream or nullcontext(()) as source:
            for line in source:
                heard(line.decode(errors="replace").rstrip())

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    yield
    listener.join(1.0)  # a process that the program left behind may hold the pipe


def _planned(order: Order, told: bytes, code: int, said: list[str]) -> Planned:
    if not told:
        failure = ProgramError(
            f"{order.program} cannot be planned: it ended its process with code {code}",
            next_step="it must return when it has declared everything",
        )
        for line in said:
            failure.add_note(line)
        raise failure
    answer = loads(Answer, told)
    if answer.planned is not None:
        return answer.planned
    assert answer.failure is not None  # noqa: S101  the one or the other
    failure = ProgramError(f"{order.program} cannot be planned: {answer.failure.message}")
    if answer.failure.trace:
        failure.add_note(answer.failure.trace)
    raise failure
