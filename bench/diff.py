"""`gpucluster diff` of two specs, from exec to exit, in CPU time, against figures of the same run.

Without resources: against a bare import. With resources, four programs: against `plan --resources`, which runs one.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, cpu_ms, figure

BARE = "import pydantic, ruamel.yaml"
TIMES = 9
MOST = 9.0  # times the bare import; measured 6.5
MOST_PLANS = 2.2  # times `plan --resources`; measured 2.0
STACK = Path(__file__).parent.parent / "stacks" / "burst.yaml"


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / "burst.yaml"
        new.write_text(STACK.read_text().replace("max: 16}", "max: 32}", 1))
        bare = cpu_ms(("-c", BARE), TIMES)
        argv = ("-m", "gpucluster.cli", "diff", str(STACK), str(new), "-o", "markdown")
        diff, whole = cpu_ms((*argv, "--no-resources"), TIMES), cpu_ms((*argv, "--resources"), TIMES)
        plan = cpu_ms(("-m", "gpucluster.cli", "plan", str(STACK), "--resources"), TIMES)
    yield figure("diff.burst", diff, "ms of CPU", MOST * bare)
    yield figure("diff.burst.over_bare_import", diff, "ms of CPU", bare)
    yield figure("diff.burst.with_resources.over_plan", whole / plan, "x", MOST_PLANS)
