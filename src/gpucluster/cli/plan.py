"""`gpucluster plan`: the plan of a spec, and the reasons of its values."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import (
    PlanOutput,
    PlanOutputOption,
    ReviewOutput,
    answer,
    print_result,
    progress,
    reporting,
)
from gpucluster.cli.prices import PricesOption, prices_from


class OperatorPolicy(StrEnum):
    """The policies of `--operator-policy`."""

    PLAN = "plan"
    APPLY = "apply"
    BOUNDARY = "boundary"
    COMMANDS = "commands"


_NO_POLICY = (PlanOutput.MARKDOWN, PlanOutput.SARIF)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpucluster.catalog import Prices
    from gpucluster.cli.context import ResolvedSpec
    from gpucluster.plan.explain import Note


ClusterArgument = Annotated[
    str, typer.Argument(metavar="NAME|FILE", help="A spec, or a name of stacks/, such as burst.")
]
ExplainOption = Annotated[
    bool, typer.Option("--explain", help="Show every default and derived value with its reason.")
]
ResourcesOption = Annotated[
    bool,
    typer.Option("--resources", help="List the resources that Pulumi would declare, without a query to AWS."),
]
PropertiesOption = Annotated[
    bool,
    typer.Option("--properties", help="With --resources: also list the properties of each resource."),
]
LiveOption = Annotated[
    bool,
    typer.Option("--live", help="With --resources: query the account for the look-ups of the program."),
]
RecordOption = Annotated[
    bool,
    typer.Option(
        "--record", help="With --live: write the answers to lookups/NAME.yaml in the folder of FILE."
    ),
]
PolicyOption = Annotated[
    bool,
    typer.Option(
        "--policy",
        help="Check the declared resources with the policies of gpucluster. Exit 1 for a violation.",
    ),
]
PolicyPackOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--policy-pack",
        metavar="FOLDER",
        help="Also check with this policy pack of the site. It implies --policy.",
    ),
]
OperatorPolicyOption = Annotated[
    OperatorPolicy | None,
    typer.Option(
        "--operator-policy",
        help="Print the IAM policies of the operator who plans, applies or runs commands on the head, or the boundary of the machines' roles.",
    ),
]
StateOption = Annotated[
    str | None,
    typer.Option(
        "--state", metavar="s3://BUCKET", help="With --operator-policy: where Pulumi keeps its state."
    ),
]
StateKeyOption = Annotated[
    str | None,
    typer.Option(
        "--state-key", metavar="KEY", help="With --state: the KMS key of its secrets, alias or ARN."
    ),
]
ToOption = Annotated[
    Path | None,
    typer.Option("--to", metavar="DIR", help="With --operator-policy: folder for one file for each policy."),
]


def plan(  # noqa: PLR0917  typer's options
    cluster: ClusterArgument,
    explain: ExplainOption = False,
    resources: ResourcesOption = False,
    properties: PropertiesOption = False,
    live: LiveOption = False,
    record: RecordOption = False,
    policy: PolicyOption = False,
    policy_pack: PolicyPackOption = None,
    operator_policy: OperatorPolicyOption = None,
    state: StateOption = None,
    state_key: StateKeyOption = None,
    to: ToOption = None,
    prices: PricesOption = None,
    output: PlanOutputOption = PlanOutput.TEXT,
) -> None:
    """Show the plan of a spec: names, addresses, machine sizes, times, cost. Needs no network and no credentials."""
    with_policy = policy or bool(policy_pack)
    with_state = bool(state or state_key or to)
    others = with_policy or explain or resources
    _check_operator(operator_policy, output, with_state=with_state, others=others)
    _check_needs(resources=resources, properties=properties, live=live, record=record)
    _check_conflicts(explain=explain, resources=resources, with_policy=with_policy)
    _check_output(output, resources=resources, with_policy=with_policy)
    with reporting(output):
        from gpucluster.cli import operator_policy as operator_page
        from gpucluster.cli import policy as policy_page
        from gpucluster.cli import resources as resources_page
        from gpucluster.cli.context import resolve_file
        from gpucluster.cli.spec_files import require_spec

        file = require_spec(cluster)
        resolved = resolve_file(file)
        if operator_policy is not None:
            which = operator_policy.value
            operator_page.show(resolved, file, which, output, state=state, state_key=state_key, to=to)
        elif with_policy:
            policy_page.show(resolved, file, policy_pack or (), output)
        elif resources:
            wanted = ReviewOutput(output.value)
            resources_page.show(
                resolved, file, properties=properties, output=wanted, live=live, record=record
            )
        else:
            _show_plan(resolved, prices_from(prices), explain=explain, output=output)


def _show_plan(resolved: "ResolvedSpec", prices: "Prices", *, explain: bool, output: PlanOutput) -> None:
    """Print the plan; with `explain` also the reasons of its values."""
    from gpucluster.plan.codec import to_json

    notes = _notes(resolved) if explain else ()
    if output is PlanOutput.JSON:
        extra = {"explain": to_json(notes)} if explain else {}
        answer(ok=True, plan=to_json(resolved.plan), problems=to_json(resolved.warnings), **extra)
        return
    for warning in resolved.warnings:
        progress(str(warning))
    from gpucluster.cli.plan_text import reasons, summary

    for line in (*summary(resolved.plan), *_cost(resolved, prices), *reasons(notes)):
        print_result(line)


def _cost(resolved: "ResolvedSpec", prices: "Prices") -> "Iterator[str]":
    """Yield the cost of a month on AWS: the least with idle pools, the most with all nodes."""
    from gpucluster.cost import estimate
    from gpucluster.gitops.report.words import span

    if resolved.plan.aws is None:
        return
    found = estimate(resolved.plan, prices)
    unknown = f"; unknown: {', '.join(found.most.unknown)}" if found.most.unknown else ""
    yield f"a month costs {span(found)} (idle to full, at prices of {found.prices_date}){unknown}"


def _notes(resolved: "ResolvedSpec") -> "tuple[Note, ...]":
    """Return the notes of the plan, and the order in which the manifests are applied."""
    from gpucluster.plan.explain import explain

    notes = explain(resolved.spec, resolved.catalog, resolved.plan)
    if resolved.plan.kubernetes is None:
        return notes
    from gpucluster.cli.plan_text import waves

    return (*notes, *waves())


def _check_operator(
    which: OperatorPolicy | None, output: PlanOutput, *, with_state: bool, others: bool
) -> None:
    if which is None and with_state:
        raise typer.BadParameter("--state, --state-key and --to need --operator-policy")
    if which is not None and (others or output in _NO_POLICY):
        raise typer.BadParameter(
            "--operator-policy takes --state, --state-key, --to and --output text or json"
        )


def _check_needs(*, resources: bool, properties: bool, live: bool, record: bool) -> None:
    """Refuse an option that has no effect without another one."""
    if (live and not resources) or (record and not live):
        raise typer.BadParameter("--live needs --resources, and --record needs --live")
    if properties and not resources:
        raise typer.BadParameter("--properties needs --resources")


def _check_conflicts(*, explain: bool, resources: bool, with_policy: bool) -> None:
    if with_policy and (explain or resources):
        raise typer.BadParameter("--policy cannot be combined with --resources or --explain")
    if explain and resources:
        raise typer.BadParameter("--explain and --resources cannot be combined")


def _check_output(output: PlanOutput, *, resources: bool, with_policy: bool) -> None:
    if output is PlanOutput.SARIF and not with_policy:
        raise typer.BadParameter("--output sarif needs --policy")
    if output is PlanOutput.MARKDOWN and not (resources or with_policy):
        raise typer.BadParameter("--output markdown needs --resources or --policy")
