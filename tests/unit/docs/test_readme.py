"""What the README says to type works as written; what it names is there."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from gpucluster.cli import main as program

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINES = [
    words
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
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


def ran(words: list[str], desk: Path) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "gpucluster.cli.start", *words[1:]]
    return subprocess.run(argv, cwd=desk, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", DESK, ids=" ".join)
def test_a_command_of_the_desk_runs_as_written(words: list[str], desk: Path) -> None:
    if "--check" in words:  # the line before wrote the folder, maybe in another worker's clone
        ran([word for word in words if word != "--check"], desk)
    done = ran(words, desk)
    assert (done.returncode, done.stdout != "") == (0, "--check" not in words), done.stderr
    if words[1] == "render" and "stacks/burst.yaml" in words:
        written = {path.name for path in (desk / "out").rglob("*")}
        named = re.findall(r"\w+\.conf", README.partition("gpucluster render")[2].splitlines()[0])
        assert set(named) <= written
        assert named


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
    assert without_comments(shown) == without_comments((ROOT / "stacks/burst.yaml").read_text())


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
