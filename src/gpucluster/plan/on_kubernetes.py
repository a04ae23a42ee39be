"""The Kubernetes part of a plan: its pools on AWS, and each team's shares. Pure."""

from collections.abc import Sequence

from gpucluster.catalog import Catalog, Machine
from gpucluster.plan import defaults_kubernetes as kube
from gpucluster.plan import names, shares
from gpucluster.plan.allocatable import allocatable, gpus_of
from gpucluster.plan.kubernetes import (
    CPU,
    EFA,
    Distribution,
    Interface,
    Kubernetes,
    NodePool,
    PodSecurity,
    Taint,
    Team,
    accelerators,
)
from gpucluster.plan.levels import levels, stands
from gpucluster.plan.model import there
from gpucluster.plan.on_aws import sources_of
from gpucluster.spec import ClusterSpec
from gpucluster.spec.kubernetes import Team as TeamSpec
from gpucluster.spec.kubernetes import distribution
from gpucluster.spec.model import Aws as AwsSpec
from gpucluster.spec.model import Pool as PoolSpec
from gpucluster.spec.pools import of_kubernetes
from gpucluster.spec.resources import in_unit

KUBERNETES_ARCH = {"x86_64": "amd64", "arm64": "arm64"}


def kubernetes(spec: ClusterSpec, catalog: Catalog) -> Kubernetes | None:
    """The part, if the cluster has it."""
    wish = spec.kubernetes
    if wish is None:
        return None
    site, pools_of_it = there(spec.aws), of_kubernetes(spec)
    pools = tuple(_pool(spec.name, pool, site, distribution(wish), catalog) for pool in pools_of_it)
    taken = shares.promised(pools, [quota_of(team) for team in wish.teams])
    return Kubernetes(
        version=wish.version,
        distribution=distribution(wish),
        context=None if wish.existing is None else wish.existing.context,
        queueing=wish.queueing,
        gpu_stack=wish.gpu_stack,
        pools=pools,
        teams=tuple(
            _team(
                spec.name, team, shares.shares(pools, quota_of(team), mine, may_borrow=team.may_borrow), pools
            )
            for team, mine in zip(wish.teams, taken, strict=True)
        ),
        spare=shares.spare(pools, taken),
    )


def quota_of(team: TeamSpec) -> dict[str, int]:
    """In the plan's units; the spec's rules have seen that each is a whole number."""
    return {resource: there(in_unit(resource, amount)) for resource, amount in team.quota.items()}


def _pool(cluster: str, wish: PoolSpec, site: AwsSpec, where: Distribution, catalog: Catalog) -> NodePool:
    sources, nodes = sources_of(wish, site.network.places), there(wish.nodes)
    machines = [catalog.machines[name] for source in sources for name in source.machines]
    mig = {} if wish.sharing is None else dict(sorted(wish.sharing.mig.items()))
    gpus, used = gpus_of(machines), {zone for source in sources for zone in source.zones}
    gives = allocatable(machines, mig)
    return NodePool(
        name=wish.name,
        min=nodes.min,
        max=nodes.max,
        idle_s=int(kube.IDLE_S.value) if wish.idle is None else wish.idle,
        sources=sources,
        zone=sources[0].zones[0],
        zones=tuple(zone for zone in site.network.places if zone in used),
        arch=KUBERNETES_ARCH[machines[0].arch],
        vcpus=min(machine.vcpus for machine in machines),
        gpu_model=None if machines[0].gpu is None else machines[0].gpu.model,
        gpu_count=gpus,
        mig=mig,
        allocatable=gives,
        shared_by=tuple(accelerators(gpus, mig)) or (CPU,),
        labels=_labels(cluster, wish.name, mig),
        taints=(Taint(key=names.TAINT_GPU, value="present", effect="NoSchedule"),) if gpus else (),
        local_disks=all(machine.local_disks for machine in machines),
        interfaces=_interfaces(machines) if gives.get(EFA) else (),
        levels=levels(where, machines) if stands(gpus, mig, nodes.min, nodes.max) else (),
    )


def _labels(cluster: str, pool: str, mig: dict[str, int]) -> dict[str, str]:
    labels = {names.LABEL_CLUSTER: cluster, names.LABEL_POOL: pool}
    return {**labels, names.LABEL_MIG: names.kubernetes_name(cluster, pool)} if mig else labels


def _interfaces(machines: Sequence[Machine]) -> tuple[Interface, ...]:
    """An EFA on each card, with the one address on card 0; nothing where the pool's machines differ in cards.

    Karpenter then makes the interfaces that a machine has, each with an address.
    """
    if len({(machine.network_cards, machine.efa) for machine in machines}) > 1:
        return ()
    cards = range(machines[0].efa)
    efa = (Interface(card=card, device=0 if card else 1, kind="efa-only") for card in cards)
    return (Interface(card=0, device=0, kind="interface"), *efa)


def _team(cluster: str, wish: TeamSpec, held: tuple[shares.Share, ...], pools: Sequence[NodePool]) -> Team:
    mine = {share.pool for share in held}
    locks = any(pool.allocatable.get(EFA) for pool in pools if pool.name in mine)
    return Team(
        name=wish.name,
        namespace=wish.name,
        group=names.team_group(wish.name),
        queue=names.kubernetes_name(cluster, wish.name),
        quota=dict(sorted(quota_of(wish).items())),
        may_borrow=wish.may_borrow,
        shares=held,
        pod_security=PodSecurity.PRIVILEGED if locks else PodSecurity.BASELINE,
    )
