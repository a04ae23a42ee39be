"""`gpucluster bundle`: the bundle that the head holds because its nodes have jobs, and the order to apply it now."""

from typing import Annotated

import typer

from gpucluster.cli.head import checked_subject, on_head, reach, report
from gpucluster.cli.output import Output, OutputOption, reporting
from gpucluster.cli.pool import whoami
from gpucluster.cli.transport import HeadOptions

app = typer.Typer(help="Show a bundle that the head holds, or apply it now.", no_args_is_help=True)


@app.command()
@on_head
def show(
    *,
    options: HeadOptions,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show which bundle the head holds, and for which nodes and jobs it waits."""
    with reporting(output):
        report(reach(options), output, "bundle_order", "show")


@app.command()
@on_head
def apply(
    digest: Annotated[
        str, typer.Argument(help="The digest of the held bundle, at least its first 12 characters.")
    ],
    *,
    now: Annotated[
        bool,
        typer.Option("--now", help="Do not wait: Slurm ends the jobs that the bundle waits for."),
    ] = False,
    options: HeadOptions,
    output: OutputOption = Output.TEXT,
) -> None:
    """Apply the held bundle with this digest. The order applies to no other bundle. Exit 1: it is not the held one."""
    with reporting(output):
        held = checked_subject(digest)
        arguments = ("apply", held, f"--by={whoami()}", *(("--now",) if now else ()))
        report(reach(options), output, "bundle_order", *arguments)
