"""Use a stack of the user: their project, backend, plugins and environment. Only read and destroy it."""

import os
from pathlib import Path

from pulumi import automation as auto

from gpucluster.engine.deployment import DeployedResource, parse
from gpucluster.engine.events import EventCollector, Outcome, Report
from gpucluster.engine.process import EngineProcess
from gpucluster.engine.run import drive, release_stack, silent
from gpucluster.errors import StateError
from gpucluster.text import printable


def deployed_resources(work_dir: Path, stack: str, pulumi: Path) -> tuple[DeployedResource, ...]:
    """Return the resources of the state. Raise StateError if the stack does not exist."""
    process = EngineProcess(pulumi, os.environ)
    return parse(_select(work_dir, stack, process).export_stack().deployment or {})


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
    try:
        return auto.select_stack(
            stack, work_dir=str(work_dir), opts=auto.LocalWorkspaceOptions(pulumi_command=process)
        )
    except auto.StackNotFoundError as error:
        raise StateError(
            f"there is no cluster {stack!r}: neither a sandbox nor a Pulumi stack has that name",
            next_step="gpucluster sandbox status, or pulumi stack ls",
        ) from error
    except auto.CommandError as error:
        raise _not_opened(stack, error) from error


def _not_opened(stack: str, error: auto.CommandError) -> StateError:
    """Raise StateError with the engine's message: login, backend, passphrase or plugin is missing."""
    lines = [line.strip() for line in str(error).splitlines() if "error: " in line] or [str(error).strip()]
    why = printable("; ".join(line.removeprefix("stderr: ").removeprefix("error: ") for line in lines))
    return StateError(
        f"there is no sandbox {stack!r}, and Pulumi cannot open a stack of that name: {why}",
        next_step="docs/aws.md, 2: PULUMI_BACKEND_URL, pulumi login; or gpucluster sandbox status",
    )
