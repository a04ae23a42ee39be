"""What the README says to type works as written; what it names is there."""

import io
import re
import shlex
import shutil
import subprocess
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from support import readme
from support.readme import Session, matches, sessions, shortened

from gpucluster.cli import main as program
from gpucluster.spec import UpdateClass

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/concepts.md")
SESSIONS = sessions(README)
SHELL = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
LINES = [
    words
    for line in (*SHELL, *(command for session in SESSIONS for command, _ in session.steps))
    if (words := shlex.split(line, comments=True))[:1] == ["gpucluster"]
]
DESK = [line for line in LINES if line[1] in ("check", "plan", "render", "diff", "lint")]
OTHERS = [line for line in LINES if line not in DESK]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the specs, as a clone has them."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("stacks", "workloads"):
        shutil.copytree(ROOT / name, folder / name)
    somebody = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    for argv in (["init", "--quiet"], ["add", "."], [*somebody, "commit", "--quiet", "--message=Begin"]):
        subprocess.run(["git", *argv], cwd=folder, check=True)  # noqa: S607  whichever git there is
    return folder


def test_the_lines_were_found() -> None:
    assert {line[1] for line in DESK} == {"check", "plan", "render", "diff", "lint"}
    assert {"up", "exec", "status", "logs", "down"} <= {line[2] for line in OTHERS if line[1] == "sandbox"}


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit status."""

    returncode: int
    stdout: str
    stderr: str


def ran(words: list[str], desk: Path) -> Ran:
    """In this process: an interpreter for each command would cost more than the commands."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    with chdir(desk), redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        code = program.run(words[1:])
    texts: list[str] = []
    for stream in streams:
        stream.seek(0)
        texts.append(stream.read())
    return Ran(code, *texts)


def test_every_desk_command_shows_its_output() -> None:
    shown = [shlex.split(command, comments=True) for session in SESSIONS for command, _ in session.steps]
    assert [words for words in DESK if words not in shown] == []


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.steps[0][0])
def test_desk_commands_print_what_the_readme_shows(
    session: Session, desk: Path, request: pytest.FixtureRequest
) -> None:
    printed = [(command, ran(shlex.split(command, comments=True), desk)) for command, _ in session.steps]
    if request.config.getoption("--update-golden"):
        shown = [lines for _, lines in session.steps]
        new = "".join(
            f"$ {command}\n{shortened(done.stdout, lines)}"
            for (command, done), lines in zip(printed, shown, strict=True)
        )
        readme.README.write_text(readme.README.read_text().replace(session.text, new))
        return
    for (command, done), (_, shown) in zip(printed, session.steps, strict=True):
        assert done.returncode == 0, done.stderr
        assert matches(shown, done.stdout), f"{command} printed:\n{done.stdout[:2000]}"


def test_the_classes_of_the_concepts_page_are_those_of_the_code() -> None:
    table = (ROOT / "docs/concepts.md").read_text().partition("| class | effect |\n|---|---|\n")[2]
    rows = re.findall(r"^\| ([a-z-]+) \| [A-Z]", table, re.MULTILINE)
    assert rows == [update.value for update in UpdateClass]


@pytest.mark.parametrize("words", OTHERS, ids=" ".join)
def test_a_command_of_the_sandbox_is_understood(words: list[str]) -> None:
    """Parsed to its last word, and not run."""
    command: Any = typer.main.get_command(program.app_of(words[1:]))
    context = command.make_context("gpucluster", words[1:])
    while hasattr(command, "get_command"):
        rest = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)


def test_the_stack_in_the_readme_is_the_one_in_the_tree() -> None:
    shown = README.partition("```yaml\n")[2].partition("```")[0]
    assert without_comments(shown) == without_comments((ROOT / "stacks/first.yaml").read_text())


def without_comments(text: str) -> list[str]:
    lines = (re.sub(r"\s*#.*", "", line) for line in text.splitlines())
    return [line for line in lines if line]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    targets = set(re.findall(r"`make ([a-z]+)", text))
    known = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets <= known
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    named = re.findall(
        r"`((?:stacks|tools|tests|schema|templates|playbooks|src|bench|requirements)/[\w./-]*|[A-Z]+\.md)`",
        text,
    )
    missing = [name for name in {*links, *named} if "NAME" not in name and not (ROOT / name).exists()]
    assert missing == []
