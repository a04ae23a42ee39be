"""`gpucluster why`, `timeline` and `reconcile`: the verbs that run a module of `elastic.inspect` on the head."""

from typing import Annotated

import typer

from gpucluster.cli.head import checked_subject, on_head, reach, report
from gpucluster.cli.output import Output, OutputOption, reporting
from gpucluster.cli.transport import HeadOptions


@on_head
def why(
    subject: Annotated[str, typer.Argument(metavar="JOB|NODE", help="A job id, or a Slurm node name.")],
    *,
    options: HeadOptions,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show why a job waits, or the state of a node, and the next step with its time. Exit 1: no such job or node."""
    with reporting(output):
        word = checked_subject(subject)
        report(reach(options), output, "inspect.why", word)


@on_head
def timeline(
    job: Annotated[int, typer.Argument(min=1, help="A job id.")],
    *,
    options: HeadOptions,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the events of a job: its requests, instances and nodes, with their ids. Exit 1: no such job."""
    with reporting(output):
        report(reach(options), output, "inspect.timeline", str(job))


@on_head
def reconcile(
    *,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only print what the daemon would do for the cluster in its present state."
        ),
    ] = False,
    options: HeadOptions,
    output: OutputOption = Output.TEXT,
) -> None:
    """Start a reconcile of the daemon now; with --dry-run, only print what it would do."""
    with reporting(output):
        report(reach(options), output, "inspect.reconcile", *(("--dry-run",) if dry_run else ()))
