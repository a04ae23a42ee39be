"""Explain a plan: each default that the plan took and each fact that it derived, with the reason."""

from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.plan import defaults
from gpucluster.plan.defaults import Note
from gpucluster.plan.defaults import of_default as _default
from gpucluster.plan.explain import accounting, aws, hosts, operations, partitions, topology
from gpucluster.plan.explain import kubernetes as explain_kubernetes
from gpucluster.plan.model import AwsPool, ClusterPlan, SlurmOnAws
from gpucluster.spec import ClusterSpec
from gpucluster.spec.model import Pool as PoolSpec
from gpucluster.spec.part import require
from gpucluster.spec.pools import of_slurm


def explain(spec: ClusterSpec, catalog: Catalog, plan: ClusterPlan) -> tuple[Note, ...]:
    """Every decision, in the order of the plan."""
    if plan.aws is None:
        return tuple(hosts.explain(spec, plan))
    slurm = () if plan.slurm is None else _slurm(spec, catalog, plan)
    part = plan.kubernetes
    kubernetes = () if part is None else explain_kubernetes.explain(spec, catalog, part)
    return (*aws.of_network(spec, plan), *slurm, *kubernetes, *_accepted(spec))


def _slurm(spec: ClusterSpec, catalog: Catalog, plan: SlurmOnAws) -> Iterator[Note]:
    yield from topology.on_aws(plan)
    yield from aws.of_head(spec, plan)
    yield from operations.of_isolation(require(spec.slurm), plan)
    yield from operations.of_settings(plan)
    yield from operations.of_reservations(plan)
    yield from operations.of_containers(plan)
    yield from operations.of_software(plan)
    yield from accounting.of_accounting(spec, plan)
    yield from operations.of_health(spec.health, plan)
    yield from aws.of_access(spec.login, plan)
    yield from aws.of_storage(spec, plan)
    for requested, pool in zip(of_slurm(spec), plan.pools, strict=True):
        yield from _pool(requested, pool, catalog)
    yield from _money(spec, catalog, plan)
    yield from partitions.of_partitions(spec, plan)
    yield from _times(plan)


def _pool(requested: PoolSpec, pool: AwsPool, catalog: Catalog) -> Iterator[Note]:
    at = f"pools[{pool.name}]"
    if requested.idle is None:
        yield _default(f"{at}.idle", pool.idle_s, defaults.IDLE_S)
    if requested.boot_timeout is None:
        yield _default(f"{at}.boot_timeout", pool.boot_timeout_s, defaults.BOOT_TIMEOUT_S)
    for source, written in zip(pool.sources, requested.capacity, strict=True):
        if written.zones is None:
            zones = ", ".join(source.zones)
            yield Note(
                f"{at}.capacity[{source.position}].zones",
                zones,
                "all zones of the network, in the order of the spec",
            )
        if written.max is None:
            yield Note(f"{at}.capacity[{source.position}].max", str(pool.max), "the `max` of the pool")
    for span in pool.slots:
        yield Note(
            f"{at}.slots[{span.zone}]",
            span.hostlist,
            f"node names for {pool.max} nodes in each zone; at most {pool.max} of all zones are up at once",
        )
    yield from aws.of_pool(requested, pool)
    yield from operations.of_pool(requested, pool)
    yield from operations.of_sharing(pool)
    yield from operations.of_environment(pool)
    yield from partitions.of_nodes(pool)
    yield _memory(at, pool, catalog)
    shape = pool.shape
    layout = f"{shape.sockets} x {shape.cores_per_socket} x {shape.threads_per_core}"
    yield Note(
        f"{at}.cpus",
        f"{shape.cpus} ({layout})",
        "sockets x cores x threads of the pool's smallest machine type",
    )


def _money(spec: ClusterSpec, catalog: Catalog, plan: SlurmOnAws) -> Iterator[Note]:
    yield from operations.of_prices(plan, catalog.prices)
    yield from operations.of_budget(spec.budget, plan.budget)


def _memory(at: str, pool: AwsPool, catalog: Catalog) -> Note:
    machines = {name for source in pool.sources for name in source.machines}
    nameplate = min(catalog.machines[name].memory_mib for name in machines)
    rule = defaults.MEMORY_PERCENT
    reason = f"{rule.value:g} % of the type's {nameplate} MiB: {rule.reason}"
    return Note(f"{at}.memory", f"{pool.shape.real_memory_mib} MiB", reason)


def _accepted(spec: ClusterSpec) -> Iterator[Note]:
    for accept in spec.accept:
        end = "" if accept.until is None else f" until {accept.until}"
        yield Note(f"accept[{accept.id}]", f"silent{end}", accept.because)


def _times(plan: SlurmOnAws) -> Iterator[Note]:
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
        ("self_termination", times.self_termination_s, defaults.SELF_TERMINATION_S),
        ("lease", times.lease_s, defaults.LEASE_S),
        ("storm", times.storm_s, defaults.STORM_S),
        ("prolog", times.prolog_s, defaults.PROLOG_S),
    )
    for name, seconds, rule in rows:
        yield _default(f"times.{name}", seconds, rule)
    for name, rule in (
        ("resume_margin", defaults.RESUME_MARGIN_S),
        ("suspend_backstop", defaults.SUSPEND_BACKSTOP_S),
        ("slurmd_timeout", defaults.SLURMD_TIMEOUT_S),
        ("prolog_limit", defaults.PROLOG_LIMIT_S),
        ("waiter_margin", defaults.WAITER_MARGIN_S),
    ):
        yield _default(f"slurm.{name}", rule.value, rule)
    for name, rule in (
        ("launched_at_once", defaults.LAUNCHED_AT_ONCE),
        ("launched_a_second", defaults.LAUNCHED_A_SECOND),
    ):
        yield Note(f"slurm.{name}", f"{rule.value:g} machines", rule.reason)
    tolerance = defaults.NODE_REG_MEM_PERCENT
    yield Note("slurm.node_reg_mem_percent", f"{tolerance.value:g} %", tolerance.reason)
