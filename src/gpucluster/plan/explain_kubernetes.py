"""Kubernetes' part of the explanation: headroom, shares, and what pods get that nobody wished."""

from collections.abc import Iterator, Mapping

from gpucluster.catalog import Catalog
from gpucluster.plan import defaults_kubernetes as kube
from gpucluster.plan.defaults import Default
from gpucluster.plan.kubernetes import (
    CPU,
    HUGE_PAGES,
    MEMORY,
    Kubernetes,
    NodePool,
    PodSecurity,
    Share,
    Team,
    quantity,
)
from gpucluster.plan.note import Note
from gpucluster.spec import ClusterSpec
from gpucluster.spec.model import Pool as PoolSpec
from gpucluster.spec.pools import of_kubernetes
from gpucluster.spec.units import write_duration


def explain(spec: ClusterSpec, catalog: Catalog, plan: Kubernetes) -> Iterator[Note]:
    """Every decision of the part, pools first."""
    for wish, pool in zip(of_kubernetes(spec), plan.pools, strict=True):
        yield from _pool(wish, pool, catalog)
    for team in plan.teams:
        yield from _team(team)
    for share in plan.spare:
        if any(share.nominal.values()):
            why = "what no team was promised: the cohort lends it to teams that may borrow"
            yield Note(f"kubernetes.spare[{share.pool}]", _amounts(share.nominal), why)
    for name, value, rule in _PODS:
        yield Note(f"workloads.{name}", value, rule.reason)


def _pool(wish: PoolSpec, pool: NodePool, catalog: Catalog) -> Iterator[Note]:
    at = f"pools[{pool.name}]"
    yield from _cpu(at, pool)
    yield from _memory(at, wish, pool, catalog)
    if HUGE_PAGES in pool.allocatable:
        pages = quantity(HUGE_PAGES, pool.allocatable[HUGE_PAGES])
        yield Note(f"{at}.hugepages-2Mi", pages, kube.HUGE_PAGES_MIB.reason)
    if pool.min:
        why = "the nodes that stand always: one zone, the first of the first source, so that a gang has one"
        yield Note(f"{at}.zone", pool.zone, why)
    if pool.elastic:
        why = f"max {pool.max} less the {pool.min} that stand: they come when pods wait, and end empty"
        yield Note(f"{at}.elastic", str(pool.elastic), why)
    if pool.elastic and wish.idle is None:
        yield Note(f"{at}.idle", write_duration(pool.idle_s), kube.IDLE_S.reason)
    words = ", ".join(level.word for level in pool.levels) or "none"
    why = "the levels at which a gang can ask to stay together: Kueue counts on nodes that stand, and that tell each level"
    yield Note(f"{at}.topology", words, why)


def _cpu(at: str, pool: NodePool) -> Iterator[Note]:
    least = f"at least {quantity(CPU, int(kube.CPU_LEAST_MILLI.value))} ({kube.CPU_LEAST_MILLI.reason})"
    why = f"{pool.vcpus} less {kube.CPU_PERCENT.value:g} % for {kube.CPU_PERCENT.reason}; {least}"
    yield Note(f"{at}.cpu", quantity(CPU, pool.allocatable[CPU]), why)


def _memory(at: str, wish: PoolSpec, pool: NodePool, catalog: Catalog) -> Iterator[Note]:
    nameplate = min(catalog.machines[name].memory_mib for source in wish.capacity for name in source.machines)
    daemons, least = kube.DAEMONS_MEMORY_PERCENT, kube.DAEMONS_MEMORY_LEAST_MIB
    why = (
        f"{kube.MEMORY_PERCENT.value:g} % of the nameplate's {nameplate} MiB: {kube.MEMORY_PERCENT.reason}; "
        f"less {daemons.value:g} % for {daemons.reason}; at least {least.value:g} MiB ({least.reason})"
    )
    if HUGE_PAGES in pool.allocatable:
        aside = kube.HUGE_PAGES_SET_ASIDE_MIB
        why = f"{why}; less {aside.value:g} MiB: {aside.reason}"
    yield Note(f"{at}.memory", quantity(MEMORY, pool.allocatable[MEMORY]), why)


def _team(team: Team) -> Iterator[Note]:
    at = f"kubernetes.teams[{team.name}]"
    for share in team.shares:
        yield Note(f"{at}.share[{share.pool}]", _amounts(share.nominal), _why(share))
    locked = team.pod_security is PodSecurity.PRIVILEGED
    why = "EFA's memory is locked (IPC_LOCK), which no milder level allows; a policy forbids the rest"
    why = why if locked else "nothing that its pods need is forbidden by it"
    yield Note(f"{at}.pod_security", team.pod_security.value, why)


def _why(share: Share) -> str:
    most = {r: amount for r, amount in share.borrow.items() if amount}
    more = f"; may borrow {_amounts(most)} more" if most else "; borrows nothing"
    return f"its quota, and the rest of the nodes in proportion to it{more}"


def _amounts(amounts: Mapping[str, int]) -> str:
    return (
        ", ".join(f"{quantity(r, amount)} {r}" for r, amount in sorted(amounts.items()) if amount)
        or "nothing"
    )


_PODS: tuple[tuple[str, str, Default], ...] = (
    ("shm", f"memory / {kube.SHM_PART.value:g}", kube.SHM_PART),
    ("shm_most", f"{kube.SHM_MOST_MIB.value:g}Mi", kube.SHM_MOST_MIB),
    ("port", f"{kube.SERVICE_PORT.value:g}", kube.SERVICE_PORT),
    ("request.cpu", quantity(CPU, int(kube.REQUEST_CPU_MILLI.value)), kube.REQUEST_CPU_MILLI),
    ("request.memory", quantity(MEMORY, int(kube.REQUEST_MEMORY_MIB.value)), kube.REQUEST_MEMORY_MIB),
    ("root_disk", f"{kube.ROOT_DISK_GIB.value:g}Gi", kube.ROOT_DISK_GIB),
    ("volume", f"{kube.VOLUME_GIB.value:g}Gi", kube.VOLUME_GIB),
    ("restarts", f"{kube.RESTARTS.value:g}", kube.RESTARTS),
)
