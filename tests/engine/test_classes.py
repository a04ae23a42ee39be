"""The class of a spec change is never milder than the class of the same change's resources."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.builders import SPEC, a_spec_text
from support.expert_pairs import PAIRS, Pair
from support.planner_server import Server
from support.reviewed import a_diff, a_side

from gpucluster.cli import main
from gpucluster.engine import offline
from gpucluster.engine.offline import Planned, planner
from gpucluster.gitops.diff import diff
from gpucluster.gitops.model import Compared, worse, worst
from gpucluster.gitops.resources import compare
from gpucluster.spec import UpdateClass

CHANGES = [
    pair for pair in PAIRS if pair.expected is not None and pair.old.startswith("schema: 1\nname: burst")
]


@pytest.fixture(scope="module", autouse=True)
def _planner_forks() -> Iterator[None]:
    """Plan in forked children: most of a fresh child's CPU is the import of Pulumi."""
    server = Server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "_child", server.child)
        yield
    server.close()


@cache
def _planned(text: str) -> Planned:
    return offline.run("gpucluster.aws.program:declare", a_side(text).plan)


@pytest.mark.parametrize("pair", CHANGES, ids=lambda pair: pair.says.replace(" ", "-"))
def test_resources_have_no_worse_class(pair: Pair) -> None:
    resources = compare(_planned(pair.old), _planned(pair.new))
    by_engine = worst(one.update for one in resources)
    assert not worse(by_engine, pair.expected), [f"{one.name}: {one.why}" for one in resources]
    found = a_diff(pair.old, pair.new, resources)
    assert found.engine_note is None
    assert found.worst is pair.expected


def test_same_program_changes_nothing() -> None:
    old, new = CHANGES[0].old, CHANGES[0].old
    assert compare(_planned(old), offline.run("gpucluster.aws.program:declare", a_side(new).plan)) == ()


def test_the_verb_runs_the_program_of_both_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(SPEC)
    new.write_text(a_spec_text(("10.42.0.0/16", "10.43.0.0/16")))
    assert main.run(["diff", str(old), str(new), "-o", "json", "--exit-code"]) == 1
    found = json.loads(capsys.readouterr().out)["diff"]
    kinds = {(one["name"], one["kind"]) for one in found["resources"]}
    assert {("burst", "replaced"), ("burst-head", "replaced"), ("burst-us-east-2a", "replaced")} <= kinds
    assert ("burst-h200-on-demand-p5en.48xlarge", "changed") in kinds, "a template follows its security group"
    assert found["worst"] == "replace"


def test_planted_milder_class_is_found() -> None:
    pair = next(pair for pair in CHANGES if pair.says == "another network")
    resources = compare(_planned(pair.old), _planned(pair.new))
    mild = diff(a_side(SPEC), a_side(a_spec_text(("idle: 5m", "idle: 6m"))), Compared(resources=resources))
    assert mild.engine_note is not None
    assert mild.worst is UpdateClass.REPLACE
