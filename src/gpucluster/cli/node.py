"""`gpucluster node`: orders about one node, carried out by the daemon."""

import re
from typing import Annotated

import typer

from gpucluster.cli.head import (
    KNOWN_HOSTS,
    ClusterOption,
    IdentityOption,
    KnownHostsOption,
    SshConfigOption,
    SshOption,
    Way,
    reach,
    report,
)
from gpucluster.cli.output import Output, OutputOption, reporting
from gpucluster.cli.pool import BecauseOption, whoami
from gpucluster.cli.why import hold
from gpucluster.errors import GpuclusterError

app = typer.Typer(help="Replace, keep or release a node of the living cluster.", no_args_is_help=True)
NodeArgument = Annotated[str, typer.Argument(help="A Slurm node's name.")]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@app.command()
def replace(
    node: NodeArgument,
    *,
    now: Annotated[
        bool, typer.Option("--now", help="Signal and requeue its jobs, rather than wait for them.")
    ] = False,
    because: BecauseOption = "",
    cluster: ClusterOption = None,
    ssh: SshOption = None,
    known_hosts: KnownHostsOption = KNOWN_HOSTS,
    identity: IdentityOption = None,
    ssh_config: SshConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Give the node another machine when its jobs are done. Exit 1: no such node."""
    with reporting(output):
        way = Way(cluster=cluster, ssh=ssh, known_hosts=known_hosts, identity=identity, ssh_config=ssh_config)
        _order(way, output, "node-replace", node, because, *(("--now",) if now else ()))


@app.command()
def keep(
    node: NodeArgument,
    *,
    for_: Annotated[str, typer.Option("--for", help="How long: 90s, 30m, 2h, 3d.")] = "2h",
    because: BecauseOption = "",
    cluster: ClusterOption = None,
    ssh: SshOption = None,
    known_hosts: KnownHostsOption = KNOWN_HOSTS,
    identity: IdentityOption = None,
    ssh_config: SshConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Do not end the node's machine before then, not even when its boot failed: to look at it. Exit 1: no such node."""
    with reporting(output):
        way = Way(cluster=cluster, ssh=ssh, known_hosts=known_hosts, identity=identity, ssh_config=ssh_config)
        _order(way, output, "node-keep", node, because, f"--for={seconds(for_)}")


@app.command()
def release(
    node: NodeArgument,
    *,
    because: BecauseOption = "",
    cluster: ClusterOption = None,
    ssh: SshOption = None,
    known_hosts: KnownHostsOption = KNOWN_HOSTS,
    identity: IdentityOption = None,
    ssh_config: SshConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Undo a keep or a replace. Exit 1: no such node."""
    with reporting(output):
        way = Way(cluster=cluster, ssh=ssh, known_hosts=known_hosts, identity=identity, ssh_config=ssh_config)
        _order(way, output, "node-release", node, because)


def seconds(text: str) -> int:
    """`2h` -> 7200."""
    found = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", text.strip())
    if found is None:
        raise GpuclusterError(
            f"--for: {text!r} is no time", next_step="a number and its unit: 90s, 30m, 2h, 3d"
        )
    return int(found[1]) * _UNITS[found[2]]


def _order(way: Way, output: Output, verb: str, node: str, because: str, *more: str) -> None:
    held = hold(node)
    report(reach(way), output, "order", verb, held, f"--because={because}", f"--by={whoami()}", *more)
