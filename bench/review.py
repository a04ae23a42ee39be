"""`gpucluster review` of 200 stacks, of which a branch changes 5, in CPU time, against one `plan --resources` in the same run."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, cpu_ms, figure

STACKS, CHANGED = 200, 5
TIMES = 5
MOST = 12.0  # times the plan; measured 5.8
STACK = Path(__file__).parent.parent / "stacks" / "burst.yaml"
LOOKUPS = STACK.parent / "lookups" / "burst.yaml"
PERSON = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder)
        verb = ("-m", "gpucluster.cli")
        plan = cpu_ms((*verb, "plan", "stacks/team-0.yaml", "--resources"), TIMES, folder)
        review = cpu_ms((*verb, "review", "--base", "HEAD~1", "--to", "comments"), TIMES, folder)
    yield figure(f"review.stacks_{STACKS}.changed_{CHANGED}.over_plan", review / plan, "x", MOST)


def _write(folder: Path) -> None:
    """Make a repository of two commits."""
    _git(folder, "init", "--quiet")
    (folder / "stacks/lookups").mkdir(parents=True)
    text = STACK.read_text()
    for number in range(STACKS):
        team = f"team-{number}"
        _stack(folder, team).write_text(text.replace("name: burst\n", f"name: {team}\n", 1))
        (folder / f"stacks/lookups/{team}.yaml").write_text(LOOKUPS.read_text())
    _commit(folder)
    for number in range(0, STACKS, STACKS // CHANGED):
        spec = _stack(folder, f"team-{number}")
        spec.write_text(spec.read_text().replace("max: 16}", "max: 32}", 1))
    _commit(folder)


def _stack(folder: Path, team: str) -> Path:
    return folder / "stacks" / f"{team}.yaml"


def _commit(folder: Path) -> None:
    _git(folder, "add", "--all")
    _git(folder, *PERSON, "commit", "--quiet", "--message", "Change stacks")


def _git(folder: Path, *words: str) -> None:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", "-C", os.fspath(folder), *words], check=True, env=environ)  # noqa: S607
