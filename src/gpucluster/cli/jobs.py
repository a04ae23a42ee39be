"""`gpucluster jobs`: job scripts filled in for a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import Output, OutputOption, answer, print_result, reporting
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpucluster.artifacts import Artifact
    from gpucluster.plan.model import Partition, SlurmPlan


def _template_names(incomplete: str) -> list[str]:
    """Return the names of the templates, for shell completion."""
    from gpucluster.slurm.config.jobs import TEMPLATES

    return [one.name for one in TEMPLATES if one.name.startswith(incomplete)]


def jobs(
    cluster: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A spec, or a name of stacks/, such as burst.")
    ],
    template: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEMPLATE]", help="Print this script. Default: list all.", autocompletion=_template_names
        ),
    ] = None,
    *,
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition", "-p", help="The partition of the scripts. Default: the cluster's default."
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Write the scripts to this folder.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """List, print or write job scripts with the partition, GPUs, cores, file systems and signals of a cluster."""
    with reporting(output):
        from gpucluster.cli.context import resolve_file
        from gpucluster.cli.spec_files import require_spec
        from gpucluster.slurm.config import jobs as templates

        plan = _of_slurm(resolve_file(require_spec(cluster)).plan)
        place = templates.partition_of(plan, partition)
        chosen = [one.name for one in templates.available(plan, place)] if template is None else [template]
        made = {name: templates.render(plan, place, name) for name in chosen}
        if to is not None:
            _write(tuple(made.values()), to)
        if output is Output.JSON:
            _answer(plan, place, made, to)
        elif to is not None:
            for one in made.values():
                print_result(str(to / one.path))
        elif template is not None:
            print_result(made[template].content.decode().rstrip("\n"))
        else:
            _print_list(plan, place)


def _answer(plan: "SlurmPlan", place: "Partition", made: "Mapping[str, Artifact]", to: Path | None) -> None:
    from gpucluster.plan.codec import to_json
    from gpucluster.slurm.config import jobs as templates

    about = {one.name: one.about for one in templates.TEMPLATES}
    rows = [
        {"name": name, "file": one.path, "about": about[name], "script": one.content.decode()}
        for name, one in made.items()
    ]
    answer(
        ok=True,
        cluster=plan.name,
        partition=place.name,
        values=to_json(templates.job(plan, place)),
        jobs=rows,
        to=None if to is None else str(to),
    )


def _print_list(plan: "SlurmPlan", place: "Partition") -> None:
    from gpucluster.slurm.config import jobs as templates

    values = templates.job(plan, place)
    print_result(
        f"partition {place.name}: {values.gpus} GPUs and {values.cpus} CPUs on each node, at most {values.time}"
    )
    for one in templates.available(plan, place):
        print_result(f"  {one.name:<11} {one.about}")


def _of_slurm(plan: object) -> "SlurmPlan":
    from gpucluster.plan.model import SlurmOnAws, SlurmOnHosts

    if not isinstance(plan, SlurmOnAws | SlurmOnHosts):
        raise GpuclusterError("this cluster has no Slurm", next_step="name a cluster with `slurm:`")
    return plan


def _write(made: "tuple[Artifact, ...]", to: Path) -> None:
    from gpucluster.artifacts import write_tree

    try:
        write_tree(made, to)
    except OSError as error:
        raise GpuclusterError(
            f"{to}: cannot be written: {error.strerror}", next_step="name a writable folder"
        ) from error
