"""What AWS must show of a cluster: its instances, the rules of its security groups, its stores. Pure."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpucluster.checks.cloud import Owned, SearchScope
from gpucluster.checks.cloud_images import ImagesWant
from gpucluster.checks.cloud_journal import JournalWant
from gpucluster.checks.cloud_machines import FixedMachine, Machines, NodeTemplate
from gpucluster.checks.cloud_network import NetworkWant
from gpucluster.checks.cloud_roles import RolesWant
from gpucluster.checks.cloud_rules import RulesWant, RuleWant
from gpucluster.checks.cloud_stores import BucketWant, FileSystemsWant, FileSystemWant, QueueWant, SecretWant
from gpucluster.checks.cloud_templates import TemplatesWant, TemplateWant, digest
from gpucluster.plan import names
from gpucluster.plan.model import (
    AwsPlan,
    AwsPool,
    Bindings,
    Efs,
    FsxLustre,
    Image,
    ImageById,
    LaunchTemplate,
    SiteEfs,
    SiteLustre,
    SlurmOnAws,
    eks_of,
)
from gpucluster.plan.model.aws import OwnNetwork
from gpucluster.plan.security_rules import roles, rules
from gpucluster.plan.user_data import encoded, user_data
from gpucluster.validate.declared_roles import declared_roles


def of_cluster(plan: SlurmOnAws, bindings: Bindings | None) -> Iterator[tuple[str, Any]]:
    """The checks with their values. Only the bindings say which templates and which network the cluster has."""
    place = _place(plan, bindings)
    fixed = _fixed(plan)
    of_pulumi = tuple(one.name for one in fixed if one.role != names.ROLE_HEAD)
    yield "cloud.orphans", Owned(place=place, fixed=of_pulumi, kubernetes=eks_of(plan) is not None)
    yield "cloud.journal", JournalWant(place=place)
    if bindings is not None:
        node_group = bindings.groups.get(names.ROLE_NODE, "")
        templates = _templates(plan, bindings)
        yield "cloud.machines", Machines(place=place, fixed=fixed, templates=templates, node_group=node_group)
        yield "cloud.images", ImagesWant(cluster=plan.name, templates=templates)
        yield "cloud.templates", _launched(plan, bindings)
        yield "cloud.rules", RulesWant(place=place, groups=roles(plan), rules=_rules(plan))
        yield "cloud.network", _network(plan, bindings)
        yield from _stores(plan, bindings)


def of_kubernetes(plan: AwsPlan, bindings: Bindings | None) -> Iterator[tuple[str, Any]]:
    """The checks of a cluster on EKS without Slurm. Its groups are found by their tag, and the rest by the bindings."""
    yield "cloud.rules", RulesWant(place=_place(plan, bindings), groups=roles(plan), rules=_rules(plan))
    if bindings is not None and bindings.subnets:
        yield "cloud.network", _network(plan, bindings)
        yield from _file_systems(plan, bindings)


def _network(plan: AwsPlan, bindings: Bindings) -> NetworkWant:
    network = plan.aws.network
    private = tuple(sorted(bindings.subnets.values()))
    if not isinstance(network, OwnNetwork):
        return NetworkWant(cluster=plan.name, own=False, private=private, endpoints=network.endpoints)
    public = tuple(span.public_cidr for span in network.subnets if span.public_cidr is not None)
    return NetworkWant(
        cluster=plan.name,
        own=True,
        private=private,
        public=public,
        nat=bool(network.nat),
        endpoints=network.endpoints,
    )


def _stores(plan: SlurmOnAws, bindings: Bindings) -> Iterator[tuple[str, Any]]:
    key = plan.aws.kms_key or ""
    yield "cloud.bucket", BucketWant(cluster=plan.name, bucket=bindings.bucket, key=key)
    if bindings.queue:
        yield "cloud.queue", QueueWant(cluster=plan.name, url=bindings.queue)
    yield "cloud.secret", SecretWant(cluster=plan.name, arn=bindings.secret, key=key)
    yield "cloud.roles", _roles(plan, bindings)
    yield from _file_systems(plan, bindings)


def _file_systems(plan: AwsPlan, bindings: Bindings) -> Iterator[tuple[str, Any]]:
    subnets = tuple(sorted(bindings.subnets.values()))
    systems = tuple(
        found
        for mount in plan.storage
        if mount.path in bindings.file_systems
        and (found := _system(mount.source, bindings.file_systems[mount.path].id, subnets)) is not None
    )
    if systems:
        yield "cloud.file_systems", FileSystemsWant(cluster=plan.name, systems=systems)


def _roles(plan: SlurmOnAws, bindings: Bindings) -> RolesWant:
    """All templates of nodes name one profile."""
    template = next((f"{one.id}:{one.version}" for _, one in sorted(bindings.templates.items())), "")
    return RolesWant(
        cluster=plan.name,
        roles=tuple(declared_roles(plan, bindings)),
        node=f"{plan.name}-{names.ROLE_NODE}",
        template=template,
        jobs="" if plan.aws.jobs is None else bindings.jobs_role.rpartition("/")[2],
    )


def _system(source: object, name: str, subnets: tuple[str, ...]) -> FileSystemWant | None:
    match source:
        case Efs():
            return FileSystemWant(id=name, subnets=subnets)
        case SiteEfs():
            return FileSystemWant(id=name, own=False)
        case FsxLustre():
            return FileSystemWant(id=name, lustre=True, size_gib=source.size_gib)
        case SiteLustre():
            return FileSystemWant(id=name, lustre=True, own=False)
        case _:
            return None


def _place(plan: AwsPlan, bindings: Bindings | None) -> SearchScope:
    if bindings is None:
        return SearchScope(cluster=plan.name)
    return SearchScope(
        cluster=plan.name,
        subnets=tuple(sorted(bindings.subnets.values())),
        groups=tuple(sorted(bindings.groups.values())),
        whole_vpc=isinstance(plan.aws.network, OwnNetwork),
    )


def _fixed(plan: SlurmOnAws) -> tuple[FixedMachine, ...]:
    head = plan.head
    image = _image(plan.image)
    found = [_machine(f"{plan.name}-{names.ROLE_HEAD}", names.ROLE_HEAD, head.machine, image)]
    if head.standby is not None:
        found.append(
            _machine(f"{plan.name}-{names.ROLE_STANDBY}", names.ROLE_STANDBY, head.standby.machine, image)
        )
    if plan.login is not None:
        zones = {span.zone for span in plan.aws.network.subnets if span.has_public}
        public = bool(plan.access.ssh_from) and plan.login.zone in zones
        made = (_machine(name, names.ROLE_LOGIN, plan.login.machine, image) for name in plan.login.names)
        found += [replace(one, public=public) for one in made]
    return tuple(found)


def _machine(name: str, role: str, machine: str, image: str) -> FixedMachine:
    """The standby has the head's security group."""
    group = names.ROLE_LOGIN if role == names.ROLE_LOGIN else names.ROLE_HEAD
    return FixedMachine(name=name, role=role, machine=machine, group=group, image=image)


def _image(image: Image) -> str:
    return image.id if isinstance(image, ImageById) else image.name


def _templates(plan: SlurmOnAws, bindings: Bindings) -> tuple[NodeTemplate, ...]:
    return tuple(
        NodeTemplate(
            id=bindings.templates[one.key].id,
            version=bindings.templates[one.key].version,
            pool=pool.name,
            machine=one.machine,
            image=_image(pool.image or plan.image),
        )
        for pool in plan.pools
        for one in pool.templates
        if one.key in bindings.templates
    )


def _launched(plan: SlurmOnAws, bindings: Bindings) -> TemplatesWant:
    told = user_data(cluster=plan.name, region=plan.aws.region, bucket=bindings.bucket, role=names.ROLE_NODE)
    return TemplatesWant(
        cluster=plan.name,
        templates=tuple(_template(pool, one, bindings) for pool in plan.pools for one in pool.templates),
        group=bindings.groups.get(names.ROLE_NODE, ""),
        profile=f"{plan.name}-{names.ROLE_NODE}",
        user_data=digest(encoded(told)),
    )


def _template(pool: AwsPool, one: LaunchTemplate, bindings: Bindings) -> TemplateWant:
    bound = bindings.templates.get(one.key)
    return TemplateWant(
        id="" if bound is None else bound.id,
        version=0 if bound is None else bound.version,
        pool=pool.name,
        machine=one.machine,
        market=one.market.value,
        interfaces=one.interfaces,
        root_gib=one.root_gib,
        reservation=pool.sources[one.source].reservation or "",
    )


def _rules(plan: AwsPlan) -> tuple[RuleWant, ...]:
    return tuple(
        RuleWant(group=one.group, peer=one.peer, ports=one.ports, out=one.out) for one in rules(plan)
    )
