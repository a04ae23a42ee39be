"""`gpucluster scaling`: whether the daemon may launch machines, for the whole cluster."""

from dataclasses import replace
from typing import Annotated

import typer

from gpucluster.cli.head import on_head, reach, report
from gpucluster.cli.output import Output, OutputOption, reporting
from gpucluster.cli.pool import BecauseOption, whoami
from gpucluster.cli.transport import HeadOptions

app = typer.Typer(
    help="Show, stop or start launches of a whole cluster. `pool` does it for one pool.",
    no_args_is_help=True,
)
ClusterArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="A sandbox or a stack, if -c does not name it.")
]


def _named(name: str | None, options: HeadOptions) -> HeadOptions:
    """Return the options with the cluster, which has one name."""
    if name is not None and options.cluster not in (None, name):
        raise typer.BadParameter(f"name one cluster, not {name} and {options.cluster}")
    return replace(options, cluster=name or options.cluster)


@app.command()
@on_head
def show(name: ClusterArgument = None, *, options: HeadOptions, output: OutputOption = Output.TEXT) -> None:
    """Show whether the daemon may launch, and who said so."""
    with reporting(output):
        report(reach(_named(name, options)), output, "scaling", "show")


@app.command()
@on_head
def start(
    name: ClusterArgument = None,
    *,
    because: BecauseOption = "",
    after_killed_down: Annotated[
        bool,
        typer.Option("--after-killed-down", help="The `down` that stopped launches was killed."),
    ] = False,
    options: HeadOptions,
    output: OutputOption = Output.TEXT,
) -> None:
    """Allow launches again. Exit 1: `gpucluster down` destroys the cluster."""
    with reporting(output):
        killed = ("--after-killed-down",) if after_killed_down else ()
        said = (f"--because={because}", f"--by={whoami()}", *killed)
        report(reach(_named(name, options)), output, "scaling", "start", *said)


@app.command()
@on_head
def stop(
    name: ClusterArgument = None,
    *,
    because: BecauseOption = "",
    options: HeadOptions,
    output: OutputOption = Output.TEXT,
) -> None:
    """Stop launches. Running nodes and jobs continue."""
    with reporting(output):
        said = (f"--because={because}", f"--by={whoami()}")
        report(reach(_named(name, options)), output, "scaling", "stop", *said)
