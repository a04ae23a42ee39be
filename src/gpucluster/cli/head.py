"""Programs on a cluster's head: run a Python module there over the chosen transport, and print its result."""

import functools
import inspect
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import typer

from gpucluster.cli.output import Output, answer, print_result, progress
from gpucluster.cli.transport import HeadOptions, choose
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.json_text import parse_json
from gpucluster.plan.names import ROLE_HEAD
from gpucluster.text import printable_lines

LIMIT_S = 90.0  # the time for a large journal, locks in slurmctld and a cloud that throttles
_OUR_COMMAND = re.compile(r"(\bgpucluster [a-z][^`;\"\n]*?) -c [a-z0-9][a-z0-9-]*")
_NEVER_OURS = ("Traceback", "No module named")  # exit code of Python itself, which is not a result
OLD = "the cluster's image has an older version without this command: apply the bundle of this version, or replace the head"


def on_head(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's parameter `options: HeadOptions` with the options of HeadOptions, without those that the command has itself."""
    own = inspect.signature(command).parameters
    fields = {name: one for name, one in inspect.signature(HeadOptions).parameters.items() if name not in own}
    parameters = [
        one
        for name, parameter in own.items()
        for one in (fields.values() if name == "options" else (parameter,))
    ]

    @functools.wraps(command)
    def with_options(**values: Any) -> None:
        options = HeadOptions(**{name: values.pop(name) for name in fields})
        command(**values, options=options)

    with_options.__dict__["__signature__"] = inspect.Signature(parameters)  # typer reads it for the options
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_options


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadResult:
    """The result of the program on the head: exit code 0 is success, 1 is no. Exit code 2 raises an error instead."""

    code: int
    stdout: str
    stderr: str


class HeadProgramError(StateError):
    """The head answers, but its program is missing or breaks off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A head that can be reached. `run` takes an argv and returns code, stdout and stderr.

    `typed` are the options with which the reader selects this head. The programs of the head print `-c NAME` instead.
    """

    name: str
    run: Callable[[Sequence[str]], tuple[int, str, str]]
    typed: str = ""

    def ask(self, module: str, *arguments: str) -> HeadResult:
        """Run `python -m gpucluster.elastic.MODULE` on the head. GpuclusterError has the message of the head."""
        from gpucluster.plan import names

        code, out, err = self.run(
            (f"{names.VENV}/bin/python", "-I", "-m", f"gpucluster.elastic.{module}", *arguments)
        )
        out, err = self._retyped(out), self._retyped(err)
        if code not in (0, 1) or (code == 1 and any(sign in err for sign in _NEVER_OURS)):
            raise _failure(self.name, code, err)
        return HeadResult(code=code, stdout=printable_lines(out), stderr=printable_lines(err))

    def _retyped(self, text: str) -> str:
        """Let the commands in the text select the head as the reader did. The text may be JSON."""
        if not self.typed:
            return text
        typed = json.dumps(self.typed, ensure_ascii=False)[1:-1]
        return _OUR_COMMAND.sub(lambda found: f"{found[1]} {typed}", text)


def report(head: Head, output: Output, module: str, *arguments: str) -> None:
    """Run the module and print its result as text or JSON, then exit with its code."""
    if output is Output.TEXT:
        result = head.ask(module, *arguments)
        if result.stdout.strip():
            print_result(result.stdout.rstrip("\n"))
    else:
        result = head.ask(module, *arguments, "--json")
        values = _values(head.name, result)
        answer(**values)
        result = replace(result, code=0 if values["ok"] else 1)
    if result.stderr.strip():
        progress(result.stderr.rstrip("\n"))
    raise typer.Exit(result.code)


def reach(options: HeadOptions) -> Head:
    """Return the selected head. GpuclusterError lists the possible names."""
    found = choose(options)

    def run(argv: Sequence[str]) -> tuple[int, str, str]:
        done = found.run(ROLE_HEAD, argv, LIMIT_S)
        return done.code, done.stdout, done.stderr

    return Head(name=found.name, run=run, typed=found.typed)


def pool_names(incomplete: str) -> list[str]:
    """Return the pools of the running sandboxes, for shell completion."""
    from gpucluster.sandbox import state_dir

    found: set[str] = set()
    try:
        for home in state_dir.homes():
            found |= {pool["name"] for pool in parse_json(home.plan.read_text())["pools"]}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return sorted(name for name in found if name.startswith(incomplete))


# --- results --------------------------------------------------------------------------------------------
def _failure(name: str, code: int, err: str) -> StateError:
    """Return the message and next step of the program on the head, or that the program is not installed."""
    lines = printable_lines(err).strip().splitlines() or [f"the program ended with code {code}"]
    if any("No module named" in line for line in lines) or code == 127:
        return HeadProgramError(f"{name}: the head has no such program: {lines[-1]}", next_step=OLD)
    first = next((n for n, line in enumerate(lines) if line.startswith("error: ")), None)
    if first is None:
        return HeadProgramError(
            f"{name}: {lines[-1]}", next_step="read the log of gpucluster-elastic on the head"
        )
    rest = [line.strip() for line in lines[first + 1 :]]
    step = next((line.removeprefix("next: ") for line in rest if line.startswith("next: ")), None)
    return StateError(f"{name}: {lines[first].removeprefix('error: ')}", next_step=step)


def _values(name: str, result: HeadResult) -> dict[str, Any]:
    from gpucluster.elastic.inspect.answers import answer_values

    try:
        return answer_values(name, result.code, result.stdout)
    except ValueError as error:
        raise StateError(f"the head's answer is not JSON: {error}", next_step=OLD) from error


def checked_subject(subject: str) -> str:
    """The number of a job or the name of a node; GpuclusterError for a word that a program could read as an option."""
    if not subject or subject.startswith("-") or not subject.isprintable():
        raise GpuclusterError(
            f"{subject!r} is neither a job's number nor a node's name", next_step="squeue, sinfo -N"
        )
    return subject
