"""`gpucluster sandbox shell NAME`: where `pulumi up` and the rest are typed as on AWS, and mean the sandbox."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import Output, progress, reporting
from gpucluster.errors import StateError

if TYPE_CHECKING:
    from gpucluster.engine.target import Target
    from gpucluster.sandbox.ledger import Home


def shell(
    name: Annotated[str, typer.Argument(help="The sandbox's name: the spec's `name`.")],
    argv: Annotated[
        list[str] | None, typer.Argument(help="A command and its arguments after `--`, instead of a shell.")
    ] = None,
    command: Annotated[
        str | None, typer.Option("--command", "-c", help="A line for the shell, instead of a terminal.")
    ] = None,
) -> None:
    """Open a shell where `pulumi up`, `aws` and `gpucluster down` act on this sandbox, as they do on AWS."""
    with reporting(Output.TEXT):
        if argv and command is not None:
            raise typer.BadParameter("a command after `--` and one with `-c`: give one of them")
        from gpucluster import engine
        from gpucluster.sandbox import host, ledger

        host.require_root()
        home = ledger.living(name)
        project = project_of(Path())
        aim = home.target(engine.find_or_build(progress))
        _select(aim, project)
        for line in _told(home, aim, project):
            progress(line)
        environment = _environment(home, aim)
        found = _argv(home, argv, command)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(found[0], found, environment)  # noqa: S606  we become it: its terminal and exit code are ours


@dataclass(frozen=True, slots=True)
class Project:
    """The folder with Pulumi.yaml that the program is run from."""

    folder: Path
    stacks: tuple[str, ...]  # the specs in it


def project_of(here: Path) -> Project:
    """The nearest folder upward with our `Pulumi.yaml`; StateError when there is none, or it is another program's."""
    from gpucluster.engine.target import PROJECT

    start = here.resolve()
    folder = next((one for one in (start, *start.parents) if (one / "Pulumi.yaml").is_file()), None)
    if folder is None:
        raise StateError(f"neither {start} nor a folder above it has a Pulumi.yaml", next_step=_CLONE)
    named = [line.partition(":")[2].strip() for line in _lines(folder) if line.startswith("name:")]
    if named != [PROJECT]:
        found = ", ".join(map(repr, named)) or "no name"
        raise StateError(
            f"{folder / 'Pulumi.yaml'} is of another project: {found}, not '{PROJECT}'", next_step=_CLONE
        )
    return Project(folder, tuple(sorted(path.stem for path in (folder / "stacks").glob("*.yaml"))))


_CLONE = "go to the checkout of gpucluster, where Pulumi.yaml and stacks/ stand"


def _lines(folder: Path) -> list[str]:
    try:
        return (folder / "Pulumi.yaml").read_text(errors="replace").splitlines()
    except OSError as error:
        raise StateError(
            f"{folder / 'Pulumi.yaml'} cannot be read: {error.strerror}", next_step=_CLONE
        ) from error


def _select(aim: "Target", project: Project) -> None:
    """So that no `-s` need be typed."""
    from gpucluster.engine import run
    from gpucluster.engine.target import typed_environment
    from gpucluster.shell import run as call

    run.make_stack(aim)
    argv = [str(aim.pulumi), "stack", "select", aim.stack, "--non-interactive"]
    call(argv, cwd=project.folder, env=typed_environment(aim))


def _environment(home: "Home", aim: "Target") -> Mapping[str, str]:
    from gpucluster.cli.rehearsed import AMEND, SANDBOX
    from gpucluster.engine.language.order import AMEND_VARIABLE
    from gpucluster.engine.target import typed_environment

    typed = typed_environment(aim)
    return {**typed, "GPUCLUSTER_PATH": typed["PATH"], AMEND_VARIABLE: AMEND, SANDBOX: home.name}


def _told(home: "Home", aim: "Target", project: Project) -> tuple[str, ...]:
    """What is a stand-in here, and what to type."""
    missing = () if home.name in project.stacks else (
        f"  ! stacks/{home.name}.yaml is not in {project.folder}: `pulumi up` reads the spec there",
    )  # fmt: skip
    return (
        f"{home.name}: AWS is the sandbox at {aim.environment['AWS_ENDPOINT_URL']}. Real: the engine ({aim.pulumi}), and this program.",
        "  Stand-ins, so the engine warns `using ... from $PATH`:",
        "  - pulumi-resource-aws: a table of resource types over boto3, instead of the provider pulumi-aws",
        "  - pulumi-language-python: runs __main__.py with gpucluster's own Python; the lines of a rehearsal are in the plan",
        f"  - the state and the stack's settings stand in {aim.state_dir}, not in a bucket, nor in stacks/config",
        *missing,
        "  Type: pulumi preview, pulumi up, pulumi stack output, pulumi destroy --exclude-protected, "
        f"gpucluster sandbox status {home.name} --wait, gpucluster down {home.name}",
    )


def _argv(home: "Home", argv: list[str] | None, command: str | None) -> list[str]:
    if argv:
        return argv
    bash = shutil.which("bash") or "/bin/sh"
    if command is not None:
        return [bash, "-c", command]
    return [bash, "--rcfile", str(_rcfile(home)), "-i"] if bash.endswith("bash") else [bash, "-i"]


def _rcfile(home: "Home") -> Path:
    """The person's own, and after it what they may not lose: PATH may be set there, and the prompt says where one is."""
    path = home.pulumi / "bashrc"
    path.write_text(
        "[ -f ~/.bashrc ] && . ~/.bashrc\n"
        'export PATH="$GPUCLUSTER_PATH"\n'
        f'PS1={shlex.quote(f"(sandbox {home.name}) ")}"$PS1"\n'
    )
    return path
