"""`gpucluster plan --resources`: what Pulumi would declare, seen without the cloud."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from gpucluster.cli.output import ReviewOutput, answer, progress, say

if TYPE_CHECKING:
    from gpucluster.cli.desk import Desk
    from gpucluster.engine.offline import Planned
    from gpucluster.plan.model import ClusterPlan

PROGRAM = "gpucluster.aws.program:declare"


def show(desk: "Desk", file: Path, *, properties: bool, output: ReviewOutput) -> None:
    """Run the program and tell what it declared; a spec that Pulumi makes nothing of is said to be one."""
    from gpucluster.plan.codec import to_json

    planned = planned_of(desk.plan)
    if output is ReviewOutput.JSON:
        told = None if planned is None else _counted(planned)
        why = why_not(desk.plan)
        answer(ok=True, planned=to_json(planned), counts=told, why=why, problems=to_json(desk.warnings))
        return
    for warning in desk.warnings:
        progress(str(warning))
    if planned is None:
        say(_sentence(why_not(desk.plan) or "", output))
    elif output is ReviewOutput.MARKDOWN:
        say(_comment(planned, file))
    else:
        _tree(planned, properties=properties)


def planned_of(plan: "ClusterPlan") -> "Planned | None":
    """None when Pulumi makes nothing of the plan; `why_not` says why."""
    if why_not(plan) is not None:
        return None
    from gpucluster.engine.offline import run
    from gpucluster.markdown import printable

    return run(PROGRAM, plan, report=lambda line: progress(f"  {printable(line)}"))


def why_not(plan: "ClusterPlan") -> str | None:
    """Why there are no resources, in one sentence; None when there are."""
    if plan.aws is None:
        return f"{plan.name}: Pulumi makes nothing of this spec, for it has no `aws:`; its machines are there already"
    if plan.slurm is None or plan.head is None:
        return (
            f"{plan.name}: Pulumi makes nothing of this spec, for it has no `slurm:`;"
            " what runs on Kubernetes is rendered, not made"
        )
    return None


def _tree(planned: "Planned", *, properties: bool) -> None:
    from gpucluster.engine.offline.show import lines

    for line in lines(planned, properties=properties):
        say(line)


def _comment(planned: "Planned", file: Path) -> str:
    from gpucluster.engine.offline.show import comment

    return comment(planned, reproduce=f"gpucluster plan {shlex.quote(str(file))} --resources").rstrip("\n")


def _sentence(text: str, output: ReviewOutput) -> str:
    from gpucluster.markdown import text as escaped

    return escaped(text) if output is ReviewOutput.MARKDOWN else text


def _counted(planned: "Planned") -> object:
    from gpucluster.engine.offline.show import counts
    from gpucluster.plan.codec import to_json

    return to_json(counts(planned))
