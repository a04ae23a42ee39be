"""The one door to other programs: argv only, never a shell string, always with a time limit."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpucluster.errors import GpuclusterError


@dataclass(frozen=True, slots=True)
class Result:
    """What a program answered; text is decoded with replacement, because log lines are hostile."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str


class CommandError(GpuclusterError):
    """A program ended with a code that the caller did not allow, or not in time."""

    def __init__(self, result: Result) -> None:
        tail = (result.stderr or result.stdout).strip().splitlines()[-8:]
        super().__init__(f"{' '.join(result.argv[:6])} ended with code {result.code}: " + "\n".join(tail))
        self.result = result


def run(
    argv: Sequence[str],
    *,
    timeout_s: float = 60.0,
    stdin: str | bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
) -> Result:
    """Run `argv` to its end; `env` is added to ours. Raise CommandError on a code other than 0 if `check`."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        done = subprocess.run(
            list(argv),
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            timeout=timeout_s,
            env=None if env is None else {**os.environ, **env},
            cwd=cwd,
            check=False,
        )
    except FileNotFoundError as error:
        raise CommandError(Result(tuple(argv), 127, "", f"{argv[0]}: no such program")) from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(Result(tuple(argv), 124, "", f"not done after {timeout_s:g} s")) from error
    result = Result(
        tuple(argv),
        done.returncode,
        done.stdout.decode(errors="replace"),
        done.stderr.decode(errors="replace"),
    )
    if check and result.code != 0:
        raise CommandError(result)
    return result
