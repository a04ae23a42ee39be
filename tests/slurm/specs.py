"""Specs that a seed makes: pools, partitions, sizes, topologies and limits of clusters on AWS and on hosts."""

import random
from collections.abc import Iterator

from gpucluster import catalog
from gpucluster.plan.model import SlurmOnAws, SlurmOnHosts, SlurmPlan
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
MACHINES = (
    "p5.48xlarge", "p5en.48xlarge", "p4d.24xlarge", "p4de.24xlarge", "g5.xlarge", "g5.12xlarge", "g5.48xlarge",
    "g6.xlarge", "g6.12xlarge", "g6e.2xlarge", "g6e.24xlarge", "g6e.48xlarge", "p5.4xlarge",
)  # fmt: skip
WITH_ACCOUNTING = 0.2  # of the specs: a plan with a database takes eight times as long to start
TIMES = ("30m", "1h", "90m", "4h", "1d", "36h", "7d", "30d")


RESERVED = (
    "MemSpecLimit: 1024", "MemSpecLimit: 20000", "CoreSpecCount: 1", "CoreSpecCount: 3", 'CpuSpecList: "0"', 'CpuSpecList: "0-2"',
    "CoreSpecCount: 2, MemSpecLimit: 4096",
)  # fmt: skip
LIMITS = ("MaxMemPerNode: 15000", "MaxMemPerNode: 200000", "MaxMemPerCPU: 3000")
SLICES = ("{1g.10gb: 7}", "{3g.40gb: 2}", "{3g.40gb: 1, 2g.20gb: 1, 1g.10gb: 2}")


class Draw(random.Random):
    """The choices of one spec. `sizes`: also what changes the sizes of jobs."""

    def __init__(self, seed: str, *, sizes: bool) -> None:
        super().__init__(seed)
        self.sizes = sizes

    def of_pool(self) -> list[str]:
        """Fields that reserve cores or memory of its nodes, or slice their GPUs."""
        if not self.sizes:
            return []
        found = [f"extra: {{{self.choice(RESERVED)}}}"] if self.random() < 0.6 else []
        return found + ([f"sharing: {{mig: {self.choice(SLICES)}}}"] if self.random() < 0.3 else [])

    def of_partition(self) -> list[str]:
        """Fields that limit a job on a node."""
        if not self.sizes:
            return []
        found = [f"extra: {{{self.choice(LIMITS)}}}"] if self.random() < 0.4 else []
        return found + ([f"max_cpus_per_node: {self.choice((2, 8, 32))}"] if self.random() < 0.2 else [])


def generated(version: str, count: int, *, sizes: bool = False) -> Iterator[tuple[str, SlurmPlan]]:
    """`count` plans with their texts. A text that the rules refuse is left out, and the next seed takes its place."""
    seed = found = 0
    while found < count:
        draw = Draw(f"{version} {seed}", sizes=sizes)
        text = on_hosts(draw, version) if seed % 3 == 2 else on_aws(draw, version)
        seed += 1
        read = inspect_text(text, "generated.yaml", catalog.load())
        if read.spec is None:
            assert seed < (12 if sizes else 4) * count + 40, (
                f"the generator's specs are refused:\n{text}\n{read.problems}"
            )
            continue
        plan = resolve(read.spec, catalog.load())
        assert isinstance(plan, SlurmOnAws | SlurmOnHosts)
        found += 1
        yield text, plan


def on_aws(draw: Draw, version: str) -> str:
    zones = draw.sample(ZONES, draw.randint(1, 3))
    names = [f"{draw.choice(('a', 'gpu', 'h-x', 'z9'))}{i}" for i in range(draw.randint(1, 4))]
    pools = [_pool(draw, name) for name in names]
    lines, site = _accounting(draw)
    login = "login: {machine: m7i.xlarge, count: 1}\n" if draw.random() < 0.3 else ""
    return (
        f"schema: 1\nname: gen{draw.randint(1, 999)}\n"
        f"aws: {{region: us-east-1, network: {{cidr: 10.{draw.randint(0, 200)}.0.0/16, zones: [{', '.join(zones)}]}}}}\n"
        f"{_slurm(draw, version)}{lines}head:\n  machine: m7i.2xlarge\n  state: 50GiB\n{login}"
        f"pools:\n{''.join(pools)}{_partitions(draw, names)}{site}"
    )


def on_hosts(draw: Draw, version: str) -> str:
    counts = [draw.randint(1, 12) for _ in range(draw.randint(1, 3))]
    names = [f"p{i}" for i in range(len(counts))]
    machines, pools, first = "", "", 11
    for i, (name, count) in enumerate(zip(names, counts, strict=True)):
        sockets, cores, threads = (
            draw.choice((1, 2)),
            draw.choice((8, 24, 48, 56, 64)),
            draw.choice((1, 2)),
        )
        gpus = draw.choice((0, 1, 2, 4, 8))
        of_gpu = ", memory: 80GiB" if draw.sizes else ""
        part = (
            f", gpus: {{model: {draw.choice(('h100', 'a100', 'l40s'))}, count: {gpus}{of_gpu}}}"
            if gpus
            else ""
        )
        machines += f"  m{i}: {{sockets: {sockets}, cores_per_socket: {cores}, threads_per_core: {threads}, memory: {draw.choice((64, 256, 2000))}GiB{part}}}\n"
        hosts = f"{name}n[01-{count:02}]" if count > 1 else f"{name}n01"
        at = f"192.0.2.[{first}-{first + count - 1}]" if count > 1 else f"192.0.2.{first}"
        more = "".join(f", {words}" for words in draw.of_pool())
        pools += f'  - {{name: {name}, machine: m{i}, hosts: "{hosts}", addresses: "{at}"{more}}}\n'
        first += count
    topology = ""
    if draw.random() < 0.6:
        leaves = ", ".join(
            f'leaf{i}: "{n}n[01-{c:02}]"' if c > 1 else f"leaf{i}: {n}n01"
            for i, (n, c) in enumerate(zip(names, counts, strict=True))
        )
        topology = f"  topology: {{tree: {{spine: {{{leaves}}}}}}}\n"
    lines, site = _accounting(draw)
    return (
        f"schema: 1\nname: site{draw.randint(1, 999)}\n"
        "hosts: {ssh: {user: admin}, head: {name: ctl0, address: 192.0.2.10}}\n"
        f"{_slurm(draw, version)}{lines}{topology}machines:\n{machines}pools:\n{pools}{_partitions(draw, names)}{site}"
    )


def _slurm(draw: Draw, version: str) -> str:
    lines = [f'slurm:\n  version: "{version}"\n']
    if draw.random() < 0.3:
        lines.append("  private_tmp: false\n")
    if draw.random() < 0.3:
        lines.append("  licenses: {matlab: 3, ansys: 10}\n")
    return "".join(lines)


PEOPLE = ("ada", "emmy", "mary", "sofia", "lise", "rosa")


def _accounting(draw: Draw) -> tuple[str, str]:
    """The lines of `slurm` and the sections of a site with a database, QOS and a tree of accounts; mostly none."""
    if draw.random() > WITH_ACCOUNTING:
        return "", ""
    by = draw.choice(
        (
            "  preemption: {by: qos, mode: requeue, exempt: 10m}\n",
            "  preemption: {by: qos, mode: cancel}\n",
            "",
        )
    )
    qos = [f"  - {{name: normal, priority: {draw.randint(0, 100)}}}\n"]
    for i in range(draw.randint(1, 3)):
        preempts = ", preempts: [normal]" if by and draw.random() < 0.7 else ""
        qos.append(f"  - {{name: q{i}, priority: {draw.choice((0, 7, 1000))}{preempts}{_limits(draw)}}}\n")
    users = "".join(f"  - {{name: {name}, uid: {uid}}}\n" for uid, name in enumerate(PEOPLE, start=5001))
    sections = f"users:\n{users}qos:\n{''.join(qos)}accounts:\n{_accounts(draw, ['normal', *(f'q{n}' for n in range(len(qos) - 1))])}"
    return f"  accounting: {{database: local}}\n{by}", sections


def _accounts(draw: Draw, qos: list[str]) -> str:
    """A tree of accounts. One with hours of its own has one QOS and no account below it."""
    rows, parents = list[str](), list[str]()
    for i, person in enumerate(draw.sample(PEOPLE, draw.randint(1, len(PEOPLE)))):
        hours = draw.random() < 0.2
        may = draw.sample(qos, 1 if hours else draw.randint(1, len(qos)))
        own = f", qos: [{', '.join(may)}]" if hours or draw.random() < 0.5 else ""
        parent = f", parent: {draw.choice(parents)}" if parents and draw.random() < 0.6 else ""
        limits = ", limits: {gpus: 32, gpu_hours_per_month: 900}" if hours else _limits(draw)
        share = draw.choice((1, 3, 40))
        rows.append(f"  - {{name: acc{i}{parent}, share: {share}{own}, users: [{person}]{limits}}}\n")
        if not hours:
            parents.append(f"acc{i}")
    return "".join(rows)


def _limits(draw: Draw) -> str:
    chosen = [one for one in ("gpus: 64", "gpus_per_user: 16", "cpus_per_user: 96") if draw.random() < 0.3]
    return f", limits: {{{', '.join(chosen)}}}" if chosen else ""


def _pool(draw: Draw, name: str) -> str:
    machine, most = draw.choice(MACHINES), draw.choice((1, 2, 7, 16, 64, 300))
    least = draw.choice((0, 0, 0, 1))
    idle = f"    idle: {draw.choice(('1m', '5m', '2h'))}\n" if draw.random() < 0.7 else ""
    spares = "    spares: 1\n" if most > 2 and draw.random() < 0.3 else ""
    boot = f"    boot_timeout: {draw.choice(('10m', '20m', '45m'))}\n" if draw.random() < 0.5 else ""
    markets = draw.choice((("spot",), ("on-demand",), ("spot", "on-demand")))
    sources = "".join(f"      - {{from: {market}, machines: [{machine}]}}\n" for market in markets)
    more = "".join(f"    {words}\n" for words in draw.of_pool())
    return f"  - name: {name}\n    nodes: {{min: {least}, max: {most}}}\n{idle}{spares}{boot}{more}    capacity:\n{sources}"


def _partitions(draw: Draw, names: list[str]) -> str:
    chosen: list[str] = []
    for i, name in enumerate(names):
        pools = [name, *draw.sample([n for n in names if n != name], draw.randint(0, len(names) - 1))]
        fields = [f"name: part{i}", f"pools: [{', '.join(pools)}]"]
        if i == 0 and draw.random() < 0.8:
            fields.append("default: true")
        if draw.random() < 0.8:
            fields.append(f"max_time: {draw.choice(TIMES)}")
        elif draw.random() < 0.5:
            fields.append("default_time: 2h")
        if draw.random() < 0.3:
            fields.append(f"tier: {draw.choice((1, 10, 100))}")
        if draw.random() < 0.3:
            fields.append("exclusive: true")
        fields += draw.of_partition()
        chosen.append(f"  - {{{', '.join(fields)}}}\n")
    return "partitions:\n" + "".join(chosen)
