"""The resources of a spec change, which the tool compares by default, change neither its class nor its sentences."""

import json
from pathlib import Path

import pytest
from support.builders import SPEC, a_spec_text
from support.edits import EDITS, Edit
from support.expert_pairs import PAIRS, Pair
from support.planned_diffs import a_planned_diff, declared
from support.reviewed import a_diff, a_side

from gpucluster.cli import main
from gpucluster.engine import offline
from gpucluster.gitops.diff import diff
from gpucluster.gitops.model import Compared
from gpucluster.gitops.resources import compare
from gpucluster.spec import UpdateClass

CHANGES = [
    pair
    for pair in PAIRS
    if pair.expected is not None and a_side(pair.old).plan.slurm and a_side(pair.new).plan.slurm
]


@pytest.mark.parametrize("pair", CHANGES, ids=lambda pair: pair.says.replace(" ", "-"))
def test_resources_change_neither_class_nor_sentences_of_a_pair(pair: Pair) -> None:
    found = a_planned_diff(pair.old, pair.new)
    assert (found.worst, found.engine_note) == (pair.expected, None)
    assert found.effects == a_diff(pair.old, pair.new).effects


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.id)
def test_resources_change_no_sentence_of_an_observed_edit(edit: Edit) -> None:
    """docs/edits.md has the sentences without resources."""
    assert a_planned_diff(edit.old, edit.new).effects == a_diff(edit.old, edit.new).effects


def test_same_program_changes_nothing() -> None:
    again = offline.run("gpucluster.aws.program:declare", a_side(SPEC).plan)
    assert compare(declared(SPEC), again) == ()


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
    resources = compare(declared(pair.old), declared(pair.new))
    mild = diff(a_side(SPEC), a_side(a_spec_text(("idle: 5m", "idle: 6m"))), Compared(resources=resources))
    assert mild.engine_note is not None
    assert mild.worst is UpdateClass.REPLACE
