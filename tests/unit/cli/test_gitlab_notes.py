"""`comment --merge-request`: notes on a merge request of GitLab. A later run updates its own notes only."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gitlab_notes import JOB_TOKEN, READ_TOKEN, TOKEN, Notes, notes_of_a_merge_request

from gpucluster.cli import main as program

pytestmark = pytest.mark.loopback  # the stand-in of GitLab's API
ARGV = ("comment", "--merge-request", "7")
Said = pytest.CaptureFixture[str]


@pytest.fixture
def posting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notes]:
    with notes_of_a_merge_request() as server:
        monkeypatch.setenv("CI_API_V4_URL", server.address)
        monkeypatch.setenv("CI_MERGE_REQUEST_PROJECT_ID", "42")
        monkeypatch.setenv("CI_PROJECT_ID", "43")  # a pipeline of a fork
        monkeypatch.setenv("GITLAB_TOKEN", TOKEN)
        yield server


def a_note(folder: Path, name: str, text: str) -> str:
    file = folder / f"{name}.md"
    file.write_text(f"<!-- gpucluster:diff:{name} -->\n\n{text}\n")
    return str(file)


def written(server: Notes) -> list[str]:
    return [call.split()[0] for call in server.calls if not call.startswith("GET")]


def test_second_run_updates_its_own_note_only(posting: Notes, tmp_path: Path, capsys: Said) -> None:
    """A note of another account with our marker stays, also beyond the first page. So does a note of GitLab itself."""
    imitated = posting.add("<!-- gpucluster:diff:a -->\n\nmine", author=5)
    of_gitlab = posting.add("<!-- gpucluster:diff:a -->", system=True)
    for number in range(105):
        posting.add(f"talk {number}", author=5)
    assert program.run([*ARGV, a_note(tmp_path, "a", "one"), a_note(tmp_path, "b", "two")]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["created", "created"]
    assert program.run([*ARGV, a_note(tmp_path, "a", "three"), a_note(tmp_path, "b", "two")]) == 0
    out = capsys.readouterr().out
    assert out == (
        f"updated {posting.address}/projects/42/merge_requests/7/notes/407\n"
        f"unchanged {posting.address}/projects/42/merge_requests/7/notes/408\n"
    )
    assert imitated["body"].endswith("mine")
    assert of_gitlab["body"].endswith("-->")
    assert [one["body"].split()[-1] for one in posting.found[-2:]] == ["three", "two"]
    assert written(posting) == ["POST", "POST", "PUT"]
    assert any("page=2" in call for call in posting.calls)


def test_limit_of_calls_is_waited_for(
    posting: Notes, tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("gpucluster.cli.comment_api.sleep", waited.append)
    posting.limits = ["30"]
    assert program.run([*ARGV, a_note(tmp_path, "a", "one")]) == 0
    assert capsys.readouterr().out.startswith("created ")
    assert waited == [30]


def test_project_may_be_named_by_its_path(posting: Notes, tmp_path: Path, capsys: Said) -> None:
    assert program.run([*ARGV, "--project", "example/clusters", a_note(tmp_path, "a", "one")]) == 0
    assert "/projects/example%2Fclusters/" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("variables", "words", "said"),
    [
        (
            {"GITLAB_TOKEN": JOB_TOKEN},
            [],
            "GitLab answers 401 (401 Unauthorized)\n  next: set the variable GITLAB_TOKEN",
        ),
        (
            {"GITLAB_TOKEN": READ_TOKEN},
            [],
            "GitLab answers 403 (insufficient_scope)\n  next: give the token the scope `api`",
        ),
        ({"GITLAB_TOKEN": ""}, [], "GITLAB_TOKEN is not set\n  next: set the variable GITLAB_TOKEN"),
        ({"CI_API_V4_URL": "http://example.org"}, [], "CI_API_V4_URL does not begin with https://"),
        ({"CI_API_V4_URL": "http://127.0.0.1:9"}, [], "Connection refused"),
        ({"CI_MERGE_REQUEST_PROJECT_ID": "", "CI_PROJECT_ID": ""}, [], "--project is missing"),
        ({}, ["--merge-request", "8"], "GitLab answers 404 (404 Not Found)\n  next: name a merge request"),
        ({}, ["--project", "9/../42"], "GitLab answers 404"),
        ({}, ["--pull-request", "7"], "give one of --pull-request and --merge-request"),
    ],
)
def test_refusal_is_a_sentence_without_the_token(  # noqa: PLR0917  three columns, four fixtures
    variables: dict[str, str], words: list[str], said: str, posting: Notes, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: Said,
) -> None:  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert program.run([*ARGV, *words, a_note(tmp_path, "a", "one")]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert not any(token in err for token in (TOKEN, READ_TOKEN, JOB_TOKEN))
    assert posting.found == []


def test_token_follows_no_redirect_to_another_host(posting: Notes, tmp_path: Path, capsys: Said) -> None:
    """GitLab redirects the requests for a renamed project."""
    with notes_of_a_merge_request() as other:
        posting.moved_to = other.host
        words = ["--project", "example/old-name", a_note(tmp_path, "a", "one")]
        assert program.run([*ARGV, *words]) == 2
        assert other.calls == []
    assert "GitLab answers 301\n  next: name the project by its number" in capsys.readouterr().err


def test_nothing_is_posted_if_not_every_note_can_be_read(
    posting: Notes, tmp_path: Path, capsys: Said
) -> None:
    for number in range(5001):
        posting.add(f"talk {number}", author=5)
    assert program.run([*ARGV, a_note(tmp_path, "a", "one")]) == 2
    err = capsys.readouterr().err
    assert "merge request 7 has more than 5000 comments" in err
    assert "open another merge request" in err
    assert written(posting) == []


def test_line_that_gitlab_would_run_is_not_posted(posting: Notes, tmp_path: Path, capsys: Said) -> None:
    """A quick action in a note runs with the rights of the token: `/merge` merges."""
    assert program.run([*ARGV, a_note(tmp_path, "a", "text\n/merge now")]) == 2
    assert "a line begins with '/merge', which GitLab would run" in capsys.readouterr().err
    assert written(posting) == []
