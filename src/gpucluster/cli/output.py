"""Output of the commands: results on stdout, progress on stderr, JSON on request, errors without traceback.

Exit codes: 0 done, 1 the spec is wrong, 2 the tool could not run, 130 and 143 interrupted, 141 the reader of stdout went away.
`diff` uses 1 only for specs that differ (`--exit-code`), so a wrong spec is 2 there.
"""

import json
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer

from gpucluster.errors import GpuclusterError, HostError, SpecError

PROGRESS_INTERVAL_S = 10.0
PrintLine = Callable[[str], None]

PIPE_CLOSED = 141  # the code that a shell shows for SIGPIPE
SCHEMA = 1  # version of every JSON result; it increases when a field changes its meaning


class Output(StrEnum):
    """Output forms of most commands."""

    TEXT = "text"
    JSON = "json"


class ReviewOutput(StrEnum):
    """Output forms with a comment for a pull request."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


class PlanOutput(StrEnum):
    """Output forms with SARIF for code scanning."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    SARIF = "sarif"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.", show_default=True)]
ReviewOutputOption = Annotated[
    ReviewOutput, typer.Option("--output", "-o", help="Output format.", show_default=True)
]
PlanOutputOption = Annotated[
    PlanOutput, typer.Option("--output", "-o", help="Output format.", show_default=True)
]


def print_result(text: str) -> None:
    """Print a part of the result. Exit quietly if the reader is gone, and with a message if the disk is full."""
    try:
        typer.echo(text)
    except OSError as error:
        raise SystemExit(exit_code_of_failed_write(error)) from None


def answer(**values: Any) -> None:
    """Print one JSON object to stdout."""
    print_result(json.dumps({"schema": SCHEMA, **values}, indent=1, sort_keys=True))


def progress(line: str) -> None:
    """Print a progress line to stderr. It is not part of the result: without a reader the work goes on."""
    try:
        typer.echo(line, err=True)
    except BrokenPipeError:
        _close_quietly(2)


@contextmanager
def reporting(output: StrEnum) -> Generator[None]:
    """Print a GpuclusterError as text or JSON and exit with its code."""
    try:
        yield
    except GpuclusterError as error:
        if output.value == Output.JSON.value:
            print_json_error(error)
        else:
            print_error(error)
        raise typer.Exit(error.exit_code) from None


def print_json_error(error: GpuclusterError) -> None:
    """Print the error as the JSON result."""
    answer(ok=False, error=_error(error), problems=problems_of(error))


def print_error(error: GpuclusterError) -> None:
    """Print the message and the next step. The problems of a spec already have their own text."""
    progress(str(error) if isinstance(error, SpecError) else f"error: {error}")


def problems_of(error: GpuclusterError) -> list[Any]:
    """Return the problems of a wrong spec as JSON values."""
    from gpucluster.plan.codec import to_json

    return [to_json(problem) for problem in getattr(error, "found", ())]


def _error(error: GpuclusterError) -> dict[str, Any]:
    return {"message": error.message, "next": error.next_step, "exit_code": error.exit_code}


def exit_code_of_failed_write(error: OSError) -> int:
    """Return the exit code after stdout refused a write. Python must not flush it again when it ends."""
    _close_quietly(1)
    if isinstance(error, BrokenPipeError):
        _close_quietly(2)
        return PIPE_CLOSED
    lack = HostError(
        f"the output cannot be written: {error.strerror}",
        next_step="redirect stdout to a file system with free space",
    )
    print_error(lack)
    return lack.exit_code


def _close_quietly(stream: int) -> None:
    """Send what is buffered for the stream, and all that follows, nowhere. Else Python fails to write it when it ends: exit code 120."""
    import os

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream)
    os.close(null)


@contextmanager
def repeat_progress(
    words: Callable[[], str], print_line: PrintLine = progress, every_s: float = PROGRESS_INTERVAL_S
) -> Generator[None]:
    """Print `words()` at each interval until the block ends. An empty text is not printed."""
    done = threading.Event()

    def print_words() -> None:
        while not done.wait(every_s):
            if text := words():
                print_line(text)

    printer = threading.Thread(target=print_words, daemon=True)
    printer.start()
    try:
        yield
    finally:
        done.set()
        printer.join()


@contextmanager
def steps(
    print_line: PrintLine = progress,
    every_s: float = PROGRESS_INTERVAL_S,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[PrintLine]:
    """Return a function that prints a step with the elapsed seconds. A long step is printed again at each interval."""
    started = clock()
    last, at = "", started

    def line(text: str) -> str:
        return f"{clock() - started:6.1f} s  {text}"

    def step(text: str) -> None:
        nonlocal last, at
        last, at = text, clock()
        print_line(line(text))

    def silent() -> str:
        return line(f"still {last}") if last and clock() - at >= every_s else ""

    with repeat_progress(silent, print_line, every_s):
        yield step
