"""`gpucluster status`: the overview of a cluster, and the wait until its head has applied the published bundle."""

import time
from dataclasses import replace
from typing import Annotated, Any

import typer

from gpucluster.cli.head import Head, HeadProgramError, on_head, reach, report
from gpucluster.cli.output import Output, OutputOption, progress, reporting
from gpucluster.cli.transport import HeadOptions
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.json_text import parse_json

MODULE = "inspect.status"
WAIT_S = 1800.0  # a boot with a new image, and a bundle that waits for its jobs
LOOK_S = 3.0


@on_head
def status(
    cluster: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A sandbox or a stack.")],
    *,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until the head has applied the published bundle and is ready."),
    ] = False,
    options: HeadOptions,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what is applied, up, paused, refused, draining, spending and waiting. Exit 2: the head does not answer."""
    with reporting(output):
        head = reach(replace(options, cluster=cluster))
        if wait:
            until_settled(head)
        report(head, output, MODULE)


def until_settled(head: Head, limit_s: float = WAIT_S) -> None:
    """Wait for the published bundle. GpuclusterError says what is missing after `limit_s`, or that the bundle is refused."""
    end, shown = time.monotonic() + limit_s, ""
    while True:
        words = _missing(head)
        if not words:
            return
        if words != shown:
            progress(shown := words)
        if time.monotonic() >= end:
            raise StateError(
                f"{head.name} is not ready after {limit_s:g} s: {words}",
                next_step=f"gpucluster logs {head.name} head",
            )
        time.sleep(LOOK_S)


def _missing(head: Head) -> str:
    """Return what the head still waits for; empty: nothing. A head that does not answer may still boot."""
    try:
        answer = head.ask(MODULE, "--json")
    except HeadProgramError:
        raise
    except StateError as error:
        return error.message
    values: dict[str, Any] = parse_json(answer.stdout)
    published = values["published"]
    if values["settled"]:
        return ""
    if published["refused"]:
        raise GpuclusterError(
            f"{head.name}: the head refuses bundle {published['bundle'][:12]}: {published['refused']}",
            next_step="correct the spec and apply it again; the head runs with the last bundle until then",
        )
    return (
        values["held"] or published["detail"] or published["unread"] or "the published bundle is not applied"
    )
