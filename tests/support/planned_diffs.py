"""Diffs of specs with their resources, as the tool makes them by default."""

from functools import cache
from pathlib import Path

from gpucluster.cli.resources import planned_of
from gpucluster.engine.offline import Planned
from gpucluster.engine.offline.answers import read
from gpucluster.gitops.model import Diff
from gpucluster.gitops.resources import compare
from support.reviewed import a_diff, a_side

LOOKUPS = Path(__file__).parents[2] / "stacks/lookups"


def a_planned_diff(old: str, new: str) -> Diff:
    """The diff of two specs' texts with their resources."""
    return a_diff(old, new, compare(declared(old), declared(new)))


@cache
def declared(text: str) -> Planned:
    plan = a_side(text).plan
    answers = read(LOOKUPS / f"{plan.name}.yaml")
    return planned_of(plan, answers) or Planned(project="gpucluster", stack=plan.name, resources=())
