"""What `diff` says of running jobs that a waiting job may preempt after an edit: who, of whom, and what becomes of them."""

import pytest
from support.account_rows import SITE
from support.audited_edits import STACKS
from support.builders import changed
from support.reviewed import a_diff

from gpucluster.gitops.model import Effects
from gpucluster.gitops.report.opening import opening
from gpucluster.slurm.recorded import RECORDED
from gpucluster.slurm.request_table import ids

REQUEUED = "are requeued then, or ended if they may not be"
_MANY = changed(
    SITE,
    ("qos: [normal], users: [recsys], limits: {gpu_hours_per_month: 5000}", "qos: [normal], users: [recsys]"),
)
_SUPER = ("  - {name: debug, limits", "  - {name: super, preempts: [urgent]}\n  - {name: debug, limits")
_BY_TIER = changed(
    SITE,
    ("by: qos", "by: partition"),
    (", preempts: [normal], limits", ", limits"),
)
_SAME = changed(
    _BY_TIER,
    ("default: true}", "default: true, tier: 20}\n  - {name: low, pools: [h100]}"),
)
_GPU_LOWER = changed(_SAME, ("default: true, tier: 20", "default: true, tier: 10"))
_RULE = "  preemption: {by: partition, mode: requeue, exempt: 10m}\n"
_OTHERS = changed(
    _MANY,
    ("preempts: [normal]", "preempts: [normal, debug]"),
    ("qos: [normal, urgent]", "qos: [normal, urgent, debug]"),
)
_BY_HAND = SITE[: SITE.index("accounts:\n  - {name: science")]


def _effects(old: str, new: str) -> Effects:
    found = a_diff(old, new).effects
    assert found is not None
    return found


MAY = {
    "a new QOS": (
        _MANY,
        changed(_MANY, _SUPER, ("qos: [normal], users", "qos: [normal, super], users")),
        f"those of the QOS urgent may be preempted by a waiting job of the QOS super in the account product: they {REQUEUED}",
    ),
    "an account gets a QOS": (
        _MANY,
        changed(_MANY, ("qos: [normal], users", "qos: [normal, urgent], users")),
        f"those of the QOS normal may be preempted by a waiting job of the QOS urgent in the account product: they {REQUEUED}",
    ),
    "a parent gets a QOS": (
        changed(_MANY, ("qos: [normal, urgent]", "qos: [normal]")),
        _MANY,
        f"those of the QOS normal may be preempted by a waiting job of the QOS urgent in the account research: they {REQUEUED}",
    ),
    "a QOS preempts another": (
        _MANY,
        changed(_MANY, ("preempts: [normal]", "preempts: [normal, debug]"), ("qos: [normal], users", "qos: [normal, debug], users")),
        f"those of the QOS debug may be preempted by a waiting job of the QOS urgent in the account research: they {REQUEUED}",
    ),
    "accounts by hand": (
        _BY_HAND,
        changed(_BY_HAND, _SUPER),
        f"those of the QOS urgent may be preempted by a waiting job of the QOS super: they {REQUEUED}",
    ),
    "cancelled from now on": (
        SITE,
        changed(SITE, ("mode: requeue", "mode: cancel")),
        "those that are preempted are ended, and not requeued any more",
    ),
    "less time": (SITE, changed(SITE, ("exempt: 10m", "exempt: 2m")), "those younger than 10m may be preempted after 2m"),
    "no time": (SITE, changed(SITE, (", exempt: 10m", "")), "those younger than 10m may be preempted at once"),
    "a lower tier": (
        _SAME,
        _GPU_LOWER,
        f"those of the partition gpu may be preempted by a waiting job of the partition debug: they {REQUEUED}",
    ),
    "preemption by tier begins": (
        changed(_BY_TIER, (_RULE, "")),
        changed(_BY_TIER, ("mode: requeue", "mode: cancel")),
        "those of the partition gpu may be preempted by a waiting job of the partition debug: they are ended then",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MAY)
def test_running_jobs_that_may_be_preempted_are_named(case: str) -> None:
    old, new, said = MAY[case]
    found = _effects(old, new)
    assert found.running == f"go on; {said}"
    assert opening(a_diff(old, new)).startswith("running jobs: those")


NOT = {
    "no preemption": (changed(_SAME, (_RULE, "")), changed(_GPU_LOWER, (_RULE, ""))),
    "one preempts less": (_OTHERS, changed(_OTHERS, ("preempts: [normal, debug]", "preempts: [normal]"))),
    "more time": (SITE, changed(SITE, ("exempt: 10m", "exempt: 20m"))),
    "requeued from now on": (changed(SITE, ("mode: requeue", "mode: cancel")), SITE),
    "a QOS that no account has": (_MANY, changed(_MANY, _SUPER)),
    "a higher tier": (_GPU_LOWER, _SAME),
}


@pytest.mark.parametrize("case", NOT)
def test_nothing_is_said_where_no_more_jobs_may_be_preempted(case: str) -> None:
    assert _effects(*NOT[case]).running == "go on"


def test_clause_has_the_row_of_preemption() -> None:
    old, new, said = MAY["a new QOS"]
    (clause,) = (one for one in _effects(old, new).clauses if one.text == said)
    assert clause.rows == ("qos-preempts",)
    assert all("qos-preempts" in ids(version) for version in RECORDED)


def test_aws_says_the_same() -> None:
    old = changed((STACKS / "research.yaml").read_text(), (", limits: {gpu_hours_per_month: 5000}", ""))
    new = changed(old, ("qos: [normal], users: [recsys", "qos: [normal, urgent], users: [recsys"))
    assert "by a waiting job of the QOS urgent in the account product" in _effects(old, new).running
