"""`gpucluster plan --resources`: the resources that Pulumi would declare, without the cloud."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from gpucluster.cli.output import ReviewOutput, answer, print_result, progress

if TYPE_CHECKING:
    from gpucluster.cli.context import ResolvedSpec
    from gpucluster.engine.offline import Lookup, Planned
    from gpucluster.engine.offline.answers import Recording
    from gpucluster.plan.model import ClusterPlan

PROGRAM = "gpucluster.aws.program:declare"


def show(
    resolved: "ResolvedSpec",
    file: Path,
    *,
    properties: bool,
    output: ReviewOutput,
    live: bool = False,
    record: bool = False,
) -> None:
    """Run the program and print the declared resources, or why there are none."""
    from gpucluster.plan.codec import to_json

    planned = _live(resolved.plan, file, record=record) if live else recorded(resolved.plan, file)
    warn_of_open_lookups(planned, file)
    if output is ReviewOutput.JSON:
        counts = None if planned is None else _counted(planned)
        why = why_not(resolved.plan)
        answer(ok=True, planned=to_json(planned), counts=counts, why=why, problems=to_json(resolved.warnings))
        return
    for warning in resolved.warnings:
        progress(str(warning))
    if planned is None:
        print_result(_sentence(why_not(resolved.plan) or "", output))
    elif output is ReviewOutput.MARKDOWN:
        print_result(_comment(planned, file))
    else:
        _tree(planned, properties=properties)


def planned_of(
    plan: "ClusterPlan", answers: "tuple[Recording, ...]" = (), *, assume: bool = False
) -> "Planned | None":
    """Return the declared resources; None if Pulumi has nothing to declare (`why_not` has the reason).

    Without an answer a look-up stays open. With `assume`, placeholders replace values that only the cloud knows.
    """
    if why_not(plan) is not None:
        return None
    from gpucluster.engine.offline import run
    from gpucluster.text import printable

    known = _assumed(plan, answers) if assume else answers
    return run(
        PROGRAM, plan, answers=known, assume=assume, report=lambda line: progress(f"  {printable(line)}")
    )


def _assumed(plan: "ClusterPlan", answers: "tuple[Recording, ...]") -> "tuple[Recording, ...]":
    """Complete the answers with placeholders, also where a person left a look-up open."""
    from gpucluster.aws.placeholder_answers import placeholder_answers
    from gpucluster.engine.offline.answers import merged

    given = tuple(one for one in answers if one.answer is not None)
    return merged(given, merged(placeholder_answers(plan), answers))


def recorded(plan: "ClusterPlan", file: Path, *, assume: bool = False) -> "Planned | None":
    """Answer look-ups from the file beside the spec. A look-up without an answer stays open."""
    from gpucluster.engine.offline.answers import place, read

    return planned_of(plan, read(place(file, plan.name)), assume=assume)


def warn_of_open_lookups(planned: "Planned | None", file: Path) -> None:
    """Name the look-ups without an entry, with the command that records their answers and the lines to add."""
    from gpucluster.engine.offline.answers import how_to_answer, lacking, place, read, unanswered

    if planned is None or not any(not one.answered for one in planned.lookups):
        return
    path = place(file, planned.stack)
    if questions := lacking(planned, read(path)):
        reason = unanswered(planned.stack, path, questions)
        progress(f"warning[open-look-up] {reason}: what depends on it stays open")
        progress(f"  next: {how_to_answer(str(file), path, questions)}")


def _live(plan: "ClusterPlan", file: Path, *, record: bool) -> "Planned | None":
    """Answer look-ups from the account. An answer may cause another look-up."""
    from gpucluster.engine.offline.answers import lacking, place, write

    if plan.aws is None:
        return None
    answers: tuple[Recording, ...] = ()
    planned = planned_of(plan)
    while planned is not None and (questions := lacking(planned, answers)):
        answers += _asked(plan.aws.region, questions)
        planned = planned_of(plan, answers)
    if record and planned is not None:
        path = place(file, plan.name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(write(answers), encoding="utf-8")
        progress(f"recorded {len(answers)} answers in {path}")
    return planned


def _asked(region: str, questions: "tuple[Lookup, ...]") -> "tuple[Recording, ...]":
    from gpucluster.engine.offline.live import (
        query_account,  # boto3 is large, and only this path needs the network
    )

    for one in questions:
        progress(f"  queries the account for {one.token}")
    return query_account(region, questions)


def why_not(plan: "ClusterPlan") -> str | None:
    """Return why there are no resources, in one sentence; None if there are."""
    from gpucluster.plan.model.kubernetes import ExistingControlPlane

    if plan.aws is None:
        return f"{plan.name}: Pulumi creates nothing for this spec: it has no `aws:`, and its hosts exist"
    if plan.slurm is None and isinstance(plan.kubernetes.control_plane, ExistingControlPlane):
        return (
            f"{plan.name}: Pulumi creates nothing for this spec: its Kubernetes exists;"
            " `gpucluster render NAME --to FOLDER` writes the manifests"
        )
    return None


def _tree(planned: "Planned", *, properties: bool) -> None:
    from gpucluster.engine.offline.show import lines

    for line in lines(planned, properties=properties):
        print_result(line)


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
