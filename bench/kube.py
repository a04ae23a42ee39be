"""`gpucluster render stacks/kube.yaml`: the manifests (from plan to text), then the command from exec to exit.

The large spec is checked and resolved too: its rules divide each pool between all teams.
"""

from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, cpu_ms, figure, own_cpu_ms, unit_ms
from gpucluster import catalog, k8s
from gpucluster.plan.resolve import resolve
from gpucluster.plan.resolve.workloads import workloads
from gpucluster.spec import inspect_text, inspect_workloads, load

LIMIT = 8.0  # units of this machine's speed; measured 3
MANY_LIMIT = 200.0  # the same; measured 120
CHECK_LIMIT = 300.0  # the same; measured 150
TEAMS, POOLS = 1000, 50
VERB_LIMIT = 65.0  # times a bare Python
_TEAM = "    - {{name: t{}, quota: {{nvidia.com/gpu: 2}}}}\n"
_POOL = "  - {{name: p{}, nodes: {{min: 0, max: 5}}, capacity: [{{from: on-demand, machines: [p4de.24xlarge]}}]}}\n"
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
    facts, text = catalog.load(), text_of(teams=TEAMS, pools=POOLS)
    checked = own_cpu_ms(lambda: inspect_text(text, "many.yaml", facts), 1)
    yield figure("kube.check.1000_teams_50_pools", checked, "ms", CHECK_LIMIT * unit_ms())
    many = resolve(inspect_text(text, "many.yaml", facts).result(), facts)
    yield figure(
        "kube.render.1000_teams_50_pools",
        own_cpu_ms(lambda: k8s.render(many), 1),
        "ms",
        MANY_LIMIT * unit_ms(),
    )
    bare = cpu_ms(("-c", "pass"), TIMES)
    verb = cpu_ms(("-m", "gpucluster.cli", "render", str(STACK)), TIMES)
    yield figure("kube.render.verb.over_bare_python", verb / bare, "x", VERB_LIMIT)


def text_of(*, teams: int, pools: int) -> str:
    """Return a spec with many teams and pools; each team has a quota of GPUs."""
    return f"""\
schema: 1
name: many
aws:
  region: us-west-2
  network: {{cidr: 10.60.0.0/16, zones: [us-west-2a]}}
kubernetes:
  version: "1.36"
  control_plane: eks
  teams:
{"".join(_TEAM.format(n) for n in range(teams))}pools:
{"".join(_POOL.format(n) for n in range(pools))}"""
