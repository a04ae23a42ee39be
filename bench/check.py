"""CPU time of the whole process `gpucluster check stacks/burst.yaml`, and of two bare imports in the same run.

`import pydantic, ruamel.yaml` loads almost nothing of pydantic, which imports its parts when they are first read. So the
second import also reads `BaseModel` and `YAML`, as every program does that uses them.
"""

import statistics
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, cpu_ms, figure

LAZY_LIMIT = (
    3.6  # times `import pydantic, ruamel.yaml`; measured 2.9; one pydantic model with one field needs 1.7
)
USED_LIMIT = 2.5  # times the import of BaseModel and YAML; measured 2.0
ROUNDS, TIMES = 5, 3
STACK = Path(__file__).parent.parent / "stacks" / "burst.yaml"
LAZY = ("-c", "import pydantic, ruamel.yaml")
USED = ("-c", "from pydantic import BaseModel; from ruamel.yaml import YAML")
CHECK = ("-m", "gpucluster.cli", "check", str(STACK))


def run() -> Iterator[Figure]:
    """Run the three alternately, so that other programs slow all of them."""
    rounds = [tuple(cpu_ms(argv, TIMES) for argv in (LAZY, USED, CHECK)) for _ in range(ROUNDS)]
    lazy, used, check = (statistics.median(column) for column in zip(*rounds, strict=True))
    yield figure("check.burst.over_bare_import", check / lazy, "x", LAZY_LIMIT)
    yield figure("check.burst.over_import_of_base_model", check / used, "x", USED_LIMIT)
