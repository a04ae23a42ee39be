"""Slurm's files of 10,000 hosts with 200 partitions, 2,000 users in three levels of accounts, and of 64,000 hosts in a tree.

CPU time of one process. The base is a fixed loop of the same run (`unit_ms`). The hosts are in a tree of three levels of switches.
`spec` reads and checks the YAML and resolves the plan; `render` writes all files of Slurm; `topology` only topology.conf.
"""

from collections.abc import Iterator

from bench.figure import Figure, figure, own_cpu_ms, unit_ms
from gpucluster import catalog
from gpucluster.plan.model import SlurmPlan
from gpucluster.plan.resolve import resolve
from gpucluster.slurm.config import topology
from gpucluster.slurm.config.render import render
from gpucluster.spec import inspect_text

# units of this machine's speed, about 3.4 ms here. Measured 255, 8.5 and 0.1; for the large one 283, 57 and 0.8
SPEC, RENDER, TOPOLOGY = 400.0, 25.0, 2.0
LARGE_RENDER, LARGE_TOPOLOGY = 150.0, 5.0
TIMES = 3
UNDER_SPINE, UNDER_LEAF = 16, 40  # leaves of a spine, hosts of a leaf
_HEAD = """\
schema: 1
name: large
hosts: {ssh: {user: admin, port: 22}, head: {name: ctl0, address: 10.255.0.1}}
machines:
  hgx: {sockets: 2, cores_per_socket: 56, threads_per_core: 2, memory: 2000GiB, gpus: {model: h100, count: 8, memory: 80GiB}}
"""


def run() -> Iterator[Figure]:
    """Both clusters."""
    for nodes, partitions, users, limits in (
        (10_000, 200, 2_000, (SPEC, RENDER, TOPOLOGY)),
        (64_000, 20, 0, (SPEC, LARGE_RENDER, LARGE_TOPOLOGY)),
    ):
        yield from _of_size(text_of(nodes, pools=20, partitions=partitions, users=users), nodes, limits)


def _of_size(text: str, nodes: int, limits: tuple[float, float, float]) -> Iterator[Figure]:
    facts = catalog.load()

    def planned() -> SlurmPlan:
        plan = resolve(inspect_text(text, "large.yaml", facts).result(), facts)
        assert isinstance(plan, SlurmPlan)
        return plan

    plan = planned()
    works = (
        ("spec", planned),
        ("render", lambda: render(plan)),
        ("topology", lambda: topology.topology_conf(plan)),
    )
    for (name, work), units in zip(works, limits, strict=True):
        yield figure(f"render.{nodes}_nodes.{name}", own_cpu_ms(work, TIMES), "ms CPU", units * unit_ms())


def text_of(nodes: int, *, pools: int, partitions: int, users: int) -> str:
    """Return the spec: pools of equal size, each partition with one to three pools, a tree of three levels."""
    each = nodes // pools
    parts = [_HEAD, 'slurm:\n  version: "26.05"\n']
    if users:
        parts.append("  accounting: {database: local}\n")
    parts += ["  topology:\n    tree:\n      core:\n", *_spines(nodes), "pools:\n"]
    parts += [
        f'  - {{name: p{p}, machine: hgx, hosts: "n[{p * each + 1}-{(p + 1) * each}]", addresses: "{_addresses(p * each, each)}"}}\n'
        for p in range(pools)
    ]
    parts.append("partitions:\n")
    for number in range(partitions):
        mine = ", ".join(f"p{(number + more) % pools}" for more in range(1 + number % 3))
        parts.append(
            f"  - {{name: part{number}, pools: [{mine}]{', default: true' if number == 0 else ''}}}\n"
        )
    return "".join((*parts, *_people(users)))


def _spines(nodes: int) -> Iterator[str]:
    starts = range(1, nodes + 1, UNDER_LEAF)
    leaves = [f'leaf{n}: "n[{first}-{min(first + UNDER_LEAF - 1, nodes)}]"' for n, first in enumerate(starts)]
    for number, first in enumerate(range(0, len(leaves), UNDER_SPINE)):
        yield f"        spine{number}: {{{', '.join(leaves[first : first + UNDER_SPINE])}}}\n"


def _addresses(first: int, count: int) -> str:
    """Return a hostlist of addresses: 250 of each network 10.X.Y.0/24."""
    found: dict[str, list[int]] = {}
    for n in range(first, first + count):
        found.setdefault(f"10.{n // 62_500}.{n // 250 % 250}", []).append(n % 250 + 1)
    return ",".join(f"{net}.[{min(hosts)}-{max(hosts)}]" for net, hosts in found.items())


def _people(users: int) -> Iterator[str]:
    """Three levels of accounts: one, twenty below it, and one for each ten users."""
    if not users:
        return
    yield "users:\n"
    yield from (f"  - {{name: user{n}, uid: {10_000 + n}}}\n" for n in range(users))
    yield "accounts:\n  - {name: all}\n"
    yield from (f"  - {{name: group{n}, parent: all}}\n" for n in range(20))
    for team in range(users // 10):
        mine = ", ".join(f"user{team * 10 + n}" for n in range(10))
        yield f"  - {{name: team{team}, parent: group{team % 20}, users: [{mine}]}}\n"
