"""`gpucluster pool`: requests for one pool, which the daemon executes."""

from collections.abc import Callable
from typing import Annotated

import typer

from gpucluster.cli.head import checked_subject, on_head, pool_names, reach, report
from gpucluster.cli.output import Output, OutputOption, reporting
from gpucluster.cli.transport import HeadOptions

app = typer.Typer(
    help="List the pools of a running cluster, or pause, drain or resume one.", no_args_is_help=True
)
VERBS = {
    "pause": "Stop launches of the pool. Running nodes and jobs continue.",
    "drain": "Stop launches of the pool, and power down its nodes when they are idle.",
    "resume": "Allow launches again, and end a stop after failed boots.",
}
BecauseOption = Annotated[str, typer.Option("--because", help="The reason. `why` and the journal show it.")]


def _verb(name: str) -> Callable[..., None]:
    @on_head
    def order(
        pool: Annotated[str, typer.Argument(help="A pool name.", autocompletion=pool_names)],
        *,
        because: BecauseOption = "",
        options: HeadOptions,
        output: OutputOption = Output.TEXT,
    ) -> None:
        with reporting(output):
            subject = checked_subject(pool)
            report(
                reach(options),
                output,
                "order",
                f"pool-{name}",
                subject,
                f"--because={because}",
                f"--by={whoami()}",
            )

    return order


@app.command("list")
@on_head
def list_pools(*, options: HeadOptions, output: OutputOption = Output.TEXT) -> None:
    """List the pools with their size, their nodes by state, and why nothing is launched."""
    with reporting(output):
        report(reach(options), output, "inspect.pools")


@app.command("confirm")
@on_head
def confirm(*, because: BecauseOption = "", options: HeadOptions, output: OutputOption = Output.TEXT) -> None:
    """Permit launches after the daemon's journal and its copy were lost, with all orders and the month's spend."""
    with reporting(output):
        order = ("orders-confirm", "all", f"--because={because}", f"--by={whoami()}")
        report(reach(options), output, "order", *order)


def whoami() -> str:
    """Return the user and host that make the request."""
    import getpass
    import os

    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


for _name, _help in VERBS.items():
    app.command(_name, help=f"{_help} Exit 1: the pool does not exist.")(_verb(_name))
