"""Run a program without an engine, in a supervised process of its own."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import IO, Final

from gpucluster.engine.offline.answers import Recording
from gpucluster.engine.offline.host import host
from gpucluster.engine.offline.messages import Answer, Order
from gpucluster.engine.offline.model import Planned
from gpucluster.errors import GpuclusterError
from gpucluster.plan.codec import dumps, loads
from gpucluster.plan.model import ClusterPlan

Report = Callable[[str], None]

PROJECT: Final = "gpucluster"
LIMIT_S: Final = 60.0
GRACE_S: Final = 10.0  # the program's process enforces its own limit; this one is for a process that hangs
TAIL: Final = 20  # output lines that an error shows
NEEDED: Final = (
    "grpc",
    "pulumi",
    "pulumi_aws",
)  # modules of the extra `aws`, which the light installation does not have


class ProgramError(GpuclusterError):
    """The program could not be planned. The notes have its traceback."""


def silent(_: str) -> None:
    """Ignore progress."""


def run(
    program: str,
    plan: ClusterPlan,
    *,
    answers: tuple[Recording, ...] = (),
    assume: bool = False,
    report: Report = silent,
    limit_s: float = LIMIT_S,
) -> Planned:
    """Return the resources that `module:function` declares for the plan. No network, no credentials, deterministic.

    `answers` has answers of look-ups; other look-ups stay unknown. With `assume`, unknown values become placeholders,
    for rules that check texts. `report` receives the program's output and logs. ProgramError says where the program
    failed, or that it did not end.
    """
    if library := missing():
        raise ModuleNotFoundError(f"No module named {library!r}", name=library)
    order = Order(
        program=program,
        plan=plan,
        project=PROJECT,
        stack=plan.name,
        limit_s=limit_s,
        answers=answers,
        assume=assume,
    )
    return _planned(order, *_answer(order, report))


def missing() -> str | None:
    """Return a package that a run needs and that is not installed; None if there is none."""
    return next((library for library in NEEDED if find_spec(library) is None), None)


def _answer(order: Order, report: Report) -> tuple[bytes, int, list[str]]:
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        del lines[:-TAIL]
        report(line)

    module = order.program.partition(":")[0]
    with host().program(module) as program, _lines(program.stderr, on_line):
        watch = threading.Timer(order.limit_s + GRACE_S, program.kill)
        watch.daemon = True
        watch.start()
        try:
            with suppress(BrokenPipeError), program.stdin as sink:
                sink.write(dumps(order).encode())
            with program.stdout as source:
                output = source.read()
            return output, program.wait(), lines
        finally:
            watch.cancel()


@contextmanager
def _lines(stream: IO[bytes], on_line: Report) -> Generator[None]:
    def listen() -> None:
        with stream as source:
            for line in source:
                on_line(line.decode(errors="replace").rstrip())

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    yield
    listener.join(1.0)  # a process that the program started may still hold the pipe


def _planned(order: Order, output: bytes, code: int, lines: list[str]) -> Planned:
    if not output:
        failure = ProgramError(
            f"{order.program} cannot be planned: it ended its process with code {code}",
            next_step="it must return when it has declared everything",
        )
        for line in lines:
            failure.add_note(line)
        raise failure
    answer = loads(Answer, output)
    if answer.planned is not None:
        return answer.planned
    assert answer.failure is not None  # noqa: S101  the one or the other
    failure = ProgramError(f"{order.program} cannot be planned: {answer.failure.message}")
    if answer.failure.trace:
        failure.add_note(answer.failure.trace)
    raise failure
