"""What `diff` says of new jobs that name neither account nor QOS, where the first one of the spec changes."""

import pytest
from support.account_rows import SITE
from support.builders import changed
from support.reviewed import a_diff

from gpucluster.gitops.report.opening import opening

_TWO = changed(
    SITE,
    ("limits: {gpu_hours_per_month: 5000}", "limits: {gpus: 32}"),
    ("users: [recsys]", "users: [recsys, vision]"),
)
_ACCOUNTS = _TWO.index("  - {name: research"), _TWO.index("  - {name: product")
_PRODUCT_FIRST = f"{_TWO[: _ACCOUNTS[0]]}{_TWO[_ACCOUNTS[1] :]}{_TWO[_ACCOUNTS[0] : _ACCOUNTS[1]]}".replace(
    "parent: science, share", "share"
)
_RESEARCH_FIRST = _TWO.replace("parent: science, share", "share")

CASES = {
    "QOS in another order": (
        SITE,
        changed(SITE, ("qos: [normal, urgent]", "qos: [urgent, normal]")),
        "after the change, new ones of the account research without --qos get the QOS urgent instead of normal",
    ),
    "accounts in another order": (
        _RESEARCH_FIRST,
        _PRODUCT_FIRST,
        "after the change, new ones of vision without --account are of the account product instead of research",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_another_default_is_told_of_new_jobs(case: str) -> None:
    """Regression: another order alone changed nothing by the report."""
    old, new, said = CASES[case]
    found = a_diff(old, new)
    assert found.effects is not None
    assert said in found.effects.queued
    assert opening(found).startswith("queued jobs: after the change, new ones of")


def test_gpu_hours_of_a_month_are_no_other_default() -> None:
    found = a_diff(SITE, changed(SITE, ("limits: {gpu_hours_per_month: 5000}", "limits: {gpus: 32}"))).effects
    assert found is not None
    assert "without --qos" not in found.queued
