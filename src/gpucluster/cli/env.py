"""`gpucluster env`: the environment of a pool's jobs, as the file that users read on nodes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpucluster.cli.output import Output, OutputOption, answer, print_result, reporting
from gpucluster.errors import GpuclusterError, SpecError

if TYPE_CHECKING:
    from gpucluster.plan.model import ClusterPlan, Pool

STACKS = Path("stacks")


def env(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="A pool of Slurm.")],
    *,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            "-c",
            metavar="NAME|FILE",
            help="The spec of the pool. Default: the only spec of stacks/ with such a pool.",
        ),
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print the variables of NCCL, EFA and InfiniBand for jobs of a pool, each with its reason and source."""
    with reporting(output):
        plan, found = _found(pool, cluster)
        if output is Output.JSON:
            from gpucluster.plan.codec import to_json

            answer(ok=True, cluster=plan.name, pool=found.name, environment=to_json(found.environment))
            return
        from gpucluster.slurm.config.render import job_env

        print_result(job_env(plan.name, found).rstrip("\n"))


def _found(pool: str, cluster: str | None) -> "tuple[ClusterPlan, Pool]":
    """Return the plan and its pool of this name. GpuclusterError lists the pools that there are."""
    from gpucluster.cli.context import resolve_file
    from gpucluster.cli.spec_files import require_spec

    if cluster is not None:
        plan = resolve_file(require_spec(cluster)).plan
        for one in plan.pools:
            if one.name == pool:
                return plan, one
        known = ", ".join(one.name for one in plan.pools) or "none"
        raise GpuclusterError(f"{plan.name} has no pool {pool!r} of Slurm", next_step=f"name one of: {known}")
    found = [(plan, one) for plan in _plans_with(pool) for one in plan.pools if one.name == pool]
    if len(found) == 1:
        return found[0]
    if not found:
        raise GpuclusterError(
            f"no spec of {STACKS}/ has a pool {pool!r} of Slurm",
            next_step="name the spec: --cluster NAME|FILE",
        )
    known = ", ".join(plan.name for plan, _ in found)
    raise GpuclusterError(
        f"several specs have a pool {pool!r}: {known}", next_step="name one of them: --cluster NAME"
    )


def _plans_with(pool: str) -> "list[ClusterPlan]":
    """Return the plans of the specs of stacks/ that mention the word. A wrong spec is left out: `check` reports it."""
    from gpucluster.cli.context import resolve_file

    plans: list[ClusterPlan] = []
    for file in sorted(STACKS.glob("*.yaml")):
        try:
            if pool in file.read_text(encoding="utf-8"):
                plans.append(resolve_file(file).plan)
        except (SpecError, OSError, ValueError):
            continue
    return plans
