"""`gpucluster plan`: what a spec becomes, and why."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import PlanOutput, PlanOutputOption, ReviewOutput, answer, progress, reporting, say

if TYPE_CHECKING:
    from gpucluster.cli.desk import Desk
    from gpucluster.plan.explain import Note
    from gpucluster.plan.model import Budget, ClusterPlan, Pool, Source


def plan(  # noqa: PLR0917  typer's options
    cluster: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A spec, or a name of stacks/, such as burst.")
    ],
    explain: Annotated[
        bool, typer.Option("--explain", help="Show every default and derived fact with its reason.")
    ] = False,
    resources: Annotated[
        bool, typer.Option("--resources", help="List what Pulumi would declare, without asking the cloud.")
    ] = False,
    properties: Annotated[
        bool, typer.Option("--properties", help="With --resources: each resource's properties, too.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="With --resources: ask the account what the program looks up.")
    ] = False,
    record: Annotated[
        bool, typer.Option("--record", help="With --live: keep the answers in lookups/NAME.yaml beside FILE.")
    ] = False,
    policy: Annotated[
        bool,
        typer.Option(
            "--policy", help="Judge what Pulumi would declare by our rules. Exit 1 for a violation."
        ),
    ] = False,
    policy_pack: Annotated[
        list[Path] | None,
        typer.Option(
            "--policy-pack", metavar="FOLDER", help="A site's own pack beside ours, as with --policy."
        ),
    ] = None,
    output: PlanOutputOption = PlanOutput.TEXT,
) -> None:
    """Show what a spec becomes: names, addresses, shapes, times. Needs no network and no credentials."""
    judged = policy or bool(policy_pack)
    if (live and not resources) or (record and not live):
        raise typer.BadParameter("--live goes with --resources, and --record with --live")
    _fitting(explain=explain, resources=resources, properties=properties, judged=judged, output=output)
    with reporting(output):
        from gpucluster.cli.desk import resolve_file, the_spec

        file = the_spec(cluster)
        if judged:
            from gpucluster.cli.policy import show as show_policy

            show_policy(resolve_file(file), file, policy_pack or (), output)
            return
        if resources:
            from gpucluster.cli.resources import show

            desk, wanted = resolve_file(file), ReviewOutput(output.value)
            show(desk, file, properties=properties, output=wanted, live=live, record=record)
            return
        from gpucluster.plan.codec import to_json

        desk = resolve_file(file)
        notes = _notes(desk) if explain else ()
        if output is PlanOutput.JSON:
            extra = {"explain": to_json(notes)} if explain else {}
            answer(ok=True, plan=to_json(desk.plan), problems=to_json(desk.warnings), **extra)
            return
        for warning in desk.warnings:
            progress(str(warning))
        for line in (*_summary(desk.plan), *_reasons(notes)):
            say(line)


def _notes(desk: "Desk") -> "tuple[Note, ...]":
    """The plan's own, and the order in which manifests are applied."""
    from gpucluster.plan.explain import explain

    notes = explain(desk.spec, desk.catalog, desk.plan)
    if desk.plan.kubernetes is None:
        return notes
    from gpucluster.cli.plan_kubernetes import waves

    return (*notes, *waves())


def _fitting(*, explain: bool, resources: bool, properties: bool, judged: bool, output: PlanOutput) -> None:
    """Options that say nothing together are a mistake, not ignored."""
    if judged and (explain or resources):
        raise typer.BadParameter("--policy judges the program, and lists nothing: ask one by one")
    if output is PlanOutput.SARIF and not judged:
        raise typer.BadParameter("--output sarif goes with --policy")
    if explain and resources:
        raise typer.BadParameter(
            "--explain is about the plan and --resources about the program: ask one by one"
        )
    if properties and not resources:
        raise typer.BadParameter("--properties goes with --resources")
    if output is PlanOutput.MARKDOWN and not (resources or judged):
        raise typer.BadParameter("--output markdown goes with --resources or --policy")


def _summary(plan: "ClusterPlan") -> Iterator[str]:
    from gpucluster.cli import plan_site
    from gpucluster.spec.units import write_duration

    slurm = f" Slurm {plan.slurm.version}" if plan.slurm else ""
    yield f"cluster {plan.name}:{slurm}" if slurm else f"cluster {plan.name}"
    if plan.aws is not None:
        yield from plan_site.of_aws(plan.aws)
    if plan.hosts is not None:
        yield f"hosts   by ssh as {plan.hosts.ssh_user}, port {plan.hosts.ssh_port}"
    if plan.head is not None:
        yield from plan_site.of_head(plan.head)
    yield from _switches(plan)
    for pool in plan.pools:
        yield from _pool(pool) if pool.sources else _hosts(pool)
    for partition in plan.partitions:
        limit = (
            "no time limit"
            if partition.max_time_s is None
            else f"at most {write_duration(partition.max_time_s)}"
        )
        default = ", the default" if partition.default else ""
        yield f"partition {partition.name}: {', '.join(partition.pools)}; {limit}{default}"
    if plan.kubernetes is not None:
        from gpucluster.cli.plan_kubernetes import summary

        yield from summary(plan.kubernetes)
    if plan.budget is not None:
        yield _budget(plan.budget)
    yield from plan_site.of_people(plan)
    yield from plan_site.of_mounts(plan)


def _pool(pool: "Pool") -> Iterator[str]:
    from gpucluster.spec.units import write_duration

    shape = pool.shape
    gpus = f"{shape.gpu_count} x {shape.gpu_model}, " if shape.gpu_count else ""
    times = f"idle {write_duration(pool.idle_s)}, boot at most {write_duration(pool.boot_timeout_s)}"
    spares = f", {pool.spares} spare" if pool.spares else ""
    yield f"pool {pool.name}: {pool.min} to {pool.max} nodes{spares}; {times}"
    yield f"  each {gpus}{shape.cpus} CPUs, {shape.real_memory_mib} MiB"
    yield f"  slots {', '.join(span.hostlist for span in pool.slots)}"
    for source in pool.sources:
        yield _source(source)
    if pool.farewell.script is not None:
        yield f"  before a machine goes {pool.farewell.script} runs on it"
    if pool.hung is not None:
        then = "told and requeued" if pool.hung.requeue else "told"
        yield f"  a job that beats and stops for {write_duration(pool.hung.after_s)} is {then}"


def _source(source: "Source") -> str:
    from gpucluster.spec.units import write_rate

    held = f" {source.reservation}" if source.reservation else ""
    price = f", at most {write_rate(source.max_price)}" if source.max_price is not None else ""
    most = f", at most {source.max}" if source.max is not None else ""
    machines, zones = " or ".join(source.machines), ", ".join(source.zones)
    return f"  {source.position + 1}. {source.market}{held} {machines} in {zones}{price}{most}"


def _budget(budget: "Budget") -> str:
    from gpucluster.spec.units import write_money

    warn, stop = write_money(budget.warn_at), write_money(budget.stop_scaling_at)
    return f"budget  {write_money(budget.monthly)} a month: told at {warn}, no launch from {stop} on"


def _hosts(pool: "Pool") -> Iterator[str]:
    from gpucluster.plan.hostlist import fold

    shape = pool.shape
    gpus = f"{shape.gpu_count} x {shape.gpu_model}, " if shape.gpu_count else ""
    machine = pool.hardware.machine if pool.hardware else "?"
    yield f"pool {pool.name}: {pool.max} hosts, each {machine}"
    yield f"  each {gpus}{shape.cpus} CPUs, {shape.real_memory_mib} MiB"
    yield f"  hosts {','.join(span.hostlist for span in pool.slots)} at {fold(pool.addresses)}"


def _switches(plan: "ClusterPlan") -> Iterator[str]:
    for spine in plan.spines:
        below = (leaf for leaf in plan.leaves if leaf.name in spine.leaves)
        said = "; ".join(f"{leaf.name} {','.join(span.hostlist for span in leaf.slots)}" for leaf in below)
        yield f"spine {spine.name}: {said}"


def _reasons(notes: "tuple[Note, ...]") -> Iterator[str]:
    if notes:
        yield ""
        yield "decided by the plan:"
    for note in notes:
        yield f"  {note.path} = {note.value}"
        yield f"      {note.reason}"
