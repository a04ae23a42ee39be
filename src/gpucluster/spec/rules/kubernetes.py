"""Kubernetes' side: version and control plane, who schedules which pool, and teams' quotas."""

from collections.abc import Iterator, Mapping, Sequence

from gpucluster.catalog import Catalog, Machine
from gpucluster.plan.allocatable import allocatable, gpus_of
from gpucluster.plan.kubernetes import CPU, GPU, accelerators
from gpucluster.plan.market import Market
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.kubernetes import Runs
from gpucluster.spec.model import ClusterSpec, Pool
from gpucluster.spec.part import AbsentError, written
from gpucluster.spec.pools import of_kubernetes, of_slurm, run_by
from gpucluster.spec.problem import Finding, quoted
from gpucluster.spec.resources import in_unit
from gpucluster.spec.rules.findings import error, or_none, same_names, warning
from gpucluster.spec.rules.hosts import OF_THE_DAEMON

OF_ITS_TEMPLATES = ("image", "placement")


def version(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    found, known = written(spec.kubernetes).version, catalog.kubernetes_known
    if found not in known:
        says = f"{quoted(found)} is not a Kubernetes release that we know ({', '.join(known)})"
        yield error("kubernetes", "version", id="kubernetes-version", says=says)


def control_plane(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    wish = written(spec.kubernetes)
    if (wish.control_plane is None) == (wish.existing is None):
        says = "exactly one of 'control_plane' and 'existing' says whose control plane it is"
        yield error("kubernetes", id="control-plane", says=says)
    if spec.hosts is not None:
        yield error("kubernetes", id="not-supported", says="Kubernetes on `hosts` is not supported yet")


def team_names(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    teams = written(spec.kubernetes).teams
    for finding in same_names([lambda team=team: team.name for team in teams], "teams"):
        yield error("kubernetes", *finding.path, id=finding.id, says=finding.message)


def its_pools(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    written(spec.kubernetes)
    runs = [or_none(lambda pool=pool: run_by(spec, pool)) for pool in spec.pools]
    if Runs.KUBERNETES not in runs and None not in runs:
        yield error("kubernetes", id="no-pool", says="no pool runs Kubernetes, so no pod could start")
    if spec.slurm is not None and Runs.SLURM not in runs and None not in runs:
        yield error("slurm", id="no-pool", says="no pool runs Slurm, so no job could start")


def pool_runs(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    pool, parts = spec.pools[index], {"slurm": spec.slurm, "kubernetes": spec.kubernetes}
    if pool.runs is None and None not in parts.values():
        says = (
            "the cluster has two orchestrators: say which has the pool, `runs: slurm` or `runs: kubernetes`"
        )
        yield error("pools", index, id="who-runs", says=says)
    elif pool.runs is not None and parts[pool.runs] is None:
        says = f"the cluster has no '{pool.runs}' part"
        yield error("pools", index, "runs", id="who-runs", says=says)


def pool_of_other(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    pool = spec.pools[index]
    if run_by(spec, pool) is Runs.SLURM and pool.sharing is not None:
        says = "only Kubernetes gives slices of GPUs here; Slurm's pools have whole ones"
        yield error("pools", index, "sharing", id="not-here", says=says)
    if run_by(spec, pool) is Runs.KUBERNETES and pool.boot_timeout is not None:
        says = "Karpenter watches the boot of Kubernetes' nodes itself, and its limit cannot be set"
        yield error("pools", index, "boot_timeout", id="not-here", says=says)


def pool_of_slurm_only(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """What the elastic daemon keeps is kept for Slurm's nodes."""
    pool = spec.pools[index]
    if run_by(spec, pool) is not Runs.KUBERNETES:
        return
    for key in (*OF_THE_DAEMON, *OF_ITS_TEMPLATES):
        if or_none(lambda key=key: getattr(pool, key)):
            whose = "is kept by Slurm's elastic daemon" if key in OF_THE_DAEMON else "is of Slurm's machines"
            says = f"'{key}' {whose}; Kubernetes and Karpenter have ways of their own"
            yield error("pools", index, key, id="not-here", says=says)


def source_market(spec: ClusterSpec, index: int, position: int, _catalog: Catalog) -> Iterator[Finding]:
    pool, source = spec.pools[index], spec.pools[index].capacity[position]
    if run_by(spec, pool) is not Runs.KUBERNETES:
        return
    place = ("pools", index, "capacity", position)
    if source.source in (Market.RESERVATION, Market.CAPACITY_BLOCK):
        says = f"{source.source} is not supported for pools of Kubernetes yet; supported: spot, on-demand"
        yield error(*place, "from", id="not-supported", says=says)
    if source.max_price is not None:
        says = "Karpenter takes spot at any price up to on-demand, and its limit cannot be set"
        yield error(*place, "max_price", id="not-here", says=says)


def partition_pools(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    written(spec.slurm)
    kubernetes = {pool.name for pool in of_kubernetes(spec)} - {pool.name for pool in of_slurm(spec)}
    for at, name in enumerate(spec.partitions[index].pools):
        if name in kubernetes:
            says = f"the pool '{name}' runs Kubernetes, and a pool has one orchestrator"
            yield error("partitions", index, "pools", at, id="two-orchestrators", says=says)


def quotas(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Each quota names what some pool has, in whole numbers, and all together stay within the pools."""
    offers, given = offered(spec, catalog), dict[str, int]()
    for index, team in enumerate(written(spec.kubernetes).teams):
        if or_none(lambda team=team: team.quota) is None:
            continue
        for resource, written_amount in team.quota.items():
            path = ("kubernetes", "teams", index, "quota", resource)
            amount = in_unit(resource, written_amount)
            if resource not in offers:
                yield error(*path, id="unknown-resource", says=_not_offered(resource, offers))
            elif amount is None:
                yield error(*path, id="bad-amount", says=f"{resource} is counted in whole numbers")
            else:
                left = offers[resource] - given.get(resource, 0)
                given[resource] = given.get(resource, 0) + amount
                if amount > left:
                    yield error(*path, id="quota-above-pools", says=_too_much(resource, amount, left, offers))


def empty_handed(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    for index, team in enumerate(written(spec.kubernetes).teams):
        quota = or_none(lambda team=team: team.quota)
        if quota and not any(team.quota.values()) and not team.may_borrow:
            says = "the team is promised nothing and may not borrow: nothing of its would ever run"
            yield error("kubernetes", "teams", index, "quota", id="empty-handed", says=says)


def unpromised(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    teams = written(spec.kubernetes).teams
    named = {resource for team in teams for resource in team.quota}
    if not named or named - offered(spec, catalog).keys():
        return  # said above; the pool may be meant
    for index, pool in enumerate(spec.pools):
        if run_by(spec, pool) is Runs.KUBERNETES and not named & set(shared_by(pool, catalog)):
            says = f"no team has a quota of what the pool '{pool.name}' has ({', '.join(shared_by(pool, catalog))})"
            yield warning("pools", index, "name", id="unpromised-pool", says=says)


def storage(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    written(spec.kubernetes)
    wish = spec.storage[index]
    for kind in ("efs", "nvme", "other"):
        if getattr(wish, kind) is not None:
            says = "pods mount NFS and FSx for Lustre; for another kind make a volume beside these manifests"
            yield error("storage", index, kind, id="not-supported", says=says)
    if wish.nfs is not None and wish.nfs.source == "head" and spec.head is None and spec.hosts is None:
        yield error(
            "storage", index, "nfs", "from", id="nfs-source", says="this cluster has no head to export it"
        )


def offered(spec: ClusterSpec, catalog: Catalog) -> dict[str, int]:
    """What quotas can name, over all of Kubernetes' pools at their max; one of which nobody said whose it is counts."""
    pools = [pool for pool in spec.pools if run_by(spec, pool) is not Runs.SLURM]
    if not pools:
        raise AbsentError
    total: dict[str, int] = {}
    for pool in pools:
        gives, most = gives_of(pool, catalog), written(pool.nodes).max
        for resource in shared_by(pool, catalog):
            total[resource] = total.get(resource, 0) + gives[resource] * most
    return total


def shared_by(pool: Pool, catalog: Catalog) -> tuple[str, ...]:
    """The resources by which the pool is shared out."""
    gpus = gpus_of(machines_of(pool, catalog))
    return tuple(accelerators(gpus, mig_of(pool))) or (CPU,)


def gives_of(pool: Pool, catalog: Catalog) -> dict[str, int]:
    """What a node of the pool gives to pods."""
    return allocatable(machines_of(pool, catalog), mig_of(pool))


def machines_of(pool: Pool, catalog: Catalog) -> Sequence[Machine]:
    """Every machine that the pool may get; AbsentError if one is not known, which is said elsewhere."""
    found = [catalog.machines.get(name) for source in pool.capacity for name in source.machines]
    if not found or None in found:
        raise AbsentError
    return [machine for machine in found if machine is not None]


def mig_of(pool: Pool) -> dict[str, int]:
    return {} if pool.sharing is None else dict(pool.sharing.mig)


def _not_offered(resource: str, offers: Mapping[str, int]) -> str:
    near = did_you_mean(resource, offers) or f"; there are {', '.join(sorted(offers))}"
    follows = GPU in offers or any(name.startswith("nvidia.com/") for name in offers)
    why = " (cpu, memory and EFA follow the GPUs)" if follows and "nvidia.com" not in resource else ""
    return f"no pool is shared out by {quoted(resource)}{why}{near}"


def _too_much(resource: str, amount: int, left: int, offers: Mapping[str, int]) -> str:
    unit, most = ("m", offers[resource]) if resource == CPU else ("", offers[resource])
    before = f", of which the teams before leave {max(left, 0)}{unit}" if left != most else ""
    return f"{amount}{unit} of {resource} is more than the pools have at their max: {most}{unit}{before}"
