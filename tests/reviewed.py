"""Sides and diffs for tests: specs as text, without files, git or processes."""

from gpucluster import catalog
from gpucluster.cli.render import artifacts_of
from gpucluster.cost import estimate
from gpucluster.gitops.diff import diff
from gpucluster.gitops.model import Diff, ResourceChange, Side
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text


def a_side(text: str, label: str = "spec.yaml") -> Side:
    """A side of a diff, from the spec's text."""
    report = inspect_text(text, label, catalog.load())
    plan = resolve(report.result(), catalog.load())
    assert report.document is not None
    return Side(
        label=label,
        spec=report.result(),
        document=report.document,
        plan=plan,
        artifacts=artifacts_of(plan),
        cost=estimate(plan, catalog.prices()),
    )


def a_diff(old: str, new: str, resources: tuple[ResourceChange, ...] | None = None) -> Diff:
    """The diff of two specs' texts."""
    return diff(a_side(old, "main:stacks/burst.yaml"), a_side(new, "stacks/burst.yaml"), resources)
