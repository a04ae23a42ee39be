"""Run other programs: only by argv, never by a shell string, and always with a time limit."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpucluster.errors import GpuclusterError

TIMED_OUT = 124  # the code of a program that reached its time limit, as timeout(1) has it
MISSING = 127  # the code of a program that does not exist, as a shell has it


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a program. Invalid bytes in its text are replaced, because log lines are untrusted."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str


class CommandError(GpuclusterError):
    """A program ended with a code that the caller did not allow, or exceeded its time limit."""

    def __init__(self, result: Result) -> None:
        tail = (result.stderr or result.stdout).strip().splitlines()[-8:]
        super().__init__(f"{' '.join(result.argv[:6])} ended with code {result.code}: " + "\n".join(tail))
        self.result = result


def ending_with_us() -> tuple[str, ...]:
    """Return words before an argv: the kernel kills the program when the thread that starts it ends. Linux only; else none."""
    return ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()


def run(
    argv: Sequence[str],
    *,
    timeout_s: float = 60.0,
    stdin: str | bytes | None = None,
    env: Mapping[str, str] | None = None,
    without: tuple[str, ...] = (),
    cwd: Path | None = None,
    check: bool = True,
    undecodable: str = "replace",
) -> Result:
    """Run `argv` to its end with `env` added to our environment.

    CommandError, also without `check`: there is no such program (`MISSING`), or it is not done after `timeout_s` (`TIMED_OUT`), because
    its output is not known then. With `check`: also a code other than 0.
    `without`: beginnings of names; such variables of our environment are left out.
    `undecodable`: with "surrogateescape" the texts can be encoded to the program's own bytes again.
    """
    data = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        done = subprocess.run(
            list(argv),
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            timeout=timeout_s,
            env=_environment(env, without),
            cwd=cwd,
            check=False,
        )
    except FileNotFoundError as error:
        raise CommandError(Result(tuple(argv), MISSING, "", f"{argv[0]}: no such program")) from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(Result(tuple(argv), TIMED_OUT, "", f"not done after {timeout_s:g} s")) from error
    result = Result(
        tuple(argv),
        done.returncode,
        done.stdout.decode(errors=undecodable),
        done.stderr.decode(errors=undecodable),
    )
    if check and result.code != 0:
        raise CommandError(result)
    return result


def _environment(env: Mapping[str, str] | None, without: tuple[str, ...]) -> Mapping[str, str] | None:
    if env is None and not without:
        return None
    kept = {name: value for name, value in os.environ.items() if not (without and name.startswith(without))}
    return {**kept, **(env or {})}
