"""`gpucluster sandbox shell` and `ssh`: work in a sandbox with `pulumi up` and the other commands of AWS."""

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
    from gpucluster.plan.model import ClusterPlan
    from gpucluster.sandbox.state_dir import SandboxDir

SANDBOX = "GPUCLUSTER_SANDBOX"  # the variable with the name of the sandbox, in the shell's environment
PLAN_OVERLAY = "gpucluster.cli.shell:overlay_plan"


def shell(
    name: Annotated[str, typer.Argument(help="The sandbox's name: the spec's `name`.")],
    argv: Annotated[
        list[str] | None, typer.Argument(help="A command and its arguments after `--`, instead of a shell.")
    ] = None,
    command: Annotated[
        str | None, typer.Option("--command", "-c", help="A line that the shell runs, instead of a terminal.")
    ] = None,
) -> None:
    """Open a shell where `pulumi up`, `aws` and `gpucluster down` act on this sandbox, as they do on AWS."""
    with reporting(Output.TEXT):
        if argv and command is not None:
            raise typer.BadParameter("a command after `--` and `-c` cannot be combined")
        from gpucluster import engine
        from gpucluster.sandbox import host_checks, state_dir

        host_checks.require_root()
        home = state_dir.living(name)
        project = project_of(Path())
        target = home.target(engine.find_or_build(progress))
        _select(target, project)
        for line in _banner(home, target, project):
            progress(line)
        environment = _environment(home, target)
        found = _argv(home, argv, command)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(found[0], found, environment)  # noqa: S606  we become it: its terminal and exit code are ours


@dataclass(frozen=True, slots=True)
class Project:
    """The folder with Pulumi.yaml."""

    folder: Path
    stacks: tuple[str, ...]  # the names of its specs


def project_of(here: Path) -> Project:
    """Return the nearest folder upward with our `Pulumi.yaml`. StateError if there is none, or it belongs to another program."""
    from gpucluster.engine.target import PROJECT

    start = here.resolve()
    folder = next((one for one in (start, *start.parents) if (one / "Pulumi.yaml").is_file()), None)
    if folder is None:
        raise StateError(f"no Pulumi.yaml in {start} or in a parent folder", next_step=_CLONE)
    name = _project_name(folder)
    if name != PROJECT:
        raise StateError(
            f"{folder / 'Pulumi.yaml'} belongs to another project: {repr(name) if name else 'no name'}, not '{PROJECT}'",
            next_step=_CLONE,
        )
    return Project(folder, tuple(sorted(path.stem for path in (folder / "stacks").glob("*.yaml"))))


_CLONE = "go to the checkout of gpucluster, with Pulumi.yaml and stacks/"


def _project_name(folder: Path) -> str:
    from gpucluster.engine.target import project_name

    try:
        return project_name(folder / "Pulumi.yaml")
    except OSError as error:
        raise StateError(
            f"{folder / 'Pulumi.yaml'} cannot be read: {error.strerror}", next_step=_CLONE
        ) from error


def _select(target: "Target", project: Project) -> None:
    """Select the stack, so that no `-s` is needed."""
    from gpucluster.engine import run
    from gpucluster.engine.target import typed_environment
    from gpucluster.shell import run as call

    run.make_stack(target)
    argv = [str(target.pulumi), "stack", "select", target.stack, "--non-interactive"]
    call(argv, cwd=project.folder, env=typed_environment(target))


def _environment(home: "SandboxDir", target: "Target") -> Mapping[str, str]:
    from gpucluster.engine.target import typed_environment
    from gpucluster.sandbox.language.request import AMEND_VARIABLE

    typed = {**typed_environment(target), **_kubernetes(home, target)}
    return {**typed, "GPUCLUSTER_PATH": typed["PATH"], AMEND_VARIABLE: PLAN_OVERLAY, SANDBOX: home.name}


def _kubernetes(home: "SandboxDir", target: "Target") -> Mapping[str, str]:
    """Return what `kubectl` and `gpucluster k8s` need, if the plan has a cluster of EKS."""
    from gpucluster.engine.target import typed_environment
    from gpucluster.sandbox.kubernetes import programs

    if not home.has_kubernetes():
        return {}
    from gpucluster.sandbox.kubernetes.access import environment

    built = programs.find_or_build(progress)
    return environment(home, built, path=typed_environment(target)["PATH"])


def _banner(home: "SandboxDir", target: "Target", project: Project) -> tuple[str, ...]:
    """Return the differences from AWS and the commands to type."""
    missing = () if home.name in project.stacks else (
        f"  ! stacks/{home.name}.yaml is not in {project.folder}: `pulumi up` reads the spec there",
    )  # fmt: skip
    return (
        f"{home.name}: AWS is the sandbox at {target.environment['AWS_ENDPOINT_URL']}. Real: the engine ({target.pulumi}) and the program.",
        "  Stand-ins, so the engine warns `using ... from $PATH`:",
        "  - pulumi-resource-aws: a table of resource types over boto3, instead of the provider pulumi-aws",
        "  - pulumi-language-python: runs __main__.py with gpucluster's own Python; the plan contains the settings of the rehearsal",
        f"  - the state and the stack's settings are in {target.state_dir}, not in a bucket or in stacks/config",
        *missing,
        "  Type: pulumi preview, pulumi up, pulumi stack output, pulumi destroy --exclude-protected, "
        f"gpucluster sandbox status {home.name} --wait, gpucluster down {home.name}",
    )


def _argv(home: "SandboxDir", argv: list[str] | None, command: str | None) -> list[str]:
    if argv:
        return argv
    bash = shutil.which("bash") or "/bin/sh"
    if command is not None:
        return [bash, "-c", command]
    return [bash, "--rcfile", str(_rcfile(home)), "-i"] if bash.endswith("bash") else [bash, "-i"]


def _rcfile(home: "SandboxDir") -> Path:
    """Return a shell that reads the user's startup file, then restores PATH and shows the sandbox in the prompt."""
    path = home.pulumi / "bashrc"
    path.write_text(
        "[ -f ~/.bashrc ] && . ~/.bashrc\n"
        'export PATH="$GPUCLUSTER_PATH"\n'
        f'PS1={shlex.quote(f"(sandbox {home.name}) ")}"$PS1"\n'
    )
    return path


def ssh(
    name: Annotated[str, typer.Argument(help="The sandbox's name: the spec's `name`.")],
    machine: Annotated[str, typer.Argument(help="`login`, or the name of a login machine.")],
    user: Annotated[str, typer.Option("--user", "-l", help="One of the spec's users.")],
    argv: Annotated[list[str] | None, typer.Argument(help="A command after `--`. Default: a shell.")] = None,
    identity: Annotated[
        Path | None,
        typer.Option("--identity", "-i", help="The private key. Default: the key that ssh finds."),
    ] = None,
) -> None:
    """Log in as a user of the spec, with the user's key and the machine's real sshd."""
    with reporting(Output.TEXT):
        from gpucluster.sandbox import host_checks, state_dir
        from gpucluster.sandbox.machines import inside
        from gpucluster.sandbox.machines import ssh as way

        host_checks.require_root()
        home = state_dir.living(name)
        there = inside.find(home, host_checks.cgroup_trees(Path("/proc/self/mountinfo").read_text()), machine)
        found = way.ssh_argv(home, there, tuple(argv or ()), user=user, identity=identity)
    sys.stdout.flush()
    os.execvp(found[0], found)  # noqa: S606  we become it: its terminal and exit code are ours


def overlay_plan(plan: "ClusterPlan") -> "ClusterPlan":
    """Return the plan with the sandbox's differences. An update writes it to the sandbox, so all commands use it."""
    import pulumi

    from gpucluster.plan import codec
    from gpucluster.sandbox import differences, state_dir

    if plan.slurm is None:
        return plan  # the program refuses such a plan
    home = state_dir.living(os.environ.get(SANDBOX, ""))
    if plan.name != home.name:
        raise StateError(
            f"this shell belongs to the sandbox '{home.name}', but the stack is '{plan.name}'",
            next_step=f"pulumi stack select {home.name}",
        )
    changed = differences.in_sandbox(plan, home)
    if not pulumi.runtime.is_dry_run():
        _replace(home.plan, codec.dumps(changed))
    return changed


def _replace(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)
