"""Run a program with the Pulumi engine: up, preview, refresh, destroy.

First Ctrl-C: the engine finishes running operations and saves its state. Second: it stops at once. Third: it is
killed, and the next run removes its lock.
"""

import json
import signal
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pulumi import automation as auto
from pulumi.automation._stack import StackInitMode  # pyright: ignore[reportPrivateUsage]  the constructor needs it

from gpucluster import gc_control
from gpucluster.engine.deployment import DeployedResource, parse, unprotected
from gpucluster.engine.error_attribution import Explain
from gpucluster.engine.events import EventCollector, Outcome, Progress, Report, unexplained
from gpucluster.engine.locks import break_stale
from gpucluster.engine.process import EngineProcess, clean_environment
from gpucluster.engine.target import PROJECT, Target, environment, exists, prepare
from gpucluster.errors import GpuclusterError, StateError

Program = Callable[[], None]
Verb = Callable[[auto.Stack, Callable[[auto.EngineEvent], None]], Any]


class EngineError(GpuclusterError):
    """A run failed. The message has the engine's errors."""


def silent(_: Progress) -> None:
    """Ignore progress."""


def up(
    target: Target, program: Program, *, report: Report = silent, explain: Explain = unexplained
) -> Outcome:
    """Deploy the program. `explain` adds an explanation to a resource's error.

    The Automation API skips the preview of a typed `pulumi up`. It is made here if the state has protected resources: the
    engine then refuses to delete one before it deletes what depends on it, such as the attachment of the head's volume.
    """

    def message(step: Progress) -> None:
        if step.message:
            report(step)

    _make_ready(target, report)
    if any(one.protected for one in deployed_resources(target)):
        _run(target, program, message, _preview, explain)
    return _run(target, program, report, lambda stack, on_event: stack.up(on_event=on_event), explain)


def preview(target: Target, program: Program, *, report: Report = silent) -> Outcome:
    """Report what `up` would change, compared with the state. Nothing changes."""
    return _run(target, program, report, _preview)


def preview_refreshed(target: Target, program: Program, *, report: Report = silent) -> Outcome:
    """Report what `up` would change, compared with the cloud. Cloud and state stay unchanged."""
    return _run(
        target, program, report, lambda stack, on_event: stack.preview(on_event=on_event, refresh=True)
    )


def refresh(target: Target, program: Program, *, report: Report = silent) -> Outcome:
    """Update the state from the cloud. The result's `changes` are changes made outside of Pulumi."""
    return _run(target, program, report, lambda stack, on_event: stack.refresh(on_event=on_event))


def destroy(target: Target, *, report: Report = silent, explain: Explain = unexplained) -> Outcome:
    """Delete every resource that is not protected. Return at once if the stack has no state."""
    if not exists(target):
        return Outcome(counts={}, changes=())
    return _run(target, _no_program, report, _destroy, explain)


def release(target: Target) -> None:
    """Remove all protection, so that the next `destroy` deletes everything. The next `up` adds protection again."""
    refuse_if_busy(target)
    process = EngineProcess(target.pulumi, clean_environment())
    release_stack(_stack(target, _no_program, process))


def release_stack(stack: auto.Stack) -> None:
    """Remove all protection of a stack that is open already."""
    exported = stack.export_stack()
    stack.import_stack(
        auto.Deployment(version=exported.version, deployment=unprotected(exported.deployment or {}))
    )


def refuse_if_busy(target: Target) -> None:
    """Raise StateError while another run uses the stack."""
    break_stale(target)


def make_stack(target: Target) -> None:
    """Make an empty stack. An existing stack stays unchanged."""
    prepare(target)
    break_stale(target)
    if not exists(target):
        _stack(target, _no_program, EngineProcess(target.pulumi, clean_environment()))


def deployed_resources(target: Target) -> tuple[DeployedResource, ...]:
    """Return the resources of the state."""
    if not exists(target):
        return ()
    prepare(target)
    process = EngineProcess(target.pulumi, clean_environment())
    return parse(_stack(target, _no_program, process).export_stack().deployment or {})


def _preview(stack: auto.Stack, on_event: Callable[[auto.EngineEvent], None]) -> None:
    stack.preview(on_event=on_event)


def _destroy(stack: auto.Stack, on_event: Callable[[auto.EngineEvent], None]) -> None:
    stack.destroy(on_event=on_event, exclude_protected=True, run_program=False)


def _no_program() -> None:
    """Declare nothing: destroy reads only the state."""


def _run(
    target: Target, program: Program, report: Report, verb: Verb, explain: Explain = unexplained
) -> Outcome:
    _make_ready(target, report)
    process = EngineProcess(target.pulumi, clean_environment())
    events = EventCollector(report, explain)
    return drive(target.stack, process, lambda: _stack(target, program, process), verb, events)


def _make_ready(target: Target, report: Report) -> None:
    """Write the settings of the stack, and remove the lock of a killed run. StateError while another run uses the stack."""
    prepare(target)
    for path in break_stale(target):
        report(Progress(message=f"removed a leftover of a killed run: {path.name}"))


def drive(
    name: str,
    process: EngineProcess,
    open_stack: Callable[[], auto.Stack],
    verb: Verb,
    events: EventCollector,
) -> Outcome:
    """Run one operation over a stack. EngineError has the engine's own errors."""
    started = time.monotonic()
    worker = _Worker(lambda: verb(open_stack(), events.take))
    try:
        with gc_control.collection_disabled():  # with it, a program of 50 pools needs half the time
            _await(worker, process, events.report)
    except auto.CommandError as error:
        raise _failure(name, events, error) from error
    return events.outcome(_outputs(worker.value), time.monotonic() - started)


def _stack(target: Target, program: Program, process: EngineProcess) -> auto.Stack:
    project = auto.ProjectSettings(
        name=PROJECT,
        runtime="python",
        main=str(Path.cwd()),  # the Automation API needs a folder for a program that is a function
        backend=auto.ProjectBackend(target.backend_url),
    )
    workspace = _Workspace(
        work_dir=str(target.work_dir),
        env_vars=environment(target),
        project_settings=project,
        pulumi_command=process,
        program=program,
    )
    mode = StackInitMode.SELECT if exists(target) else StackInitMode.CREATE
    return _Stack(target.stack, workspace, mode)


class _Workspace(auto.LocalWorkspace):
    """Start the CLI only for results that are used: a start takes 0.2 to 0.5 s of CPU."""

    def select_stack(self, stack_name: str) -> None:
        """Do nothing: each command names its stack."""

    def stack_outputs(self, stack_name: str) -> auto.OutputMap:
        """Return the values. `secret` is always false: to know it, the base class starts the CLI once more."""
        result = self._run_pulumi_cmd_sync(
            ["stack", "output", "--json", "--show-secrets", "--stack", stack_name]
        )
        return {
            name: auto.OutputValue(value, secret=False) for name, value in json.loads(result.stdout).items()
        }


class _Stack(auto.Stack):
    """A stack without the summary that the Automation API reads after each run."""

    def info(self, show_secrets: bool = True) -> auto.UpdateSummary:
        """Return an empty summary."""
        return auto.UpdateSummary("", datetime.now(UTC), "", {}, {}, "")


class _Worker(threading.Thread):
    """Run in a separate thread, so that Ctrl-C reaches the main thread."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.value: Any = None
        self.error: BaseException | None = None
        self.done = (
            threading.Event()
        )  # not join: after an interrupt in join, Python 3.11 treats the thread as dead
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
                    report(
                        Progress(
                            message="stopping: waiting for running operations; press Ctrl-C again to stop at once"
                        )
                    )
                    process.interrupt()
                else:
                    process.kill()
    if pressed:
        signal.raise_signal(pressed[0])  # deliver pending interrupts now that the run has ended
        raise KeyboardInterrupt
    if worker.error is not None:
        raise worker.error


@contextmanager
def _interrupts() -> Generator[list[int]]:
    """Record each Ctrl-C and SIGTERM. Python can drop an exception of a handler that runs inside a finalizer.

    Signals without a Python handler keep their default: a process without a SIGTERM handler ends by SIGTERM.
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


def _failure(name: str, events: EventCollector, error: auto.CommandError) -> GpuclusterError:
    if isinstance(error, auto.ConcurrentUpdateError):
        return StateError(
            f"another run uses {name!r}, or a killed run left its lock",
            next_step=f"wait for its end; if no other run is active: pulumi cancel --yes --stack {name}",
        )
    shown = events.errors or [line for line in str(error).splitlines() if line.strip()][-12:]
    failure = EngineError(f"the engine could not finish {name!r}:\n  " + "\n  ".join(shown))
    for raw in events.raw:
        failure.add_note(raw)  # a mistake in a program needs its traceback
    return failure
