"""`gpucluster lint` over the rendered kube stack from exec to exit, and the check alone in a warm process."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, figure, median_ms
from gpucluster.k8s.lint import Facts, check
from gpucluster.k8s.lint.read import read

LIMIT_MS = 3000.0  # a person waits for it before a commit
TIMES = 7
ROOT = Path(__file__).parent.parent


def run() -> Iterator[Figure]:
    """The verb against its limit; the check against reading the YAML alone, below which it cannot come."""
    with tempfile.TemporaryDirectory() as folder:
        _call("render", ROOT / "stacks/kube.yaml", "--to", folder)
        spec = ("--spec", ROOT / "stacks/kube.yaml")
        yield figure("lint.kube", median_ms(lambda: _call("lint", folder, *spec), TIMES), "ms", LIMIT_MS)
        texts = [
            file.read_text() for file in sorted(Path(folder).rglob("*.yaml")) if file.parent.name != "helm"
        ]
    documents = [document for text in texts for document in read(text, "x.yaml").documents]
    facts = Facts(kubernetes="1.36", whole=False)
    reading = median_ms(lambda: [read(text, "x.yaml") for text in texts], TIMES)
    checking = median_ms(lambda: check(documents, facts), TIMES)
    yield figure("lint.kube.check.over_bare_reading_of_the_yaml", checking, "ms", reading)


def _call(verb: str, *argv: object) -> None:
    call = [sys.executable, "-m", "gpucluster.cli.start", verb, *map(str, argv)]
    subprocess.run(call, check=True, capture_output=True)
