"""Use a stack of the user: their project, backend, plugins and environment. Only read and destroy it."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pulumi import automation as auto

from gpucluster.engine.deployment import DeployedResource, parse
from gpucluster.engine.events import EventCollector, Outcome, Report
from gpucluster.engine.process import EngineProcess
from gpucluster.engine.run import drive, release_stack, silent
from gpucluster.errors import StateError
from gpucluster.shell import CommandError, run
from gpucluster.text import printable

LOOK_S = 30.0  # a backend without a network answers never


def stack_exists(work_dir: Path, stack: str, pulumi: Path) -> bool:
    """Return whether Pulumi has a stack of that name. StateError says why that is not known. Nothing is selected."""
    argv = (str(pulumi), "--non-interactive", "stack", "--show-name", "--stack", stack)
    try:
        done = run(argv, cwd=work_dir, check=False, timeout_s=LOOK_S)
    except CommandError as error:
        raise StateError(f"Pulumi did not answer: {error.result.stderr}") from error
    if done.code == 0:
        return True
    if f"no stack named '{stack}' found" in done.stderr:
        return False
    raise StateError(f"Pulumi cannot look: {_errors(done.stderr)}")


def deployed_resources(work_dir: Path, stack: str, pulumi: Path) -> tuple[DeployedResource, ...]:
    """Return the resources of the state. Raise StateError if the stack does not exist. Nothing is selected."""
    workspace = auto.LocalWorkspace(work_dir=str(work_dir), pulumi_command=EngineProcess(pulumi, os.environ))
    with _opening(stack):
        return parse(workspace.export_stack(stack).deployment or {})


def destroy(work_dir: Path, stack: str, pulumi: Path, *, report: Report = silent) -> Outcome:
    """Run `pulumi destroy --exclude-protected`."""
    process = EngineProcess(pulumi, os.environ)
    return drive(
        stack,
        process,
        lambda: _select(work_dir, stack, process),
        lambda found, on_event: found.destroy(on_event=on_event, exclude_protected=True, run_program=False),
        EventCollector(report),
    )


def release(work_dir: Path, stack: str, pulumi: Path) -> None:
    """Remove all protection, so that the next `destroy` deletes everything. A `pulumi up` protects it again."""
    release_stack(_select(work_dir, stack, EngineProcess(pulumi, os.environ)))


def _select(work_dir: Path, stack: str, process: EngineProcess) -> auto.Stack:
    with _opening(stack):
        return auto.select_stack(
            stack, work_dir=str(work_dir), opts=auto.LocalWorkspaceOptions(pulumi_command=process)
        )


@contextmanager
def _opening(stack: str) -> Generator[None]:
    """Raise StateError for a stack that does not exist, or that the engine cannot open."""
    try:
        yield
    except auto.StackNotFoundError as error:
        raise StateError(
            f"there is no cluster {stack!r}: neither a sandbox nor a Pulumi stack has that name",
            next_step="gpucluster sandbox status, or pulumi stack ls",
        ) from error
    except auto.CommandError as error:
        raise _not_opened(stack, error) from error


def _not_opened(stack: str, error: auto.CommandError) -> StateError:
    """Raise StateError with the engine's message: login, backend, passphrase or plugin is missing."""
    return StateError(
        f"Pulumi cannot open a stack {stack!r}: {_errors(str(error))}",
        next_step="docs/aws.md, 2: PULUMI_BACKEND_URL, pulumi login; or gpucluster sandbox status",
    )


def _errors(said: str) -> str:
    """Return the engine's errors in one line."""
    lines = [line.strip() for line in said.splitlines() if "error: " in line] or [said.strip()]
    return printable("; ".join(line.removeprefix("stderr: ").removeprefix("error: ") for line in lines))
