"""`gpucluster sandbox ssh NAME MACHINE`: log in to a machine of a sandbox as one of the spec's users, by his key."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from gpucluster.cli.output import Output, reporting


def ssh(
    name: Annotated[str, typer.Argument(help="The sandbox's name: the spec's `name`.")],
    machine: Annotated[str, typer.Argument(help="`login`, or a login machine's name.")],
    user: Annotated[str, typer.Option("--user", "-l", help="One of the spec's users.")],
    argv: Annotated[
        list[str] | None, typer.Argument(help="A command after `--`; a shell without it.")
    ] = None,
    identity: Annotated[
        Path | None, typer.Option("--identity", "-i", help="His private key; else what ssh finds.")
    ] = None,
) -> None:
    """Log in as a user of the spec, with his own key and the machine's real sshd."""
    with reporting(Output.TEXT):
        from gpucluster.sandbox import host, inside, ledger
        from gpucluster.sandbox import ssh as way

        host.require_root()
        home = ledger.living(name)
        there = inside.find(home, host.cgroup_trees(Path("/proc/self/mountinfo").read_text()), machine)
        found = way.ssh_argv(home, there, tuple(argv or ()), user=user, identity=identity)
    sys.stdout.flush()
    os.execvp(found[0], found)  # noqa: S606  we become it: its terminal and exit code are ours
