"""Both halves of `make soak` start: the commands are those that make types."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_commands_of_make_soak_start() -> None:
    """Regression: the second half did not find its own modules, and nothing else runs it."""
    listed = subprocess.run(
        ["/usr/bin/make", "--dry-run", "soak"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    commands = [line for line in listed.stdout.splitlines() if "soak.py" in line]
    assert len(commands) == 2
    for command in commands:
        done = subprocess.run(
            ["/bin/sh", "-c", f"{command} --help"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout[:6]) == (0, "usage:"), done.stderr
