"""The Pulumi CLI as a child of ours: its own session, a clean environment, and a way to interrupt it."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from pulumi.automation import CommandResult, OnOutput, PulumiCommand
from pulumi.automation.errors import create_command_error
from semver import VersionInfo

from gpucluster.shell import run

_KEPT = (
    "HOME",
    "LANG",
    "LC_ALL",
    "PATH",
    "TMPDIR",
    "TZ",
)  # of our own environment; the rest could steer a run


def clean_environment() -> dict[str, str]:
    """Ours without what could steer a run."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


class EngineProcess(PulumiCommand):
    """What the Automation API starts. In its own session, so that a terminal's Ctrl-C comes through us, once."""

    def __init__(self, pulumi: Path, base: Mapping[str, str]) -> None:
        self._base = base
        self.command = str(pulumi)
        said = run([self.command, "version"], env={"PULUMI_SKIP_UPDATE_CHECK": "true"}).stdout.strip()
        self.version = VersionInfo.parse(said.removeprefix("v"))
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
        """Once: the engine ends what is under way and saves its state. Twice: it stops at once."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """No more patience; the next run removes the lock and repairs."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self._running is not None and self._running.poll() is None:
                self._running.send_signal(number)


class _Lines(threading.Thread):
    """Reads a pipe to its end, line by line."""

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
