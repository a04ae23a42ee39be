"""`gpucluster render stacks/kube.yaml`: the manifests (from plan to text), then the command from exec to exit."""

from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, cpu_ms, figure, own_cpu_ms, unit_ms
from gpucluster import catalog, k8s
from gpucluster.plan.resolve import resolve
from gpucluster.plan.resolve.workloads import workloads
from gpucluster.spec import inspect_workloads, load

LIMIT = 48.0  # units of this machine's speed; measured 32
VERB_LIMIT = 80.0  # times a bare Python
TIMES = 7
ROOT = Path(__file__).parent.parent
STACK = ROOT / "stacks/kube.yaml"


def run() -> Iterator[Figure]:
    """The manifests in units of the fixed loop, and the command as a multiple of a bare Python."""
    spec = load(STACK)
    plan = resolve(spec, catalog.load())
    assert plan.kubernetes is not None
    running = workloads(inspect_workloads(ROOT / "workloads/kube.yaml", spec).result(), plan.kubernetes)
    manifests = own_cpu_ms(lambda: k8s.render(plan, running), TIMES)
    yield figure("kube.render", manifests, "ms", LIMIT * unit_ms())
    bare = cpu_ms(("-c", "pass"), TIMES)
    verb = cpu_ms(("-m", "gpucluster.cli", "render", str(STACK)), TIMES)
    yield figure("kube.render.verb.over_bare_python", verb / bare, "x", VERB_LIMIT)
