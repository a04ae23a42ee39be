"""Decisions of the Kubernetes part: reserve of a node, shares, and the pod resources that the spec does not set."""

from collections.abc import Iterator, Mapping

from gpucluster.catalog import Catalog
from gpucluster.plan import kubernetes as kube
from gpucluster.plan import names
from gpucluster.plan.defaults import Default, Note
from gpucluster.plan.explain import eks
from gpucluster.plan.model.capacity import Share
from gpucluster.plan.model.eks import EksControlPlane
from gpucluster.plan.model.kubernetes import Kubernetes, NodePool, PodSecurity, Team, Trainer
from gpucluster.plan.model.values import CPU, GANG, HUGE_PAGES, MEMORY, SERVICE, quantity
from gpucluster.plan.node_pools import always_on_zones, in_one_zone
from gpucluster.spec import ClusterSpec
from gpucluster.spec.model import Pool as PoolSpec
from gpucluster.spec.pools import of_kubernetes
from gpucluster.text import format_duration, format_rate


def explain(spec: ClusterSpec, catalog: Catalog, plan: Kubernetes) -> Iterator[Note]:
    """Every decision of the part, pools first."""
    requested = {pool.name: pool for pool in of_kubernetes(spec)}
    for pool in plan.pools:
        yield from _pool(requested[pool.of], pool, catalog)
    if (
        spec.kubernetes is not None
        and spec.kubernetes.node_image is None
        and any(p.launches for p in plan.pools)
    ):
        why = "release of EKS's AL2023 image in the catalog; nodes of one gang have one driver"
        yield Note("kubernetes.node_image", plan.node_image or "latest", why)
    yield from _queueing(spec, plan)
    if isinstance(plan.control_plane, EksControlPlane):
        yield from eks.explain(plan.control_plane, plan.version)
    for team in plan.teams:
        yield from _team(team)
        for one in plan.identities(team.name):
            at = f"kubernetes.teams[{team.name}].service_accounts[{one.service_account}]"
            value = ", ".join(
                (*(f"reads {place}" for place in one.read), *(f"writes {place}" for place in one.write))
            )
            why = "pods of this account reach EKS's Pod Identity agent, and get credentials of a role with these rights; other pods do not reach it"
            yield Note(at, value, why)
    for share in plan.spare:
        if any(share.nominal.values()):
            why = "resources in no team's quota: the cohort lends them to teams that may borrow"
            yield Note(f"kubernetes.spare[{share.pool}]", _amounts(share.nominal), why)
    yield from _monitoring(plan)
    if plan.trainer is not None:
        yield from _trainer(plan.trainer)
    yield from _validation(spec, plan)
    for name, value, rule in _PODS:
        yield Note(f"workloads.{name}", value, rule.reason)


def _validation(spec: ClusterSpec, plan: Kubernetes) -> Iterator[Note]:
    if spec.kubernetes is not None and spec.kubernetes.validation_image is None:
        why = "the pods of `validate` run the image of Kubernetes' own network tests"
        yield Note("kubernetes.validation_image", plan.validation_image, why)


def _trainer(trainer: Trainer) -> Iterator[Note]:
    for one in trainer.runtimes:
        shown = f"kubectl get clustertrainingruntimes --selector {names.LABEL_POOL}={one.pool}"
        why = f"what a pod of a TrainJob gets in the pool: a whole node. The ClusterTrainingRuntime has a new name when it changes: {shown}"
        yield Note(f"kubernetes.trainer.runtimes[{one.pool}]", _amounts(one.resources), why)


def _monitoring(plan: Kubernetes) -> Iterator[Note]:
    monitoring = plan.monitoring
    if monitoring is None:
        return
    known = {one.pool for one in monitoring.prices}
    for one in monitoring.prices:
        at = f"kubernetes.monitoring.prices[{one.pool}].{one.resource}"
        why = "cost of the teams: the on-demand price of the pool's dearest machine, divided by its GPUs or slices"
        yield Note(at, format_rate(one.hour), why)
    for pool in plan.pools:
        if pool.gpu_count and pool.name not in known:
            why = "no price of all its machines in this region is known, so the teams' cost does not include the pool; their GPU hours do"
            yield Note(f"kubernetes.monitoring.prices[{pool.name}]", "none", why)


def _queueing(spec: ClusterSpec, plan: Kubernetes) -> Iterator[Note]:
    if plan.fair_sharing:
        weighed = {} if spec.kubernetes is None else {t.name: t.share for t in spec.kubernetes.teams}
        for team in (team for team in plan.teams if team.may_borrow):
            why = "weight of the team when Kueue divides what teams borrow; what is in a team's quota has no weight"
            default = f". {kube.SHARE.reason}" if weighed.get(team.name) is None else ""
            yield Note(f"kubernetes.teams[{team.name}].share", str(team.share), f"{why}{default}")
    rules, ours = plan.preemption, {SERVICE: kube.SERVICE_PRIORITY, GANG: kube.GANG_PRIORITY}
    for name, word in (
        ("reclaim_within_cohort", rules.reclaim_within_cohort),
        ("borrow_within_cohort", rules.borrow_within_cohort),
        ("within_cluster_queue", rules.within_cluster_queue),
    ):
        yield Note(f"kubernetes.preemption.{name}", word, _PREEMPTED[name, word])
    for one in plan.priorities:
        if one.name in ours:
            yield Note(f"kubernetes.priorities[{one.name}]", str(one.value), ours[one.name].reason)


def _pool(requested: PoolSpec, pool: NodePool, catalog: Catalog) -> Iterator[Note]:
    at = f"pools[{pool.name}]"
    yield from _cpu(at, pool)
    yield from _memory(at, requested, pool, catalog)
    if HUGE_PAGES in pool.allocatable:
        pages = quantity(HUGE_PAGES, pool.allocatable[HUGE_PAGES])
        yield Note(f"{at}.hugepages-2Mi", pages, kube.HUGE_PAGES_MIB.reason)
    if in_one_zone(pool.min, pool.sources) < pool.min:
        why = "always-on nodes fill the sources in their order, and those of a source are in one zone; a gang that requires a level has room only in one zone"
        zones = always_on_zones(pool.min, pool.sources)
        yield Note(f"{at}.zones", ", ".join(f"{nodes} in {zone}" for zone, nodes in zones.items()), why)
    elif pool.min:
        why = (
            "all always-on nodes are in one zone, the first of the first source, so that a gang has one zone"
        )
        yield Note(f"{at}.zone", pool.zone, why)
    if pool.elastic:
        why = f"max {pool.max} less the {pool.min} always-on nodes: Karpenter adds them when pods wait, and removes empty nodes"
        yield Note(f"{at}.elastic", str(pool.elastic), why)
    if pool.name != pool.of:
        why = "EFA does not cross zones: each zone has a part of the pool with its own nodes and flavor, and a gang runs in one part"
        yield Note(f"{at}.part", f"{pool.max} of {pool.of} in {pool.zone}", why)
    for launch in pool.launches if len(pool.launches) > 1 else ():
        why = "Karpenter counts each NodePool alone: together they get no more nodes than the pool has beside its always-on nodes"
        yield Note(f"{at}.launches[{launch.positions[0]}]", f"{launch.nodes} nodes", why)
    for launch in () if pool.gpu_count else pool.launches:
        sizes = [pool.vcpus_of[machine] for machine in launch.machines]
        if min(sizes) < max(sizes):
            why = "Karpenter counts nodes only after it has started them, and CPUs before: of smaller machines it may start more at once. Machines with the same CPUs prevent it"
            at_once = f"up to {launch.nodes * max(sizes) // min(sizes)} nodes"
            yield Note(f"{at}.launches[{launch.positions[0]}].at_once", at_once, why)
    if pool.elastic and requested.idle is None:
        yield Note(f"{at}.idle", format_duration(pool.idle_s), kube.IDLE_S.reason)
    words = ", ".join(level.word for level in pool.levels) or "none"
    why = "levels at which a gang can stay together. Kueue needs always-on nodes with a label for each level"
    yield Note(f"{at}.topology", words, why)


def _cpu(at: str, pool: NodePool) -> Iterator[Note]:
    least = f"at least {quantity(CPU, int(kube.CPU_LEAST_MILLI.value))} ({kube.CPU_LEAST_MILLI.reason})"
    why = f"{pool.vcpus} less {kube.CPU_PERCENT.value:g} % for {kube.CPU_PERCENT.reason}; {least}"
    yield Note(f"{at}.cpu", quantity(CPU, pool.allocatable[CPU]), why)


def _memory(at: str, requested: PoolSpec, pool: NodePool, catalog: Catalog) -> Iterator[Note]:
    nameplate = min(
        catalog.machines[name].memory_mib for source in requested.capacity for name in source.machines
    )
    daemons, least = kube.DAEMONS_MEMORY_PERCENT, kube.DAEMONS_MEMORY_LEAST_MIB
    why = (
        f"{kube.MEMORY_PERCENT.value:g} % of the type's {nameplate} MiB ({kube.MEMORY_PERCENT.reason}); "
        f"less {daemons.value:g} % for {daemons.reason}; at least {least.value:g} MiB ({least.reason})"
    )
    if HUGE_PAGES in pool.allocatable:
        aside = kube.HUGE_PAGES_SET_ASIDE_MIB
        why = f"{why}; less {aside.value:g} MiB for huge pages ({aside.reason})"
    yield Note(f"{at}.memory", quantity(MEMORY, pool.allocatable[MEMORY]), why)


def _team(team: Team) -> Iterator[Note]:
    at = f"kubernetes.teams[{team.name}]"
    for share in team.shares:
        yield Note(f"{at}.share[{share.pool}]", _amounts(share.nominal), _why(share))
    locked = team.pod_security is PodSecurity.PRIVILEGED
    why = "EFA locks memory (IPC_LOCK), and only this level allows it; a policy forbids its other privileges"
    why = why if locked else "it forbids nothing that the team's pods need"
    yield Note(f"{at}.pod_security", team.pod_security.value, why)


def _why(share: Share) -> str:
    most = {r: amount for r, amount in share.borrow.items() if amount}
    more = f"; may borrow {_amounts(most)} more" if most else "; borrows nothing"
    return f"the team's quota; the other resources of the nodes in proportion to it{more}"


def _amounts(amounts: Mapping[str, int]) -> str:
    return (
        ", ".join(f"{quantity(r, amount)} {r}" for r, amount in sorted(amounts.items()) if amount)
        or "nothing"
    )


_OF_OTHERS = "Kueue may evict workloads of teams that use more than their quota"
_NOT_OF_OTHERS = "Kueue evicts no workload of another team"
_OF_THE_TEAM = "Kueue may evict workloads of the same team"
_PREEMPTED = {  # (field, Kueue's word) -> what happens; Kueue evicts a workload whole and queues it again
    ("reclaim_within_cohort", "Any"): f"{_OF_OTHERS}, also with a higher priority",
    ("reclaim_within_cohort", "LowerPriority"): f"{_OF_OTHERS}, with a lower priority",
    ("reclaim_within_cohort", "Never"): _NOT_OF_OTHERS,
    (
        "borrow_within_cohort",
        "Never",
    ): f"{_NOT_OF_OTHERS} for a workload that must borrow, except by fair sharing",
    (
        "borrow_within_cohort",
        "LowerPriority",
    ): f"{_OF_OTHERS}, with a lower priority, for a workload that must borrow",
    ("within_cluster_queue", "LowerPriority"): f"{_OF_THE_TEAM} with a lower priority",
    (
        "within_cluster_queue",
        "LowerOrNewerEqualPriority",
    ): f"{_OF_THE_TEAM} with a lower priority, or an equal one if they are newer",
    ("within_cluster_queue", "Never"): "Kueue evicts no workload of the same team",
}
_PODS: tuple[tuple[str, str, Default], ...] = (
    ("shm", f"memory / {kube.SHM_PART.value:g}", kube.SHM_PART),
    ("shm_most", f"{kube.SHM_MOST_MIB.value:g}Mi", kube.SHM_MOST_MIB),
    ("port", f"{kube.SERVICE_PORT.value:g}", kube.SERVICE_PORT),
    ("request.cpu", quantity(CPU, int(kube.REQUEST_CPU_MILLI.value)), kube.REQUEST_CPU_MILLI),
    ("request.memory", quantity(MEMORY, int(kube.REQUEST_MEMORY_MIB.value)), kube.REQUEST_MEMORY_MIB),
    ("root_disk", f"{kube.ROOT_DISK_GIB.value:g}Gi", kube.ROOT_DISK_GIB),
    ("volume", f"{kube.VOLUME_GIB.value:g}Gi", kube.VOLUME_GIB),
    ("grace", f"{kube.GRACE_S.value:g}s", kube.GRACE_S),
    ("checkpoint.grace", f"takes + {kube.GRACE_AFTER_S.value:g}s", kube.GRACE_AFTER_S),
    ("ready", format_duration(kube.READY_S.value), kube.READY_S),
    ("restarts", f"{kube.RESTARTS.value:g}", kube.RESTARTS),
)
