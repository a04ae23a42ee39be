"""Plan and bindings to what must be found where. Pure.

A target is a machine (`head`, a node's name), a seat (`POOL/1`: the first node of validation's own job in that pool,
whichever Slurm picks), a pool, a partition, or `cloud`. Targets do not change from run to run, so that a history of
results can be kept by them.
"""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpucluster.checks import cloud, files, hardware, jobs, lives, machine, pairs, partitions, slurm
from gpucluster.checks.model import Check
from gpucluster.checks.table import CHECKS
from gpucluster.plan import names
from gpucluster.plan.model import Bindings, ClusterPlan, Partition, Pool, there
from gpucluster.validate import wants

HEAD, CLOUD = "head", "cloud"
SEATS = 2  # nodes of a pool's job
SLACK_S = 30.0  # above what the plan's times add up to: the polls of slurmctld, of the daemon and of ours
STATIC_START_S = 60.0  # a job on nodes that are up starts within this, or others use them
CONF_CACHE = "/run/slurm/conf"  # where a configless slurmd keeps what slurmctld sent
ALWAYS = (  # data loaders and NCCL live in /dev/shm
    machine.MountWant(path="/", types=(), source=""),
    machine.MountWant(path="/dev/shm", types=("tmpfs",), source=""),  # noqa: S108  asked about, not written to
)
STATE_SAVE, NODE_SPOOL = "/var/spool/slurmctld", "/var/spool/slurmd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One check at one target, with what it must find: a value of the check's own `want` type."""

    check: str
    target: str
    want: Any

    @property
    def id(self) -> str:
        """`gpu.count[h200/1]`"""
        return f"{self.check}[{self.target}]"

    @property
    def of(self) -> Check[Any, Any]:
        """The row of the table."""
        return CHECKS[self.check]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """The job that validation runs in a pool: on fresh nodes where the pool is elastic."""

    pool: str
    partition: str
    nodes: int
    gpus: int
    exclude: str  # hostlist of the partition's other pools
    leaves: tuple[tuple[str, ...], ...]  # its nodes by switch: a job has one of them
    elastic: bool
    start_s: float  # it runs within this
    life_s: float  # it ends by itself after this


def expectations(
    plan: ClusterPlan,
    bindings: Bindings | None = None,
    *,
    up: Sequence[str] = (),
    bundle: str = "",
    folders: bool = False,
) -> tuple[Expectation, ...]:
    """All that must hold, in the order in which it is asked. `up` are elastic nodes that happen to be up, `bundle` the
    digest of the plan's, `folders`: shared file systems are a rehearsal's, of neither AWS's type nor its source.

    A cloud's nodes may be off, so they are asked while a job of ours holds them; hosts must be up, and are all asked.
    """
    plan = _slurms(plan)
    steady = [node for pool in plan.pools for node in pool.always_on()]
    every = (
        *_head(plan, bundle),
        *(e for node in (*steady, *sorted(set(up) - set(steady))) for e in _node(plan, node)),
        *_gangs(plan),
        *_seats(plan),
        *_jobs(plan),
        *_cloud(plan, bindings),
    )
    return tuple(map(_of_any_kind, every)) if folders else every


def gangs(plan: ClusterPlan) -> tuple[Gang, ...]:
    """One job a pool, in the first partition that has the pool."""
    found = ((pool, _partition_of(plan, pool)) for pool in plan.pools)
    return tuple(_gang(plan, pool, partition) for pool, partition in found if partition is not None)


def seats(gang: Gang) -> tuple[str, ...]:
    """The targets that the job's nodes are."""
    return tuple(f"{gang.pool}/{n}" for n in range(1, gang.nodes + 1))


def select(all_of: Sequence[Expectation], *, tier: int, only: Sequence[str] = ()) -> tuple[Expectation, ...]:
    """Those of the tier and below; with `only`, those of these checks or ids (`gpu.count`, `disk[head]`)."""
    known = {e.check for e in all_of} | {e.id for e in all_of} | CHECKS.keys()
    for word in sorted(set(only) - known):
        near = difflib.get_close_matches(word[:200], sorted(known), n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(CHECKS)}"
        raise ValueError(f"no check is called {word[:200]}{hint}")
    kept = (e for e in all_of if not only or e.check in only or e.id in only)
    return tuple(e for e in kept if needed_tier(e) <= tier)


def needed_tier(expectation: Expectation) -> int:
    """A seat is there only while a job of ours holds it."""
    return max(expectation.of.tier, 1 if "/" in expectation.target else 0)


def _slurms(plan: ClusterPlan) -> ClusterPlan:
    """The plan without pools that Slurm does not have."""
    there(plan.slurm)
    used = {name for partition in plan.partitions for name in partition.pools}
    return replace(plan, pools=tuple(pool for pool in plan.pools if pool.name in used))


def _head(plan: ClusterPlan, bundle: str) -> Iterator[Expectation]:
    head = there(plan.head)
    units = ("munge", "slurmctld", "gpucluster-agent")
    yield _expect("svc.active", HEAD, machine.Units(units=_units(units, plan, daemon=True)))
    yield _expect("auth.rt", HEAD, pairs.Munge(alone=True))
    yield _expect("ctl.ping", HEAD, slurm.Controllers(hosts=(head.name,)))
    if plan.aws is not None:
        url = f"http://{head.address}:{head.registration_port}/v1/node"
        yield _expect("elastic.ping", HEAD, cloud.Daemon(url=url))
    yield _expect("cfg.same", HEAD, files.Files(sha256=wants.slurm_files(plan, names.SLURM_ETC)))
    if bundle:
        yield _expect("cfg.bundle", HEAD, files.Applied(link=names.BUNDLE_DIR, digest=bundle))
    yield _expect("nodes.state", HEAD, wants.nodes(plan))
    yield _expect(
        "nodes.hw", HEAD, slurm.HardwareLines(lines=tuple(wants.hardware_line(pool) for pool in plan.pools))
    )
    yield _expect("part.up", HEAD, partitions.Partitions(partitions=tuple(wants.partition_wants(plan))))
    yield from _any_machine(plan, HEAD, STATE_SAVE)


def _node(plan: ClusterPlan, node: str) -> Iterator[Expectation]:
    pool = plan.pool_of(node)
    return iter(()) if pool is None else _pool_node(plan, node, pool)


def _pool_node(plan: ClusterPlan, target: str, pool: Pool) -> Iterator[Expectation]:
    units = ("munge", "slurmd", "gpucluster-agent")
    yield _expect("svc.active", target, machine.Units(units=_units(units, plan, daemon=False)))
    yield _expect("cfg.same", target, files.Files(sha256=wants.slurm_files(plan, CONF_CACHE)))
    yield _expect("auth.rt", target, pairs.Munge())
    yield _expect("slurmd.ping", target, slurm.Slurmd())
    yield _expect("clock.sync", target, machine.Clock())
    if not _overridden(plan):
        yield _expect("hw.real", target, wants.board(pool))
    if pool.shape.gpu_count:
        yield _expect("gpu.count", target, hardware.Gpus(count=pool.shape.gpu_count))
    yield from _any_machine(plan, target, NODE_SPOOL)


def _any_machine(plan: ClusterPlan, target: str, spool: str) -> Iterator[Expectation]:
    if plan.aws is not None:
        yield _expect("imds.guard", target, machine.Guard())
    mounts = (*ALWAYS, *wants.mounts(plan, on_head=target == HEAD))
    yield _expect("fs.mount", target, machine.Mounts(mounts=mounts))
    yield _expect("disk", target, machine.Disks(paths=("/", "/tmp", spool, *wants.scratch(plan))))  # noqa: S108  asked about, not written to


def _gangs(plan: ClusterPlan) -> Iterator[Expectation]:
    for gang in gangs(plan):
        yield _expect("job.multi", gang.pool, jobs.Gang(nodes=gang.nodes))


def _seats(plan: ClusterPlan) -> Iterator[Expectation]:
    """Nodes that may be off are asked in our own job."""
    pools = {pool.name: pool for pool in plan.pools}
    for gang in gangs(plan):
        if gang.elastic:
            for seat in seats(gang):
                yield from _pool_node(plan, seat, pools[gang.pool])


def _jobs(plan: ClusterPlan) -> Iterator[Expectation]:
    leaf = {node: leaf.name for leaf in plan.leaves for span in leaf.slots for node in span}
    pools = {pool.name: pool for pool in plan.pools}
    for gang in gangs(plan):
        if leaf:
            mine = {node: leaf[node] for node in wants.slots_of(pools[gang.pool]) if node in leaf}
            yield _expect("topo.place", gang.pool, jobs.Leaves(leaf=mine, nodes=gang.nodes))
        if gang.gpus:
            yield _expect("job.gres", gang.pool, jobs.Gres(count=gang.gpus, isolated=_isolated(plan)))
    for partition in plan.partitions:
        yield _expect("job.part", partition.name, _small(plan, partition))
    for gang in gangs(plan):
        if gang.elastic:
            yield _expect("burst.rt", gang.pool, _round_trip(plan, pools[gang.pool]))


def _cloud(plan: ClusterPlan, bindings: Bindings | None) -> Iterator[Expectation]:
    if plan.aws is not None:
        subnets = () if bindings is None else tuple(sorted(bindings.subnets.values()))
        logins = () if plan.login is None else plan.login.names
        standby = () if there(plan.head).standby is None else (f"{plan.name}-{names.ROLE_STANDBY}",)
        yield _expect(
            "cloud.orphans",
            CLOUD,
            cloud.Owned(cluster=plan.name, subnets=subnets, beside=(*logins, *standby)),
        )


def _of_any_kind(one: Expectation) -> Expectation:
    if one.check != "fs.mount":
        return one
    mounts = (m if m in ALWAYS else replace(m, types=(), source="") for m in one.want.mounts)
    return replace(one, want=machine.Mounts(mounts=tuple(mounts)))


def _expect(check: str, target: str, want: Any) -> Expectation:
    if type(want) is not CHECKS[check].want:
        raise TypeError(f"{check} wants {CHECKS[check].want.__name__}, not {type(want).__name__}")
    return Expectation(check=check, target=target, want=want)


def _elastic(plan: ClusterPlan, pool: Pool) -> bool:
    """Has the pool nodes that come and go?"""
    return plan.aws is not None and pool.max > pool.min


def _units(units: tuple[str, ...], plan: ClusterPlan, *, daemon: bool) -> tuple[str, ...]:
    ours = () if plan.aws is None else ("gpucluster-guard", *(("gpucluster-elastic",) if daemon else ()))
    return tuple(f"{unit}.service" for unit in (*units, *ours))


def _partition_of(plan: ClusterPlan, pool: Pool) -> Partition | None:
    return next((p for p in plan.partitions if pool.name in p.pools), None)


def _overridden(plan: ClusterPlan) -> bool:
    """slurmd is told to believe slurm.conf, so what it finds says nothing."""
    return any(
        line.key == "SlurmdParameters" and "config_overrides" in (line.value or "")
        for line in there(plan.slurm).lines
    )


def _isolated(plan: ClusterPlan) -> bool:
    """Unless a rehearsal's line turns it off, a job is kept from others' devices."""
    lines = there(plan.slurm).lines
    return not any(line.key == "ConstrainDevices" and line.value == "no" for line in lines)


def _gang(plan: ClusterPlan, pool: Pool, partition: Partition) -> Gang:
    elastic = _elastic(plan, pool)
    others = [p for p in plan.pools if p.name in partition.pools and p.name != pool.name]
    start_s = pool.boot_timeout_s + SLACK_S if elastic else STATIC_START_S
    return Gang(
        pool=pool.name,
        partition=partition.name,
        nodes=min(SEATS, pool.max - pool.min if elastic else len(pool.always_on())),
        gpus=pool.shape.gpu_count,
        exclude=",".join(span.hostlist for other in others for span in other.slots),
        leaves=_leaves(plan, pool),
        elastic=elastic,
        start_s=start_s,
        life_s=start_s + 300,
    )


def _leaves(plan: ClusterPlan, pool: Pool) -> tuple[tuple[str, ...], ...]:
    mine = set(wants.slots_of(pool))
    leaves = (tuple(node for span in leaf.slots for node in span if node in mine) for leaf in plan.leaves)
    return tuple(leaf for leaf in leaves if leaf) or (wants.slots_of(pool),)


def _small(plan: ClusterPlan, partition: Partition) -> jobs.Small:
    pools = [pool for pool in plan.pools if pool.name in partition.pools]
    limit_s = max((p.boot_timeout_s if _elastic(plan, p) else STATIC_START_S) for p in pools) + SLACK_S
    return jobs.Small(
        partition=partition.name, nodes=wants.partition_nodes(plan, partition), limit_s=float(limit_s)
    )


def _round_trip(plan: ClusterPlan, pool: Pool) -> lives.RoundTrip:
    down_s = pool.idle_s + plan.times.suspend_timeout_s + plan.times.reconcile_s + SLACK_S
    return lives.RoundTrip(up_s=float(pool.boot_timeout_s), down_s=float(down_s))
