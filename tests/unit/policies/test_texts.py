"""At the desk a text is judged although AWS has not yet given the names in it: a second look makes them up."""

from builders import a_plan

from gpucluster.engine.offline import run
from gpucluster.engine.policy import judge, load, open_texts, settled
from gpucluster.files import shipped

PACK = load(shipped("policies"))
PROGRAM = "planned_programs:texts_of_names"
TEXTS = {"wide-policy", "secret-in-user-data"}


def test_a_text_with_an_open_name_is_judged_and_one_that_is_open_whole_stays_open() -> None:
    """`plan --policy` passed a role that may do all, and a password in user data: both texts were open."""
    first = judge([PACK], run(PROGRAM, a_plan()).resources)
    assert open_texts([PACK], first)
    again = judge([PACK], run(PROGRAM, a_plan(), assume=True).resources)
    report = settled([PACK], first, again)
    found = {(f.rule, f.name) for f in report.violations if f.rule in TEXTS}
    assert {("wide-policy", "wide"), ("secret-in-user-data", "told")} <= found
    assert ("wide-policy", "narrow") not in found
    assert {(f.rule, f.name) for f in report.open if f.rule in TEXTS} == {("secret-in-user-data", "whole")}
    assert len(set(report.findings)) == len(report.findings)


def test_only_texts_are_judged_by_made_up_names() -> None:
    assert {rule.name for rule in PACK.rules if rule.texts} == TEXTS
