"""`gpucluster plan FILE --resources` from exec to exit, a reviewer's waiting time: burst, and a cluster of 30 pools.

And the program's own process in it.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, figure, median_ms
from bench.pools import plan_of, text_of
from gpucluster import catalog
from gpucluster.engine.offline import run as planned
from gpucluster.engine.offline.answers import Recording, place, write
from gpucluster.plan.resolve import resolve
from gpucluster.spec import load

LIMIT_MS = 3000.0
TIMES = 7
POOLS = 30
STACK = Path(__file__).parent.parent / "stacks" / "burst.yaml"


def run() -> Iterator[Figure]:
    """The verb against its limit; the child against the import of the program alone, below which it cannot come."""
    argv = ("-m", "gpucluster.cli.start", "plan", str(STACK), "--resources", "--output", "json")
    verb = median_ms(lambda: _call(*argv), TIMES)
    yield figure("planner.burst", verb, "ms", LIMIT_MS)
    with tempfile.TemporaryDirectory() as folder:
        many = _many(Path(folder))
        argv = ("-m", "gpucluster.cli.start", "plan", str(many), "--resources", "--output", "json")
        yield figure(f"planner.pools_{POOLS}", median_ms(lambda: _call(*argv), 3), "ms", LIMIT_MS)
    plan = resolve(load(STACK), catalog.load())
    child = median_ms(lambda: planned("gpucluster.aws.program:declare", plan), TIMES)
    imports = median_ms(lambda: _call("-c", "import gpucluster.aws.program"), TIMES)
    yield figure("planner.burst.child.over_bare_import_of_the_program", child, "ms", imports)


def _many(folder: Path) -> Path:
    """A spec of many pools, its look-ups left open."""
    asked = planned("gpucluster.aws.program:declare", plan_of(POOLS)).lookups
    path = folder / "burst.yaml"
    path.write_text(text_of(POOLS))
    answers = place(path, "burst")
    answers.parent.mkdir()
    answers.write_text(write(Recording(token=one.token, arguments=one.arguments) for one in asked))
    return path


def _call(*argv: str) -> None:
    subprocess.run([sys.executable, *argv], check=True, capture_output=True)
