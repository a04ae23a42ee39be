"""`gpucluster render stacks/kube.yaml`: the manifests alone (from plan to text), then the verb from exec to exit."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, figure, median_ms
from gpucluster import catalog, k8s
from gpucluster.plan.model import there
from gpucluster.plan.resolve import resolve
from gpucluster.plan.running import workloads
from gpucluster.spec import inspect_workloads, load

LIMIT_MS = 500.0
TIMES = 7
ROOT = Path(__file__).parent.parent
STACK = ROOT / "stacks/kube.yaml"


def run() -> Iterator[Figure]:
    """Measure against the limit, and the verb against bare Python."""
    spec = load(STACK)
    plan = resolve(spec, catalog.load())
    running = workloads(
        inspect_workloads(ROOT / "workloads/kube.yaml", spec).result(), there(plan.kubernetes)
    )
    manifests = median_ms(lambda: k8s.render(plan, running), TIMES)
    yield figure("kube.render", manifests, "ms", LIMIT_MS)
    bare = median_ms(lambda: _call("-c", "pass"), TIMES)
    verb = median_ms(lambda: _call("-m", "gpucluster.cli.start", "render", str(STACK)), TIMES)
    yield figure("kube.render.verb.over_bare_python", verb, "ms", bare)


def _call(*argv: str) -> None:
    subprocess.run([sys.executable, *argv], check=True, capture_output=True)
