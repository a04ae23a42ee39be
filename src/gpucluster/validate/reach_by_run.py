"""Connections to machines by a function that runs a command on a named machine, for example by Systems Manager."""

from collections.abc import Callable, Sequence
from typing import Any

from testinfra.backend.base import BaseBackend, CommandResult  # pyright: ignore[reportMissingTypeStubs] -- it ships none

from gpucluster.shell import Result
from gpucluster.validate.reach import Machines

Run = Callable[[str, Sequence[str], float], Result]  # machine, argv as root, limit in seconds


class RunBackend(BaseBackend):
    """The function as the connection: `sh -c COMMAND` as root."""

    NAME = "run"

    def __init__(self, hostspec: str, run: Run) -> None:
        super().__init__(hostspec)
        self._run = run

    def run(self, command: str, *args: str, timeout_s: float = 60, **_options: Any) -> CommandResult:
        done = self._run(self.hostname, ("sh", "-c", self.get_command(command, *args)), timeout_s)
        return self.result(done.code, command.encode(), done.stdout.encode(), done.stderr.encode())


def by_run(run: Run) -> Machines:
    """Machines by a function; its GpuclusterError means that the machine cannot be reached."""
    return Machines(lambda machine: RunBackend(machine, run))
