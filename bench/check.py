"""`gpucluster check stacks/burst.yaml` from exec to exit, a GitOps hook's waiting time; baseline: Python that does nothing."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, figure, median_ms

LIMIT_MS = 350.0
TIMES = 11
STACK = Path(__file__).parent.parent / "stacks" / "burst.yaml"


def run() -> Iterator[Figure]:
    """Measure against the limit, and against bare Python."""
    bare = median_ms(lambda: _call("-c", "pass"), TIMES)
    check = median_ms(lambda: _call("-m", "gpucluster.cli.start", "check", str(STACK)), TIMES)
    yield figure("check.burst", check, "ms", LIMIT_MS)
    yield figure("check.burst.over_bare_python", check, "ms", bare)


def _call(*argv: str) -> None:
    subprocess.run([sys.executable, *argv], check=True, capture_output=True)
