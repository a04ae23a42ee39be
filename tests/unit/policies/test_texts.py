"""Tests of texts with unknown names: a second run with placeholders decides them."""

from dataclasses import replace

import pytest
from support.builders import a_plan

from gpucluster.engine.offline import run
from gpucluster.engine.policy import evaluate, has_undecided_texts, load, with_decided_texts
from gpucluster.files import shipped

PACK = load(shipped("policies"))
PROGRAM = "support.planned_programs:texts_of_names"
TEXTS = {"wide-policy", "secret-in-user-data"}


def test_text_with_unknown_name_is_decided_by_placeholders() -> None:
    """Regression: `plan --policy` passed an administrator role and a password in user data, because both texts were undecided."""
    first = evaluate([PACK], run(PROGRAM, a_plan()).resources)
    assert has_undecided_texts([PACK], first)
    again = evaluate([PACK], run(PROGRAM, a_plan(), assume=True).resources)
    report = with_decided_texts([PACK], first, again)
    found = {(f.rule, f.name) for f in report.violations if f.rule in TEXTS}
    assert {("wide-policy", "wide"), ("secret-in-user-data", "told")} <= found
    assert ("wide-policy", "narrow") not in found
    assert {(f.rule, f.name) for f in report.open if f.rule in TEXTS} == {("secret-in-user-data", "whole")}
    assert len(set(report.findings)) == len(report.findings)


@pytest.mark.parametrize("region", ["us-east-1", "us-east-2"])
def test_unanswered_look_up_of_a_key_leaves_no_text_undecided(region: str) -> None:
    """Regression: the placeholder of a key was one that EBS cannot use, so no text of a stack with `kms_key` was checked."""
    plan = a_plan()
    keyed = replace(plan, aws=replace(plan.aws, kms_key="alias/research", region=region))
    planned = run("gpucluster.aws.program:declare", keyed, assume=True)
    report = evaluate([PACK], planned.resources)
    assert [f for f in report.open if f.rule in TEXTS] == []


def test_only_text_rules_use_placeholders() -> None:
    assert {rule.name for rule in PACK.rules if rule.texts} == TEXTS
