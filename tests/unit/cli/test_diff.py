"""`diff`: revisions from files and from git, output, exit codes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.builders import SPEC, a_spec_text

from gpucluster.cli import main as program

BAD_OLD = a_spec_text(("idle: 5m", "idle: 5"))
BAD_NEW = a_spec_text(("schema: 1", "schema: 2"))
HIGHER = a_spec_text(("max: 16", "max: 32"))
GIT = shutil.which("git") or "git"
QUICK = "--no-resources"  # what runs the program is tested with the engine

Said = pytest.CaptureFixture[str]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository. Its main branch has SPEC, its work tree has a higher max."""
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
    assert out.splitlines()[:7] == [
        f"burst: {old} -> {new}",
        "live: the cost of a month changes, and a part of it has no price",
        "  1. pulumi up --stack burst",
        "  running jobs: go on",
        "  queued jobs:  stay in the queue",
        "  sessions:     stay open",
        "  data:         stays where it is",
    ]
    assert "pools[h200].nodes.max: 16 -> 32" in out
    assert "resources" not in out
    assert err.startswith("warning[no-price] unknown: ")
    assert "old-prices" not in err, "nothing in this region has a price that could be old"


def test_stacks_are_found_by_their_names(repository: Path, capsys: Said) -> None:
    """Regression: only `diff` did not take the name of a stack."""
    (repository / "stacks/other.yaml").write_text(HIGHER.replace("name: burst", "name: other"))
    assert program.run(["diff", "burst", "other", QUICK]) == 0
    assert "burst.yaml -> stacks/other.yaml" in capsys.readouterr().out.splitlines()[0]


def test_old_prices_are_a_warning_where_they_are_used(tmp_path: Path, capsys: Said) -> None:
    east = (
        ("region: us-east-2", "region: us-east-1"),
        ("[us-east-2a, us-east-2b]", "[us-east-1a, us-east-1b]"),
    )
    old, new = _two(tmp_path, a_spec_text(*east), a_spec_text(*east, ("max: 16", "max: 32")))
    assert program.run(["diff", old, new, QUICK]) == 0
    out, err = capsys.readouterr()
    assert "warning[old-prices] the prices are of 2026-02-09" in err
    assert "  next: write the prices of your region into a file, and name it: --prices FILE" in err
    assert "days ago" not in out, "the result does not change by the day"


def test_revision_is_compared_with_a_file(repository: Path, capsys: Said) -> None:
    assert program.run(["diff", "main:stacks/burst.yaml", "stacks/burst.yaml", QUICK, "--exit-code"]) == 1
    assert "pools[h200].nodes.max: 16 -> 32" in capsys.readouterr().out


def test_revision_is_found_from_a_folder_below(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.chdir(repository / "stacks")
    assert program.run(["diff", "main:stacks/burst.yaml", "burst.yaml", QUICK]) == 0
    assert program.run(["diff", "HEAD:./burst.yaml", "burst.yaml", QUICK]) == 0


def test_byte_order_mark_is_ignored(repository: Path, capsys: Said) -> None:
    spec = repository / "stacks/burst.yaml"
    spec.write_text(f"\ufeff{SPEC}")
    _git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "from an editor that adds one")
    assert program.run(["diff", "main:stacks/burst.yaml", str(spec), QUICK, "--exit-code"]) == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("main:nope.yaml", "main:nope.yaml: there is no such file in commit "),
        ("none:stacks/burst.yaml", "none:stacks/burst.yaml: there is no commit 'none' in this repository"),
        ("main:stacks", "main:stacks: it is a folder in commit "),
        # `git show` took the first two as a pattern and a range, and an empty spec was blamed on the user
        ("main:stacks/*.yaml", "main:stacks/*.yaml: there is no such file in commit "),
        ("main..main:stacks/burst.yaml", "there is no commit 'main..main' in this repository"),
        ("main:../etc/passwd", "'../etc/passwd' is outside of the repository"),
        ("a" * 5000, "cannot be read: File name too long"),
        (f"main:{'a' * 5000}", "aaa…: there is no such file in commit "),  # was a traceback
        ("-x:stacks/burst.yaml", "a revision does not begin with '-'"),
        (":stacks/burst.yaml", "the revision or the path is missing"),
        ("main:", "the revision or the path is missing"),
        ("nope.yaml", "cannot be read: No such file or directory"),
        ("stacks", "cannot be read: Is a directory"),
    ],
)
def test_missing_spec_exits_2(given: str, said: str, repository: Path, capsys: Said) -> None:
    assert program.run(["diff", QUICK, "--", given, "stacks/burst.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: old: ")
    assert said in err
    assert "\n  next: name " in err


def test_outside_a_repository_the_message_of_git_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert program.run(["diff", "main:a.yaml", "main:b.yaml", QUICK]) == 2
    err = capsys.readouterr().err
    assert "old: main:a.yaml: git reports: fatal: not a git repository" in err
    assert "\nnew: main:b.yaml: git reports: fatal: not a git repository" in err


def test_invalid_spec_is_named_and_the_problems_of_both_are_printed(tmp_path: Path, capsys: Said) -> None:
    """Regression: the exit code was 1, which is also that of specs that differ."""
    old, new = _two(tmp_path, BAD_OLD, BAD_NEW)
    assert program.run(["diff", old, new, "--exit-code"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [line for line in err.splitlines() if not line.startswith(" ")] == [
        "old is not a valid spec:",
        f"{old}:15:11: error[no-unit] pools[h200].idle: 5 has no unit; write 30s, 5m, 2h or 7d",
        "new is not a valid spec:",
        f"{new}:1:9: error[schema-version] schema: this gpucluster reads schema 1, found 2",
    ]


def test_problems_of_a_spec_as_json(repository: Path, capsys: Said) -> None:
    (repository / "stacks/burst.yaml").write_text("{")
    assert program.run(["diff", "main:stacks/burst.yaml", "stacks/burst.yaml", "-o", "json"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["error"]["exit_code"]) == (False, 2)
    assert [problem["file"] for problem in said["problems"]] == ["stacks/burst.yaml"]


def test_json_has_a_stable_head(tmp_path: Path, capsys: Said) -> None:
    old, new = _two(tmp_path, SPEC, HIGHER)
    assert program.run(["diff", old, new, QUICK, "--output", "json", "--exit-code"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["schema"], said["ok"]) == (1, True)
    assert said["diff"].keys() == {
        "name", "old", "new", "compared", "differs", "worst", "jobs", "engine_note", "changes", "consequences", "files",
        "resources", "pools", "cost", "who_gets_in", "whole", "rights", "unseen", "effects", "clauses", "steps", "refused", "stay",
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
            "narrows": False,
        }
    ]


def test_markdown_names_the_command_that_makes_it_again(tmp_path: Path, capsys: Said) -> None:
    old, new = _two(tmp_path, SPEC, HIGHER)
    assert program.run(["diff", old, new, QUICK, "-o", "markdown"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("<!-- gpucluster:diff:burst -->\n")
    assert f"`gpucluster diff {old} {new} --no-resources`" in out


@pytest.mark.parametrize("output", ["text", "json", "markdown"])
def test_same_two_give_the_same_bytes(output: str, tmp_path: Path, capsys: Said) -> None:
    old, new = _two(tmp_path, SPEC, HIGHER)
    told: list[str] = []
    for _ in range(2):
        assert program.run(["diff", old, new, QUICK, "-o", output]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]


@pytest.mark.parametrize("lacking", ["pulumi", "grpc", "pulumi_aws"])
def test_installation_without_the_extra_compares_the_rest_and_names_it(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    """Regression: after `pip install .`, `diff` was a traceback with the exit code of specs that differ."""
    monkeypatch.setitem(sys.modules, lacking, None)  # as Python marks a module that is not there
    old, new = _two(tmp_path, SPEC, HIGHER)
    assert program.run(["diff", old, new, "--exit-code"]) == 1, "they differ"
    out, err = capsys.readouterr()
    assert f"resources and rights are not compared: {lacking} is not installed" in out
    assert err.splitlines()[:2] == [
        f"resources are not compared: {lacking} is not installed",
        "  next: in the clone: pip install '.[aws]'",
    ]
    assert program.run(["diff", old, new, "--resources", "-o", "json"]) == 2, "it was asked for"
    refused = json.loads(capsys.readouterr().out)["error"]
    assert refused["exit_code"] == 2
    assert refused["next"] == "in the clone: pip install '.[aws]'; or --no-resources compares the rest"
    assert program.run(["diff", old, new, QUICK, "--exit-code"]) == 1
    assert "not installed" not in capsys.readouterr().err


def test_new_and_deleted_spec(repository: Path, capsys: Said) -> None:
    """Regression: a new stack could not be reviewed."""
    assert program.run(["diff", "/dev/null", "burst", QUICK, "--exit-code"]) == 1
    out, _ = capsys.readouterr()
    assert out.splitlines()[:2] == [
        "burst: /dev/null -> stacks/burst.yaml",
        "live: The spec is new: it adds a cluster and changes no other",
    ]
    assert program.run(["diff", "main:stacks/burst.yaml", "/dev/null", "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)["diff"]
    assert (said["whole"], said["worst"], said["new"]) == ("removed", "data-loss", "/dev/null")
    assert (said["resources"], said["rights"]) == ([], [])
    assert said["stay"] > 10, "nobody deletes them"
    assert program.run(["diff", "/dev/null", "/dev/null"]) == 2
    assert "/dev/null on both sides: there is no spec" in capsys.readouterr().err


def test_wider_rights_of_jobs_are_shown(tmp_path: Path, capsys: Said) -> None:
    """Regression: the policy's text is unknown before the deployment, and the comment said `none touched`."""
    jobs = ("aws:\n", "aws:\n  jobs: {read: [s3://example-data/sets]}\n")
    wider = ("aws:\n", "aws:\n  jobs: {read: [s3://example-data]}\n")
    old, new = _two(tmp_path, a_spec_text(jobs), a_spec_text(wider))
    assert program.run(["diff", old, new]) == 0
    out, err = capsys.readouterr()
    assert "changed aws:iam/rolePolicy:RolePolicy burst-jobs (its statements change)" in out
    assert "    - Allow s3:GetObject on arn:aws:s3:::example-data/sets/*\n" in out
    assert "    + Allow s3:GetObject on arn:aws:s3:::example-data/*\n" in out
    assert "none touched" not in out
    assert "not looked at: the machine image, which only `pulumi up` looks up" in out
    assert err.count("warning[open-look-up]") == 2


def test_no_difference_exits_0_with_exit_code_option(tmp_path: Path, capsys: Said) -> None:
    old, new = _two(tmp_path, SPEC, f"# the same\n{SPEC}")
    assert program.run(["diff", old, new, QUICK, "--exit-code"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "no change: both revisions describe the same cluster"


def test_cluster_without_pulumi_program_is_compared_without_resources(tmp_path: Path, capsys: Said) -> None:
    stack = (Path(__file__).parents[3] / "stacks/kube.yaml").read_text()
    lines = stack.replace("control_plane: eks", "existing: {context: prod, eks_name: prod}").splitlines()
    kube = "\n".join(line for line in lines if "s3://" not in line and "service_accounts" not in line)
    old, new = _two(tmp_path, kube, kube.replace("gpu: 32}", "gpu: 24}"))
    assert program.run(["diff", old, new, "-o", "json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)["diff"]
    assert "resources are not compared" in err
    assert found["resources"] is None
    assert found["unseen"] == [
        "resources are not compared: the program creates no AWS resources for a Kubernetes that exists"
    ]
    (change,) = found["changes"]
    assert change["path"] == "kubernetes.teams[research].quota[nvidia.com/gpu]"
    assert (change["before"], change["after"]) == ("32", "24")
    assert [row["name"] for row in found["pools"]] == ["serve", "tune"]
