"""`gpucluster plan --operator-policy`: the IAM policies of the people who run Pulumi, and the boundary of the machines' roles."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gpucluster.aws.operator_documents import (
    ATTACHED_MAX,
    MANAGED_MAX,
    PolicyDocument,
    PolicyRole,
    documents,
)
from gpucluster.aws.operator_policies import StateBackend, scope_of
from gpucluster.cli.output import PlanOutput, answer, print_result, progress
from gpucluster.json_text import parse_json

if TYPE_CHECKING:
    from gpucluster.cli.context import ResolvedSpec

_BUCKET = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/([A-Za-z0-9._/-]*))?(?:\?[^\s]*)?")
_KEY = re.compile(r"(?:arn:aws:kms:[a-z0-9-]+:\d{12}:(?:key|alias)/|alias/)[A-Za-z0-9/_-]+")


def show(
    resolved: "ResolvedSpec",
    file: Path,
    role: str,
    output: PlanOutput,
    *,
    state: str | None,
    state_key: str | None,
    to: Path | None,
) -> None:
    """Print the documents, or write each to a file."""
    from gpucluster.cli.resources import planned_of, why_not
    from gpucluster.engine.offline.answers import place, read
    from gpucluster.errors import GpuclusterError
    from gpucluster.plan.model import AwsPlan

    backend = _backend(state, state_key)
    plan = resolved.plan
    # Types and names do not depend on the answers of look-ups, so an account without any rights can be prepared.
    planned = planned_of(plan, read(place(file, plan.name)))
    if planned is None:
        raise GpuclusterError(why_not(plan) or "Pulumi creates nothing for this spec")
    if not isinstance(plan, AwsPlan):
        raise GpuclusterError(why_not(plan) or "Pulumi creates nothing for this spec")
    made = documents(PolicyRole(role), scope_of(plan, planned, backend))
    if to is not None:
        _write(made, to)
    if output is PlanOutput.JSON:
        rows = [{"name": one.name, "size": one.size, "document": parse_json(one.text)} for one in made]
        answer(ok=True, role=role, limit=MANAGED_MAX, policies=rows)
        return
    if backend is None and role in (PolicyRole.PLAN, PolicyRole.APPLY):
        progress("no rights on the state of Pulumi: name its bucket with --state s3://BUCKET")
    for one in made:
        progress(f"{one.name}: {one.size} of {MANAGED_MAX} characters, {len(parse_json(one.text)['Statement'])} statements")  # fmt: skip
        if to is None:
            print_result(one.text.rstrip("\n"))
    if len(made) > 1:
        progress(f"attach all {len(made)} to the role: IAM attaches up to {ATTACHED_MAX}")


def _backend(state: str | None, key: str | None) -> StateBackend | None:
    if state is None:
        if key is not None:
            raise typer.BadParameter("--state-key needs --state")
        return None
    found = _BUCKET.fullmatch(state)
    if found is None:
        raise typer.BadParameter(f"--state: found {state!r:.80}, expected s3://BUCKET or s3://BUCKET/FOLDER")
    if key is not None and not _KEY.fullmatch(key):
        raise typer.BadParameter(f"--state-key: found {key!r:.80}, expected alias/NAME or the ARN of a key")
    return StateBackend(bucket=found[1], folder=found[2] or "", key=key)


def _write(made: tuple[PolicyDocument, ...], to: Path) -> None:
    from gpucluster.artifacts import Artifact, write_tree

    write_tree([Artifact(f"{one.name}.json", one.text.encode()) for one in made], to)
