"""Run a program with the real engine: up, preview, refresh, destroy.

Ctrl-C once: what is under way is finished and noted in the state. Twice: the engine stops at once. Three times:
it is killed; the next run removes its lock.
"""

import signal
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from pulumi import automation as auto

from gpucluster import collector
from gpucluster.engine.blame import Explain
from gpucluster.engine.events import Gatherer, Outcome, Progress, Report, in_its_words
from gpucluster.engine.locks import break_stale
from gpucluster.engine.process import EngineProcess, clean_environment
from gpucluster.engine.standing import Standing, parse, unprotected
from gpucluster.engine.target import PROJECT, Target, environment, exists, prepare
from gpucluster.errors import GpuclusterError, StateError

Program = Callable[[], None]
Verb = Callable[[auto.Stack, Callable[[auto.EngineEvent], None]], Any]


class EngineError(GpuclusterError):
    """A run failed; the message holds the engine's errors."""


def silent(_: Progress) -> None:
    """Nobody listens."""


def up(
    target: Target, program: Program, *, report: Report = silent, explain: Explain = in_its_words
) -> Outcome:
    """Make the cloud what the program says; `explain` words a resource's failure."""
    return _run(target, program, report, lambda stack, gather: stack.up(on_event=gather), explain)


def preview(target: Target, program: Program, *, report: Report = silent) -> Outcome:
    """Say what `up` would do, compared with the state; nothing changes."""
    return _run(target, program, report, lambda stack, gather: stack.preview(on_event=gather))


def preview_refreshed(target: Target, program: Program, *, report: Report = silent) -> Outcome:
    """Say what `up` would do, compared with the cloud as it stands; nothing changes, the state neither."""
    return _run(target, program, report, lambda stack, gather: stack.preview(on_event=gather, refresh=True))


def refresh(target: Target, program: Program, *, report: Report = silent) -> Outcome:
    """Bring the state to what stands in the cloud; `changes` is what was done behind Pulumi's back."""
    return _run(target, program, report, lambda stack, gather: stack.refresh(on_event=gather))


def destroy(target: Target, *, report: Report = silent, explain: Explain = in_its_words) -> Outcome:
    """Delete everything that is not protected; a stack without state is empty already."""
    if not exists(target):
        return Outcome(counts={}, changes=())
    return _run(target, _no_program, report, _destroy, explain)


def release(target: Target) -> None:
    """Protect nothing any more: the next `destroy` takes all. An `up` protects it again."""
    refuse_if_busy(target)
    process = EngineProcess(target.pulumi, clean_environment())
    release_stack(_stack(target, _no_program, process))


def release_stack(stack: auto.Stack) -> None:
    """The same for any stack."""
    held = stack.export_stack()
    stack.import_stack(auto.Deployment(version=held.version, deployment=unprotected(held.deployment or {})))


def refuse_if_busy(target: Target) -> None:
    """StateError while another run works on the stack, before anything is done that it would not expect."""
    break_stale(target)


def make_stack(target: Target) -> None:
    """Make the stack with nothing in it; one that is there stays as it is."""
    prepare(target)
    break_stale(target)
    if not exists(target):
        _stack(target, _no_program, EngineProcess(target.pulumi, clean_environment()))


def standing(target: Target) -> tuple[Standing, ...]:
    """What the state says is there."""
    if not exists(target):
        return ()
    prepare(target)
    process = EngineProcess(target.pulumi, clean_environment())
    return parse(_stack(target, _no_program, process).export_stack().deployment or {})


def _destroy(stack: auto.Stack, gather: Callable[[auto.EngineEvent], None]) -> None:
    stack.destroy(on_event=gather, exclude_protected=True, run_program=False)


def _no_program() -> None:
    """Destroy reads the state alone."""


def _run(
    target: Target, program: Program, report: Report, verb: Verb, explain: Explain = in_its_words
) -> Outcome:
    prepare(target)
    for path in break_stale(target):
        report(Progress(message=f"removed what a run that was killed left: {path.name}"))
    process = EngineProcess(target.pulumi, clean_environment())
    gatherer = Gatherer(report, explain)
    return drive(target.stack, process, lambda: _stack(target, program, process), verb, gatherer)


def drive(
    name: str, process: EngineProcess, open_stack: Callable[[], auto.Stack], verb: Verb, gatherer: Gatherer
) -> Outcome:
    """Run one verb over a stack to its end; EngineError holds the engine's own errors."""
    started = time.monotonic()
    worker = _Worker(lambda: verb(open_stack(), gatherer.take))
    try:
        with collector.resting():  # of 50 pools' program it took half the time
            _await(worker, process, gatherer.report)
    except auto.CommandError as error:
        raise _failure(name, gatherer, error) from error
    return gatherer.outcome(_outputs(worker.value), time.monotonic() - started)


def _stack(target: Target, program: Program, process: EngineProcess) -> auto.Stack:
    project = auto.ProjectSettings(
        name=PROJECT, runtime="python", backend=auto.ProjectBackend(target.backend.as_uri())
    )
    options = auto.LocalWorkspaceOptions(
        work_dir=str(target.work_dir),
        env_vars=environment(target),
        project_settings=project,
        pulumi_command=process,
    )
    return auto.create_or_select_stack(target.stack, project_name=PROJECT, program=program, opts=options)


class _Worker(threading.Thread):
    """The run in a thread of its own, so that Ctrl-C reaches the main one."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.value: Any = None
        self.error: BaseException | None = None
        self.done = (
            threading.Event()
        )  # not join: an interrupt in it makes Python 3.11 take the thread for dead
        self._work = work
        self.start()

    def run(self) -> None:
        try:
            self.value = self._work()
        except BaseException as error:  # noqa: BLE001  handed to the thread that waits
            self.error = error
        finally:
            self.done.set()


def _await(worker: _Worker, process: EngineProcess, report: Report) -> None:
    seen = 0
    with _interrupts() as pressed:
        while not worker.done.wait(0.2):
            while seen < len(pressed):
                seen += 1
                if seen < 3:
                    report(Progress(message="stopping: waiting for what is under way; Ctrl-C again to hurry"))
                    process.interrupt()
                else:
                    process.kill()
    if pressed:
        signal.raise_signal(pressed[0])  # to whom it was for, now that nothing runs
        raise KeyboardInterrupt
    if worker.error is not None:
        raise worker.error


@contextmanager
def _interrupts() -> Generator[list[int]]:
    """Each Ctrl-C or SIGTERM, noted. An exception is lost where it meets a finalizer, which Python may run at any line.

    A handler that is not Python's stays: who has none for SIGTERM wants to end by it.
    """
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    taken = {number: handler for number, handler in before.items() if callable(handler)}
    for number in taken:
        signal.signal(number, lambda got, _: pressed.append(got))
    try:
        yield pressed
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


def _outputs(result: object) -> Mapping[str, Any]:
    if not isinstance(result, auto.UpResult):
        return {}
    return {name: output.value for name, output in result.outputs.items()}


def _failure(name: str, gatherer: Gatherer, error: auto.CommandError) -> GpuclusterError:
    if isinstance(error, auto.ConcurrentUpdateError):
        return StateError(
            f"another run is working on {name!r}, or one was killed and left its lock",
            next_step=f"wait for its end; if nothing runs any more: pulumi cancel --yes --stack {name}",
        )
    told = gatherer.errors or [line for line in str(error).splitlines() if line.strip()][-12:]
    failure = EngineError(f"the engine could not finish {name!r}:\n  " + "\n  ".join(told))
    for raw in gatherer.raw:
        failure.add_note(raw)  # a mistake in a program needs its traceback
    return failure
