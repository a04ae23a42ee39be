"""`gpucluster accounts`: compare the accounts and QOS of the cluster's plan with slurmdbd, and apply them."""

from dataclasses import replace
from typing import Annotated

import typer

from gpucluster.cli.head import on_head, reach, report
from gpucluster.cli.output import Output, OutputOption, reporting
from gpucluster.cli.transport import HeadOptions

app = typer.Typer(help="Compare accounts, QOS and limits with slurmdbd, or apply them.", no_args_is_help=True)
ClusterArgument = Annotated[str, typer.Argument(metavar="NAME", help="A sandbox or a stack.")]


@app.command()
@on_head
def diff(cluster: ClusterArgument, *, options: HeadOptions, output: OutputOption = Output.TEXT) -> None:
    """Show what `apply` would change. Nothing is changed. Exit 1: there is a difference."""
    with reporting(output):
        report(reach(replace(options, cluster=cluster)), output, "accounts", "diff")


@app.command()
@on_head
def apply(cluster: ClusterArgument, *, options: HeadOptions, output: OutputOption = Output.TEXT) -> None:
    """Apply the accounts of the head's plan. Nothing is deleted: what left the spec takes no new jobs. Exit 1: a part is left."""
    with reporting(output):
        report(reach(replace(options, cluster=cluster)), output, "accounts", "apply")
