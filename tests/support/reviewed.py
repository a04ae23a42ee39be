"""Sides and diffs for tests: specs as text, without files, git or processes."""

from dataclasses import replace
from functools import cache

from gpucluster import catalog
from gpucluster.cli.render import artifacts_of
from gpucluster.cost import estimate
from gpucluster.gitops.diff import diff
from gpucluster.gitops.model import Compared, Diff, ResourceChange, Revision
from gpucluster.plan.resolve import resolve
from gpucluster.plan.resolve.workloads import workloads
from gpucluster.spec import inspect_text, inspect_workloads_text


@cache
def a_side(text: str, label: str = "spec.yaml") -> Revision:
    """A side of a diff, from the spec's text. Most pairs share one side, so each is made once."""
    report = inspect_text(text, label, catalog.load())
    plan = resolve(report.result(), catalog.load())
    assert report.document is not None
    return Revision(
        label=label,
        spec=report.result(),
        document=report.document,
        plan=plan,
        artifacts=artifacts_of(plan),
        cost=estimate(plan, catalog.prices()),
    )


@cache
def a_side_with_workloads(text: str, running: str) -> Revision:
    """A side of a diff, from the texts of the spec and of its workloads."""
    side = a_side(text)
    found = inspect_workloads_text(running, f"workloads/{side.plan.name}.yaml", side.spec, catalog.load())
    assert found.spec is not None, found.problems
    assert side.plan.kubernetes is not None
    made = artifacts_of(side.plan, workloads(found.spec, side.plan.kubernetes))
    return replace(side, artifacts=made, workloads=found.spec, workloads_document=found.document)


def a_diff(old: str, new: str, resources: tuple[ResourceChange, ...] | None = None) -> Diff:
    """The diff of two specs' texts."""
    return diff(
        a_side(old, "main:stacks/burst.yaml"), a_side(new, "stacks/burst.yaml"), Compared(resources=resources)
    )
