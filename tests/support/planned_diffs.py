"""Diffs of specs with their resources, as the tool makes them by default. The program runs in forked children."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from gpucluster.cli.resources import planned_of
from gpucluster.engine.offline import Planned, planner
from gpucluster.engine.offline.answers import read
from gpucluster.gitops.model import Diff
from gpucluster.gitops.resources import compare
from support.planner_server import Server
from support.reviewed import a_diff, a_side

LOOKUPS = Path(__file__).parents[2] / "stacks/lookups"


@contextmanager
def forked_planner() -> Iterator[None]:
    """Plan in forked children: most of a fresh child's CPU is the import of Pulumi."""
    server = Server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "_child", server.child)
        yield
    server.close()


def a_planned_diff(old: str, new: str) -> Diff:
    """The diff of two specs' texts with their resources."""
    return a_diff(old, new, compare(declared(old), declared(new)))


@cache
def declared(text: str) -> Planned:
    plan = a_side(text).plan
    answers = read(LOOKUPS / f"{plan.name}.yaml")
    return planned_of(plan, answers) or Planned(project="gpucluster", stack=plan.name, resources=())
