"""`gpucluster node`: requests for one node, which the daemon executes."""

from typing import Annotated

import typer

from gpucluster.cli.head import checked_subject, on_head, reach, report
from gpucluster.cli.output import Output, OutputOption, reporting
from gpucluster.cli.pool import BecauseOption, whoami
from gpucluster.cli.transport import HeadOptions
from gpucluster.errors import GpuclusterError
from gpucluster.text import DURATION_FORMS, parse_duration, quoted

app = typer.Typer(
    help="Replace, keep, release, drain or undrain a node of a running cluster.", no_args_is_help=True
)
NodeArgument = Annotated[str, typer.Argument(help="A Slurm node name.")]


@app.command()
@on_head
def replace(
    node: NodeArgument,
    *,
    now: Annotated[
        bool,
        typer.Option("--now", help="Signal and requeue the jobs of the node instead of waiting for them."),
    ] = False,
    because: BecauseOption = "",
    options: HeadOptions,
    output: OutputOption = Output.TEXT,
) -> None:
    """Replace the node's machine when its jobs are done. Exit 1: no such node."""
    with reporting(output):
        _order(options, output, "node-replace", node, because, *(("--now",) if now else ()))


@app.command()
@on_head
def keep(
    node: NodeArgument,
    *,
    for_: Annotated[str, typer.Option("--for", help="Duration: 90s, 30m, 2h, 3d.")] = "2h",
    because: BecauseOption = "",
    options: HeadOptions,
    output: OutputOption = Output.TEXT,
) -> None:
    """Keep the node's machine for the time of --for, even after a failed boot, to examine it. Exit 1: no such node."""
    with reporting(output):
        _order(options, output, "node-keep", node, because, f"--for={seconds(for_)}")


@app.command()
@on_head
def release(
    node: NodeArgument,
    *,
    because: BecauseOption = "",
    options: HeadOptions,
    output: OutputOption = Output.TEXT,
) -> None:
    """Cancel a keep or a replace. Exit 1: no such node."""
    with reporting(output):
        _order(options, output, "node-release", node, because)


@app.command()
@on_head
def drain(
    node: NodeArgument,
    *,
    because: Annotated[
        str, typer.Option("--because", help="The reason. `why`, the journal and Slurm show it.")
    ],
    options: HeadOptions,
    output: OutputOption = Output.TEXT,
) -> None:
    """Let the node take no new jobs, until a person lifts the drain. Exit 1: no such node."""
    with reporting(output):
        _order(options, output, "node-drain", node, because)


@app.command()
@on_head
def undrain(
    node: NodeArgument,
    *,
    because: BecauseOption = "",
    options: HeadOptions,
    output: OutputOption = Output.TEXT,
) -> None:
    """Lift the drain of a person. Drains of the daemon stay. Exit 1: no such node."""
    with reporting(output):
        _order(options, output, "node-undrain", node, because)


def seconds(text: str) -> int:
    """Convert `2h` to 7200 seconds. GpuclusterError for another form."""
    found = parse_duration(text.strip())
    if not found:
        raise GpuclusterError(f"--for: {quoted(text)} is not a duration", next_step=f"write {DURATION_FORMS}")
    return found


def _order(options: HeadOptions, output: Output, verb: str, node: str, because: str, *more: str) -> None:
    subject = checked_subject(node)
    report(reach(options), output, "order", verb, subject, f"--because={because}", f"--by={whoami()}", *more)
