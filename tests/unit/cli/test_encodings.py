"""Output does not depend on the terminal's encoding: what it lacks is written as an escape."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]
HEADER = 'because: "Debian 13 keeps 24.11 in its own support"'
COMMANDS = (
    ("check", "{spec}"),
    ("check", "{wrong}"),
    ("plan", "{spec}"),
    ("diff", "stacks/burst.yaml", "{spec}"),
)


@pytest.fixture
def names(tmp_path: Path) -> dict[str, str]:
    """A spec and a wrong one, with letters that Latin-1 lacks in their names and texts."""
    text = (TOP / "stacks/burst.yaml").read_text()
    assert HEADER in text
    spec, wrong = tmp_path / "größe→.yaml", tmp_path / "wrong→.yaml"
    spec.write_text(
        text.replace(HEADER, 'because: "Łódź → später"') + "tags: {team: Łódź}\n", encoding="utf-8"
    )
    wrong.write_text(text + "näme→: Łódź\n", encoding="utf-8")
    return {"spec": str(spec), "wrong": str(wrong)}


def typed(encoding: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    argv = [sys.executable, "-P", "-m", "gpucluster.cli", *words]
    return subprocess.run(argv, cwd=TOP, env=env, capture_output=True, check=False)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_ends_alike_in_each_encoding(command: tuple[str, ...], names: dict[str, str]) -> None:
    words = [word.format_map(names) for word in command]
    right, done = typed("utf-8", *words), typed("ascii", *words)
    assert not (right.stdout + right.stderr).isascii(), "the command prints none of the letters"
    assert (done.returncode, len(done.stdout.splitlines())) == (
        right.returncode,
        len(right.stdout.splitlines()),
    )
    assert b"Traceback" not in done.stderr
