"""Kubernetes: version and control plane, the scheduler of each pool, and teams' quotas."""

from collections.abc import Iterator, Mapping, Sequence

from gpucluster.catalog import Catalog, Machine, kubernetes_node_image, kubernetes_node_release
from gpucluster.plan import names, node_pools
from gpucluster.plan.kubernetes import MAX_WEIGHT, allocatable, gpus_of
from gpucluster.plan.model.values import CPU, accelerators
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.kubernetes import Runs, on_eks
from gpucluster.spec.model import ClusterSpec, Pool
from gpucluster.spec.part import AbsentError, require
from gpucluster.spec.pools import of_kubernetes, of_slurm, run_by, sources_of
from gpucluster.spec.problem import Finding
from gpucluster.spec.resources import in_unit, is_often_a_controllers
from gpucluster.spec.rules.findings import error, or_none, repeated, same_names, warning
from gpucluster.spec.rules.hosts import OF_THE_DAEMON
from gpucluster.text import quoted

OF_ITS_TEMPLATES = ("image", "placement")


def version(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    found, known = require(spec.kubernetes).version, catalog.kubernetes_known
    if found not in known:
        message = f"{quoted(found)} is not a known Kubernetes release ({', '.join(known)})"
        yield error("kubernetes", "version", id="kubernetes-version", message=message)


def node_image(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Nodes of one gang must have one driver, so the image has a release."""
    part = require(spec.kubernetes)
    if part.version not in catalog.kubernetes_known:
        return  # `version` reports it
    if part.node_image is not None:
        yield from _release(part.version, part.node_image, groups=on_eks(part))
        return
    if (has_elastic_pool(spec) or on_eks(part)) and kubernetes_node_image(part.version) is None:
        message = f"no release of EKS's image is known for Kubernetes {part.version}, so nodes take the newest one, and the nodes of a gang can differ in the driver; write 'node_image', such as {part.version}.3-20260903"
        yield warning("kubernetes", id="node-image", message=message)


def has_elastic_pool(spec: ClusterSpec) -> bool:
    """Whether Karpenter launches nodes of a pool. A pool whose `nodes` are invalid, which is reported elsewhere, counts as none."""
    sizes = (or_none(lambda pool=pool: require(pool.nodes)) for pool in of_kubernetes(spec))
    return any(nodes is not None and nodes.min < nodes.max for nodes in sizes)


def _release(version: str, image: str, *, groups: bool) -> Iterator[Finding]:
    """Check that node groups have a release for the image: without one EKS takes the newest of the day, or keeps the old one."""
    at = ("kubernetes", "node_image")
    if not image.startswith("v"):
        if not image.startswith(f"{version}."):
            message = f"{quoted(image)} is not for Kubernetes {version}"
            yield error(*at, id="node-image", message=message)
    elif groups and kubernetes_node_release(version, image) is None:
        message = f"the catalog has no release of node groups for {image} and Kubernetes {version}; write it with its patch version, such as {version}.3-{image[1:]} (the release page of awslabs/amazon-eks-ami names it)"
        yield error(*at, id="node-image", message=message)


def control_plane(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    part = require(spec.kubernetes)
    if (part.control_plane is None) == (part.existing is None):
        message = "write exactly one of 'control_plane' and 'existing'"
        yield error("kubernetes", id="control-plane", message=message)
    if spec.hosts is not None:
        yield error("kubernetes", id="not-supported", message="Kubernetes on `hosts` is not supported yet")


def eks_name(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Check that Karpenter knows its cluster: it asks EKS for the address of the API server."""
    existing = require(require(spec.kubernetes).existing)
    if existing.eks_name is not None:
        return
    for pool in of_kubernetes(spec):
        nodes = or_none(lambda pool=pool: require(pool.nodes))
        if nodes is not None and nodes.min < nodes.max:
            message = f"'eks_name' is missing: the pool '{pool.name}' is elastic, and Karpenter needs the name of its cluster in EKS"
            yield error("kubernetes", "existing", id="missing-key", message=message)
            return


def team_names(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    teams = require(spec.kubernetes).teams
    for finding in same_names([lambda team=team: team.name for team in teams], "teams"):
        yield error("kubernetes", *finding.path, id=finding.id, message=finding.message)


def shared_namespaces(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    for index, team in enumerate(require(spec.kubernetes).teams):
        name = or_none(lambda team=team: team.name)
        if name is not None and is_often_a_controllers(name):
            message = f"other programs are often in a namespace '{name}'; the team's quota and network policies would stop them. If one is there or will be, choose another name"
            yield warning("kubernetes", "teams", index, "name", id="shared-namespace", message=message)


def monitoring(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Check that no team has the namespace of the alerts."""
    part = require(spec.kubernetes)
    taken = names.monitoring_namespace(require(spec.name))
    for index, team in enumerate(part.teams if part.monitoring is not None else ()):
        if or_none(lambda team=team: team.name) == taken:
            message = f"the namespace '{taken}' has the alerts of 'monitoring'; choose another name"
            yield error("kubernetes", "teams", index, "name", id="reserved-name", message=message)


def trainer(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse a Secret that is named twice: a server-side apply refuses the runtimes."""
    found = require(require(spec.kubernetes).trainer)
    yield from repeated(found.pull_secrets, ("kubernetes", "trainer", "pull_secrets"), "the Secret")


def its_pools(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    require(spec.kubernetes)
    runs = [or_none(lambda pool=pool: run_by(spec, pool)) for pool in spec.pools]
    if Runs.KUBERNETES not in runs and None not in runs:
        yield error("kubernetes", id="no-pool", message="no pool runs Kubernetes, so no pod could start")
    if spec.slurm is not None and Runs.SLURM not in runs and None not in runs:
        yield error("slurm", id="no-pool", message="no pool runs Slurm, so no job could start")


def pool_runs(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    pool, parts = spec.pools[index], {"slurm": spec.slurm, "kubernetes": spec.kubernetes}
    if pool.runs is None and None not in parts.values():
        message = "'runs' is missing: the cluster has two orchestrators, so write `runs: slurm` or `runs: kubernetes`"
        yield error("pools", index, id="who-runs", message=message)
    elif pool.runs is not None and parts[pool.runs] is None:
        message = f"the cluster has no '{pool.runs}' part"
        yield error("pools", index, "runs", id="who-runs", message=message)


def pool_of_other(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    pool = spec.pools[index]
    sharing = pool.sharing if run_by(spec, pool) is Runs.KUBERNETES else None
    if sharing is not None and sharing.shards is not None:
        message = "'shards' are of Slurm; a pool of Kubernetes shares its GPUs by 'mig'"
        yield error("pools", index, "sharing", "shards", id="not-here", message=message)
    if sharing is not None and sharing.mps is not None:
        message = "'mps' is of Slurm here; a pool of Kubernetes shares its GPUs by 'mig'"
        yield error("pools", index, "sharing", "mps", id="not-here", message=message)
    if run_by(spec, pool) is Runs.KUBERNETES and pool.boot_timeout is not None:
        message = "Karpenter limits the boot time of Kubernetes nodes, and its limit cannot be set"
        yield error("pools", index, "boot_timeout", id="not-here", message=message)


def pool_of_slurm_only(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse keys of the elastic daemon and of Slurm's launch templates."""
    pool = spec.pools[index]
    if run_by(spec, pool) is not Runs.KUBERNETES:
        return
    for key in (*OF_THE_DAEMON, *OF_ITS_TEMPLATES):
        if or_none(lambda key=key: getattr(pool, key)):
            where = "is used by Slurm's elastic daemon" if key in OF_THE_DAEMON else "is for Slurm's machines"
            message = f"'{key}' {where}; Kubernetes and Karpenter do not use it"
            yield error("pools", index, key, id="not-here", message=message)


def source_price(spec: ClusterSpec, index: int, position: int, _catalog: Catalog) -> Iterator[Finding]:
    pool, source = spec.pools[index], spec.pools[index].capacity[position]
    if run_by(spec, pool) is not Runs.KUBERNETES:
        return
    place = ("pools", index, "capacity", position)
    if source.max_price is not None:
        message = "Karpenter launches spot at any price up to on-demand; a limit cannot be set"
        yield error(*place, "max_price", id="not-here", message=message)


def source_nodes(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """Karpenter counts each source alone, so each has its own part of the pool's nodes."""
    pool, nodes = spec.pools[index], require(spec.pools[index].nodes)
    if run_by(spec, pool) is not Runs.KUBERNETES:
        return
    sources = sources_of(pool, require(spec.aws).network.places)
    for position in node_pools.unused(nodes.min, nodes.max, sources):
        message = f"the sources before it take all {nodes.max - nodes.min} nodes beside the always-on ones, because Karpenter counts each source alone; write 'max' there"
        yield error("pools", index, "capacity", position, id="source-without-nodes", message=message)
    given = nodes.min + sum(one.nodes for one in node_pools.launches(nodes.min, nodes.max, sources))
    if nodes.min < nodes.max and given < nodes.max:
        message = f"the sources give at most {given} of max {nodes.max} nodes, and the quotas count on all"
        yield error("pools", index, "capacity", id="sources-below-max", message=message)


def source_weights(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """Check that each source has a weight of its own."""
    pool = spec.pools[index]
    count = len(pool.capacity)
    if run_by(spec, pool) is Runs.KUBERNETES and count > MAX_WEIGHT:
        message = f"{count} sources, and a pool of Kubernetes has at most {MAX_WEIGHT}: Karpenter's weights, which give their order, are 1 to {MAX_WEIGHT}; make a second pool of the others"
        yield error("pools", index, "capacity", id="too-many-sources", message=message)


def partition_pools(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    require(spec.slurm)
    kubernetes = {pool.name for pool in of_kubernetes(spec)} - {pool.name for pool in of_slurm(spec)}
    for at, name in enumerate(spec.partitions[index].pools):
        if name in kubernetes:
            message = f"the pool '{name}' runs Kubernetes, and a pool has one orchestrator"
            yield error("partitions", index, "pools", at, id="two-orchestrators", message=message)


def quotas(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Check that quotas name resources of the pools, in whole numbers, and that their sum fits the pools."""
    offers, given = offered(spec, catalog), dict[str, int]()
    for index, team in enumerate(require(spec.kubernetes).teams):
        if or_none(lambda team=team: team.quota) is None:
            continue
        for resource, written_amount in team.quota.items():
            path = ("kubernetes", "teams", index, "quota", resource)
            amount = in_unit(resource, written_amount)
            if resource not in offers:
                yield error(*path, id="unknown-resource", message=_not_offered(resource, offers))
            elif amount is None:
                yield error(*path, id="bad-amount", message=f"{resource} is counted in whole numbers")
            else:
                left = offers[resource] - given.get(resource, 0)
                given[resource] = given.get(resource, 0) + amount
                if amount > max(left, 0):
                    yield error(
                        *path, id="quota-above-pools", message=_too_much(resource, amount, left, offers)
                    )


def team_without_quota(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    for index, team in enumerate(require(spec.kubernetes).teams):
        quota = or_none(lambda team=team: team.quota)
        if quota and not any(team.quota.values()) and not team.may_borrow:
            message = "the team has no quota and may not borrow, so none of its pods can run"
            yield error("kubernetes", "teams", index, "quota", id="team-without-quota", message=message)


def pool_without_quota(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    teams = require(spec.kubernetes).teams
    named = {resource for team in teams for resource in team.quota}
    if not named or named - offered(spec, catalog).keys():
        return  # reported above
    for index, pool in enumerate(spec.pools):
        if run_by(spec, pool) is Runs.KUBERNETES and not named & set(shared_by(pool, catalog)):
            message = (
                f"no team has a quota for the pool '{pool.name}' ({', '.join(shared_by(pool, catalog))})"
            )
            yield warning("pools", index, "name", id="pool-without-quota", message=message)


def storage(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    require(spec.kubernetes)
    part = spec.storage[index]
    for kind in ("efs", "nvme", "other"):
        if getattr(part, kind) is not None:
            message = (
                "pods can mount NFS and FSx for Lustre; for another kind add a volume beside these manifests"
            )
            yield error("storage", index, kind, id="not-supported", message=message)
    if part.nfs is not None and part.nfs.source == "head" and spec.head is None and spec.hosts is None:
        yield error(
            "storage",
            index,
            "nfs",
            "from",
            id="nfs-source",
            message="this cluster has no head that can export it",
        )


def offered(spec: ClusterSpec, catalog: Catalog) -> dict[str, int]:
    """Return the resources of all Kubernetes pools at their max. A pool without `runs` counts."""
    pools = [pool for pool in spec.pools if run_by(spec, pool) is not Runs.SLURM]
    if not pools:
        raise AbsentError
    total: dict[str, int] = {}
    for pool in pools:
        gives, most = gives_of(pool, catalog), require(pool.nodes).max
        for resource in shared_by(pool, catalog):
            total[resource] = total.get(resource, 0) + gives[resource] * most
    return total


def shared_by(pool: Pool, catalog: Catalog) -> tuple[str, ...]:
    """Return the resources whose quotas share the pool."""
    gpus = gpus_of(machines_of(pool, catalog))
    return tuple(accelerators(gpus, mig_of(pool))) or (CPU,)


def gives_of(pool: Pool, catalog: Catalog) -> dict[str, int]:
    """Return the resources of one node for pods."""
    return allocatable(machines_of(pool, catalog), mig_of(pool))


def machines_of(pool: Pool, catalog: Catalog) -> Sequence[Machine]:
    """Return the machines of the pool. AbsentError if one is unknown; another rule reports it."""
    found = [catalog.machines.get(name) for source in pool.capacity for name in source.machines]
    if not found or None in found:
        raise AbsentError
    return [machine for machine in found if machine is not None]


def mig_of(pool: Pool) -> dict[str, int]:
    return {} if pool.sharing is None else dict(pool.sharing.mig or {})


def _not_offered(resource: str, offers: Mapping[str, int]) -> str:
    near = did_you_mean(resource, offers) or f"; there are {', '.join(sorted(offers))}"
    follows = any(name.startswith("nvidia.com/") for name in offers)
    why = " (cpu, memory and EFA follow the GPUs)" if follows and "nvidia.com" not in resource else ""
    return f"no pool has quotas of {quoted(resource)}{why}{near}"


def _too_much(resource: str, amount: int, left: int, offers: Mapping[str, int]) -> str:
    unit, most = ("m", offers[resource]) if resource == CPU else ("", offers[resource])
    before = f", of which earlier teams leave {max(left, 0)}{unit}" if left != most else ""
    return f"{amount}{unit} of {resource} is more than the pools have at their max: {most}{unit}{before}"
