"""`gpucluster pool`: orders about a pool, carried out by the daemon."""

from collections.abc import Callable
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
    pool_names,
    reach,
    report,
)
from gpucluster.cli.output import Output, OutputOption, reporting
from gpucluster.cli.why import hold

app = typer.Typer(help="Pause, drain or resume a pool of the living cluster.", no_args_is_help=True)
VERBS = {
    "pause": "Launch nothing more for the pool; what runs goes on.",
    "drain": "Launch nothing more, and let its nodes go as they fall idle.",
    "resume": "Undo both, and close a breaker that is open.",
}
BecauseOption = Annotated[
    str, typer.Option("--because", help="For people: stands in `why` and in the journal.")
]


def _verb(name: str) -> Callable[..., None]:
    def order(
        pool: Annotated[str, typer.Argument(help="A pool's name.", autocompletion=pool_names)],
        *,
        because: BecauseOption = "",
        cluster: ClusterOption = None,
        ssh: SshOption = None,
        known_hosts: KnownHostsOption = KNOWN_HOSTS,
        identity: IdentityOption = None,
        ssh_config: SshConfigOption = None,
        output: OutputOption = Output.TEXT,
    ) -> None:
        with reporting(output):
            held = hold(pool)
            way = Way(
                cluster=cluster, ssh=ssh, known_hosts=known_hosts, identity=identity, ssh_config=ssh_config
            )
            report(
                reach(way), output, "order", f"pool-{name}", held, f"--because={because}", f"--by={whoami()}"
            )

    return order


def whoami() -> str:
    """Who gives the order, as the desk knows them."""
    import getpass
    import os

    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


for _name, _help in VERBS.items():
    app.command(_name, help=f"{_help} Exit 1: no such pool.")(_verb(_name))
