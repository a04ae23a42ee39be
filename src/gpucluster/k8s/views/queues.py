"""Kueue: the flavors of the pools, the cohort, each team's quota and queue, priorities."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucluster.k8s.manifest import scalar
from gpucluster.k8s.site import Site, team_labels, tolerations
from gpucluster.plan import names
from gpucluster.plan.model.capacity import Share
from gpucluster.plan.model.values import GANG, SERVICE, TopologyLevel, quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Priorities:
    """templates/k8s/priorities.yaml.j2"""

    service: str
    gang: str
    labels: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPriority:
    """templates/k8s/workload-priority.yaml.j2"""

    name: str
    labels: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelLine:
    """One level of the topology."""

    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """templates/k8s/topology.yaml.j2"""

    name: str
    labels: str
    levels: tuple[LevelLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """templates/k8s/flavor.yaml.j2"""

    name: str
    labels: str
    node_labels: str
    tolerations: str
    topology: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """templates/k8s/cohort.yaml.j2"""

    name: str
    labels: str
    groups: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorLine:
    """A team's share of one pool."""

    name: str
    quotas: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueue:
    """templates/k8s/clusterqueue.yaml.j2"""

    name: str
    labels: str
    cohort: str
    fair: str
    namespaces: str
    reclaim: str
    borrow: str
    within: str
    resources: str
    flavors: tuple[FlavorLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueue:
    """templates/k8s/localqueue.yaml.j2"""

    name: str
    namespace: str
    labels: str
    queue: str


def priorities(site: Site) -> Iterator[tuple[str, Priorities]]:
    service, gang = scalar(site.name(SERVICE)), scalar(site.name(GANG))
    yield "priorities", Priorities(service=service, gang=gang, labels=scalar(site.labels))


def workload_priorities(site: Site) -> Iterator[tuple[str, WorkloadPriority]]:
    for one in site.kubernetes.priorities:
        name = scalar(site.name(one.name))
        yield (
            f"priority-{one.name}",
            WorkloadPriority(name=name, labels=scalar(site.labels), value=scalar(one.value)),
        )


def topologies(site: Site) -> Iterator[tuple[str, Topology]]:
    """Return one topology for all pools whose nodes have the same levels."""
    for levels in dict.fromkeys(pool.levels for pool in site.kubernetes.pools if pool.levels):
        lines = tuple(LevelLine(label=scalar(level.label)) for level in levels)
        name = _topology(levels)
        yield name, Topology(name=scalar(site.name(name)), labels=scalar(site.labels), levels=lines)


def flavors(site: Site) -> Iterator[tuple[str, Flavor]]:
    for pool in site.kubernetes.pools:
        ours = {names.LABEL_CLUSTER: site.plan.name, names.LABEL_POOL: pool.name}
        zone = {names.LABEL_ZONE: pool.zone} if pool.name != pool.of else {}
        yield (
            f"flavor-{pool.name}",
            Flavor(
                name=scalar(site.flavor(pool.name)),
                labels=scalar(site.labels),
                node_labels=scalar({**ours, **zone}),
                tolerations=scalar(tolerations(pool.elastic_taints) or None),
                topology=scalar(site.name(_topology(pool.levels)) if pool.levels else None),
            ),
        )


def cohorts(site: Site) -> Iterator[tuple[str, Cohort]]:
    spare = [share for share in site.kubernetes.spare if any(share.nominal.values())]
    covered = sorted({r for share in spare for r in share.nominal})
    flavors = [
        {"name": site.flavor(share.pool), "resources": [_quota(r, share.nominal) for r in covered]}
        for share in spare
    ]
    groups = [{"coveredResources": covered, "flavors": flavors}] if spare else None
    yield "cohort", Cohort(name=scalar(site.plan.name), labels=scalar(site.labels), groups=scalar(groups))


def cluster_queues(site: Site) -> Iterator[tuple[str, ClusterQueue]]:
    for team in site.kubernetes.teams:
        covered = sorted({r for share in team.shares for r in share.nominal})
        lines = tuple(
            FlavorLine(name=scalar(site.flavor(share.pool)), quotas=scalar(_quotas(share, covered)))
            for share in team.shares
        )
        yield (
            f"clusterqueue-{team.name}",
            ClusterQueue(
                name=scalar(team.queue),
                labels=team_labels(site, team),
                cohort=scalar(site.plan.name),
                fair=scalar({"weight": str(team.share)} if site.kubernetes.fair_sharing else None),
                reclaim=scalar(site.kubernetes.preemption.reclaim_within_cohort),
                borrow=scalar(site.kubernetes.preemption.borrow_within_cohort),
                within=scalar(site.kubernetes.preemption.within_cluster_queue),
                namespaces=scalar({names.LABEL_NAMESPACE: team.namespace}),
                resources=scalar(covered),
                flavors=lines,
            ),
        )


def local_queues(site: Site) -> Iterator[tuple[str, LocalQueue]]:
    for team in site.kubernetes.teams:
        yield (
            f"localqueue-{team.name}",
            LocalQueue(
                name=scalar(names.LOCAL_QUEUE),
                namespace=scalar(team.namespace),
                labels=team_labels(site, team),
                queue=scalar(team.queue),
            ),
        )


def _topology(levels: tuple[TopologyLevel, ...]) -> str:
    """Return the name of a topology from its levels, which never change: `topology-zone-host`."""
    return "-".join(("topology", *(level.word for level in levels)))


def _quotas(share: Share, covered: list[str]) -> list[dict[str, str]]:
    return [
        {**_quota(r, share.nominal), "borrowingLimit": quantity(r, share.borrow.get(r, 0))} for r in covered
    ]


def _quota(resource: str, nominal: Mapping[str, int]) -> dict[str, str]:
    return {"name": resource, "nominalQuota": quantity(resource, nominal.get(resource, 0))}
