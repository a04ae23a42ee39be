"""Run the Pulumi CLI as a child process: own session, clean environment, interrupts on request."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO

from pulumi.automation import CommandResult, OnOutput, PulumiCommand
from pulumi.automation.errors import create_command_error
from semver import VersionInfo

from gpucluster.shell import run

_PASSED_ON = (
    "HOME",
    "LANG",
    "LC_ALL",
    "PATH",
    "TMPDIR",
    "TZ",
)  # variables that are passed on; all others could change Pulumi's behaviour


def clean_environment() -> dict[str, str]:
    """Return the environment without variables that could change Pulumi's behaviour."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


@cache  # a start of the CLI takes 0.2 s of CPU
def _version(pulumi: str) -> VersionInfo:
    version = run([pulumi, "version"], env={"PULUMI_SKIP_UPDATE_CHECK": "true"}).stdout.strip()
    return VersionInfo.parse(version.removeprefix("v"))


class EngineProcess(PulumiCommand):
    """The command for the Automation API. It has its own session, so that Ctrl-C in a terminal reaches it only through us."""

    def __init__(self, pulumi: Path, base: Mapping[str, str]) -> None:
        self._base = base
        self.command = str(pulumi)
        self.version = _version(self.command)
        self._running: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: OnOutput | None = None,
        on_error: OnOutput | None = None,
    ) -> CommandResult:
        """Run one command to its end."""
        child = subprocess.Popen(
            [self.command, "--non-interactive", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={**self._base, **additional_env, "PULUMI_AUTOMATION_API": "true"},
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        with self._lock:
            self._running = child
        out, err = _Lines(child.stdout, on_output), _Lines(child.stderr, on_error)
        out.join()
        err.join()
        code = child.wait()
        result = CommandResult("\n".join(out.lines), "\n".join(err.lines), code)
        if code != 0:
            raise create_command_error(result)
        return result

    def interrupt(self) -> None:
        """First call: the engine finishes running operations and saves its state. Second call: it stops at once."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill the process. The next run removes its lock and repairs the state."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self._running is not None and self._running.poll() is None:
                self._running.send_signal(number)


class _Lines(threading.Thread):
    """Read a pipe to its end, line by line."""

    def __init__(self, stream: IO[str] | None, callback: OnOutput | None) -> None:
        super().__init__(daemon=True)
        self.lines: list[str] = []
        self._stream, self._callback = stream, callback
        self.start()

    def run(self) -> None:
        if self._stream is None:
            return
        with self._stream:
            for line in self._stream:
                self.lines.append(line.rstrip())
                if self._callback is not None:
                    self._callback(self.lines[-1])
