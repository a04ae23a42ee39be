"""EKS: fields that only it has, and who reaches and uses it."""

import ipaddress
from collections.abc import Iterator

from gpucluster.catalog import Catalog, eks_addon_versions, kubernetes_charts
from gpucluster.plan import names
from gpucluster.plan.eks import is_private, reserved_within
from gpucluster.plan.model.capacity import Source
from gpucluster.plan.node_pools import filled
from gpucluster.spec.addons import addons_of
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.kubernetes import Runs, on_eks
from gpucluster.spec.model import ClusterSpec, Pool
from gpucluster.spec.part import require
from gpucluster.spec.pools import run_by, sources_of
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules.access import WIDE
from gpucluster.spec.rules.findings import (
    error,
    or_none,
    other_partition,
    repeated,
    security_warning,
    warning,
)
from gpucluster.spec.rules.kubernetes import has_elastic_pool
from gpucluster.text import quoted

GROUPS, GROUP_NODES = 30, 450  # EKS user guide, "Service quotas"; both are adjustable
PUBLIC_RANGES = 40  # EKS user guide, "Service quotas"; not adjustable
GROUP_RULES = 60  # in a direction of a security group: Amazon VPC user guide, "Amazon VPC quotas"; adjustable
SERVICE_ROLE = ":role/aws-service-role/"
OF_EKS = ("admins", "api_from", "system")


def its_fields(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse the fields of EKS for a cluster that exists: its owner decides them."""
    part = require(spec.kubernetes)
    if on_eks(part):
        return
    message = "is for a control plane that gpucluster creates; the owner of an existing cluster decides it"
    for key in OF_EKS:
        if or_none(lambda key=key: getattr(part, key)):
            yield error("kubernetes", key, id="not-here", message=f"'{key}' {message}")
    for index, team in enumerate(part.teams):
        if or_none(lambda team=team: team.members):
            yield error(
                "kubernetes", "teams", index, "members", id="not-here", message=f"'members' {message}"
            )


def system(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Check the machine of the add-ons: its image has no GPU driver."""
    machine = require(require(require(spec.kubernetes).system).machine)
    found, at = catalog.machines.get(machine), ("kubernetes", "system", "machine")
    if found is None:
        near = did_you_mean(machine, catalog.machines)
        yield error(*at, id="unknown-machine", message=f"{quoted(machine)} is not in the catalog{near}")
    elif found.gpu is not None:
        message = f"{machine} has GPUs, which no add-on uses: write a machine without GPUs"
        yield error(*at, id="gpu-without-use", message=message)


def addons(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Warn of an add-on without a version in the catalog: EKS would choose it on the day of `pulumi up`."""
    part = require(spec.kubernetes)
    if not on_eks(part) or part.version not in catalog.kubernetes_known:
        return  # `version` reports an unknown one
    pins = eks_addon_versions(part.version)
    missing = [name for name in addons_of(spec.storage) if name not in pins]
    if missing:
        message = f"no version of the add-ons {', '.join(missing)} is known for Kubernetes {part.version}, so EKS installs its default of the day, and two clusters of this spec can differ"
        yield warning("kubernetes", "version", id="addon-version", message=message)


def people(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Check principals: each once in a list, and one that EKS takes in an access entry."""
    part, name = require(spec.kubernetes), or_none(lambda: require(spec.name))
    own = f":role/{names.kubernetes_node_role(name or '')}"
    named: list[tuple[Path, tuple[str, ...]]] = [(("kubernetes", "admins"), part.admins)]
    for index, team in enumerate(part.teams):
        members = or_none(lambda team=team: team.members) or ()
        named.append((("kubernetes", "teams", index, "members"), members))
    for path, principals in named:
        yield from repeated(principals, path, "the principal")
        for index, one in enumerate(principals):
            if message := other_partition(one):
                yield error(*path, index, id="bad-arn", message=message)
            elif one.endswith(own) and has_elastic_pool(spec):
                message = f"{quoted(one)} is the role of this cluster's nodes, which `pulumi up` makes with an access entry of its own, and EKS makes no second one: write a role that people or programs assume"
                yield error(*path, index, id="bad-arn", message=message)
            elif SERVICE_ROLE in one:
                message = f"{quoted(one)} is a role of a service, and EKS makes no access entry for one: write a role that people or programs assume"
                yield error(*path, index, id="bad-arn", message=message)


def ranges(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    found = require(spec.kubernetes).api_from
    yield from repeated(found, ("kubernetes", "api_from"), "the range")
    for index, one in enumerate(found):
        if ipaddress.IPv4Network(one).prefixlen <= WIDE and not is_private(one):
            message = f"{one} is a large part of the internet: write the site's own address ranges"
            yield security_warning("kubernetes", "api_from", index, id="open-to-all", message=message)
        if reserved := reserved_within(one):
            message = f"{one} has addresses of {reserved}, and EKS takes no reserved ones in a public range: write ranges without them, or a private range"
            yield error("kubernetes", "api_from", index, id="bad-cidr", message=message)
    private = sum(is_private(one) for one in found)
    public = len(found) - private
    if public > PUBLIC_RANGES:
        message = f"{public} public ranges: EKS takes {PUBLIC_RANGES} at most, and AWS gives no more. Join ranges, or let people come through the VPC by a private range"
        yield error("kubernetes", "api_from", id="eks-quota", message=message)
    if private >= GROUP_RULES:
        message = f"{private} private ranges, and one rule for the nodes: the quota of a security group is {GROUP_RULES} rules. Ask AWS for more, or join ranges"
        yield warning("kubernetes", "api_from", id="eks-quota", message=message)


def nat(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse a network without a way out: nodes pull images of several public registries, and Karpenter reads prices."""
    if on_eks(require(spec.kubernetes)) and require(spec.aws).network.nat == "none":
        message = "nodes of EKS and the charts need a way out: their images are in public registries; write 'nat: one' or leave it out"
        yield error("aws", "network", "nat", id="no-way-out", message=message)


def karpenter(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Refuse elastic pools on a version of Kubernetes that the pinned Karpenter refuses."""
    version, chart = require(spec.kubernetes).version, kubernetes_charts()["karpenter"]
    known = catalog.kubernetes_known
    if version not in known or chart.newest is None or known.index(version) <= known.index(chart.newest):
        return
    for index, pool in enumerate(spec.pools):
        nodes = or_none(lambda pool=pool: require(pool.nodes))
        if run_by(spec, pool) is Runs.KUBERNETES and nodes is not None and nodes.min < nodes.max:
            message = f"Karpenter {chart.version} launches nodes up to Kubernetes {chart.newest}, and the cluster has {version}: write `min` and `max` alike, or an older version"
            yield error("pools", index, "nodes", id="karpenter-version", message=message)


def node_groups(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Warn of always-on nodes beyond EKS's default quotas. The nodes fill the sources in order, and each source is a node group."""
    if not on_eks(require(spec.kubernetes)):
        return
    own = or_none(lambda: require(require(spec.kubernetes).system).nodes) or 0
    if own > GROUP_NODES:
        yield warning("kubernetes", "system", "nodes", id="eks-quota", message=_group_of(own, "write fewer"))
    groups = 1  # of the system
    for index, pool in enumerate(spec.pools):
        for _, nodes, _ in _groups(spec, pool) if run_by(spec, pool) is Runs.KUBERNETES else ():
            groups += 1
            if nodes > GROUP_NODES:
                message = _group_of(nodes, "divide the pool")
                yield warning("pools", index, "nodes", id="eks-quota", message=message)
            if groups == GROUPS + 1:
                message = f"the pools up to this one make {groups} node groups, with that of the system: EKS's quota is {GROUPS} in a cluster. Ask AWS for more, or join pools"
                yield warning("pools", index, "name", id="eks-quota", message=message)


def _group_of(nodes: int, instead: str) -> str:
    return f"a node group of {nodes} nodes: EKS's quota is {GROUP_NODES} in one group. Ask AWS for more, or {instead}"


def group_names(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse node groups of one name: two resources of Pulumi cannot have it, and EKS neither."""
    if not on_eks(require(spec.kubernetes)):
        return
    region = require(spec.aws).region
    for index, pool in enumerate(spec.pools):
        if run_by(spec, pool) is not Runs.KUBERNETES:
            continue
        if or_none(lambda pool=pool: pool.name) == names.SYSTEM_NODES:
            message = f"'{names.SYSTEM_NODES}' is the name of the nodes of add-ons and controllers; choose another name"
            yield error("pools", index, "name", id="reserved-name", message=message)
        made = dict[str, int]()
        for source, _, zone in _groups(spec, pool):
            kind = source.reservation or source.market.value
            key = names.node_group(pool.name, kind, source.machines[0], region, zone)
            if key in made:
                message = f"its always-on nodes and those of capacity[{made[key]}] are {source.market.value} {source.machines[0]} in {zone}, which is one node group of EKS: join the sources, or write another zone first"
                yield error("pools", index, "capacity", source.position, id="repeated", message=message)
            made.setdefault(key, source.position)


def _groups(spec: ClusterSpec, pool: Pool) -> Iterator[tuple[Source, int, str]]:
    """Yield the source, the nodes and the zone of each node group of a pool, as the plan will have them."""
    return filled(require(pool.nodes).min, sources_of(pool, require(spec.aws).network.places))


def kms_key(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Warn of rights that only the key's own policy can give, and of disks without the key."""
    require(require(spec.aws).kms_key)
    if on_eks(require(spec.kubernetes)):
        message = "EC2 Auto Scaling launches the nodes of node groups: the policy of the key must allow AWSServiceRoleForAutoScaling to use it and to make grants. Volumes of claims have the account's default key"
        yield warning("aws", "kms_key", id="key-of-nodes", message=message)
    elif has_elastic_pool(spec):
        message = "Karpenter launches the nodes of elastic pools, and their disks have the key: the role of its controller must be allowed to use it and to make grants"
        yield warning("aws", "kms_key", id="key-of-nodes", message=message)
