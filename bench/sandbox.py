"""What benchmarks of real clusters share: a copy of a stack under another name, and the command line."""

import subprocess
import sys
from pathlib import Path

STACKS = Path(__file__).parent.parent / "stacks"


def copied(stack: str, name: str, folder: Path) -> Path:
    """Write `stacks/STACK.yaml` with another name of the cluster into the folder, beside the scripts that it names."""
    spec = folder / f"{name}.yaml"
    spec.write_text((STACKS / f"{stack}.yaml").read_text().replace(f"name: {stack}\n", f"name: {name}\n", 1))
    (folder / "scripts").symlink_to(STACKS / "scripts")
    return spec


def cli(*argv: str, ends: tuple[int, ...] = (0,)) -> str:
    """Return the output of `gpucluster ARGV`. Another exit code than `ends` ends the benchmark."""
    done = subprocess.run(
        [sys.executable, "-m", "gpucluster.cli", *argv],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in ends:
        sys.exit(f"{' '.join(argv[:2])}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
