"""`gpucluster diff` of two specs without resources, from exec to exit: what a reviewer's hook waits for; baseline: bare Python."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, figure, median_ms

LIMIT_MS = 1000.0
TIMES = 11
STACK = Path(__file__).parent.parent / "stacks" / "burst.yaml"


def run() -> Iterator[Figure]:
    """Measure against the limit, and against bare Python."""
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / "burst.yaml"
        new.write_text(STACK.read_text().replace("max: 16}", "max: 32}", 1))
        bare = median_ms(lambda: _call("-c", "pass"), TIMES)
        diff = median_ms(lambda: _diff(new), TIMES)
    yield figure("diff.burst", diff, "ms", LIMIT_MS)
    yield figure("diff.burst.over_bare_python", diff, "ms", bare)


def _diff(new: Path) -> None:
    _call("-m", "gpucluster.cli.start", "diff", str(STACK), str(new), "--no-resources", "-o", "markdown")


def _call(*argv: str) -> None:
    subprocess.run([sys.executable, *argv], check=True, capture_output=True)
