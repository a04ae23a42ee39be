"""`plan` in text: where the cluster stands, who gets in, and what its machines mount."""

from collections.abc import Iterator

from gpucluster.plan.model import Aws, ClusterPlan, Head, Lustre, Mount


def of_aws(site: Aws) -> Iterator[str]:
    """Region, image, tags; the network and its ways out."""
    image = f", image {site.image.id or site.image.name}" if site.image else ""
    yield f"aws     {site.region}{image}"
    network = site.network
    subnets = ", ".join(f"{subnet.zone} {subnet.id or subnet.cidr}" for subnet in network.subnets)
    yield f"network {network.vpc or network.cidr}: {subnets}"
    ways = (("NAT in", network.nat), ("endpoints of", network.endpoints))
    said = "; ".join(f"{what} {', '.join(found)}" for what, found in ways if found)
    if said:
        yield f"  {said}"
    if site.tags:
        yield f"tags    {', '.join(f'{key}={value}' for key, value in site.tags)}"


def of_head(head: Head) -> Iterator[str]:
    """The head, its volumes, and the one that waits."""
    machine = f"{head.machine} in {head.zone}, " if head.machine else ""
    yield f"head    {head.name}: {machine}{head.address}"
    for volume in head.volumes:
        yield f"  volume {volume.key}: {volume.size_gib} GiB at {volume.path}, protected"
    if head.standby is not None:
        waits = head.standby
        yield f"  standby: {waits.machine} in {waits.zone}, {waits.address}; state on {waits.state}"


def of_people(plan: ClusterPlan) -> Iterator[str]:
    """Login machines, the ways to them, and accounts."""
    if plan.login is not None:
        ways = [*plan.access.ssh_from, *(["Session Manager"] if plan.access.ssm else [])]
        names = ", ".join(plan.login.names)
        yield f"login   {names}: {plan.login.machine} in {plan.login.zone}; from {', '.join(ways) or 'nowhere'}"
    for user in plan.users:
        yield f"user {user.name}: uid {user.uid}, {len(user.keys)} key{'s' * (len(user.keys) != 1)}"
    if plan.directory is not None:
        yield f"people of {plan.directory.uri}, {plan.directory.base}"


def of_mounts(plan: ClusterPlan) -> Iterator[str]:
    """A line a mount."""
    return (f"mount {mount.path}: {_source(mount)}" for mount in plan.storage)


def _source(mount: Mount) -> str:
    if mount.nfs is not None:
        return f"nfs {mount.nfs.server}:{mount.nfs.export}"
    if mount.lustre is not None:
        return _lustre(mount.lustre)
    if mount.efs is not None:
        return f"EFS {mount.efs.id}" if mount.efs.id else "EFS"
    if mount.other is not None:
        return f"{mount.other.type} {mount.other.source}"
    return "the machine's own disks"


def _lustre(found: Lustre) -> str:
    if found.id is not None:
        return f"FSx for Lustre {found.id} in {found.zone}"
    return f"FSx for Lustre of {found.size_gib} GiB in {found.zone}"
