"""diff: sides by file and by revision, what it answers, and how it ends."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from builders import SPEC, a_spec_text

from gpucluster.cli import main as program

BAD_OLD = a_spec_text(("idle: 5m", "idle: 5"))
BAD_NEW = a_spec_text(("schema: 1", "schema: 2"))
HIGHER = a_spec_text(("max: 16", "max: 32"))
GIT = shutil.which("git") or "git"
QUICK = "--no-resources"  # what runs the program is tested with the engine

Said = pytest.CaptureFixture[str]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose main has SPEC, and whose tree has a higher max."""
    (tmp_path / "stacks").mkdir()
    spec = tmp_path / "stacks/burst.yaml"
    spec.write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):  # a hook that runs us sets them
        monkeypatch.delenv(name, raising=False)
    _git("init", "-q", "-b", "main")
    _git("add", "stacks/burst.yaml")
    _git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    spec.write_text(HIGHER)
    return tmp_path


def _git(*argv: str) -> None:
    subprocess.run([GIT, *argv], check=True, capture_output=True)


def _two(folder: Path, old: str, new: str) -> tuple[str, str]:
    files = [folder / "old.yaml", folder / "new.yaml"]
    for file, text in zip(files, (old, new), strict=True):
        file.write_text(text)
    return str(files[0]), str(files[1])


def test_two_files_are_compared(tmp_path: Path, capsys: Said) -> None:
    old, new = _two(tmp_path, SPEC, HIGHER)
    assert program.run(["diff", old, new, QUICK]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[:2] == [
        f"burst: {old} -> {new}",
        "live: Running jobs go on: the change is taken up while the cluster runs.",
    ]
    assert "pools[h200].nodes.max: 16 -> 32" in out
    assert "resources" not in out
    assert err == "", "nothing in this region has a price that could be old"


def test_old_prices_are_a_warning_where_they_are_used(tmp_path: Path, capsys: Said) -> None:
    east = (
        ("region: us-east-2", "region: us-east-1"),
        ("[us-east-2a, us-east-2b]", "[us-east-1a, us-east-1b]"),
    )
    old, new = _two(tmp_path, a_spec_text(*east), a_spec_text(*east, ("max: 16", "max: 32")))
    assert program.run(["diff", old, new, QUICK]) == 0
    out, err = capsys.readouterr()
    assert "warning[old-prices] the prices are of 2026-02-09" in err
    assert "next: a newer gpucluster; or " in err
    assert "days ago" not in out, "the result does not change by the day"


def test_a_revision_is_compared_with_a_file(repository: Path, capsys: Said) -> None:
    assert program.run(["diff", "main:stacks/burst.yaml", "stacks/burst.yaml", QUICK, "--exit-code"]) == 1
    assert "pools[h200].nodes.max: 16 -> 32" in capsys.readouterr().out


def test_a_revision_is_found_from_a_folder_below(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.chdir(repository / "stacks")
    assert program.run(["diff", "main:stacks/burst.yaml", "burst.yaml", QUICK]) == 0
    assert program.run(["diff", "HEAD:./burst.yaml", "burst.yaml", QUICK]) == 0


def test_a_mark_of_the_byte_order_is_no_part_of_a_spec(repository: Path, capsys: Said) -> None:
    spec = repository / "stacks/burst.yaml"
    spec.write_text(f"\ufeff{SPEC}")
    _git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "from an editor that adds one")
    assert program.run(["diff", "main:stacks/burst.yaml", str(spec), QUICK, "--exit-code"]) == 0


def test_a_file_wins_over_a_revision_of_the_same_spelling(repository: Path, capsys: Said) -> None:
    (repository / "main:stacks").mkdir()
    (repository / "main:stacks/burst.yaml").write_text(HIGHER)
    assert program.run(["diff", "main:stacks/burst.yaml", "stacks/burst.yaml", QUICK, "--exit-code"]) == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("main:nope.yaml", "git says: fatal: path 'nope.yaml' does not exist in 'main'"),
        ("none:stacks/burst.yaml", "git says: fatal: invalid object name 'none'."),
        ("main:stacks", "git says: fatal: git cat-file main:stacks: bad file"),
        # `git show` took the first two as a pattern and a range, and an empty spec was blamed on the user
        ("main:stacks/*.yaml", "git says: fatal: path 'stacks/*.yaml' does not exist in 'main'"),
        ("main..main:stacks/burst.yaml", "git says: fatal: invalid object name 'main..main'"),
        ("main:../etc/passwd", "is outside repository"),
        ("a" * 5000, "cannot be read: File name too long"),
        (f"main:{'a' * 5000}", "git says: fatal: "),  # was a traceback
        ("-x:stacks/burst.yaml", "a revision does not begin with '-'"),
        (":stacks/burst.yaml", "half of it is missing"),
        ("main:", "half of it is missing"),
        ("nope.yaml", "cannot be read: No such file or directory"),
        ("stacks", "cannot be read: Is a directory"),
    ],
)
def test_a_side_that_is_not_there_ends_with_two(
    given: str, said: str, repository: Path, capsys: Said
) -> None:
    assert program.run(["diff", QUICK, "--", given, "stacks/burst.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: old: ")
    assert said in err
    assert "\n  next: name a " in err


def test_outside_of_a_repository_gits_own_words_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert program.run(["diff", "main:a.yaml", "main:b.yaml", QUICK]) == 2
    err = capsys.readouterr().err
    assert "old: main:a.yaml: no such file, and git says: fatal: not a git repository" in err
    assert "\nnew: main:b.yaml: no such file" in err


def test_a_side_that_is_no_spec_is_named_and_hides_none_of_the_other(tmp_path: Path, capsys: Said) -> None:
    old, new = _two(tmp_path, BAD_OLD, BAD_NEW)
    assert program.run(["diff", old, new]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert [line for line in err.splitlines() if not line.startswith(" ")] == [
        "old does not pass as a spec:",
        f"{old}:15:11: error[no-unit] pools[h200].idle: 5 has no unit; write 30s, 5m, 2h or 7d",
        "new does not pass as a spec:",
        f"{new}:1:9: error[schema-version] schema: this gpucluster reads schema 1, found 2",
    ]


def test_the_problems_of_a_side_as_json(repository: Path, capsys: Said) -> None:
    (repository / "stacks/burst.yaml").write_text("{")
    assert program.run(["diff", "main:stacks/burst.yaml", "stacks/burst.yaml", "-o", "json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["error"]["exit_code"]) == (False, 1)
    assert [problem["file"] for problem in said["problems"]] == ["stacks/burst.yaml"]


def test_json_has_a_stable_head(tmp_path: Path, capsys: Said) -> None:
    old, new = _two(tmp_path, SPEC, HIGHER)
    assert program.run(["diff", old, new, QUICK, "--output", "json", "--exit-code"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["schema"], said["ok"]) == (1, True)
    assert said["diff"].keys() == {
        "name", "old", "new", "differs", "worst", "jobs", "engine_says", "changes", "consequences", "files",
        "resources", "pools", "cost",
    }  # fmt: skip
    assert (said["diff"]["worst"], said["diff"]["resources"]) == ("live", None)
    assert said["diff"]["changes"] == [
        {
            "path": "pools[h200].nodes.max",
            "kind": "changed",
            "before": "16",
            "after": "32",
            "update": "live",
            "why": "",
        }
    ]


def test_markdown_names_the_command_that_makes_it_again(tmp_path: Path, capsys: Said) -> None:
    old, new = _two(tmp_path, SPEC, HIGHER)
    assert program.run(["diff", old, new, QUICK, "-o", "markdown"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("<!-- gpucluster:diff:burst -->\n")
    assert f"`gpucluster diff {old} {new} --no-resources`" in out


@pytest.mark.parametrize("output", ["text", "json", "markdown"])
def test_the_same_two_give_the_same_bytes(output: str, tmp_path: Path, capsys: Said) -> None:
    old, new = _two(tmp_path, SPEC, HIGHER)
    told: list[str] = []
    for _ in range(2):
        assert program.run(["diff", old, new, QUICK, "-o", output]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]


def test_no_difference_ends_with_zero_also_when_asked(tmp_path: Path, capsys: Said) -> None:
    old, new = _two(tmp_path, SPEC, f"# the same\n{SPEC}")
    assert program.run(["diff", old, new, QUICK, "--exit-code"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "no change"


def test_a_cluster_that_no_program_builds_is_compared_without_resources(tmp_path: Path, capsys: Said) -> None:
    kube = (Path(__file__).parents[3] / "stacks/kube.yaml").read_text()
    old, new = _two(tmp_path, kube, kube.replace("gpu: 32}", "gpu: 24}"))
    assert program.run(["diff", old, new, "-o", "json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)["diff"]
    assert "resources are not compared" in err
    assert found["resources"] is None
    (change,) = found["changes"]
    assert change["path"] == "kubernetes.teams[research].quota[nvidia.com/gpu]"
    assert (change["before"], change["after"]) == ("32", "24")
    assert [row["name"] for row in found["pools"]] == ["serve", "tune"]
