"""What the plan decided of the network, the heads, the ways in, interfaces, placement and storage on AWS."""

from collections.abc import Iterator

from gpucluster.plan import defaults, names
from gpucluster.plan.model import ClusterPlan, InterfaceKind, Mount, Pool, there
from gpucluster.plan.note import Note
from gpucluster.spec import ClusterSpec
from gpucluster.spec.model import Pool as PoolSpec


def of_network(spec: ClusterSpec, plan: ClusterPlan) -> Iterator[Note]:
    """Ranges, ways out, and the image."""
    aws, wish = there(plan.aws), there(spec.aws)
    why = "an eighth of the network, by the zone's letter: another zone moves no address"
    outside = "its part of the last eighth: gateways and login machines alone have public addresses"
    for subnet in aws.network.subnets:
        if subnet.id is None:
            yield Note(f"network.subnets[{subnet.zone}]", subnet.cidr, why)
        if subnet.public_cidr is not None:
            yield Note(f"network.public[{subnet.zone}]", subnet.public_cidr, outside)
    if aws.network.nat and wish.network.nat is None:
        yield Note("network.nat", ", ".join(aws.network.nat), defaults.NAT_REASON)
    added = [one for one in aws.network.endpoints if one not in (wish.network.endpoints or ())]
    if added:
        yield Note(
            "network.endpoints", ", ".join(added), "without NAT the machines reach these inside the VPC"
        )
    if aws.jobs is not None:
        yield Note("aws.jobs.role", f"{plan.name}-{names.ROLE_JOBS}", _WHY_JOBS)
    if aws.image is not None and wish.image is None:
        yield Note("aws.image", there(aws.image.name), defaults.IMAGE_OS_REASON)


def of_head(spec: ClusterSpec, plan: ClusterPlan) -> Iterator[Note]:
    """Where the heads stand, and on what their state lies."""
    head, wish = there(plan.head), there(spec.head)
    yield Note("head.zone", there(head.zone), "the first of the network's zones")
    if wish.address is None:
        yield Note(
            "head.address", head.address, "fixed, so that nodes and files can name it before it exists"
        )
    for volume in head.volumes:
        why = "encrypted and protected: the machine may be made anew, and finds it again"
        yield Note(f"head.volumes[{volume.key}]", f"{volume.size_gib} GiB at {volume.path}", why)
    if head.standby is not None and there(wish.standby).address is None:
        yield Note("head.standby.address", head.standby.address, "fixed, as the head's")


def of_access(plan: ClusterPlan) -> Iterator[Note]:
    """Who gets in where nobody said it."""
    login = plan.login
    if login is None:
        yield Note("login", "none", "none was wished: Session Manager on the head, if `access.ssm` says so")
        return
    yield Note(
        "login.names", ", ".join(login.names), f"in {login.zone}, beside the head unless wished otherwise"
    )
    if not plan.access.ssh_from:
        yield Note("access.ssh_from", "nobody", "no address was named")


def of_pool(wish: PoolSpec, pool: Pool) -> Iterator[Note]:
    """Interfaces by machine, and whether its nodes are placed near each other."""
    at = f"pools[{pool.name}]"
    for template in {template.machine: template for template in pool.templates}.values():
        fabric = sum(one.kind is not InterfaceKind.ENA for one in template.interfaces)
        if fabric:
            why = "one a network card that takes it, without an address: a node costs one address"
            yield Note(f"{at}.efa[{template.machine}]", str(fabric), why)
    if wish.placement is None:
        why = _WHY_NEAR if pool.placement else _WHY_NOT
        yield Note(f"{at}.placement", "cluster" if pool.placement else "none", why)
    rule = defaults.ROOT_GIB
    yield Note(f"{at}.root", f"{rule.value:g} GiB", rule.reason)


def of_storage(spec: ClusterSpec, plan: ClusterPlan) -> Iterator[Note]:
    """What nobody wrote of a mount."""
    for wish, mount in zip(spec.storage, plan.storage, strict=True):
        at = f"storage[{mount.path}]"
        lustre = wish.fsx_lustre
        if lustre is not None and lustre.id is None and lustre.throughput is None:
            rule = defaults.LUSTRE_THROUGHPUT
            yield Note(f"{at}.throughput", f"{rule.value:g} MB/s a TiB", rule.reason)
        yield from _mount(at, mount)


def _mount(at: str, mount: Mount) -> Iterator[Note]:
    if mount.nfs is not None and mount.nfs.from_head:
        why = f"from the head's own volume '{names.export_key(mount.path)}', to the cluster's machines alone"
        yield Note(f"{at}.export", f"{mount.nfs.server}:{mount.nfs.export}", why)
    elif mount.efs is not None and mount.efs.id is None:
        yield Note(
            f"{at}.targets", "one a zone", "EFS takes one in each zone, and machines use their own zone's"
        )
    elif mount.nvme is not None:
        yield Note(
            f"{at}.kept",
            "until the machine ends",
            "its own disks, empty at each boot; a folder where it has none",
        )


_WHY_JOBS = (
    "each job's keys come from its node's agent and live for an hour; a machine's own role stays out of reach"
)
_WHY_NEAR = "its machines have EFA and come one by one: near each other their traffic has fewer hops"
_WHY_NOT = "no EFA, one node, or bought ahead: a group would only make capacity harder to have"
