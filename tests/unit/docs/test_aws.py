"""docs/aws.md: each command of ours that it tells to type has such verbs and options, and each spec key is one."""

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from gpucluster.cli import main as program
from gpucluster.plan import names

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "aws.md").read_text()
LINES = [
    words
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
    if (words := shlex.split(line, comments=True))
]
ON_HEAD = [words for words in LINES if words[0] == "sudo"]
OURS = [words for words in LINES if words[0] == "gpucluster"]


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, and what follows it."""
    rest = words[1:]
    found: Any = typer.main.get_command(program.app_of(rest))
    while hasattr(found, "commands") and rest and rest[0] in found.commands:
        found, rest = found.commands[rest[0]], rest[1:]
    return found, rest


def test_the_page_has_each_step_of_a_clusters_life() -> None:
    verbs = {words[1] for words in OURS}
    assert {"check", "plan", "doctor", "image", "diff", "down", "sandbox"} <= verbs
    assert {"pulumi up", "pulumi login", "pulumi stack", "aws sts"} <= {" ".join(w[:2]) for w in LINES}


@pytest.mark.parametrize("words", OURS, ids=" ".join)
def test_each_verb_and_option_exists_and_takes_what_is_given(words: list[str]) -> None:
    command, rest = command_of(words)
    assert not hasattr(command, "commands"), f"{words} names no command"
    command.make_context(" ".join(words[:3]), list(rest), resilient_parsing=False)


def test_no_verb_that_reaches_only_sandboxes_and_hosts_is_told_for_aws() -> None:
    """It told `gpucluster validate burst` and `pool drain -c burst`, which end with 2 for a cluster on AWS."""
    assert not {"validate", "pool", "node", "why", "timeline", "reconcile"} & {words[1] for words in OURS}


@pytest.mark.parametrize("words", ON_HEAD, ids=" ".join)
def test_what_is_typed_on_the_head_is_there(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As far as the arguments: a head of no bundle, journal and spool, even where this machine is one."""
    interpreter, *flags, module = words[1:5]
    assert (interpreter, flags) == (f"{names.VENV}/bin/python", ["-I", "-m"])
    found = importlib.import_module("gpucluster.elastic.why.__main__" if module.endswith(".why") else module)
    nowhere = [f"--{place}={tmp_path / place}" for place in ("bundle", "journal", "spool", "wake")]
    assert found.main([*words[5:], *nowhere]) == 2  # argparse itself would leave by SystemExit
    assert "usage" not in capsys.readouterr().err


def test_a_wrong_option_would_be_found() -> None:
    command, rest = command_of(["gpucluster", "image", "build", "--no-such-option"])
    with pytest.raises(Exception, match="No such option"):
        command.make_context("image build", list(rest))


def test_other_programs_are_only_those_that_the_page_needs() -> None:
    assert {words[0] for words in LINES} == {"gpucluster", "pulumi", "srun", "aws", "export", "sudo"}


def test_files_that_the_page_names_are_there() -> None:
    for path in re.findall(r"`((?:src|docs|stacks|playbooks)/[^` ]+)`", TEXT):
        assert (ROOT / path).exists() or path == "docs/permissions.md", path


def test_it_says_what_never_ran() -> None:
    assert "never run on AWS" in " ".join(TEXT.lower().replace("aws", "AWS").split())
    assert "not in the image yet" in TEXT
