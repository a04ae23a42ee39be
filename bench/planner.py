"""`gpucluster plan stacks/burst.yaml --resources` from exec to exit, a reviewer's waiting time, and the program's own process in it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, figure, median_ms
from gpucluster import catalog
from gpucluster.engine.offline import run as planned
from gpucluster.plan.resolve import resolve
from gpucluster.spec import load

LIMIT_MS = 3000.0
TIMES = 7
STACK = Path(__file__).parent.parent / "stacks" / "burst.yaml"


def run() -> Iterator[Figure]:
    """The verb against its limit; the child against the import of the program alone, below which it cannot come."""
    argv = ("-m", "gpucluster.cli.start", "plan", str(STACK), "--resources", "--output", "json")
    verb = median_ms(lambda: _call(*argv), TIMES)
    yield figure("planner.burst", verb, "ms", LIMIT_MS)
    plan = resolve(load(STACK), catalog.load())
    child = median_ms(lambda: planned("gpucluster.aws.program:declare", plan), TIMES)
    imports = median_ms(lambda: _call("-c", "import gpucluster.aws.program"), TIMES)
    yield figure("planner.burst.child.over_bare_import_of_the_program", child, "ms", imports)


def _call(*argv: str) -> None:
    subprocess.run([sys.executable, *argv], check=True, capture_output=True)
