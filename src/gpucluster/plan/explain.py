"""What nobody wrote: each default that the plan took and each fact that it derived, with the reason."""

from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.plan import defaults, explain_aws, explain_care, explain_hosts, explain_kubernetes
from gpucluster.plan.model import ClusterPlan, Pool
from gpucluster.plan.note import Note
from gpucluster.plan.note import of_default as _default
from gpucluster.spec import ClusterSpec
from gpucluster.spec.model import Pool as PoolSpec
from gpucluster.spec.pools import of_slurm


def explain(spec: ClusterSpec, catalog: Catalog, plan: ClusterPlan) -> tuple[Note, ...]:
    """Every decision, in the order in which the plan shows them."""
    if plan.hosts is not None:
        return tuple(explain_hosts.explain(spec, plan))
    pools = (
        note
        for wish, pool in zip(of_slurm(spec), plan.pools, strict=True)
        for note in _pool(wish, pool, catalog)
    )
    slurm = (
        ()
        if plan.slurm is None
        else (
            *_leaves(plan),
            *explain_aws.of_head(spec, plan),
            *explain_aws.of_access(plan),
            *explain_aws.of_storage(spec, plan),
            *pools,
            *_money(spec, catalog, plan),
            *_partitions(spec, plan),
            *_times(plan),
        )
    )
    part = plan.kubernetes
    kubernetes = () if part is None else explain_kubernetes.explain(spec, catalog, part)
    return (*explain_aws.of_network(spec, plan), *slurm, *kubernetes, *_accepted(spec))


def _leaves(plan: ClusterPlan) -> Iterator[Note]:
    leaves = ", ".join(leaf.name for leaf in plan.leaves)
    yield Note(
        "leaves", leaves, "one a zone and no common switch: Slurm places a job in one zone or not at all"
    )


def _pool(wish: PoolSpec, pool: Pool, catalog: Catalog) -> Iterator[Note]:
    at = f"pools[{pool.name}]"
    if wish.idle is None:
        yield _default(f"{at}.idle", pool.idle_s, defaults.IDLE_S)
    if wish.boot_timeout is None:
        yield _default(f"{at}.boot_timeout", pool.boot_timeout_s, defaults.BOOT_TIMEOUT_S)
    for source, written in zip(pool.sources, wish.capacity, strict=True):
        if written.zones is None:
            zones = ", ".join(source.zones)
            yield Note(
                f"{at}.capacity[{source.position}].zones", zones, "all zones of the network, in its order"
            )
        if written.max is None:
            yield Note(f"{at}.capacity[{source.position}].max", str(pool.max), "the pool's own max")
    for span in pool.slots:
        yield Note(
            f"{at}.slots[{span.zone}]",
            span.hostlist,
            f"max {pool.max} in each zone; live at once over all zones",
        )
    yield from explain_aws.of_pool(wish, pool)
    yield from explain_care.of_pool(wish, pool)
    yield _memory(at, pool, catalog)
    shape = pool.shape
    layout = f"{shape.sockets} x {shape.cores_per_socket} x {shape.threads_per_core}"
    yield Note(
        f"{at}.cpus", f"{shape.cpus} ({layout})", "sockets x cores x threads of the pool's least machine"
    )


def _money(spec: ClusterSpec, catalog: Catalog, plan: ClusterPlan) -> Iterator[Note]:
    yield from explain_care.of_prices(plan, catalog.prices)
    yield from explain_care.of_budget(spec.budget, plan.budget)


def _memory(at: str, pool: Pool, catalog: Catalog) -> Note:
    machines = {name for source in pool.sources for name in source.machines}
    nameplate = min(catalog.machines[name].memory_mib for name in machines)
    rule = defaults.MEMORY_PERCENT
    reason = f"{rule.value:g} % of the nameplate's {nameplate} MiB: {rule.reason}"
    return Note(f"{at}.memory", f"{pool.shape.real_memory_mib} MiB", reason)


def _partitions(spec: ClusterSpec, plan: ClusterPlan) -> Iterator[Note]:
    for wish, partition in zip(spec.partitions, plan.partitions, strict=True):
        if wish.max_time is None:
            yield Note(f"partitions[{partition.name}].max_time", "no limit", "none was wished")
    if not any(partition.default for partition in plan.partitions):
        yield Note("partitions", "no default", "none was wished: a job must name its partition")


def _accepted(spec: ClusterSpec) -> Iterator[Note]:
    for accept in spec.accept:
        yield Note(f"accept[{accept.id}]", "silent", accept.because)


def _times(plan: ClusterPlan) -> Iterator[Note]:
    times = plan.times
    rows = (
        ("suspend_timeout", times.suspend_timeout_s, defaults.SUSPEND_TIMEOUT_S),
        ("cred_expire", times.cred_expire_s, defaults.CRED_EXPIRE_S),
        ("poll", times.poll_s, defaults.POLL_S),
        ("reconcile", times.reconcile_s, defaults.RECONCILE_S),
        ("heartbeat", times.heartbeat_s, defaults.HEARTBEAT_S),
        ("orphan_grace", times.orphan_grace_s, defaults.ORPHAN_GRACE_S),
        ("refusal", times.refusal_s, defaults.REFUSAL_S),
        ("refusal_max", times.refusal_max_s, defaults.REFUSAL_MAX_S),
        ("self_end", times.self_end_s, defaults.SELF_END_S),
        ("lease", times.lease_s, defaults.LEASE_S),
        ("storm", times.storm_s, defaults.STORM_S),
        ("prolog", times.prolog_s, defaults.PROLOG_S),
    )
    for name, seconds, rule in rows:
        yield _default(f"times.{name}", seconds, rule)
    for name, rule in (
        ("resume_margin", defaults.RESUME_MARGIN_S),
        ("suspend_backstop", defaults.SUSPEND_BACKSTOP_S),
    ):
        yield _default(f"slurm.{name}", rule.value, rule)
    for name, rule in (
        ("launched_at_once", defaults.LAUNCHED_AT_ONCE),
        ("launched_a_second", defaults.LAUNCHED_A_SECOND),
    ):
        yield Note(f"slurm.{name}", f"{rule.value:g} machines", rule.reason)
    tolerance = defaults.NODE_REG_MEM_PERCENT
    yield Note("slurm.node_reg_mem_percent", f"{tolerance.value:g} %", tolerance.reason)
