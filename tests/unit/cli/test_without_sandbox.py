"""The product without the rehearsal: a copy of the tree without `sandbox/`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PARTS = ("src", "templates", "playbooks", "policies", "stacks")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("tree")
    for part in PARTS:
        shutil.copytree(ROOT / part, copy / part)  # with the compiled modules, else each verb compiles anew
    shutil.rmtree(copy / "src/gpucluster/sandbox")
    return copy


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("check", "stacks/burst.yaml"), "stacks/burst.yaml: ok"),
        (("plan", "stacks/burst.yaml"), "partition gpu"),
        (("render", "stacks/burst.yaml", "--to", "out"), ""),
        (("diff", "stacks/burst.yaml", "stacks/steady.yaml", "--resources"), "aws:ec2/"),
        (("plan", "stacks/burst.yaml", "--resources"), "exports bindings"),
        (("plan", "stacks/burst.yaml", "--policy"), "0 mandatory violations"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_verb_works_without_the_sandbox(tree: Path, arguments: tuple[str, ...], said: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "gpucluster.cli", *arguments],
        cwd=tree, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode in ((0, 1) if arguments[0] == "diff" else (0,)), done.stderr
    assert said in done.stdout
