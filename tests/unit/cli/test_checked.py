"""The fast path of `check FILE...`: the same output as the path through typer, without typer."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpucluster.cli.checked import check_plain

TOP = Path(__file__).parents[3]
WITHOUT = """
import sys
from gpucluster.cli.checked import check_plain
code = check_plain(["check", "stacks/burst.yaml"])
print(code, [name for name in sys.modules if name.partition(".")[0] == "typer"])
"""

SLOW_IMPORTS = """
import gpucluster.cli.__main__ as command, sys
command._disable_pydantic_plugins()
from gpucluster.cli.checked import check_plain
code = check_plain(["check", "stacks/burst.yaml"])
slow = {"importlib.metadata", "gpucluster.catalog.slurm_values", "gpucluster.slurm.hostlist", "typer", "rich"}
plan = {name for name in sys.modules if name.startswith("gpucluster.plan.model.")}
plan -= {"gpucluster.plan.model." + name for name in ("values", "capacity", "shapes")}
print(code, sorted((slow & set(sys.modules)) | plan))
"""


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=TOP)


@pytest.mark.parametrize("word", ["stacks/burst.yaml", "workloads/kube.yaml", "pyproject.toml"])
def test_short_way_and_typer_give_the_same_answer(word: str) -> None:
    short = _run("-m", "gpucluster.cli", "check", word)
    full = _run("-m", "gpucluster.cli", "check", word, "--output", "text")
    assert (short.returncode, short.stdout, short.stderr) == (full.returncode, full.stdout, full.stderr)


def test_short_way_does_not_import_typer() -> None:
    assert _run("-c", WITHOUT).stdout.endswith("0 []\n")


def test_check_of_a_cluster_on_aws_imports_nothing_slow_that_it_does_not_need() -> None:
    """If pydantic moves its loader of plugins, importlib.metadata appears here. Dataclasses of the plan took a sixth of a check."""
    assert _run("-c", SLOW_IMPORTS).stdout.endswith("0 []\n")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["check"],
        ["plan", "a.yaml"],
        ["check", "--help"],
        ["check", "a.yaml", "-o", "json"],
        ["check", "no-file"],
    ],
)
def test_typer_handles_every_other_command_line(argv: list[str]) -> None:
    assert check_plain(argv) is None


def test_completion_is_left_to_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_GPUCLUSTER_COMPLETE", "complete_bash")
    assert check_plain(["check", "stacks/burst.yaml"]) is None
