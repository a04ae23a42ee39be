"""The check that what is published is the spec that was given."""

from dataclasses import replace

import pytest

from gpucluster.checks.check import CheckStatus
from gpucluster.checks.reviewed_spec import Order, Reviewed, evaluate_reviewed
from gpucluster.plan.spec_source import SpecSource

GIVEN = SpecSource(spec="a" * 64, plan="b" * 64, commit="c" * 40, dirty=False, version="2.0")
OTHER_TEXT = replace(GIVEN, spec="d" * 64)
OTHER = replace(GIVEN, spec="d" * 64, plan="e" * 64, commit="f" * 40)
UP, PULL = "pulumi up", "git merge"


def result(published: SpecSource | None, order: Order = Order.UNKNOWN):
    want = Reviewed(
        file="stacks/a.yaml", given=GIVEN, published=published, place="the bundle", order=order, remedy=UP, newer=PULL
    )  # fmt: skip
    return evaluate_reviewed(None, want)


@pytest.mark.parametrize(
    ("published", "order", "verdict", "words", "remedy"),
    [
        (GIVEN, Order.UNKNOWN, CheckStatus.PASS, "the bundle is of commit cccccccccccc", ""),
        (OTHER_TEXT, Order.UNKNOWN, CheckStatus.PASS, "another text with the same plan", ""),
        (None, Order.UNKNOWN, CheckStatus.WARN, "does not say which spec", ""),
        (OTHER, Order.UNKNOWN, CheckStatus.FAIL, "another spec: stacks/a.yaml is not applied", UP),
        (OTHER, Order.OLDER, CheckStatus.FAIL, "commit ffffffffffff, an older spec", UP),
        (OTHER, Order.NEWER, CheckStatus.FAIL, "which is newer than stacks/a.yaml", PULL),
        (replace(OTHER, dirty=True), Order.OLDER, CheckStatus.FAIL, "with uncommitted changes", UP),
        (replace(GIVEN, plan="e" * 64), Order.UNKNOWN, CheckStatus.FAIL, "its plan is another one", UP),
        (
            replace(GIVEN, plan="e" * 64, version="1.0"),
            Order.UNKNOWN,
            CheckStatus.WARN,
            "gpucluster 1.0 made its plan, and 2.0 makes another one",
            "",
        ),
    ],
    ids=["same", "text", "silent", "never", "older", "newer", "dirty", "tampered", "version"],
)
def test_published_spec_is_compared_with_the_given_one(
    published: SpecSource | None, order: Order, verdict: CheckStatus, words: str, remedy: str
) -> None:
    found = result(published, order)
    assert (found.verdict, found.remedy) == (verdict, remedy)
    assert words in found.found
    if verdict is not CheckStatus.WARN:
        assert found.expected == "the spec stacks/a.yaml: commit cccccccccccc" or "plan" in found.expected
