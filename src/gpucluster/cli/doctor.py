"""`gpucluster doctor`: check the account before anything is created. It only reads."""

import datetime
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpucluster.cli.output import Output, OutputOption, answer, print_result, progress, reporting
from gpucluster.errors import GpuclusterError

if TYPE_CHECKING:
    from gpucluster.doctor.facts import AccountFinding
    from gpucluster.doctor.queries import Clients
    from gpucluster.plan.model import AwsPlan


def doctor(
    spec: Annotated[
        str | None, typer.Argument(metavar="NAME|SPEC", help="A spec, or the name of one in stacks/.")
    ] = None,
    sandbox: Annotated[
        str | None, typer.Option(metavar="NAME", help="Query the sandbox of this name instead of AWS.")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check credentials, region, quotas, offerings, addresses, image, roles, state. Exit 1 if one fails, 2 if the account gives no answer."""
    from gpucluster.cli.context import resolve_file

    with reporting(output):
        resolved = resolve_file(_file(spec or sandbox))
        plan = resolved.plan
        if plan.aws is None:
            raise GpuclusterError(
                f"{plan.name} uses existing hosts: it has no AWS account",
                next_step=f"`gpucluster validate {plan.name}` checks its machines",
            )
        for warning in resolved.warnings:
            progress(str(warning))
        lines = _asked(plan, sandbox)
    from gpucluster.doctor.findings import exit_code

    code = exit_code(lines)
    if output is Output.JSON:
        _print_json(plan, lines, code)
    else:
        _print_text(lines)
    if code:
        raise typer.Exit(code)


def _file(spec: str | None) -> Path:
    """Return a spec by path or by cluster name. Without an argument: the only spec in the folder."""
    if spec is None:
        there = sorted(Path("stacks").glob("*.yaml"))
        if len(there) == 1:
            return there[0]
        known = ", ".join(path.stem for path in there) or "none in stacks/"
        raise GpuclusterError(f"no cluster is named; available: {known}", next_step="gpucluster doctor NAME")
    from gpucluster.cli.spec_files import require_spec

    return require_spec(spec)


def _asked(plan: "AwsPlan", sandbox: str | None) -> "tuple[AccountFinding, ...]":
    from gpucluster import catalog as catalogs
    from gpucluster.doctor.findings import report
    from gpucluster.doctor.pulumi_lock import state_lock
    from gpucluster.doctor.queries import query_account

    clients, environment = _of_user(plan) if sandbox is None else _of_sandbox(sandbox)
    lock = state_lock(plan.name, Path(), environment, clients)
    catalog = catalogs.load()
    stand_in = sandbox is not None or "AWS_ENDPOINT_URL" in environment
    facts = query_account(plan, catalog, clients, lock, stand_in=stand_in)
    return report(plan, catalog, facts, datetime.datetime.now(tz=datetime.UTC))


def _of_user(plan: "AwsPlan") -> "tuple[Clients, dict[str, str]]":
    """Return a boto3 session. In `sandbox shell` the environment sets its endpoint."""
    from gpucluster.cloud.aws import boto3_client, client_config

    region = plan.aws.region

    def client(service: str) -> Any:
        return boto3_client(service, region, client_config(attempts=3, read_timeout_s=20))

    return client, dict(os.environ)


def _of_sandbox(name: str) -> "tuple[Clients, dict[str, str]]":
    from gpucluster.sandbox import state_dir

    home = state_dir.living(name)
    return home.client, {"PULUMI_BACKEND_URL": (home.pulumi / "backend").as_uri()}


def _print_text(lines: "tuple[AccountFinding, ...]") -> None:
    from gpucluster.doctor.findings import NOT_CHECKED, count_verdicts

    for line in lines:
        where = f" [{line.where}]" if line.where else ""
        print_result(f"{line.verdict.value:8}{line.what}{where}: {line.found}")
        if line.verdict.value != "ok" and line.expected:
            print_result(f"{'':8}expected: {line.expected}")
        if line.next_step:
            print_result(f"{'':8}next: {line.next_step}")
    print_result("not checked, because no read-only call shows it:")
    for what in NOT_CHECKED:
        print_result(f"{'':8}{what}")
    counts = count_verdicts(lines)
    print_result(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


def _print_json(plan: "AwsPlan", lines: "tuple[AccountFinding, ...]", code: int) -> None:
    from gpucluster.doctor.findings import NOT_CHECKED, count_verdicts
    from gpucluster.plan.codec import to_json

    region = plan.aws.region
    answer(
        ok=code == 0,
        name=plan.name,
        region=region,
        lines=to_json(lines),
        not_checked=list(NOT_CHECKED),
        counts=dict(count_verdicts(lines)),
        exit_code=code,
    )
