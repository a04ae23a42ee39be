"""How verbs speak: results on stdout, progress on stderr, one JSON object when asked, errors without traceback.

Exit codes: 0 done, 1 the spec is wrong, 2 the tool could not run, 130 and 143 interrupted, 141 the reader of stdout went away.
"""

import json
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer

from gpucluster.errors import GpuclusterError, HostError, SpecError

PIPE_CLOSED = 141  # as a shell shows SIGPIPE
SCHEMA = 1  # of every JSON answer; raised when a field changes its meaning


class Output(StrEnum):
    """For people or for programs."""

    TEXT = "text"
    JSON = "json"


class ReviewOutput(StrEnum):
    """The same, and for a pull request's comment: only verbs that know how take it."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


class PlanOutput(StrEnum):
    """The same, and for code scanning, which takes the findings of policies."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    SARIF = "sarif"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to answer.", show_default=True)]
ReviewOutputOption = Annotated[
    ReviewOutput, typer.Option("--output", "-o", help="How to answer.", show_default=True)
]
PlanOutputOption = Annotated[
    PlanOutput, typer.Option("--output", "-o", help="How to answer.", show_default=True)
]


def say(text: str) -> None:
    """A part of the result, on stdout; a reader that went away ends the program quietly, a full disk with a sentence."""
    try:
        typer.echo(text)
    except OSError as error:
        raise SystemExit(unsaid(error)) from None


def answer(**values: Any) -> None:
    """One JSON object on stdout."""
    say(json.dumps({"schema": SCHEMA, **values}, indent=1, sort_keys=True))


def progress(line: str) -> None:
    """A line for whoever watches; never part of the result."""
    typer.echo(line, err=True)


@contextmanager
def reporting(output: StrEnum) -> Generator[None]:
    """Turn a GpuclusterError into words, or into JSON, and its exit code."""
    try:
        yield
    except GpuclusterError as error:
        if output.value == Output.JSON.value:
            answer(ok=False, error=_error(error), problems=problems_of(error))
        else:
            say_error(error)
        raise typer.Exit(error.exit_code) from None


def say_error(error: GpuclusterError) -> None:
    """The sentence and the next step; a spec's problems speak for themselves."""
    typer.echo(str(error) if isinstance(error, SpecError) else f"error: {error}", err=True)


def problems_of(error: GpuclusterError) -> list[Any]:
    """The problems of a wrong spec as values."""
    from gpucluster.plan.codec import to_json

    return [to_json(problem) for problem in getattr(error, "found", ())]


def _error(error: GpuclusterError) -> dict[str, Any]:
    return {"message": error.message, "next": error.next_step, "exit_code": error.exit_code}


def unsaid(error: OSError) -> int:
    """After stdout took no more: the exit code. Python must not try again at its end."""
    import os

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    if isinstance(error, BrokenPipeError):
        os.dup2(null, 2)
        return PIPE_CLOSED
    lack = HostError(
        f"the answer cannot be written: {error.strerror}", next_step="give stdout a place with room"
    )
    say_error(lack)
    return lack.exit_code
