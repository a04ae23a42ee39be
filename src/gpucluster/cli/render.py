"""`gpucluster render`: write the files of a plan."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import Output, OutputOption, answer, print_result, progress, reporting
from gpucluster.errors import GpuclusterError

OWN = (
    "env.d",
    "head",
    "k8s",
    "profile.d",
    "slurm",
)  # rendering owns all files in these folders: any other file is stale

if TYPE_CHECKING:
    from gpucluster.artifacts import Artifact
    from gpucluster.plan.model import Bindings, ClusterPlan
    from gpucluster.plan.model.workloads import Workloads


def render(
    cluster: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A spec, or a name of stacks/, such as burst.")
    ],
    to: Annotated[Path | None, typer.Option("--to", metavar="DIR", help="Folder for the files.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing. Exit 1 if the folder of --to differs.")
    ] = False,
    bindings: Annotated[
        Path | None,
        typer.Option("--bindings", metavar="FILE", help="File with ids from AWS, for volumes."),
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Render the plan, Slurm's files and Kubernetes' manifests, to stdout or below a folder."""
    with reporting(output):
        if check and to is None:
            raise GpuclusterError("--check compares with a folder", next_step="name it: --to DIR")
        from gpucluster.cli.context import bindings_of, resolve_file, workloads_beside
        from gpucluster.cli.spec_files import require_spec
        from gpucluster.plan.codec import to_json

        file = require_spec(cluster)
        resolved = resolve_file(file)
        running, more = workloads_beside(file, resolved)
        bound = bindings_of(bindings, resolved.plan)
        artifacts, warnings = artifacts_of(resolved.plan, running, bound), (*resolved.warnings, *more)
        if check and to is not None:
            raise typer.Exit(_check(artifacts, to, output))
        if to is not None:
            _write(artifacts, to)
        if output is Output.JSON:
            files = [_file(artifact, with_content=to is None) for artifact in artifacts]
            answer(ok=True, files=files, to=None if to is None else str(to), problems=to_json(warnings))
            return
        for warning in warnings:
            progress(str(warning))
        if any(artifact.path.endswith("/MISSING.md") for artifact in artifacts):
            progress("k8s/MISSING.md: volumes whose ids come from AWS are missing; next: --bindings FILE")
        for artifact in artifacts:
            print_result(
                f"==> {artifact.path} <==\n{artifact.content.decode()}"
                if to is None
                else str(to / artifact.path)
            )


def artifacts_of(
    plan: "ClusterPlan", workloads: "Workloads | None" = None, bindings: "Bindings | None" = None
) -> "tuple[Artifact, ...]":
    """Return plan.json and every rendered file, by path."""
    from gpucluster.artifacts import Artifact
    from gpucluster.plan import codec, names

    made = [Artifact(names.PLAN_FILE, codec.dumps(plan).encode())]
    if plan.slurm is not None:
        from gpucluster.slurm.config.render import render as render_slurm

        made += render_slurm(plan)
    if plan.kubernetes is not None:
        from gpucluster.k8s import render as render_manifests

        made += render_manifests(plan, workloads, bindings)
    return tuple(sorted(made))


def _check(artifacts: "tuple[Artifact, ...]", to: Path, output: Output) -> int:
    """Print missing, stale and changed files of the folder, and return the exit code."""
    from gpucluster.gitops.diff import compare_files
    from gpucluster.plan.codec import to_json
    from gpucluster.text import printable

    changes = compare_files(_standing(artifacts, to), artifacts, labels=(str(to), "rendered"))
    if output is Output.JSON:
        answer(ok=not changes, to=str(to), changes=to_json(changes))
        return int(bool(changes))
    for change in changes:
        for line in change.diff.split("\n"):
            print_result(printable(line))
    if changes:
        progress(f"{to}: {len(changes)} files differ; `gpucluster render FILE --to {to}` writes them again")
        progress("  (delete files that are no longer rendered by hand)")
    else:
        progress(f"{to}: up to date")
    return int(bool(changes))


def _standing(artifacts: "tuple[Artifact, ...]", to: Path) -> "tuple[Artifact, ...]":
    """Return the files in the folders that rendering owns, and the files that it writes beside them."""
    from gpucluster.artifacts import Artifact

    made = {artifact.path for artifact in artifacts}
    try:
        inside = {path.relative_to(to).as_posix() for own in OWN for path in (to / own).rglob("*")}
        found = sorted(path for path in made | inside if (to / path).is_file())
        return tuple(Artifact(path, _content(to, path)) for path in found)
    except OSError as error:
        step = "name a readable folder"
        raise GpuclusterError(f"{to}: cannot be read: {error.strerror}", next_step=step) from error


def _content(to: Path, path: str) -> bytes:
    """Refuse a symbolic link: the author of a pull request could use it to show a file outside the folder."""
    file = to / path
    if file.resolve() != to.resolve() / path:
        step = "remove the link, or compare the file by hand"
        raise GpuclusterError(f"{file}: the link points outside of the compared folder", next_step=step)
    return file.read_bytes()


def _write(artifacts: "tuple[Artifact, ...]", to: Path) -> None:
    from gpucluster.artifacts import write_tree

    try:
        write_tree(artifacts, to)
    except OSError as error:
        step = "name a writable folder"
        raise GpuclusterError(f"{to}: cannot be written: {error.strerror}", next_step=step) from error


def _file(artifact: "Artifact", *, with_content: bool) -> dict[str, object]:
    named: dict[str, object] = {"path": artifact.path, "mode": f"{artifact.mode:04o}"}
    return {**named, "content": artifact.content.decode()} if with_content else named
