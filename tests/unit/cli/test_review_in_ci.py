"""The steps of the GitHub Action and the job of GitLab, run by bash over a git history, against stand-ins of both APIs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import gitlab_notes
from support.ci_runs import (
    ACTION,
    GITLAB,
    QUICK,
    ROOT,
    STEPS,
    TODAY,
    Ran,
    a_spec_of,
    bash,
    commit,
    git,
    run_action,
    run_gitlab_job,
    three_changed_stacks,
)
from support.github_comments import READ_TOKEN, REPOSITORY, TOKEN, Comments, comments_of_a_pull_request
from support.gitlab_notes import Notes, notes_of_a_merge_request

from gpucluster.spec.tree import plain
from gpucluster.spec.yaml import parse

MARKERS = {f"<!-- gpucluster:diff:{name} -->" for name in ("changed", "gone", "fresh")}
FORK = (
    "github.event.pull_request.head.repo.full_name != github.repository || github.actor == 'dependabot[bot]'"
)

pytestmark = pytest.mark.loopback  # the stand-ins of GitHub's and GitLab's API


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return three_changed_stacks(tmp_path, monkeypatch)


@pytest.fixture
def server() -> Iterator[Comments]:
    with comments_of_a_pull_request() as found:
        yield found


@pytest.fixture
def notes() -> Iterator[Notes]:
    with notes_of_a_merge_request() as found:
        yield found


def merge_ref() -> None:
    """Check out what `refs/pull/7/merge` and a merged results pipeline have: the base with the branch merged into it."""
    git("update-ref", "refs/remotes/origin/main", "main")
    git("checkout", "-q", "--detach", "main")
    git("merge", "-q", "--no-ff", "-m", "merge", "branch")


def pull_request(top: Path, server: Comments, *, begin: str = QUICK, **context: str) -> Ran:
    """Run the Action on what is checked out. The base of the event is as old as the branch."""
    known = {
        "github.event.pull_request.head.sha": git("rev-parse", "branch"),
        "github.event.pull_request.base.sha": git("rev-list", "--max-parents=0", "main"),
        "github.event.pull_request.number": "7",
        "github.token": TOKEN,
        FORK: "false",
    }
    variables = {
        "GITHUB_API_URL": server.address,
        "GITHUB_BASE_REF": "main",
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_STEP_SUMMARY": str(top.parent / "summary.md"),
        "RUNNER_TEMP": str(top.parent / "temp"),
    }
    return run_action(top, known | context, variables, begin)


def merge_request(top: Path, notes: Notes, **variables: str) -> Ran:
    known = {
        "CI_API_V4_URL": notes.address,
        "CI_JOB_TOKEN": gitlab_notes.JOB_TOKEN,
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": git("merge-base", "main", "branch"),
        "CI_MERGE_REQUEST_IID": "7",
        "CI_MERGE_REQUEST_PROJECT_ID": gitlab_notes.PROJECT,
        "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": gitlab_notes.PROJECT,
        "CI_PROJECT_ID": gitlab_notes.PROJECT,
        "GITLAB_TOKEN": gitlab_notes.TOKEN,
    }
    return run_gitlab_job(top, known | variables)


def first_lines(server: Comments | Notes) -> set[str]:
    return {one["body"].partition("\n")[0] for one in server.found}


def body_of(server: Comments | Notes, name: str) -> str:
    (found,) = [
        one["body"] for one in server.found if one["body"].startswith(f"<!-- gpucluster:diff:{name} ")
    ]
    return found


def done_by(log: str) -> list[str]:
    return re.findall("^(created|updated|unchanged|withdrawn) ", log, re.MULTILINE)


def test_steps_of_the_action_review_three_stacks_and_comment(
    repository: Path, server: Comments, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With resources, in processes of their own. The comments are the examples of docs/review/."""
    merge_ref()
    done = pull_request(repository, server, begin="")
    assert done.ok, done.log
    assert done_by(done.log) == ["created"] * 3
    assert first_lines(server) == MARKERS, "not a stack that only the base changed"
    assert set((tmp_path / "summary.md").read_text().splitlines()) >= MARKERS
    for name in ("changed", "fresh", "gone"):
        page = ROOT / f"docs/review/{name}.md"
        made = (tmp_path / f"temp/gpucluster-review/{name}.md").read_text().partition("<details>")[0]
        if request.config.getoption("--update-golden"):
            page.write_text(made)
        assert page.read_text() == made, "run: make golden"


def test_second_run_of_the_action_posts_nothing_new(repository: Path, server: Comments) -> None:
    merge_ref()
    for words in ("created", "unchanged"):
        done = pull_request(repository, server)
        assert done.ok, done.log
        assert done_by(done.log) == [words] * 3
    assert not any(call.startswith("PATCH") for call in server.calls), "nothing changed since"


def test_head_of_a_branch_that_merged_its_base_is_compared_with_the_base(
    repository: Path, server: Comments
) -> None:
    """The head is a merge, and not the one of GitHub. Its second parent is the base."""
    git("update-ref", "refs/remotes/origin/main", "main")
    git("merge", "-q", "-m", "merge main", "main")
    done = pull_request(repository, server)
    assert done.ok, done.log
    assert first_lines(server) == MARKERS


def test_base_of_the_action_can_be_given(repository: Path, server: Comments) -> None:
    merge_ref()
    base = ACTION["inputs"]["base"]
    given, base["default"] = base["default"], "HEAD"
    try:
        done = pull_request(repository, server)
    finally:
        base["default"] = given
    assert "no stack differs between HEAD and HEAD" in done.log
    assert server.found == []


def accepted_until_yesterday(top: Path) -> None:
    fresh = top / "stacks/fresh.yaml"
    fresh.write_text(fresh.read_text().replace("until: 2099-12-31", "until: 2026-11-22"))
    commit("accepted until yesterday")


def test_action_and_gitlab_show_the_warning_whose_acceptance_has_ended(
    repository: Path, server: Comments, notes: Notes
) -> None:
    """X5: an accepted warning was hidden for ever. Both pass the day on; the job stays green."""
    accepted_until_yesterday(repository)
    done = merge_request(repository, notes)
    assert done.ok, done.log
    merge_ref()
    done = pull_request(repository, server)
    assert done.ok, done.log
    for posted in (server, notes):
        assert "accepted until 2026-11-22, by accept" in body_of(posted, "fresh")
        assert "accepted until" not in body_of(posted, "changed")
        assert f"--today {TODAY}" in body_of(posted, "fresh")


def test_wrong_spec_ends_red_after_every_comment(repository: Path, server: Comments, tmp_path: Path) -> None:
    """Regression: `check` ended the job, and no stack had a comment."""
    (repository / "stacks/fresh.yaml").write_text(a_spec_of("fresh").replace("idle: 5m", "idle: 5"))
    commit("wrong")
    merge_ref()
    done = pull_request(repository, server)
    assert done.outcomes == {
        "install": "success", "check": "failure", "review": "failure", "comment": "success"
    }  # fmt: skip
    assert not done.ok
    assert first_lines(server) == MARKERS
    assert "It cannot be applied." in body_of(server, "fresh")
    assert "pools[h200].idle" in body_of(server, "fresh")
    assert "`16 -> 32`" in body_of(server, "changed")
    assert set((tmp_path / "summary.md").read_text().splitlines()) >= MARKERS


def test_comment_that_is_no_longer_true_is_withdrawn(repository: Path, server: Comments) -> None:
    """Regression: the comment of a reverted edit stayed as it was, also where no stack differed any more."""
    others = server.add("<!-- gpucluster:diff:changed -->\n\nmine", login="somebody")
    other_kind = server.add("<!-- gpucluster:plan:changed -->\n\nof another job")
    merge_ref()
    assert pull_request(repository, server).ok
    git("checkout", "-q", "branch")
    git("checkout", "main", "--", "stacks/changed.yaml")
    commit("revert")
    merge_ref()
    done = pull_request(repository, server)
    assert done.ok, done.log
    assert done_by(done.log) == ["updated", "unchanged", "withdrawn"], "a comment names its commits"
    (found,) = [one for one in server.found if one is not others and "diff:changed" in one["body"]]
    assert found["body"] == (
        "<!-- gpucluster:diff:changed -->\n\n## changed: no change\n\n"
        "This change no longer touches the stack `changed`. What stood here is about an earlier commit.\n"
    )
    git("checkout", "-q", "branch")
    git("checkout", "main~", "--", "stacks")
    git("rm", "-q", "stacks/fresh.yaml")
    commit("revert all")
    merge_ref()
    assert sorted(done_by(pull_request(repository, server).log)) == ["withdrawn", "withdrawn"]
    assert done_by(pull_request(repository, server).log) == [], "once"
    assert (others["body"][-4:], other_kind["body"][-14:]) == ("mine", "of another job")
    git("checkout", "-q", "branch")
    (repository / "stacks/changed.yaml").write_text(a_spec_of("changed", 48))
    commit("again")
    merge_ref()
    assert done_by(pull_request(repository, server).log) == ["updated"], "the same comment"
    assert "`16 -> 48`" in found["body"]


def test_pull_request_of_a_fork_ends_green_with_the_reason(
    repository: Path, server: Comments, tmp_path: Path
) -> None:
    merge_ref()
    done = pull_request(repository, server, **{"github.token": READ_TOKEN, FORK: "true"})
    assert done.ok, done.log
    reason = (
        "not posted: GitHub answers 403 (Resource not accessible by integration): "
        "the token of a pull request from a fork or of Dependabot may only read"
    )
    assert reason in done.log
    summary = (tmp_path / "summary.md").read_text()
    assert reason in summary
    assert set(summary.splitlines()) >= MARKERS, "the comments are in the summary"
    assert server.found == []


def test_missing_right_is_red_with_what_to_do(repository: Path, server: Comments) -> None:
    merge_ref()
    done = pull_request(repository, server, **{"github.token": READ_TOKEN})
    assert done.outcomes["comment"] == "failure"
    assert "give the job the right `pull-requests: write`" in done.log


def test_action_posts_nothing_without_a_pull_request(repository: Path, tmp_path: Path) -> None:
    done = bash(STEPS["comment"]["run"], repository, {"PULL_REQUEST": "", "RUNNER_TEMP": str(tmp_path)})
    assert (done.returncode, done.stdout) == (0, "")


def test_review_that_did_not_end_withdraws_nothing(
    repository: Path, server: Comments, tmp_path: Path
) -> None:
    server.add("<!-- gpucluster:diff:changed -->\n\nstill true")
    git("update-ref", "refs/remotes/origin/other", "main")
    done = pull_request(repository, server)  # without the base in the clone
    assert (done.outcomes["review"], done.outcomes["comment"]) == ("failure", "failure")
    assert "review.json: there is no such file" in done.log
    assert server.found[0]["body"].endswith("still true")


def test_action_expands_no_expression_in_a_script() -> None:
    """A branch may have a name that bash would run. Each variable of a step is one that the step has."""
    assert list(STEPS) == ["install", "check", "review", "comment"]
    for step in STEPS.values():
        assert "${{" not in step["run"]
        for name in step.get("env", {}):
            assert name == "GITHUB_TOKEN" or f"${name}" in step["run"] or f"${{{name}" in step["run"]


def test_workflow_of_the_page_pins_and_gives_least_rights() -> None:
    """What the page shows is copied: commits instead of tags, the two rights, no token in the checkout."""
    (shown,) = re.findall(
        r"```yaml\n(on: pull_request.*?)```", (ROOT / "docs/review.md").read_text(), re.DOTALL
    )
    workflow: Any = plain(parse(shown).root)
    assert workflow["permissions"] == {}
    (job,) = workflow["jobs"].values()
    assert job["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert workflow["concurrency"]["cancel-in-progress"] is True
    checkout, ours = job["steps"]
    assert re.fullmatch(r"actions/checkout@[0-9a-f]{40}", checkout["uses"])
    assert checkout["with"] == {"fetch-depth": 0, "persist-credentials": False}
    assert ours["uses"] == "OWNER/gpucluster/ci/github@COMMIT"
    everywhere = [path for folder in ("ci", "docs") for path in (ROOT / folder).rglob("*") if path.is_file()]
    texts = [
        path.read_text(errors="ignore") for path in everywhere if path.suffix in {".md", ".yml", ".yaml"}
    ]
    used = [one for text in texts for one in re.findall(r"^\s*-? ?uses: (\S+)", text, re.MULTILINE)]
    assert {one for one in used if not re.search("@([0-9a-f]{40}|COMMIT)$", one)} == set()


def test_gitlab_job_posts_notes_and_updates_them(repository: Path, notes: Notes) -> None:
    for words, calls in (("created", 3), ("unchanged", 3)):
        done = merge_request(repository, notes)
        assert done.ok, done.log
        assert done_by(done.log) == [words] * 3
        assert len([call for call in notes.calls if not call.startswith("GET")]) == calls
    assert first_lines(notes) == MARKERS
    (repository / "stacks/changed.yaml").write_text(a_spec_of("changed", 64))
    git("rm", "-q", "stacks/fresh.yaml")
    commit("larger")
    done = merge_request(repository, notes)
    assert done_by(done.log) == ["updated", "unchanged", "withdrawn"], (
        "a comment names the commit that it is about"
    )
    assert "This change no longer touches the stack `fresh`." in body_of(notes, "fresh")
    assert len(notes.found) == 3


def test_gitlab_pipeline_for_merged_results_is_compared_with_its_target(
    repository: Path, notes: Notes
) -> None:
    """Regression: the base of the merge request is older than the target, so changes of others had notes."""
    merge_ref()
    done = merge_request(
        repository, notes, CI_MERGE_REQUEST_TARGET_BRANCH_SHA=git("rev-parse", "main")
    )  # empty in other pipelines
    assert done.ok, done.log
    assert first_lines(notes) == MARKERS


def test_wrong_spec_ends_the_gitlab_job_red_after_every_note(repository: Path, notes: Notes) -> None:
    (repository / "stacks/fresh.yaml").write_text(a_spec_of("fresh").replace("idle: 5m", "idle: 5"))
    commit("wrong")
    done = merge_request(repository, notes)
    assert not done.ok
    assert first_lines(notes) == MARKERS
    assert "It cannot be applied." in body_of(notes, "fresh")


def test_gitlab_job_without_a_token_writes_the_comments_as_artifacts(repository: Path, notes: Notes) -> None:
    job = GITLAB["gpucluster-review"]
    done = merge_request(repository, notes, GITLAB_TOKEN="")
    assert done.ok, done.log
    assert "GITLAB_TOKEN is not set: the comments are only files of this job\n" in done.log
    written = repository / job["artifacts"]["paths"][0]
    assert {file.name for file in written.glob("*.md")} == {"changed.md", "fresh.md", "gone.md"}


def test_merge_request_of_a_fork_with_a_token_of_its_own_ends_green(repository: Path, notes: Notes) -> None:
    done = merge_request(
        repository, notes, CI_MERGE_REQUEST_SOURCE_PROJECT_ID="43", GITLAB_TOKEN=gitlab_notes.READ_TOKEN
    )
    assert done.ok, done.log
    assert "not posted: GitLab answers 403" in done.log


def test_gitlab_job_posts_nothing_if_no_stack_differs(repository: Path, notes: Notes) -> None:
    done = merge_request(repository, notes, CI_MERGE_REQUEST_DIFF_BASE_SHA="HEAD")
    assert done.ok, done.log
    assert "no stack differs between HEAD and HEAD\n" in done.log
    assert notes.found == []
