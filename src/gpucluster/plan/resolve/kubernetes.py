"""The Kubernetes part of a plan: its pools on AWS, and each team's shares. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpucluster.catalog import Catalog, Machine, kubernetes_node_image
from gpucluster.plan import kubernetes as kube
from gpucluster.plan import names, quota_shares
from gpucluster.plan.kubernetes import allocatable, gpus_of, has_topology, levels
from gpucluster.plan.model import Interface, Source
from gpucluster.plan.model.kubernetes import (
    ExistingControlPlane,
    Kubernetes,
    Monitoring,
    NodePool,
    PodIdentity,
    PodSecurity,
    Priority,
    QueuePreemption,
    Taint,
    Team,
)
from gpucluster.plan.model.values import CPU, EFA, GANG, SERVICE, Distribution, accelerators
from gpucluster.plan.node_pools import Part, parts
from gpucluster.plan.resolve import eks
from gpucluster.plan.resolve.aws import interfaces_of
from gpucluster.plan.resolve.gpu_prices import gpu_prices
from gpucluster.plan.resolve.places import s3_access
from gpucluster.plan.resolve.trainer import trainer
from gpucluster.spec import ClusterSpec
from gpucluster.spec.kubernetes import Kubernetes as KubernetesSpec
from gpucluster.spec.kubernetes import Team as TeamSpec
from gpucluster.spec.kubernetes import distribution, image_of
from gpucluster.spec.model import Aws as AwsSpec
from gpucluster.spec.model import Pool as PoolSpec
from gpucluster.spec.part import require
from gpucluster.spec.pools import of_kubernetes, sources_of
from gpucluster.spec.queueing import BORROW, RECLAIM, WITHIN
from gpucluster.spec.queueing import QueuePreemption as QueuePreemptionSpec
from gpucluster.spec.resources import in_unit


def kubernetes(spec: ClusterSpec, requested: KubernetesSpec, catalog: Catalog) -> Kubernetes:
    """The part of the plan: pools, and each team's share of them."""
    site, pools_of_it = require(spec.aws), of_kubernetes(spec)
    where = distribution(requested)
    pools = tuple(made for pool in pools_of_it for made in _pools(spec.name, pool, site, where, catalog))
    taken = quota_shares.promised(pools, [quota_of(team) for team in requested.teams])
    return Kubernetes(
        version=requested.version,
        control_plane=eks.control_plane(requested, site, catalog, pools=pools, storage=spec.storage)
        if requested.existing is None
        else ExistingControlPlane(context=requested.existing.context, eks_name=requested.existing.eks_name),
        queueing=requested.queueing,
        fair_sharing=requested.fair_sharing,
        preemption=_preemption(requested.preemption or QueuePreemptionSpec()),
        priorities=_priorities(requested),
        gpu_stack=requested.gpu_stack,
        monitoring=None
        if requested.monitoring is None
        else Monitoring(prices=tuple(gpu_prices(pools, site.region, catalog.prices))),
        trainer=trainer(requested.trainer, pools),
        validation_image=requested.validation_image or kube.VALIDATION_IMAGE,
        node_image=kubernetes_node_image(requested.version)
        if requested.node_image is None
        else image_of(requested.node_image),
        pools=pools,
        teams=tuple(
            _team(spec.name, team, quota_shares.shares(pools, quota_of(team), mine, limits_of(team)), pools)
            for team, mine in zip(requested.teams, taken, strict=True)
        ),
        spare=quota_shares.spare(pools, taken),
        pod_identities=tuple(_identities(requested)),
    )


def quota_of(team: TeamSpec) -> dict[str, int]:
    """Amounts in the plan's units. The spec's rules have checked that each is a whole number."""
    return {resource: require(in_unit(resource, amount)) for resource, amount in team.quota.items()}


def limits_of(team: TeamSpec) -> dict[str, int] | None:
    """The team's borrowing limits in the plan's units; None: it borrows nothing."""
    limits = team.borrowing_limit or {}
    return {r: require(in_unit(r, amount)) for r, amount in limits.items()} if team.may_borrow else None


def _preemption(requested: QueuePreemptionSpec) -> QueuePreemption:
    return QueuePreemption(
        reclaim_within_cohort=RECLAIM[requested.reclaim_within_cohort],
        borrow_within_cohort=BORROW[requested.borrow_within_cohort],
        within_cluster_queue=WITHIN[requested.within_cluster_queue],
    )


def _identities(requested: KubernetesSpec) -> Iterator[PodIdentity]:
    found = {(team.name, one.name): one for team in requested.teams for one in team.service_accounts}
    for (team, name), one in sorted(found.items()):
        access = s3_access(one)
        yield PodIdentity(
            team=team, namespace=team, service_account=name, read=access.read, write=access.write
        )


def _priorities(requested: KubernetesSpec) -> tuple[Priority, ...]:
    ours = {SERVICE: int(kube.SERVICE_PRIORITY.value), GANG: int(kube.GANG_PRIORITY.value)}
    named = {one.name: one.priority for one in requested.priorities}
    found = (Priority(name=name, value=value) for name, value in {**ours, **named}.items())
    return tuple(sorted(found, key=lambda one: (-one.value, one.name)))


def _pools(
    cluster: str, requested: PoolSpec, site: AwsSpec, where: Distribution, catalog: Catalog
) -> Iterator[NodePool]:
    """The pool, or its part in each zone."""
    whole = _pool(cluster, requested, site, where, catalog)
    for part in parts(whole.min, whole.max, whole.sources, fabric=bool(whole.allocatable.get(EFA))):
        yield (
            replace(whole, launches=part.launches)
            if part.zone is None
            else _part(whole, part.zone, part, cluster, site.region)
        )


def _part(whole: NodePool, zone: str, part: Part, cluster: str, region: str) -> NodePool:
    name = names.zone_part(whole.name, region, zone)
    return replace(
        whole,
        name=name,
        min=part.min,
        max=part.max,
        sources=tuple(_in_zone(source, zone, part) for source in whole.sources if zone in source.zones),
        launches=part.launches,
        zone=zone,
        zones=(zone,),
        labels=_labels(cluster, name, whole.mig),
    )


def _in_zone(source: Source, zone: str, part: Part) -> Source:
    """The source in one zone. Its `max` there is the number of nodes that the part has of it."""
    own = sum(launch.nodes for launch in part.launches if source.position in launch.positions)
    fixed = part.always_on.get(source.position, 0)
    return replace(source, zones=(zone,), max=None if source.max is None else own + fixed)


def _pool(
    cluster: str, requested: PoolSpec, site: AwsSpec, where: Distribution, catalog: Catalog
) -> NodePool:
    sources, nodes = sources_of(requested, site.network.places), require(requested.nodes)
    machines = [catalog.machines[name] for source in sources for name in source.machines]
    mig = {} if requested.sharing is None else dict(sorted((requested.sharing.mig or {}).items()))
    gpus, used = gpus_of(machines), {zone for source in sources for zone in source.zones}
    gives = allocatable(machines, mig)
    return NodePool(
        name=requested.name,
        of=requested.name,
        min=nodes.min,
        max=nodes.max,
        idle_s=int(kube.IDLE_S.value) if requested.idle is None else requested.idle,
        sources=sources,
        launches=(),
        zone=sources[0].zones[0],
        zones=tuple(zone for zone in site.network.places if zone in used),
        arch=names.KUBERNETES_ARCH[machines[0].arch],
        vcpus_of={machine.name: machine.vcpus for machine in machines},
        gpu_model=None if machines[0].gpu is None else machines[0].gpu.model,
        gpu_count=gpus,
        mig=mig,
        allocatable=gives,
        shared_by=tuple(accelerators(gpus, mig)) or (CPU,),
        labels=_labels(cluster, requested.name, mig),
        taints=(Taint(key=names.TAINT_GPU, value="present", effect="NoSchedule"),) if gpus else (),
        local_disks=all(machine.local_disks for machine in machines),
        interfaces=_interfaces(machines) if gives.get(EFA) else (),
        levels=levels(where, machines) if has_topology(gpus, mig, nodes.min, nodes.max) else (),
    )


def _labels(cluster: str, pool: str, mig: dict[str, int]) -> dict[str, str]:
    labels = {names.LABEL_CLUSTER: cluster, names.LABEL_POOL: pool}
    return {**labels, names.LABEL_MIG: names.mig_config(cluster, pool, mig)} if mig else labels


def _interfaces(machines: Sequence[Machine]) -> tuple[Interface, ...]:
    """The interfaces of the pool's machines. Empty if they differ: Karpenter then creates all of the machine, each with an address."""
    found = {interfaces_of(machine) for machine in machines}
    return found.pop() if len(found) == 1 else ()


def _team(
    cluster: str,
    requested: TeamSpec,
    shares_of_team: tuple[quota_shares.Share, ...],
    pools: Sequence[NodePool],
) -> Team:
    mine = {share.pool for share in shares_of_team}
    locks = any(pool.allocatable.get(EFA) for pool in pools if pool.name in mine)
    return Team(
        name=requested.name,
        namespace=requested.name,
        group=names.team_group(requested.name),
        queue=names.kubernetes_name(cluster, requested.name),
        quota=dict(sorted(quota_of(requested).items())),
        may_borrow=requested.may_borrow,
        share=int(kube.SHARE.value) if requested.share is None else requested.share,
        shares=shares_of_team,
        pod_security=PodSecurity.PRIVILEGED if locks else PodSecurity.BASELINE,
    )
