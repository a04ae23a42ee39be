"""`gpucluster render`: the files of a plan."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import Output, OutputOption, answer, progress, reporting, say
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.artifacts import Artifact
    from gpucluster.plan.model import ClusterPlan


def render(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A spec, such as stacks/burst.yaml.")],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Write the files below this folder.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Render the plan and Slurm's files, to stdout or below a folder."""
    with reporting(output):
        from gpucluster.cli.desk import resolve_file
        from gpucluster.plan.codec import to_json

        desk = resolve_file(file)
        artifacts = artifacts_of(desk.plan)
        if to is not None:
            _write(artifacts, to)
        if output is Output.JSON:
            files = [_file(artifact, with_content=to is None) for artifact in artifacts]
            answer(ok=True, files=files, to=None if to is None else str(to), problems=to_json(desk.warnings))
            return
        for warning in desk.warnings:
            progress(str(warning))
        for artifact in artifacts:
            say(
                f"==> {artifact.path} <==\n{artifact.content.decode()}"
                if to is None
                else str(to / artifact.path)
            )


def artifacts_of(plan: "ClusterPlan") -> "tuple[Artifact, ...]":
    """plan.json and every rendered file, by path."""
    from gpucluster.artifacts import Artifact
    from gpucluster.plan import codec, names
    from gpucluster.slurm import render as render_slurm

    made = (Artifact(names.PLAN_FILE, codec.dumps(plan).encode()), *render_slurm(plan))
    return tuple(sorted(made))


def _write(artifacts: "tuple[Artifact, ...]", to: Path) -> None:
    from gpucluster.artifacts import write_tree

    try:
        write_tree(artifacts, to)
    except OSError as error:
        step = "name a folder that can be written"
        raise GpuclusterError(f"{to}: cannot be written: {error.strerror}", next_step=step) from error


def _file(artifact: "Artifact", *, with_content: bool) -> dict[str, object]:
    named: dict[str, object] = {"path": artifact.path, "mode": f"{artifact.mode:04o}"}
    return {**named, "content": artifact.content.decode()} if with_content else named
