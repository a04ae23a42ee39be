"""`gpucluster exec` and `logs`: a command on one machine of a cluster, and the logs of its services."""

import sys
from dataclasses import replace
from typing import Annotated

import typer

from gpucluster.cli.head import on_head
from gpucluster.cli.output import Output, OutputOption, answer, reporting
from gpucluster.cli.transport import HeadOptions, Transport, choose
from gpucluster.errors import GpuclusterError
from gpucluster.plan.names import ROLE_HEAD
from gpucluster.shell import Result
from gpucluster.text import DURATION_FORMS, parse_duration, printable_lines, quoted

UNITS = ("gpucluster-agent", "gpucluster-elastic", "slurmctld", "slurmdbd", "slurmd", "munge")
LOGS_S = 60.0
ClusterArgument = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A sandbox or a stack.")]
_MACHINE = "`head`, a Slurm node name; on AWS also `standby`, `login`, a login machine or an instance id."


@on_head
def exec(  # noqa: A001  the verb's name
    cluster: ClusterArgument,
    machine: Annotated[str, typer.Argument(help=_MACHINE)],
    command: Annotated[list[str], typer.Argument(help="The command and its arguments, after `--`.")],
    *,
    user: Annotated[str | None, typer.Option("--user", help="The user that runs it. Default: root.")] = None,
    limit: Annotated[str, typer.Option("--limit", help="The longest time: 90s, 30m.")] = "90s",
    options: HeadOptions,
    output: OutputOption = Output.TEXT,
) -> None:
    """Run a command on a machine without input, print its output and exit with its code. Systems Manager stores the command line."""
    with reporting(output):
        seconds = parse_duration(limit.strip())
        if not seconds:
            raise GpuclusterError(
                f"--limit: {quoted(limit)} is not a duration", next_step=f"write {DURATION_FORMS}"
            )
        found = choose(replace(options, cluster=cluster))
        as_user = () if user is None else ("runuser", f"--user={user}", "--")
        done = found.run(machine, (*as_user, *command), float(seconds))
        _print(found, machine, done, output)


@on_head
def logs(
    cluster: ClusterArgument,
    machine: Annotated[str, typer.Argument(help=_MACHINE)] = ROLE_HEAD,
    *,
    unit: Annotated[
        list[str] | None,
        typer.Option(
            "--unit", "-u", help="A unit of systemd; may be given again. Default: ours and Slurm's."
        ),
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="The newest lines.")] = 100,
    options: HeadOptions,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the newest log lines of the services of a machine, in the order of their times."""
    with reporting(output):
        found = choose(replace(options, cluster=cluster))
        units = [f"--unit={one}" for one in unit or UNITS]
        argv = ("journalctl", "--no-pager", "--output=short-iso", f"--lines={lines}", *units)
        _print(found, machine, found.run(machine, argv, LOGS_S), output)


def _print(found: Transport, machine: str, done: Result, output: Output) -> None:
    """Print both outputs, and exit with the code of the command."""
    if output is Output.JSON:
        values = {"code": done.code, "stdout": done.stdout, "stderr": done.stderr}
        answer(ok=done.code == 0, cluster=found.name, machine=machine, **values)
    else:
        sys.stdout.write(printable_lines(done.stdout))
        sys.stdout.flush()
        sys.stderr.write(printable_lines(done.stderr))
    raise typer.Exit(done.code)
