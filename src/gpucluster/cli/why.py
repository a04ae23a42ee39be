"""`gpucluster why JOB|NODE`: one screen in plain words, from the head's own record."""

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
from gpucluster.errors import GpuclusterError


def why(
    subject: Annotated[
        str, typer.Argument(metavar="JOB|NODE", help="A job's number, or a Slurm node's name.")
    ],
    *,
    cluster: ClusterOption = None,
    ssh: SshOption = None,
    known_hosts: KnownHostsOption = KNOWN_HOSTS,
    identity: IdentityOption = None,
    ssh_config: SshConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Say why a job waits, or what a node is at, what happens next and when. Exit 1: no such job or node."""
    with reporting(output):
        held = hold(subject)
        way = Way(cluster=cluster, ssh=ssh, known_hosts=known_hosts, identity=identity, ssh_config=ssh_config)
        report(reach(way), output, "why", held)


def hold(subject: str) -> str:
    """A word that no program takes as an option."""
    if not subject or subject.startswith("-") or not subject.isprintable():
        raise GpuclusterError(
            f"{subject!r} is neither a job's number nor a node's name", next_step="squeue, sinfo -N"
        )
    return subject
