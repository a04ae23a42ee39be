"""`gpucluster reconcile`: wake the daemon, or say what it would do."""

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


def reconcile(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done on the cluster as it is now.")
    ] = False,
    cluster: ClusterOption = None,
    ssh: SshOption = None,
    known_hosts: KnownHostsOption = KNOWN_HOSTS,
    identity: IdentityOption = None,
    ssh_config: SshConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Let the daemon look at Slurm and the cloud now; with --dry-run, print what it would do and do nothing."""
    with reporting(output):
        way = Way(cluster=cluster, ssh=ssh, known_hosts=known_hosts, identity=identity, ssh_config=ssh_config)
        report(reach(way), output, "reconcile", *(("--dry-run",) if dry_run else ()))
