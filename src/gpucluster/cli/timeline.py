"""`gpucluster timeline JOB`: when each thing of a job happened, and how long each stage took."""

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


def timeline(
    job: Annotated[int, typer.Argument(min=1, help="A job's number.")],
    *,
    cluster: ClusterOption = None,
    ssh: SshOption = None,
    known_hosts: KnownHostsOption = KNOWN_HOSTS,
    identity: IdentityOption = None,
    ssh_config: SshConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show a job's story from the journal: its requests, instances and nodes, each with its id. Exit 1: no such job."""
    with reporting(output):
        way = Way(cluster=cluster, ssh=ssh, known_hosts=known_hosts, identity=identity, ssh_config=ssh_config)
        report(reach(way), output, "timeline", str(job))
