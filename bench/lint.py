"""`gpucluster lint` of the rendered kube stack from exec to exit, and the check alone in this process."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, cpu_ms, figure, median_ms
from gpucluster.k8s.lint import Facts, check
from gpucluster.k8s.lint.read import read

LIMIT = 250.0  # times a bare Python: a user waits for it before each commit
TIMES = 7
ROOT = Path(__file__).parent.parent


def run() -> Iterator[Figure]:
    """The command with its limit; the check beside the time that reading the YAML takes."""
    with tempfile.TemporaryDirectory() as folder:
        _call("render", ROOT / "stacks/kube.yaml", "--to", folder)
        Path(folder, "k8s/MISSING.md").unlink(
            missing_ok=True
        )  # without bindings `lint` finds an error and exits with 1
        argv = ("-m", "gpucluster.cli", "lint", folder, "--spec", str(ROOT / "stacks/kube.yaml"))
        verb, bare = cpu_ms(argv, TIMES), cpu_ms(("-c", "pass"), TIMES)
        yield figure("lint.kube.over_bare_python", verb / bare, "x", LIMIT)
        texts = [
            file.read_text() for file in sorted(Path(folder).rglob("*.yaml")) if file.parent.name != "helm"
        ]
    documents = [document for text in texts for document in read(text, "x.yaml").documents]
    facts = Facts(kubernetes="1.36", whole=False)
    reading = median_ms(lambda: [read(text, "x.yaml") for text in texts], TIMES)
    checking = median_ms(lambda: check(documents, facts), TIMES)
    yield figure("lint.kube.check.over_bare_reading_of_the_yaml", checking, "ms", reading)


def _call(verb: str, *argv: object) -> None:
    call = [sys.executable, "-m", "gpucluster.cli", verb, *map(str, argv)]
    subprocess.run(call, check=True, capture_output=True)
