"""The real AWS CLI as a client of the sandbox's API: one process, many commands, because each start takes a second of CPU."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.clouds import OPERATOR, REGION, RunningCloud

_PROCESS = Path(__file__).parents[1] / "judges/cli_process.py"


@dataclass(frozen=True)
class CliAnswer:
    """What one command printed and returned."""

    command: str
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The error code of AWS in the CLI's message; empty without one."""
        _, found, rest = self.err.partition("An error occurred (")
        return rest.partition(")")[0] if found else ""


class AwsCli:
    """Runs commands as `aws` does in a shell."""

    def __init__(self, process: "subprocess.Popen[str]", always: Sequence[str]) -> None:
        self._process, self._always = process, always
        self.commands: list[CliAnswer] = []

    def run(self, command: str) -> CliAnswer:
        """Run `aws COMMAND`; quotes are those of a shell."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([*self._always, *shlex.split(command)]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the AWS CLI ended at: {command}"
        answer = CliAnswer(command, **json.loads(line))
        self.commands.append(answer)
        return answer

    def text(self, command: str) -> str:
        """The output of a command that succeeds."""
        answer = self.run(command)
        assert answer.code == 0, f"{command}: {answer.code}: {answer.err.strip()}"
        return answer.out.strip()

    def typed(self, step: str) -> None:
        """Run one command of a remedy, which must be one of the AWS CLI."""
        program, _, command = step.partition(" ")
        assert program == "aws", step
        self.text(command)

    def json(self, command: str) -> Any:
        """The output of a command that succeeds, as a value; {} if it printed nothing."""
        return json.loads(self.text(command) or "{}")

    def error(self, command: str) -> str:
        """The code with which AWS refuses the command."""
        answer = self.run(command)
        assert answer.code != 0, f"{command} was not refused: {answer.out[:300]}"
        assert answer.error, f"{command}: {answer.err.strip()[:500]}"
        return answer.error


@contextmanager
def aws_cli(cloud: RunningCloud, folder: Path, **more: str) -> Generator[AwsCli]:
    """Start the CLI with the operator's key. `folder` is its home folder."""
    environment: Mapping[str, str] = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "AWS_ACCESS_KEY_ID": OPERATOR[0],
        "AWS_SECRET_ACCESS_KEY": OPERATOR[1],
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_PAGER": "",
        **more,
    }
    process = subprocess.Popen(
        [sys.executable, str(_PROCESS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        cwd=folder,
        text=True,
    )
    with process:
        try:
            yield AwsCli(process, ["--endpoint-url", cloud.endpoint])
        finally:
            process.kill()
