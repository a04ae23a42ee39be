"""Every command of gpucluster that a message suggests can be typed: the CLI parses it with its options."""

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer

from gpucluster.cli import main as program
from gpucluster.elastic import machine_verbs

SOURCE = Path(__file__).parents[3] / "src" / "gpucluster"
VERBS = "|".join(sorted(program.VERBS, key=len, reverse=True))
QUOTED = re.compile(rf"`(gpucluster (?:{VERBS})\b[^`\n]*)`")
BARE = re.compile(rf"(?<![`\w/.-])(gpucluster (?:{VERBS})\b[^`;:,\n()]*)")
HEAD_VERBS = ("why", "timeline", "pool", "node", "bundle", "reconcile")
USAGE: Any = typer.BadParameter.__mro__[1]  # typer has its own copy of click
ON_HEAD = ("elastic", "agent")  # rooms whose sentences are printed far from the reader's shell
ON_MACHINES = (*ON_HEAD, "slurm")  # rooms whose sentences are read in a shell of a machine

NAMES: Mapping[tuple[str, str], str] = {  # sentences that name a command, and do not suggest to type it
    ("cli/comment.py", "gpucluster review"): "what writes the files, in the help of another command",
    ("cloud/control.py", "gpucluster down"): "the author of a stop, in the control object",
    ("cli/validate_target.py", "gpucluster validate stacks/1.yaml --backend 1"): "the backend is one of two",
    ("elastic/accounts.py", "gpucluster accounts"): "the name of a program in its own usage",
    ("k8s/guide.py", "gpucluster render"): "what made the file",
    ("sandbox/aws/moto_state.py", "gpucluster sandbox image 1"): "the description of an image",
    ("sandbox/state_dir.py", "gpucluster sandbox up"): "a command that runs now",
    ("slurm/owned_keys.py", "gpucluster node"): "what replaces a key of slurm.conf",
    ("validate/run.py", "gpucluster validate"): "the name of a JUnit suite",
}


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Each string of the module that is not a docstring; a field of an f-string is `1`, which fits every argument."""
    docs = {
        id(one.body[0].value)
        for one in ast.walk(tree)
        if isinstance(one, ast.Module | ast.ClassDef | ast.FunctionDef)
        and one.body
        and isinstance(one.body[0], ast.Expr)
    }
    parts = {id(v) for j in ast.walk(tree) if isinstance(j, ast.JoinedStr) for v in j.values}
    for one in ast.walk(tree):
        if isinstance(one, ast.JoinedStr):
            words = (v.value if isinstance(v, ast.Constant) else "1" for v in one.values)
            yield one.lineno, "".join(map(str, words))
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in docs | parts:
            yield one.lineno, one.value


def suggested() -> Iterator[tuple[str, str]]:
    """The place and the command of each suggestion."""
    for path in sorted(SOURCE.rglob("*.py")):
        for line, text in texts(ast.parse(path.read_text())):
            plain = re.sub(r"\{[a-z_]+\}", "1", text)
            for pattern in (QUOTED, BARE):
                for found in pattern.findall(plain):
                    yield f"{path.relative_to(SOURCE)}:{line}", found.strip()


ALL = list(dict.fromkeys(suggested()))
FOUND = [(place, command) for place, command in ALL if (place.partition(":")[0], command) not in NAMES]


def parse(command: str) -> None:
    """Parse as the shell and the CLI do; raise what they raise."""
    words = shlex.split(command, comments=True)[1:]
    found: Any = typer.main.get_command(program.app_of(words))
    name = "gpucluster"
    while hasattr(found, "commands") and words and words[0] in found.commands:
        name, found, words = f"{name} {words[0]}", found.commands[words[0]], words[1:]
    if hasattr(found, "commands"):
        raise USAGE(f"{name} is no command")
    found.make_context(name, list(words), resilient_parsing=False)


def test_the_search_finds_commands() -> None:
    assert len(FOUND) > 30
    rooms = {place.partition("/")[0] for place, _ in FOUND}
    assert {"cli", "elastic", "sandbox"} <= rooms


def test_every_named_command_is_still_there() -> None:
    assert NAMES.keys() <= {(place.partition(":")[0], command) for place, command in ALL}


@pytest.mark.parametrize(("place", "command"), FOUND, ids=[f"{p} {c}" for p, c in FOUND])
def test_suggested_command_can_be_typed(place: str, command: str) -> None:
    parse(command)


@pytest.mark.parametrize(
    ("place", "command"),
    [(p, c) for p, c in FOUND if p.startswith(ON_HEAD) and c.split()[1] in HEAD_VERBS],
)
def test_command_in_a_message_of_the_head_names_the_cluster(place: str, command: str) -> None:
    assert " -c " in command


@pytest.mark.parametrize(("place", "command"), [(p, c) for p, c in FOUND if p.startswith(ON_MACHINES)])
def test_command_in_a_message_of_a_machine_can_be_typed_there(place: str, command: str) -> None:
    """Or the sentence names the operator's machine; there `gpucluster` says the same."""
    words = shlex.split(command, comments=True)[1:]
    if words[0] in machine_verbs.DESK_ONLY:
        file, line = place.split(":")
        source = (SOURCE / file).read_text().splitlines()
        near = " ".join(source[max(0, int(line) - 3) : int(line) + 3])
        assert "your own machine" in near or "was interrupted" in near
    else:
        machine_verbs.parser().parse_args([word.replace("NAME", "1") for word in words])


PLACE = re.compile(r"\b(on \{machine\}|on the head\b|on the node\b|on your computer\b)[^:;]*: ")
WORDS = re.compile(r"(?<![\w/.-])gpucluster ([a-z0-9-]+)")


def typed_on_machines(text: str) -> Iterator[str]:
    """The first word of each command of gpucluster that a remedy says to type on a machine."""
    _, *parts = PLACE.split(text)
    for place, commands in zip(parts[::2], parts[1::2], strict=True):
        if place != "on your computer":
            yield from WORDS.findall(commands)


REMEDIES = {
    f"{path.relative_to(SOURCE)}:{line}": text
    for room in ("checks", "validate")
    for path in sorted((SOURCE / room).rglob("*.py"))
    for line, text in texts(ast.parse(path.read_text()))
    if PLACE.search(text)
}


@pytest.mark.parametrize("text", REMEDIES.values(), ids=REMEDIES)
def test_command_of_a_remedy_can_be_typed_where_the_remedy_says(text: str) -> None:
    """Regression: `job.home` said `on the head: gpucluster validate`, which the head refuses."""
    assert set(typed_on_machines(text)) <= {words[0] for words in machine_verbs.VERBS}


def test_remedy_with_a_command_of_the_desk_is_found() -> None:
    assert len(REMEDIES) > 60
    assert [
        *typed_on_machines(
            "on the head: sinfo; `gpucluster validate NAME`; on your computer: gpucluster exec"
        )
    ] == ["validate"]
    assert [*typed_on_machines("on {machine}: gpucluster --version")] == ["--version"]


@pytest.mark.parametrize(
    "wrong", ["gpucluster pool resume", "gpucluster why 1 --never", "gpucluster pool halt x"]
)
def test_wrong_command_is_found(wrong: str) -> None:
    with pytest.raises(USAGE):
        parse(wrong)
