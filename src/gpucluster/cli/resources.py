"""`gpucluster plan --resources`: what Pulumi would declare, seen without the cloud."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from gpucluster.cli.output import ReviewOutput, answer, progress, say

if TYPE_CHECKING:
    from gpucluster.cli.desk import Desk
    from gpucluster.engine.offline import Lookup, Planned
    from gpucluster.engine.offline.answers import Recording
    from gpucluster.plan.model import ClusterPlan

PROGRAM = "gpucluster.aws.program:declare"


def show(
    desk: "Desk",
    file: Path,
    *,
    properties: bool,
    output: ReviewOutput,
    live: bool = False,
    record: bool = False,
) -> None:
    """Run the program and tell what it declared; a spec that Pulumi makes nothing of is said to be one."""
    from gpucluster.plan.codec import to_json

    planned = _live(desk.plan, file, record=record) if live else recorded(desk.plan, file)
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


def planned_of(
    plan: "ClusterPlan", answers: "tuple[Recording, ...]" = (), *, assume: bool = False
) -> "Planned | None":
    """None when Pulumi makes nothing of the plan; `why_not` says why. What has no answer stays open.

    With `assume`, what only the cloud tells is made up: for the texts that names stand in.
    """
    if why_not(plan) is not None:
        return None
    from gpucluster.engine.offline import run
    from gpucluster.markdown import printable

    return run(
        PROGRAM, plan, answers=answers, assume=assume, report=lambda line: progress(f"  {printable(line)}")
    )


def recorded(plan: "ClusterPlan", file: Path, *, assume: bool = False) -> "Planned | None":
    """By the answers beside the spec; a question without one is refused, with the lines to add."""
    from gpucluster.engine.offline.answers import place, read

    path = place(file, plan.name)
    return answered(plan, read(path), spec=str(file), path=path, assume=assume)


def answered(
    plan: "ClusterPlan", answers: "tuple[Recording, ...]", *, spec: str, path: Path, assume: bool = False
) -> "Planned | None":
    """By these answers, which stand in `path` of `spec`; AnswersError for a question that they say no word of."""
    from gpucluster.engine.offline.answers import lacking, refuse

    planned = planned_of(plan, answers, assume=assume)
    questions = () if planned is None else lacking(planned, answers)
    if questions:
        raise refuse(plan.name, spec, path, questions)
    return planned


def _live(plan: "ClusterPlan", file: Path, *, record: bool) -> "Planned | None":
    """By what the account says now; an answer may lead to another question."""
    from gpucluster.engine.offline.answers import lacking, place, write

    answers: tuple[Recording, ...] = ()
    planned = planned_of(plan)
    while planned is not None and (questions := lacking(planned, answers)):
        answers += _asked(plan, questions)
        planned = planned_of(plan, answers)
    if record and planned is not None:
        path = place(file, plan.name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(write(answers), encoding="utf-8")
        progress(f"recorded {len(answers)} answers in {path}")
    return planned


def _asked(plan: "ClusterPlan", questions: "tuple[Lookup, ...]") -> "tuple[Recording, ...]":
    from gpucluster.engine.offline.live import ask  # boto3, and the network
    from gpucluster.plan.model import there

    for one in questions:
        progress(f"  asking the account for {one.token}")
    return ask(there(plan.aws).region, questions)


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
