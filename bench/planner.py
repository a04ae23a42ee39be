"""`gpucluster plan FILE --resources` from exec to exit, in CPU time, against bare imports measured in the same run.

`import pulumi, pulumi_aws` loads no service of the SDK. So the second base is the import of our program with the SDK as it
is installed: it loads the services that the program uses. The third is the same import as the planner's child does it.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, cpu_ms, figure
from bench.pools import plan_of, text_of
from gpucluster.engine.offline import run as planned
from gpucluster.engine.offline.answers import Recording, place, write

BARE = "import pulumi, pulumi_aws"
WHOLE_SDK = "import gpucluster.aws.program"
PROGRAM = (  # as the child process imports it
    "from gpucluster.engine.offline import lazy_sdk; lazy_sdk.install();"
    " import gpucluster.aws.program, gpucluster.engine.offline.child"
)
TIMES = 5
POOLS = 30
# The limit of the command as a multiple of the import of the program. Measured: 2.0 and 2.9.
MOST_BURST, MOST_POOLS = 2.5, 3.6
MOST_WHOLE = 1.3  # times the import of the program with the whole services; measured 1.1
STACK = Path(__file__).parent.parent / "stacks" / "burst.yaml"


def run() -> Iterator[Figure]:
    """Plan one stack, and one of 30 pools."""
    bare, program = cpu_ms(("-c", BARE), TIMES), cpu_ms(("-c", PROGRAM), TIMES)
    burst = cpu_ms(_verb(STACK), TIMES)
    yield figure("planner.burst", burst, "ms of CPU", MOST_BURST * program)
    with tempfile.TemporaryDirectory() as folder:
        many = cpu_ms(_verb(_many(Path(folder))), TIMES)
    yield figure(f"planner.pools_{POOLS}", many, "ms of CPU", MOST_POOLS * program)
    whole = cpu_ms(("-c", WHOLE_SDK), TIMES)
    yield figure(f"planner.pools_{POOLS}.over_import_of_the_services", many / whole, "x", MOST_WHOLE)
    yield figure(f"planner.pools_{POOLS}.over_bare_import", many, "ms of CPU", bare)
    yield figure("planner.import_of_the_program.over_bare_import", program, "ms of CPU", bare)


def _verb(spec: Path) -> tuple[str, ...]:
    return ("-m", "gpucluster.cli", "plan", str(spec), "--resources", "--output", "json")


def _many(folder: Path) -> Path:
    """Return a spec of many pools without recorded look-ups."""
    asked = planned("gpucluster.aws.program:declare", plan_of(POOLS)).lookups
    path = folder / "burst.yaml"
    path.write_text(text_of(POOLS))
    answers = place(path, "burst")
    answers.parent.mkdir()
    answers.write_text(write(Recording(token=one.token, arguments=one.arguments) for one in asked))
    return path
