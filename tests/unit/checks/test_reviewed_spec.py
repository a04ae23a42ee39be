"""The check that what is published is the spec that was given."""

from dataclasses import replace

import pytest
from support.spec_sources import REVIEWED, SOURCE

from gpucluster.checks.check import CheckStatus, ParseError, QueryOutput
from gpucluster.checks.reviewed_spec import Order, evaluate_reviewed, parse_reviewed
from gpucluster.plan.spec_source import SpecSource

GIVEN = SOURCE
OTHER_TEXT = replace(GIVEN, spec="d" * 64)
OTHER = replace(GIVEN, spec="d" * 64, plan="e" * 64, commit="f" * 40)
UP, PULL = (f"on your computer: {words}" for words in (REVIEWED.publish, REVIEWED.newer))


def result(published: SpecSource | None, order: Order = Order.UNKNOWN, applied: SpecSource = GIVEN):
    return evaluate_reviewed(applied, replace(REVIEWED, published=published, order=order))


@pytest.mark.parametrize(
    ("published", "order", "verdict", "words", "remedy"),
    [
        (GIVEN, Order.UNKNOWN, CheckStatus.PASS, "the bundle is of commit cccccccccccc", ""),
        (OTHER_TEXT, Order.UNKNOWN, CheckStatus.PASS, "another text with the same plan", ""),
        (
            replace(GIVEN, dirty=True),
            Order.UNKNOWN,
            CheckStatus.WARN,
            "nobody reviewed what is in no commit",
            UP,
        ),
        (OTHER, Order.UNKNOWN, CheckStatus.FAIL, "another spec: stacks/a.yaml is not applied", UP),
        (OTHER, Order.OLDER, CheckStatus.FAIL, "commit ffffffffffff, an older spec", UP),
        (OTHER, Order.NEWER, CheckStatus.FAIL, "which is newer than stacks/a.yaml", PULL),
        (replace(OTHER, dirty=True), Order.OLDER, CheckStatus.FAIL, "with uncommitted changes", UP),
        (
            replace(GIVEN, spec="", plan="e" * 64, commit=""),
            Order.UNKNOWN,
            CheckStatus.FAIL,
            "a spec that it does not name, another spec",
            UP,
        ),
        (replace(GIVEN, plan="e" * 64), Order.UNKNOWN, CheckStatus.FAIL, "its plan is another one", UP),
        (
            replace(GIVEN, plan="e" * 64, version="1.0"),
            Order.UNKNOWN,
            CheckStatus.WARN,
            "gpucluster 1.0 made its plan, and 2.0 makes another one",
            "on your computer: compare with gpucluster 1.0; or, to apply the plan of 2.0: pulumi up",
        ),
    ],
    ids=["same", "text", "uncommitted", "never", "older", "newer", "dirty", "unnamed", "tampered", "version"],
)
def test_published_spec_is_compared_with_the_given_one(
    published: SpecSource | None, order: Order, verdict: CheckStatus, words: str, remedy: str
) -> None:
    found = result(published, order)
    assert (found.verdict, found.remedy) == (verdict, remedy)
    assert words in found.found


def test_spec_in_no_commit_is_committed_and_reviewed_before_it_is_published() -> None:
    """Regression: the remedy was to publish the spec that nobody reviewed."""
    dirty = replace(GIVEN, dirty=True)
    found = evaluate_reviewed(GIVEN, replace(REVIEWED, given=dirty, published=dirty))
    assert (found.verdict, found.remedy) == (CheckStatus.WARN, "on your computer: git commit, then pulumi up")


def test_bundle_of_the_head_counts_where_no_bucket_has_one() -> None:
    assert result(None).verdict is CheckStatus.PASS
    assert result(None, applied=OTHER).verdict is CheckStatus.FAIL


@pytest.mark.parametrize("text", ["", "{}", "x" * 5000])
def test_bundle_that_does_not_say_its_spec_is_no_pass(text: str) -> None:
    with pytest.raises(ParseError, match=r"source\.json"):
        parse_reviewed((QueryOutput(code=0, stdout=text),))
    with pytest.raises(ParseError, match="exit 1"):
        parse_reviewed((QueryOutput(code=1, stdout="", stderr="head: No such file"),))
