"""The table of public files with their verdicts, and the tool that compares lint with it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GIT = shutil.which("git") or "git"
ROOT = Path(__file__).parents[3]
TOOL, TABLE = ROOT / "tools/lint_corpus.py", ROOT / "tools/lint-corpus.json"
GOOD = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n"
BAD = GOOD.replace("{port: 80}", "{port: 80, protocol: tcp}")
PATCH = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 2}\n"
FILES = {
    "good.yaml": GOOD,
    "bad.yaml": BAD,
    "base/part.yaml": PATCH,
    "base/kustomization.yaml": "patches: [{path: part.yaml}]\n",
}


@pytest.fixture
def clones(tmp_path: Path) -> Path:
    """One repository with the files."""
    clone = tmp_path / "clones/owner/name"
    for name, written in FILES.items():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(written)
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a")):  # fmt: skip
        subprocess.run([GIT, "-C", str(clone), *words], check=True)
    return tmp_path / "clones"


def table(clones: Path, errors: dict[str, Any]) -> Path:
    head = subprocess.run([GIT, "-C", str(clones / "owner/name"), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)  # fmt: skip
    row = {"repository": "owner/name", "commit": head.stdout.strip(), "errors": errors, "files": [name for name in FILES if "kustomization" not in name]}  # fmt: skip
    made = clones.parent / "table.json"
    made.write_text(json.dumps({"kubernetes": "1.36", "repositories": [row]}))
    return made


def run(clones: Path, made: Path, *options: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(TOOL), str(clones), "--table", str(made), *options]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


RIGHT = {"bad.yaml": {"rules": ["word"], "because": "The server takes TCP."}}


def test_equal_verdicts_pass_and_a_named_patch_is_none(clones: Path) -> None:
    ended = run(clones, table(clones, RIGHT))
    assert ended.stdout == "3 files of 1 repositories: 1 with errors, 0 with warnings, 0 verdicts differ\n"
    assert ended.returncode == 0


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ({}, "owner/name bad.yaml: expected no error, found ['word']"),
        ({"bad.yaml": {"rules": ["port"], "because": "a"}}, "owner/name bad.yaml: expected ['port'], found ['word']"),
        ({**RIGHT, "good.yaml": {"rules": ["word"], "because": "a"}}, "owner/name good.yaml: expected ['word'], found no error"),
        ({"bad.yaml": {"rules": ["word"], "because": ""}}, "owner/name bad.yaml: nobody has written why ['word'] is right"),
    ],
    ids=["a new error", "another error", "an error that is gone", "an error that nobody read"],
)  # fmt: skip
def test_verdict_that_differs_fails(clones: Path, errors: dict[str, Any], words: str) -> None:
    ended = run(clones, table(clones, errors))
    assert ended.stdout.splitlines()[0] == words
    assert ended.returncode == 1


def test_update_keeps_reasons_and_leaves_new_ones_to_a_reader(clones: Path) -> None:
    made = table(clones, {"good.yaml": {"rules": ["word"], "because": "a"}})
    assert run(clones, made, "--update").returncode == 0
    (row,) = json.loads(made.read_text())["repositories"]
    assert row["errors"] == {"bad.yaml": {"rules": ["word"], "because": ""}}
    assert run(clones, made).returncode == 1
    made = table(clones, RIGHT)
    assert run(clones, made, "--update").returncode == 0
    assert json.loads(made.read_text())["repositories"][0]["errors"] == RIGHT


def test_each_error_of_the_table_has_the_reason_of_a_reader() -> None:
    rows = json.loads(TABLE.read_text())["repositories"]
    for row in rows:
        assert set(row["errors"]) <= set(row["files"])
        assert len(set(row["files"])) == len(row["files"])
        assert all(one["because"].endswith(".") for one in row["errors"].values())
        assert set(row.get("read", {})) <= set(row["files"]) - set(row["errors"])
    assert sum(len(row["files"]) for row in rows) >= 300
    assert sum(len(row.get("read", {})) for row in rows) >= 60
