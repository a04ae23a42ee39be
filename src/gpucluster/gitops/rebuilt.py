"""Machines and stores of AWS that `pulumi up` creates anew, by the two plans. Pure.

Each part has an identity: what AWS fixes when it creates the part. Another identity replaces it. The comparison of
resources finds the same, except where a value is known only after the deployment.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucluster.plan import names, security_rules
from gpucluster.plan.model import (
    AwsPlan,
    Efs,
    FsxLustre,
    Image,
    ImageById,
    OwnNetwork,
    SiteSubnet,
    SlurmOnAws,
    Subnet,
)

Identity = Mapping[str, str]  # by the word of a sentence


@dataclass(frozen=True, slots=True)
class Store:
    """A protected volume or file system of ours."""

    path: str  # the mount point
    fixed: Identity
    size_gib: int = 0  # 0: it has no size
    is_lustre: bool = False


@dataclass(frozen=True, slots=True)
class Turned:
    """A fixed value that changes."""

    what: str
    was: str
    now: str


def turned(old: Identity, new: Identity) -> tuple[Turned, ...]:
    """Return the fixed values that differ, in their order."""
    return tuple(Turned(what, was, new[what]) for what, was in old.items() if was != new[what])


def head(plan: SlurmOnAws) -> Identity:
    return _machine(plan, plan.head.zone, public=False) | {"address": plan.head.address}


def login(plan: SlurmOnAws) -> Identity | None:
    """Return None if there are no login machines."""
    if plan.login is None:
        return None
    return _machine(plan, plan.login.zone, public=is_public(plan, plan.login.zone))


def is_public(plan: SlurmOnAws, zone: str) -> bool:
    """Return whether login machines stand in the public subnet, as `aws.login` decides."""
    return bool(plan.access.ssh_from) and any(
        one.zone == zone and one.has_public for one in plan.aws.network.subnets
    )


def stores(plan: AwsPlan) -> Mapping[str, Store]:
    """Return the volumes and file systems that the cluster created, by the name of their resource."""
    volumes = _volumes(plan) if isinstance(plan, SlurmOnAws) else ()
    return dict((*volumes, *_file_systems(plan)))


def launched_from(plan: SlurmOnAws) -> frozenset[str]:
    """Return the names of the launch templates and placement groups of Slurm's nodes."""
    templates = {f"{plan.name}-{one.key}" for pool in plan.pools for one in pool.templates}
    groups = {f"{plan.name}-{pool.name}-{span.zone}" for pool in plan.pools for span in pool.slots}
    return frozenset(templates | groups)


def occupied(plan: SlurmOnAws) -> frozenset[str]:
    """Return the names of the resources of `subnets`."""
    return frozenset({plan.name, *(f"{plan.name}-{one.zone}" for one in plan.aws.network.subnets)})


def retained(plan: AwsPlan) -> Mapping[str, str]:
    """Return what else is protected, because a Lustre of ours stands in it, by the name of its resource (`aws.vpc`)."""
    zones = frozenset(one.source.zone for one in plan.storage if isinstance(one.source, FsxLustre))
    if not zones:
        return {}
    region, vpc = plan.aws.region, f"{plan.aws.region} {_vpc(plan)}"
    found = {f"{plan.name}-{security_rules.LUSTRE}": vpc}
    if isinstance(plan.aws.network, OwnNetwork):
        found[plan.name] = vpc
        found |= {f"{plan.name}-{zone}": f"{region} {_subnet(plan, zone, public=False)}" for zone in zones}
    return found


def standing(plan: AwsPlan) -> Mapping[str, str]:
    """Return all that `retained` could name and that the plan has, also without a Lustre in it."""
    found = dict(retained(plan))
    if isinstance(plan.aws.network, OwnNetwork):
        region = plan.aws.region
        found[plan.name] = f"{region} {_vpc(plan)}"
        found |= {f"{plan.name}-{one.zone}": f"{region} {one.cidr}" for one in plan.aws.network.subnets}
    return found


def subnets(plan: SlurmOnAws) -> frozenset[str]:
    """Return what AWS does not delete while a node is in it. Nodes are in private subnets."""
    network = plan.aws.network
    vpc = f"{plan.aws.region} {_vpc(plan)}"
    if isinstance(network, OwnNetwork):
        return frozenset(f"{vpc} {one.cidr}" for one in network.subnets)
    return frozenset({vpc})  # subnets of the site stay


def _machine(plan: SlurmOnAws, zone: str, *, public: bool) -> dict[str, str]:
    return {
        "region": plan.aws.region,
        "VPC": _vpc(plan),
        "zone": zone,
        "subnet": _subnet(plan, zone, public=public),
        "image": image(plan.image),
        "KMS key": _key(plan),
    }


def _volumes(plan: SlurmOnAws) -> Iterator[tuple[str, Store]]:
    fixed = {"region": plan.aws.region, "zone": plan.head.zone, "KMS key": _key(plan)}
    for volume in plan.head.volumes:
        yield f"{plan.name}-{volume.key}", Store(volume.path, fixed, volume.size_gib)


def _file_systems(plan: AwsPlan) -> Iterator[tuple[str, Store]]:
    fixed = {"region": plan.aws.region, "KMS key": _key(plan)}
    for mount in plan.storage:
        word = names.volume_name(mount.path) or "root"
        match mount.source:
            case Efs():
                yield f"{plan.name}-efs-{word}", Store(mount.path, fixed)
            case FsxLustre(zone=zone, size_gib=size):
                place = {"VPC": _vpc(plan), "zone": zone, "subnet": _subnet(plan, zone, public=False)}
                yield (
                    f"{plan.name}-lustre-{word}",
                    Store(mount.path, {**fixed, **place}, size, is_lustre=True),
                )
            case _:
                pass


def _vpc(plan: AwsPlan) -> str:
    network = plan.aws.network
    return network.cidr if isinstance(network, OwnNetwork) else network.vpc


def _subnet(plan: AwsPlan, zone: str, *, public: bool) -> str:
    """Return what identifies the zone's subnet: its range if it is our own, else its id."""
    for one in plan.aws.network.subnets:
        if one.zone == zone:
            match one:
                case Subnet(cidr=private, public_cidr=open_cidr):
                    return str(open_cidr if public else private)
                case SiteSubnet(id=private, public_id=open_id):
                    return str(open_id if public else private)
    return ""


def _key(plan: AwsPlan) -> str:
    return plan.aws.kms_key or "the key of AWS"


def image(found: Image) -> str:
    return found.id if isinstance(found, ImageById) else found.name
