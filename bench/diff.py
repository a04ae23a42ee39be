"""`gpucluster diff` of two specs without resources, from exec to exit, in CPU time, against a bare import in the same run."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, cpu_ms, figure

BARE = "import pydantic, ruamel.yaml"
TIMES = 9
MOST = 9.0  # times the bare import; measured 6.5
STACK = Path(__file__).parent.parent / "stacks" / "burst.yaml"


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / "burst.yaml"
        new.write_text(STACK.read_text().replace("max: 16}", "max: 32}", 1))
        bare = cpu_ms(("-c", BARE), TIMES)
        argv = ("-m", "gpucluster.cli", "diff", str(STACK), str(new), "--no-resources", "-o", "markdown")
        diff = cpu_ms(argv, TIMES)
    yield figure("diff.burst", diff, "ms of CPU", MOST * bare)
    yield figure("diff.burst.over_bare_import", diff, "ms of CPU", bare)
