"""`python -m gpucluster.elastic.accounts` on the head: its words, its exit code, and that they agree."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.fake_machine import a_small_plan

from gpucluster.elastic import accounts
from gpucluster.plan import codec
from gpucluster.plan.model import Accounting, LocalDatabase, Qos
from gpucluster.shell import Result

Rows = list[dict[str, Any]]
NONE: Rows = []
FAST = {"name": "fast", "description": "gpucluster trial", "priority": {"set": True, "number": 5}}
SLOW = {**FAST, "priority": {"set": True, "number": 0}}
OTHERS = {**SLOW, "description": "gpucluster elsewhere"}
CHANGE = "change QOS fast\n    priority: 0 -> 5\n"
ADD = "add QOS fast\n    priority: 5\n    description: gpucluster trial\n"
DIFFERS = "1 change was sent, and slurmdbd still differs:\n"
CANNOT = "cannot: the QOS fast belongs to the cluster elsewhere of the same database, and has other values there: take another name\n"


@dataclass
class Slurmdbd:
    """Answers of sacctmgr: `before` until the first command that changes something, then `after`."""

    before: Rows
    after: Rows
    refuses: str = ""  # a command with this word
    made: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    def run(self, argv: Sequence[str]) -> Result:
        words = tuple(argv)
        if "--json" not in words:
            if self.refuses and self.refuses in words:
                return Result(words, 1, "", "Insufficient permission")
            self.made.append(words)
            return Result(words, 0, "", "")
        qos = self.after if self.made else self.before
        return Result(words, 0, json.dumps({"qos": qos, "accounts": [], "associations": [], "users": []}), "")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan with the QOS fast, of priority 5."""
    part = Accounting(
        database=LocalDatabase(buffer_pool_mib=2048), keep_s=86400, qos=(Qos(name="fast", priority=5),)
    )
    whole = a_small_plan()
    file = tmp_path / "plan.json"
    file.write_text(codec.dumps(replace(whole, name="trial", slurm=replace(whole.slurm, accounting=part))))
    return file


@pytest.mark.parametrize(
    ("verb", "answers", "ends"),
    [
        ("diff", ([FAST], [FAST]), (0, "slurmdbd has the accounts of the plan\n")),
        ("diff", ([SLOW], [FAST]), (1, CHANGE)),
        ("apply", ([FAST], [FAST]), (0, "slurmdbd has the accounts of the plan\n")),
        ("apply", ([SLOW], [FAST]), (0, f"{CHANGE}1 change is made\n")),
        ("apply", ([SLOW], [SLOW]), (1, f"{CHANGE}{DIFFERS}{CHANGE}")),
        ("apply", (NONE, [OTHERS]), (1, f"{ADD}{DIFFERS}{CANNOT}")),
        ("apply", ([OTHERS], [OTHERS]), (1, CANNOT)),
    ],
)
def test_words_and_exit_code_say_what_slurmdbd_has_after_the_command(
    verb: str,
    answers: tuple[Rows, Rows],
    ends: tuple[int, str],
    plan: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    slurmdbd = Slurmdbd(*answers)
    assert (accounts.main([verb, "--plan", str(plan)], slurmdbd.run), capsys.readouterr().out) == ends
    assert verb == "apply" or slurmdbd.made == []


def test_json_names_what_was_sent_and_what_is_left(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert accounts.main(["apply", "--json", "--plan", str(plan)], Slurmdbd([SLOW], [SLOW]).run) == 1
    answer = json.loads(capsys.readouterr().out)
    assert [one["subject"] for one in answer["changes"]] == ["QOS fast"]
    assert [one["subject"] for one in answer["left"]] == ["QOS fast"]
    assert accounts.main(["diff", "--json", "--plan", str(plan)], Slurmdbd([SLOW], [SLOW]).run) == 1
    assert "left" not in json.loads(capsys.readouterr().out)


def test_a_refusal_says_how_far_it_came_and_how_to_go_on(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert accounts.main(["apply", "--plan", str(plan)], Slurmdbd([SLOW], [SLOW], "modify").run) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == (
        "error: QOS fast: Insufficient permission; 0 of 1 changes are made\n"
        "  next: correct the cause, then run `gpucluster accounts apply NAME` again: it goes on with what is left\n"
    )
