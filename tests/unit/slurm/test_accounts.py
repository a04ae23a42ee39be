"""Wanted accounts, the answers of sacctmgr, and the difference: pure, on the answers that real slurmdbds of two versions gave."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.account_rows import SITE
from support.builders import changed

from gpucluster import catalog
from gpucluster.plan.model import Accounting
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.accounts import read
from gpucluster.slurm.accounts.diff import USERS_PER_CALL, Kind, difference
from gpucluster.slurm.accounts.records import (
    GPU,
    AccountRecord,
    Member,
    QosRecord,
    Records,
    is_ours,
    mark,
    other_cluster,
)
from gpucluster.slurm.accounts.wanted import wanted
from gpucluster.spec import inspect_text

RECORDED = Path(__file__).parents[2] / "recorded/sacctmgr"
MONTH = "2026-11"


def _accounting(*changes: tuple[str, str]) -> Accounting:
    plan = resolve(inspect_text(changed(SITE, *changes), "lab.yaml", catalog.load()).result(), catalog.load())
    assert plan.slurm is not None
    assert plan.slurm.accounting is not None
    return plan.slurm.accounting


def _wanted(*changes: tuple[str, str], month: str = MONTH) -> Records:
    return wanted(_accounting(*changes), "lab", month)


def _answers(version: str) -> dict[str, str]:
    return {name: (RECORDED / version / f"{name}.json").read_text() for name in read.commands("lab")}


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_answers_of_real_slurmdbds_are_read(version: str) -> None:
    """Recorded after commands by hand: limits on accounts, users and QOS, a closed account, a comment of our own."""
    found = read.records(_answers(version), "lab")
    assert found.accounts["research"].group == {GPU: 24}
    assert found.accounts["research"].parent == "root"
    assert found.accounts["science"].closed
    assert not found.accounts["research"].closed
    assert found.accounts["science"].qos == {"normal", "urgent"}
    assert found.accounts["science"].default_qos == "normal"
    assert found.accounts["science"].organization == "new"
    assert found.members["research", "vision"].group == {GPU: 8, "cpu": 9}
    assert found.members["science", "vision"].closed
    assert found.default_accounts["vision"] == "science"
    assert found.qos["urgent"].per_user == {GPU: 16}
    assert found.qos["urgent"].priority == 1000


def test_a_second_run_changes_nothing() -> None:
    assert difference(_wanted(), _wanted(), "lab").changes == ()


def test_qos_come_before_the_accounts_that_use_them_and_parents_before_children() -> None:
    changes = difference(_wanted(), Records(), "lab").changes
    subjects = [one.subject for one in changes]
    assert (
        subjects.index("QOS urgent") < subjects.index("account science") < subjects.index("account research")
    )
    assert subjects.index("account research") < subjects.index("users vision, speech of account research")
    added = next(one for one in changes if one.subject == "QOS urgent")
    assert not any("preempt=" in word for command in added.commands for word in command)
    assert any("preempt=normal,product-normal" in command for one in changes for command in one.commands), (
        "after all QOS exist"
    )


def test_users_of_one_account_are_added_in_batches() -> None:
    many = Records(
        members={
            ("research", f"u{n}"): Member(account="research", user=f"u{n}", comment=mark("lab"))
            for n in range(2 * USERS_PER_CALL + 1)
        }
    )
    assert len(difference(many, Records(), "lab").changes) == 3


def test_records_of_others_are_not_touched() -> None:
    by_hand = Records(
        qos={"big": QosRecord(name="big", description="by hand")},
        accounts={"guests": AccountRecord(name="guests", parent="root", organization="site")},
        members={("guests", "eve"): Member(account="guests", user="eve")},
    )
    found = replace(
        _wanted(),
        qos={**_wanted().qos, **by_hand.qos},
        accounts={**_wanted().accounts, **by_hand.accounts},
        members={
            **_wanted().members,
            **by_hand.members,
            ("research", "eve"): Member(account="research", user="eve"),
        },
    )
    assert difference(_wanted(), found, "lab").changes == ()


def test_what_leaves_the_spec_is_closed_and_never_deleted() -> None:
    smaller = _wanted(("[vision, speech]", "[vision]"))
    (change,) = difference(smaller, _wanted(), "lab").changes
    assert (change.kind, change.subject) == (Kind.CLOSE, "user speech of account research")
    assert change.commands[0][-2:] == ("set", "GrpSubmitJobs=0")
    every = difference(Records(), _wanted(), "lab").changes
    assert not any("delete" in command or "remove" in command for one in every for command in one.commands)


def test_what_comes_back_is_opened_again() -> None:
    closed = replace(_wanted().accounts["research"], closed=True)
    found = replace(_wanted(), accounts={**_wanted().accounts, "research": closed})
    (change,) = difference(_wanted(), found, "lab").changes
    assert "GrpSubmitJobs=-1" in change.commands[0]


def test_a_removed_limit_is_cleared() -> None:
    without = _wanted((", limits: {gpus: 24}", ""))
    (change,) = difference(without, _wanted(), "lab").changes
    assert "GrpTRES=gres/gpu=-1" in change.commands[0]
    assert [(one.field, one.before, one.after) for one in change.details] == [
        ("GrpTRES", "gres/gpu=24", "gres/gpu=-1")
    ]


def test_a_new_month_resets_the_count_and_then_writes_the_month() -> None:
    """A kill between both resets once more; the other order would lose the reset."""
    (change,) = difference(_wanted(month="2026-12"), _wanted(), "lab").changes
    assert (change.kind, change.subject) == (Kind.RESET, "QOS product-normal")
    assert [command[-1] for command in change.commands] == [
        "RawUsage=0",
        "description=gpucluster lab 2026-12",
    ]


def test_a_foreign_description_of_a_counting_qos_starts_no_month() -> None:
    """Else an administrator's note would give an account its hours twice."""
    old = replace(_wanted().qos["product-normal"], description="a note")
    found = replace(_wanted(), qos={**_wanted().qos, "product-normal": old})
    (change,) = difference(_wanted(), found, "lab").changes
    assert change.kind is Kind.CHANGE
    assert "RawUsage=0" not in change.commands[0]


def test_a_qos_of_another_cluster_is_a_conflict_and_not_changed() -> None:
    old = replace(_wanted().qos["urgent"], description=mark("other"), priority=1)
    found = replace(_wanted(), qos={**_wanted().qos, "urgent": old})
    result = difference(_wanted(), found, "lab")
    assert result.changes == ()
    assert result.conflicts == (
        "the QOS urgent belongs to the cluster other of the same database, and has other values there: take another name",
    )
    same = replace(_wanted().qos["urgent"], description=mark("other"))
    alike = replace(_wanted(), qos={**_wanted().qos, "urgent": same})
    assert difference(_wanted(), alike, "lab").conflicts == ()


@pytest.mark.parametrize("name", ["x set parent=root", "a,b", "ü", "", "x" * 101])
def test_names_of_others_that_sacctmgr_would_read_otherwise_are_in_no_command(name: str) -> None:
    found = Records(
        accounts={name: AccountRecord(name=name, parent="root", organization=mark("lab"))},
        members={(name, name): Member(account=name, user=name, comment=mark("lab"))},
    )
    assert difference(Records(), found, "lab").changes == ()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"qos": 7}', "slurmdbd: error"])
def test_an_answer_that_is_not_sacctmgrs_is_refused(text: str) -> None:
    with pytest.raises(read.AccountsAnswerError):
        read.records({**_answers("24.11"), "qos": text}, "lab")


def test_fields_of_strange_types_are_read_as_unset() -> None:
    strange = (
        '{"qos": [7, {"name": "q", "priority": "high", "flags": {}, "limits": [], "preempt": {"list": [1]}}]}'
    )
    found = read.records({**_answers("24.11"), "qos": strange}, "lab")
    assert found.qos == {"q": QosRecord(name="q")}


def test_marks_name_their_cluster() -> None:
    assert is_ours("gpucluster lab 2026-11", "lab")
    assert not is_ours("gpucluster laboratory", "lab")
    assert other_cluster("gpucluster laboratory", "lab") == "laboratory"
    assert other_cluster("normal qos default", "lab") == ""
