"""`review` and `comment` over a git history. `test_review_in_ci.py` runs them in the Action and in the job of GitLab."""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.builders import SPEC
from support.ci_runs import a_spec_of, bash, commit, git, three_changed_stacks
from support.github_comments import REPOSITORY, TOKEN, Comments, comments_of_a_pull_request

from gpucluster.cli import main as program
from gpucluster.spec.tree import plain
from gpucluster.spec.yaml import parse

ROOT = Path(__file__).parents[3]
HOOKS: Any = plain(parse((ROOT / ".pre-commit-hooks.yaml").read_text()).root)
MARKERS = {f"<!-- gpucluster:diff:{name} -->" for name in ("changed", "gone", "fresh")}

pytestmark = pytest.mark.loopback  # the stand-in of GitHub's API
Said = pytest.CaptureFixture[str]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return three_changed_stacks(tmp_path, monkeypatch)


@pytest.fixture
def server() -> Iterator[Comments]:
    with comments_of_a_pull_request() as found:
        yield found


@pytest.fixture
def posting(server: Comments, monkeypatch: pytest.MonkeyPatch) -> Comments:
    monkeypatch.setenv("GITHUB_API_URL", server.address)
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
    return server


def a_comment(folder: Path, name: str, text: str) -> str:
    file = folder / f"{name}.md"
    file.write_text(f"<!-- gpucluster:diff:{name} -->\n\n{text}\n")
    return str(file)


def test_review_without_pulumi_names_the_option_that_needs_none(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.setitem(sys.modules, "pulumi", None)  # as Python marks a module that is not there
    argv = ["review", "--base", "main", "--to", str(tmp_path / "out")]
    assert program.run(argv) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: the Pulumi program of both specs cannot run: pulumi is not installed",
        "  next: in the clone: pip install '.[aws]'; or --no-resources compares the rest",
    ]
    assert program.run([*argv, "--no-resources"]) == 0


def test_each_stack_of_the_branch_has_a_comment(repository: Path, tmp_path: Path, capsys: Said) -> None:
    """A stack that only the base changed is not reviewed."""
    assert program.run(["review", "--base", "main", "--to", str(tmp_path / "out"), "--no-resources"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"changed: live: {tmp_path}/out/changed.md",
        f"fresh: live: {tmp_path}/out/fresh.md",
        f"gone: data-loss: {tmp_path}/out/gone.md",
    ]
    first = {file.read_text().partition("\n")[0] for file in (tmp_path / "out").glob("*.md")}
    assert first == MARKERS
    assert "`pools[h200].nodes.max`: `16 -> 32`" in (tmp_path / "out/changed.md").read_text()


def test_acceptance_that_has_ended_is_in_the_comment(repository: Path, tmp_path: Path, capsys: Said) -> None:
    """The command that repeats the review has the day, too."""
    fresh = repository / "stacks/fresh.yaml"
    fresh.write_text(fresh.read_text().replace("until: 2099-12-31", "until: 2027-05-31"))
    commit("accepted for some months")
    argv = ["review", "--base", "main", "--to", str(tmp_path / "out"), "--no-resources"]
    said = "accepted until 2027-05-31, by accept\\[2\\]: it has facts of its own"
    for more, shown in (([], False), (["--today", "2027-05-31"], False), (["--today", "2027-06-01"], True)):
        assert program.run([*argv, *more]) == 0
        text = (tmp_path / "out/fresh.md").read_text()
        assert (said in text, "**slurm-support** `slurm.version`:" in text) == (shown, shown)
        assert " ".join(more) in text
        assert ("accepted until" in capsys.readouterr().err) is shown


@pytest.mark.parametrize("verb", ["review", "diff"])
def test_today_that_is_no_date_is_refused(verb: str, tmp_path: Path, capsys: Said) -> None:
    words = {"review": ["--base", "main", "--to", str(tmp_path)], "diff": ["/dev/null", "x.yaml"]}[verb]
    assert program.run([verb, *words, "--today", "1.6.2027"]) == 2
    assert "'1.6.2027' is not a date such as 2027-05-31" in capsys.readouterr().err


BROKEN = SPEC.replace("name: burst", "name: bad").replace("idle: 5m", "idle: 5")


@pytest.mark.parametrize(
    ("repair", "words"),
    [(a_spec_of("bad"), "The spec of this branch is valid."), (None, "The branch deletes it.")],
    ids=["repaired", "deleted"],
)
def test_a_wrong_spec_of_the_base_stops_no_other_comment(
    repository: Path, tmp_path: Path, capsys: Said, repair: str | None, words: str
) -> None:
    """Regression: `review` ended at it with 2, so its repair could not be reviewed, nor any stack behind it."""
    git("checkout", "-q", "main")
    (repository / "stacks/bad.yaml").write_text(BROKEN)
    commit("broken")
    git("checkout", "-q", "-b", "repair")
    (repository / "stacks/bad.yaml").unlink()
    if repair:
        (repository / "stacks/bad.yaml").write_text(repair)
    (repository / "stacks/same.yaml").write_text(a_spec_of("same").replace("max: 16", "max: 32"))
    commit("repair")
    out = tmp_path / "out"
    assert program.run(["review", "--base", "main", "--to", str(out), "--no-resources"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"bad: not compared: {out}/bad.md",
        f"same: live: {out}/same.md",
    ]
    comment = (out / "bad.md").read_text()
    assert comment.startswith("<!-- gpucluster:diff:bad -->\n\n## bad: not compared\n")
    assert words in comment
    assert "pools[h200].idle" in comment


def test_a_wrong_spec_of_the_branch_has_its_comment_and_exit_code_2(
    repository: Path, tmp_path: Path, capsys: Said
) -> None:
    (repository / "stacks/changed.yaml").write_text(BROKEN)
    commit("broken")
    out = tmp_path / "out"
    argv = ["review", "--base", "main", "--to", str(out), "--no-resources", "-o", "json"]
    assert program.run(argv) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], [(one["name"], one["wrong"]) for one in found["reviews"]]) == (
        False,
        [("changed", "new"), ("fresh", None), ("gone", None)],
    )
    assert "It cannot be applied." in (out / "changed.md").read_text()


def test_file_that_cannot_be_read_costs_its_stack_alone(
    repository: Path, tmp_path: Path, capsys: Said
) -> None:
    """Regression: `review` ended at it, and no stack behind it had a comment."""
    (repository / "stacks/changed.yaml").unlink()
    (repository / "stacks/changed.yaml").symlink_to("same.yaml")
    commit("link")
    out = tmp_path / "out"
    assert program.run(["review", "--base", "main", "--to", str(out), "--no-resources"]) == 2
    assert capsys.readouterr().out.splitlines() == [
        f"changed: not compared: {out}/changed.md",
        f"fresh: live: {out}/fresh.md",
        f"gone: data-loss: {out}/gone.md",
    ]
    assert "it is a symbolic link in commit" in (out / "changed.md").read_text()
    git("rm", "-q", "stacks/changed.yaml")
    commit("no link")
    assert program.run(["review", "--base", "HEAD^", "--to", str(out), "--no-resources"]) == 0
    assert "A file of the base cannot be read" in (out / "changed.md").read_text()
    assert "The branch deletes it." in (out / "changed.md").read_text()


@pytest.mark.parametrize(("wrong", "code"), [("new", 2), ("old", 0)])
def test_wrong_lookups_cost_their_stack_alone(
    repository: Path, tmp_path: Path, capsys: Said, wrong: str, code: int
) -> None:
    """X9: `review` ended at one wrong file of look-ups, also at the change that repaired it."""
    right = "schema: 1\nlookups: []\n"
    texts = {"new": (right, "schema: 7\n"), "old": ("schema: 7\n", right)}[wrong]
    (repository / "stacks/lookups").mkdir()
    for text in texts:
        (repository / "stacks/lookups/changed.yaml").write_text(text)
        commit(text[:9])
    (repository / "stacks/same.yaml").write_text(a_spec_of("same").replace("max: 16", "max: 32"))
    commit("also")
    out = tmp_path / "out"
    assert program.run(["review", "--base", "HEAD~2", "--to", str(out)]) == code
    assert capsys.readouterr().out.splitlines() == [
        f"changed: not compared: {out}/changed.md",
        f"same: live: {out}/same.md",
    ]
    assert "stacks/lookups/changed.yaml: schema: found 7, expected 1" in (out / "changed.md").read_text()


def test_warnings_of_the_new_spec_are_in_its_comment(repository: Path, tmp_path: Path, capsys: Said) -> None:
    """Regression: only the log of the job said that no one can log in."""
    without = a_spec_of("changed").replace(", {id: no-way-in, because: no person uses it}", "")
    assert "no-way-in" not in without
    (repository / "stacks/changed.yaml").write_text(without)
    commit("nobody")
    out = tmp_path / "out"
    assert program.run(["review", "--base", "main", "--to", str(out), "--no-resources"]) == 0
    warned = capsys.readouterr().err
    assert "warning[no-way-in]" in warned
    comment = (out / "changed.md").read_text()
    assert "**Warnings of `check`**:\n- **no-way-in**" in comment
    assert "**Warnings of `check`**" not in (out / "fresh.md").read_text()


def test_a_spec_with_the_name_of_another_file_is_refused(
    repository: Path, tmp_path: Path, capsys: Said
) -> None:
    """Regression: `check` refused it, `review` did not, and two such files overwrote each other's comment."""
    (repository / "stacks/mismatch.yaml").write_text(a_spec_of("other"))
    commit("mismatch")
    out = tmp_path / "out"
    assert program.run(["review", "--base", "main", "--to", str(out), "--no-resources"]) == 2
    assert f"mismatch: not compared: {out}/mismatch.md" in capsys.readouterr().out
    comment = (out / "mismatch.md").read_text()
    assert comment.startswith("<!-- gpucluster:diff:mismatch -->")
    assert "name-not-file" in comment


def test_recorded_lookups_alone_are_a_change(repository: Path, tmp_path: Path, capsys: Said) -> None:
    git("checkout", "-q", "main")
    git("checkout", "-q", "-b", "answers")
    (repository / "stacks/lookups").mkdir()
    (repository / "stacks/lookups/same.yaml").write_text("schema: 1\nlookups: []\n")
    (repository / "stacks/lookups/nobody.yaml").write_text("schema: 1\nlookups: []\n")
    commit("record")
    argv = ["review", "--base", "main", "--to", str(tmp_path / "out"), "--no-resources", "-o", "json"]
    assert program.run(argv) == 0
    (only,) = json.loads(capsys.readouterr().out)["reviews"]
    assert (only["name"], only["worst"]) == ("same", None)


def test_image_of_a_workload_is_reviewed(repository: Path, tmp_path: Path, capsys: Said) -> None:
    """Regression: a new image in workloads/ was an error of `diff`."""
    git("checkout", "-q", "main")
    (repository / "workloads").mkdir()
    shutil.copy(ROOT / "stacks/kube.yaml", repository / "stacks")
    text = (ROOT / "workloads/kube.yaml").read_text()
    (repository / "workloads/kube.yaml").write_text(text)
    commit("kube")
    (repository / "workloads/kube.yaml").write_text(text.replace("chat:1.4", "chat:1.5"))
    pair = ("main:workloads/kube.yaml", "workloads/kube.yaml")
    assert program.run(["diff", *pair, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["diff"]
    (change,) = found["changes"]
    assert (change["path"], change["update"]) == ("workloads.serve[chat].image", "live")
    assert (change["before"][-3:], change["after"][-3:]) == ("1.4", "1.5")
    (file,) = found["files"]
    assert "+" in file["diff"]
    assert "chat:1.5" in file["diff"]
    assert found["jobs"].startswith("Only workloads change, and no node")
    git("checkout", "-q", "-b", "image")
    commit("image")
    assert program.run(["review", "--base", "main", "--to", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == f"kube: live: {tmp_path}/out/kube.md\n"
    (repository / "workloads/kube.yaml").unlink()
    assert program.run(["diff", "main:workloads/kube.yaml", "workloads/kube.yaml", "-o", "json"]) == 0
    (gone,) = json.loads(capsys.readouterr().out)["diff"]["changes"]
    assert (gone["path"], gone["kind"]) == ("workloads.kube", "removed")
    (repository / "workloads/kube.yaml").write_text(text.replace("team: serving", "team: nobody"))
    assert program.run(["diff", *pair]) == 2
    assert "nobody" in capsys.readouterr().err


def test_nothing_to_review_and_unknown_revision(repository: Path, tmp_path: Path, capsys: Said) -> None:
    assert program.run(["review", "--base", "HEAD", "--to", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == "no stack differs between HEAD and HEAD\n"
    wrong = {
        "nope": "there is no commit 'nope' in this repository",
        "--upload-pack=x": "a revision does not begin with '-'",
    }
    for revision, said in wrong.items():
        assert program.run(["review", f"--base={revision}", "--to", str(tmp_path / "out")]) == 2
        assert f"error: --base: {said}\n  next: run it inside the repository" in capsys.readouterr().err


def test_wrong_spec_of_the_branch_exits_2(repository: Path, tmp_path: Path, capsys: Said) -> None:
    (repository / "stacks/fresh.yaml").write_text("{")
    commit("broken")
    assert program.run(["review", "--base", "main", "--to", str(tmp_path / "out"), "--no-resources"]) == 2
    assert re.search(r"^[0-9a-f]{40}:stacks/fresh\.yaml:1:2: error\[yaml\]", capsys.readouterr().err, re.M)


def test_second_run_updates_its_own_comment_only(posting: Comments, tmp_path: Path, capsys: Said) -> None:
    """A comment of another account with our marker stays, also beyond the first page."""
    imitated = posting.add("<!-- gpucluster:diff:a -->\n\nmine", login="somebody")
    for number in range(105):
        posting.add(f"talk {number}", login="somebody")
    argv = ["comment", "--pull-request", "7"]
    assert program.run([*argv, a_comment(tmp_path, "a", "one"), a_comment(tmp_path, "b", "two")]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["created", "created"]
    assert program.run([*argv, a_comment(tmp_path, "a", "three"), a_comment(tmp_path, "b", "two")]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["updated", "unchanged"]
    assert imitated["body"].endswith("mine")
    assert [one["body"].split()[-1] for one in posting.found[-2:]] == ["three", "two"]
    assert sum(call.startswith("POST") for call in posting.calls) == 2
    assert any("page=2" in call for call in posting.calls)


@pytest.mark.parametrize(
    ("variables", "words", "said"),
    [
        ({"GITHUB_TOKEN": "wrong"}, [], "GitHub answers 401 (Bad credentials)\n  next: give a valid token"),
        ({"GITHUB_TOKEN": ""}, [], "GITHUB_TOKEN is not set"),
        ({"GITHUB_API_URL": "http://example.org"}, [], "does not begin with https://"),
        ({"GITHUB_API_URL": "http://127.0.0.1:9"}, [], "Connection refused"),
        ({}, ["--repository", "a/b/../c"], "is not OWNER/NAME"),
        ({}, ["--pull-request", "8"], "GitHub answers 404"),
    ],
)
def test_refusal_is_a_sentence_without_the_token(  # noqa: PLR0917  three columns, four fixtures
    variables: dict[str, str], words: list[str], said: str, posting: Comments, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: Said,
) -> None:  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert program.run(["comment", "--pull-request", "7", *words, a_comment(tmp_path, "a", "one")]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert TOKEN not in err
    assert posting.found == []


def test_token_follows_no_redirect_to_another_host(posting: Comments, tmp_path: Path, capsys: Said) -> None:
    """GitHub redirects the requests for a renamed repository. urllib would send the token to any host."""
    with comments_of_a_pull_request() as other:
        posting.moved_to = other.address
        words = ["--repository", "example/old-name", a_comment(tmp_path, "a", "one")]
        assert program.run(["comment", "--pull-request", "7", *words]) == 2
        assert other.calls == []
    err = capsys.readouterr().err
    assert "GitHub answers 301\n  next: name the repository as it is called now" in err


def test_nothing_is_posted_if_not_every_comment_can_be_read(
    posting: Comments, tmp_path: Path, capsys: Said
) -> None:
    for number in range(5001):
        posting.add(f"talk {number}", login="somebody")
    assert program.run(["comment", "--pull-request", "7", a_comment(tmp_path, "a", "one")]) == 2
    assert "has more than 5000 comments" in capsys.readouterr().err
    assert not any(call.startswith("POST") for call in posting.calls)


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr("gpucluster.cli.comment_api.sleep", found.append)
    return found


def test_limit_of_calls_is_waited_for(
    posting: Comments, waited: list[float], tmp_path: Path, capsys: Said
) -> None:
    """A review of many stacks writes more comments in a minute than GitHub takes (80)."""
    posting.limits = [(403, {"Retry-After": "7"}), (429, {})]
    assert program.run(["comment", "--pull-request", "7", a_comment(tmp_path, "a", "one")]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("created ")
    assert said.err == "GitHub takes no more calls now: 7 s\nGitHub takes no more calls now: 60 s\n"
    assert waited == [7, 60], "without `retry-after`, at least a minute"
    assert len(posting.found) == 1


@pytest.mark.parametrize(
    "limits",
    [
        [(403, {"X-RateLimit-Remaining": "0"})],
        [(403, {"Retry-After": "3600"})],
        [(429, {"Retry-After": "1"})] * 9,
    ],
    ids=["until-reset", "too-long", "again-and-again"],
)
def test_limit_that_lasts_is_an_error_and_no_missing_right(
    posting: Comments,
    waited: list[float],
    tmp_path: Path,
    capsys: Said,
    limits: list[tuple[int, dict[str, str]]],
) -> None:
    posting.limits = limits
    argv = ["comment", "--pull-request", "7", "--from-fork", a_comment(tmp_path, "a", "one")]
    assert program.run(argv) == 2
    err = capsys.readouterr().err
    assert "(You have exceeded a secondary rate limit.)\n  next: run the job again later" in err
    assert sum(waited) <= 60


def test_comment_that_is_refused_stops_no_other_one(posting: Comments, tmp_path: Path, capsys: Said) -> None:
    files = [a_comment(tmp_path, "a", "x" * 65_536), a_comment(tmp_path, "b", "two")]
    assert program.run(["comment", "--pull-request", "7", *files]) == 2
    said = capsys.readouterr()
    assert said.out.startswith("created ")
    assert (
        "GitHub answers 422 (Validation Failed: Body is too long (maximum is 65536 characters))" in said.err
    )
    assert [one["body"].split()[-1] for one in posting.found] == ["two"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "review.json: it is not what `gpucluster review` writes"),
        ('{"reviews": [{"name": "../a", "comment": "x"}]}', "it is not what `gpucluster review` writes"),
        ('{"reviews": [{"name": "a", "comment": "a.md"}]}', "a.md: cannot be read"),
        ('{"reviews": [{"name": "b", "comment": "b.md"}]}', "b.md: its first line is not the marker of b"),
    ],
)
def test_folder_that_review_did_not_write_is_refused(
    posting: Comments, tmp_path: Path, capsys: Said, text: str, said: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/review.json").write_text(text)
    (tmp_path / "out/b.md").write_text("<!-- gpucluster:diff:other -->\n\nof another stack\n")
    assert program.run(["comment", "--pull-request", "7", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert posting.calls == []


def test_file_without_a_marker_is_refused_before_anything_is_posted(
    posting: Comments, tmp_path: Path, capsys: Said
) -> None:
    (tmp_path / "x.md").write_text("hello\n")
    argv = ["comment", "--pull-request", "7", a_comment(tmp_path, "a", "one"), str(tmp_path / "x.md")]
    assert program.run(argv) == 2
    assert "its first line is no marker" in capsys.readouterr().err
    assert posting.calls == []


def test_pre_commit_hook_checks_the_files_that_it_matches(repository: Path) -> None:
    (hook,) = HOOKS
    pattern = re.compile(hook["files"])
    assert pattern.search("stacks/a.yaml")
    assert pattern.search("workloads/a.yaml")
    assert not pattern.search("stacks/lookups/a.yaml")
    for text, code in ((a_spec_of("changed"), 0), ("{", 1)):
        (repository / "stacks/changed.yaml").write_text(text)
        assert bash(f"{hook['entry']} stacks/changed.yaml", repository, {}).returncode == code
