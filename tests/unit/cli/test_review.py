"""`review` and `comment`, and the steps of the GitHub Action and the GitLab job, run by bash over a git history."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import gitlab_notes
from support.builders import SPEC
from support.github_comments import REPOSITORY, TOKEN, Comments, comments_of_a_pull_request
from support.gitlab_notes import notes_of_a_merge_request

from gpucluster.cli import main as program
from gpucluster.spec.tree import plain
from gpucluster.spec.yaml import parse

ROOT = Path(__file__).parents[3]
GIT = shutil.which("git") or "git"
ACTION: Any = plain(parse((ROOT / "ci/github/action.yml").read_text()).root)
GITLAB: Any = plain(parse((ROOT / "ci/gitlab.yml").read_text()).root)
HOOKS: Any = plain(parse((ROOT / ".pre-commit-hooks.yaml").read_text()).root)
STEPS: dict[str, Any] = {step["id"]: step for step in ACTION["runs"]["steps"]}
MARKERS = {f"<!-- gpucluster:diff:{name} -->" for name in ("changed", "gone", "fresh")}

pytestmark = pytest.mark.loopback  # the stand-ins of GitHub's and GitLab's API
Said = pytest.CaptureFixture[str]


def a_spec_of(name: str) -> str:
    return SPEC.replace("name: burst", f"name: {name}", 1)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A branch that changes one stack, adds one and deletes one; its base has gone on since."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):  # a hook that runs us sets them
        monkeypatch.delenv(name, raising=False)
    top = tmp_path / "clone"
    (top / "stacks").mkdir(parents=True)
    monkeypatch.chdir(top)
    git("init", "-q", "-b", "main")
    for name in ("changed", "gone", "same", "base"):
        (top / f"stacks/{name}.yaml").write_text(a_spec_of(name))
    commit("first")
    git("checkout", "-q", "-b", "branch")
    (top / "stacks/changed.yaml").write_text(a_spec_of("changed").replace("max: 16", "max: 32"))
    (top / "stacks/gone.yaml").unlink()
    (top / "stacks/fresh.yaml").write_text(a_spec_of("fresh"))
    (top / "README.md").write_text("not a stack\n")
    commit("change")
    git("checkout", "-q", "main")
    (top / "stacks/base.yaml").write_text(a_spec_of("base").replace("max: 16", "max: 20"))
    commit("main goes on")
    git("checkout", "-q", "branch")
    return top


def git(*argv: str) -> None:
    """Run git with a fixed date: the names of commits stand in the comments."""
    dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-11-23T00:00:00Z")
    subprocess.run([GIT, *argv], check=True, capture_output=True, env=os.environ | dates)


def commit(subject: str) -> None:
    git("add", "-A")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", subject)


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


def test_each_stack_of_the_branch_has_a_comment(repository: Path, tmp_path: Path, capsys: Said) -> None:
    """A stack that only the base changed is not reviewed."""
    assert program.run(["review", "--base", "main", "--to", str(tmp_path / "out"), "--no-resources"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"changed: live: {tmp_path}/out/changed.md",
        f"fresh: live: {tmp_path}/out/fresh.md",
        f"gone: data-loss: {tmp_path}/out/gone.md",
    ]
    first = {file.read_text().partition("\n")[0] for file in (tmp_path / "out").iterdir()}
    assert first == MARKERS
    assert "`pools[h200].nodes.max`: `16 -> 32`" in (tmp_path / "out/changed.md").read_text()


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
        ({"GITHUB_TOKEN": "wrong"}, [], "GitHub answers 401\n  next: give a valid token"),
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


def test_file_without_a_marker_is_refused_before_anything_is_posted(
    posting: Comments, tmp_path: Path, capsys: Said
) -> None:
    (tmp_path / "x.md").write_text("hello\n")
    argv = ["comment", "--pull-request", "7", a_comment(tmp_path, "a", "one"), str(tmp_path / "x.md")]
    assert program.run(argv) == 2
    assert "its first line is no marker" in capsys.readouterr().err
    assert posting.calls == []


QUICK = '[ "$4" != review ] || set -- "$@" --no-resources'  # after `-I -m gpucluster.cli`


def _run(script: str, top: Path, begin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as the runner does: `bash -eo pipefail`, with our Python on PATH and where the Action installs it. It runs `begin` first."""
    temp = Path(variables.get("RUNNER_TEMP", top.parent))
    tools = top.parent / "tools"
    programs = {
        tools / "python3": "",
        temp / "gpucluster/bin/python": "",
        tools / "gpucluster": "-I -m gpucluster.cli",
    }
    for launcher, words in programs.items():
        launcher.parent.mkdir(parents=True, exist_ok=True)
        launcher.write_text(f'#!/bin/sh\n{begin}\nexec {sys.executable} {words} "$@"\n')
        launcher.chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(top)}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],  # noqa: S607  whichever bash there is
        cwd=top,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_steps_of_the_action_review_three_stacks_and_comment(
    repository: Path, server: Comments, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """All steps except `install`, which test_action.py runs. A second `comment` posts nothing new.

    The comments are the examples of docs/review/.
    """
    summary = tmp_path / "summary.md"
    variables = {
        "BASE": "main",
        "GITHUB_API_URL": server.address,
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_TOKEN": TOKEN,
        "PULL_REQUEST": "7",
        "RUNNER_TEMP": str(tmp_path / "temp"),
    }
    for name in ("check", "review", "comment", "comment"):
        done = _run(STEPS[name]["run"], repository, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
    assert {one["body"].partition("\n")[0] for one in server.found} == MARKERS
    assert len(server.found) == 3
    assert set(summary.read_text().splitlines()) >= MARKERS
    assert not any(call.startswith("PATCH") for call in server.calls), "nothing changed since"
    for name in ("changed", "fresh", "gone"):
        page = ROOT / f"docs/review/{name}.md"
        made = (tmp_path / f"temp/gpucluster-review/{name}.md").read_text().partition("<details>")[0]
        if request.config.getoption("--update-golden"):
            page.write_text(made)
        assert page.read_text() == made, "run: make golden"


def test_action_posts_nothing_without_a_pull_request(repository: Path, tmp_path: Path) -> None:
    done = _run(STEPS["comment"]["run"], repository, PULL_REQUEST="", RUNNER_TEMP=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")


def test_action_expands_no_expression_in_a_script() -> None:
    """A branch may have a name that bash would run."""
    assert list(STEPS) == ["install", "check", "review", "comment"]
    for step in STEPS.values():
        assert "${{" not in step["run"]
    needed = {name for step in STEPS.values() for name in re.findall(r"\$(BASE|PULL_REQUEST)\b", step["run"])}
    assert needed == {"BASE", "PULL_REQUEST"}


def _gitlab_job(top: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script of the job with the variables of a merge request's pipeline.

    The resources are planned in the steps of the action alone: that is the same command, and most of its time.
    """
    given = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": "main", "CI_MERGE_REQUEST_IID": "7"} | variables
    return _run("\n".join(GITLAB["gpucluster-review"]["script"]), top, QUICK, **given)


def test_gitlab_job_posts_notes_and_updates_them(repository: Path) -> None:
    with notes_of_a_merge_request() as server:
        variables = {
            "CI_API_V4_URL": server.address,
            "CI_JOB_TOKEN": gitlab_notes.JOB_TOKEN,
            "CI_MERGE_REQUEST_PROJECT_ID": gitlab_notes.PROJECT,
            "CI_PROJECT_ID": "43",  # the pipeline of a fork
            "GITLAB_TOKEN": gitlab_notes.TOKEN,
        }
        for words, calls in (("created", 3), ("unchanged", 3)):
            done = _gitlab_job(repository, **variables)
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stdout.count(f"\n{words} ") == 3, done.stdout
            assert len([call for call in server.calls if not call.startswith("GET")]) == calls
        assert {one["body"].partition("\n")[0] for one in server.found} == MARKERS
        (repository / "stacks/changed.yaml").write_text(a_spec_of("changed").replace("max: 16", "max: 64"))
        commit("larger")
        done = _gitlab_job(repository, **variables)
        words = re.findall("^(updated|unchanged) ", done.stdout, re.MULTILINE)
        assert words == ["updated", "updated", "unchanged"], "a comment names the commit that it is about"
        assert len(server.found) == 3


def test_gitlab_job_without_a_token_writes_the_comments_as_artifacts(repository: Path) -> None:
    job = GITLAB["gpucluster-review"]
    done = _gitlab_job(repository)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("GITLAB_TOKEN is not set: the comments are only files of this job\n")
    written = repository / job["artifacts"]["paths"][0]
    assert {file.name for file in written.iterdir()} == {"changed.md", "fresh.md", "gone.md"}


def test_gitlab_job_posts_nothing_if_no_stack_differs(repository: Path) -> None:
    done = _gitlab_job(repository, CI_MERGE_REQUEST_DIFF_BASE_SHA="HEAD", GITLAB_TOKEN=gitlab_notes.TOKEN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("no stack differs between HEAD and HEAD\n")


def test_pre_commit_hook_checks_the_files_that_it_matches(repository: Path) -> None:
    (hook,) = HOOKS
    pattern = re.compile(hook["files"])
    assert pattern.search("stacks/a.yaml")
    assert pattern.search("workloads/a.yaml")
    assert not pattern.search("stacks/lookups/a.yaml")
    assert _run(f"{hook['entry']} stacks/changed.yaml", repository).returncode == 0
    (repository / "stacks/changed.yaml").write_text("{")
    assert _run(f"{hook['entry']} stacks/changed.yaml", repository).returncode == 1
