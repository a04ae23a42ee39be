"""`gpucluster doctor`: what stands between a spec and its cluster, before anything is created. It only reads."""

import datetime
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpucluster.cli.output import Output, OutputOption, answer, progress, reporting, say
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.doctor.account import Clients
    from gpucluster.doctor.model import Line
    from gpucluster.plan.model import ClusterPlan


def doctor(
    spec: Annotated[
        str | None, typer.Argument(metavar="NAME|SPEC", help="A spec, or the name of one in stacks/.")
    ] = None,
    sandbox: Annotated[
        str | None, typer.Option(metavar="NAME", help="Ask the sandbox of that name instead of AWS.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check credentials, region, quotas, offerings, addresses, image, roles, state. Exit 1 if one fails, 2 if nobody answers or the account tells nothing."""
    from gpucluster.cli.desk import resolve_file

    with reporting(output):
        desk = resolve_file(_file(spec or sandbox))
        plan = desk.plan
        if plan.aws is None:
            raise GpuclusterError(
                f"{plan.name} stands on hosts that exist: there is no account to ask",
                next_step="gpucluster validate asks its machines",
            )
        for warning in desk.warnings:
            progress(str(warning))
        lines = _asked(plan, sandbox)
    from gpucluster.doctor.judge import exit_code

    code = exit_code(lines)
    if output is Output.JSON:
        _say_json(plan, lines, code)
    else:
        _say_text(lines)
    if code:
        raise typer.Exit(code)


def _file(spec: str | None) -> Path:
    """A path, or the name of a cluster as Pulumi's program finds it; without one, the only spec that is there."""
    if spec is None:
        there = sorted(Path("stacks").glob("*.yaml"))
        if len(there) == 1:
            return there[0]
        known = ", ".join(path.stem for path in there) or "none in stacks/"
        raise GpuclusterError(f"which cluster? There are: {known}", next_step="gpucluster doctor NAME")
    from gpucluster.cli.desk import the_spec

    return the_spec(spec)


def _asked(plan: "ClusterPlan", sandbox: str | None) -> "tuple[Line, ...]":
    from gpucluster import catalog as catalogs
    from gpucluster.doctor.account import gather
    from gpucluster.doctor.judge import report
    from gpucluster.doctor.state import state_lock

    clients, environment = _of_user(plan) if sandbox is None else _of_sandbox(sandbox)
    lock = state_lock(plan.name, Path(), environment, clients)
    catalog = catalogs.load()
    stand_in = sandbox is not None or "AWS_ENDPOINT_URL" in environment
    facts = gather(plan, catalog, clients, lock, stand_in=stand_in)
    return report(plan, catalog, facts, datetime.datetime.now(tz=datetime.UTC))


def _of_user(plan: "ClusterPlan") -> "tuple[Clients, dict[str, str]]":
    """boto3's own way to credentials; in `sandbox shell` the environment names the sandbox."""
    from gpucluster.cloud.aws import boto3_client, client_config

    region = plan.aws.region if plan.aws else ""

    def client(service: str) -> Any:
        return boto3_client(service, region, client_config(attempts=3, read_timeout_s=20))

    return client, dict(os.environ)


def _of_sandbox(name: str) -> "tuple[Clients, dict[str, str]]":
    from gpucluster.sandbox import ledger

    home = ledger.living(name)
    return home.client, {"PULUMI_BACKEND_URL": (home.pulumi / "backend").as_uri()}


def _say_text(lines: "tuple[Line, ...]") -> None:
    from gpucluster.doctor.judge import NOT_ASKED, counted

    for line in lines:
        where = f" [{line.where}]" if line.where else ""
        say(f"{line.verdict.value:8}{line.what}{where}: {line.found}")
        if line.verdict.value != "ok" and line.expected:
            say(f"{'':8}expected: {line.expected}")
        if line.next_step:
            say(f"{'':8}next: {line.next_step}")
    say("not asked, because no call that only reads can tell:")
    for what in NOT_ASKED:
        say(f"{'':8}{what}")
    counts = counted(lines)
    say(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


def _say_json(plan: "ClusterPlan", lines: "tuple[Line, ...]", code: int) -> None:
    from gpucluster.doctor.judge import NOT_ASKED, counted
    from gpucluster.plan.codec import to_json

    region = plan.aws.region if plan.aws else None
    answer(
        ok=code == 0,
        name=plan.name,
        region=region,
        lines=to_json(lines),
        not_asked=list(NOT_ASKED),
        counts=dict(counted(lines)),
        exit_code=code,
    )
