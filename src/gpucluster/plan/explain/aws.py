"""Decisions of the plan on AWS: the network, the heads, access, interfaces, placement and storage."""

from collections.abc import Iterator

from gpucluster.plan import defaults, names
from gpucluster.plan.defaults import Note
from gpucluster.plan.model import (
    AwsPlan,
    AwsPool,
    ClusterPlan,
    Efs,
    ImageByName,
    InterfaceKind,
    Mount,
    NfsFromHead,
    Nvme,
    OwnNetwork,
    Sessions,
    SlurmOnAws,
)
from gpucluster.spec import ClusterSpec
from gpucluster.spec.head import Login as LoginSpec
from gpucluster.spec.head import Sessions as SessionsSpec
from gpucluster.spec.model import Pool as PoolSpec
from gpucluster.spec.part import require


def of_network(spec: ClusterSpec, plan: AwsPlan) -> Iterator[Note]:
    """Ranges, routes to the internet, and the image."""
    aws, requested = plan.aws, require(spec.aws)
    if isinstance(aws.network, OwnNetwork):
        yield from _subnets(aws.network)
    if aws.network.nat and requested.network.nat is None:
        yield Note("network.nat", ", ".join(aws.network.nat), defaults.NAT_REASON)
    added = [one for one in aws.network.endpoints if one not in (requested.network.endpoints or ())]
    if added:
        yield Note(
            "network.endpoints",
            ", ".join(added),
            "without NAT the machines reach these services only by endpoints in the VPC",
        )
    if aws.jobs is not None:
        yield Note("aws.jobs.role", f"{plan.name}-{names.ROLE_JOBS}", _WHY_JOBS)
    if isinstance(plan, SlurmOnAws) and isinstance(plan.image, ImageByName) and requested.image is None:
        yield Note("aws.image", plan.image.name, defaults.IMAGE_OS_REASON)


def _subnets(network: OwnNetwork) -> Iterator[Note]:
    why = "an eighth of the network, chosen by the zone's letter: adding a zone changes no address"
    outside = "the zone's part of the last eighth, for NAT gateways and login machines: only these have public addresses"
    for subnet in network.subnets:
        yield Note(f"network.subnets[{subnet.zone}]", subnet.cidr, why)
        if subnet.public_cidr is not None:
            yield Note(f"network.public[{subnet.zone}]", subnet.public_cidr, outside)


def of_head(spec: ClusterSpec, plan: SlurmOnAws) -> Iterator[Note]:
    """The zones and addresses of the heads, and the volumes of their state."""
    head, requested = plan.head, require(spec.head)
    yield Note("head.zone", head.zone, "the first of the network's zones")
    if requested.address is None:
        yield Note(
            "head.address", head.address, "fixed, because Slurm's files contain it before the head exists"
        )
    for volume in head.volumes:
        why = "encrypted and protected: a replaced head attaches it again"
        yield Note(f"head.volumes[{volume.key}]", f"{volume.size_gib} GiB at {volume.path}", why)
    if head.standby is not None and require(requested.standby).address is None:
        yield Note("head.standby.address", head.standby.address, "fixed, as the address of the head")


def of_access(requested: LoginSpec | None, plan: SlurmOnAws) -> Iterator[Note]:
    """The access rules that the spec does not set."""
    login = plan.login
    if login is None:
        yield Note(
            "login",
            "none",
            "the spec has no `login`; with `access.ssm` Session Manager opens a shell on the head",
        )
        return
    yield Note(
        "login.names",
        ", ".join(login.names),
        f"in {login.zone}: the zone of the head, or the zone of the spec's `login`",
    )
    yield from _sessions(requested, login.sessions)
    if not plan.access.ssh_from:
        yield Note("access.ssh_from", "none", "the spec names no address range")


def _sessions(requested: LoginSpec | None, limits: Sessions) -> Iterator[Note]:
    written = (requested and requested.sessions) or SessionsSpec()
    rows = (
        ("memory", written.memory, f"{limits.memory_mib} MiB", defaults.SESSION_SHARE),
        ("tasks", written.tasks, str(limits.tasks), defaults.SESSION_TASKS),
        ("cpus", written.cpus, str(limits.cpus), defaults.SESSION_CPUS),
    )
    for name, field, value, rule in rows:
        if field is None:
            yield Note(
                f"login.sessions.{name}",
                value,
                f"of all sessions of one user; root has no limit. {rule.reason}",
            )


def of_pool(requested: PoolSpec, pool: AwsPool) -> Iterator[Note]:
    """Interfaces of each machine, and whether its nodes are placed near each other."""
    at = f"pools[{pool.name}]"
    for template in {template.machine: template for template in pool.templates}.values():
        fabric = sum(one.kind is not InterfaceKind.ENA for one in template.interfaces)
        if fabric:
            why = "one interface for each network card with EFA. These have no IP address, so a node uses one address"
            yield Note(f"{at}.efa[{template.machine}]", str(fabric), why)
    if requested.placement is None:
        why = _WHY_NEAR if pool.placement else _WHY_NOT
        yield Note(f"{at}.placement", "cluster" if pool.placement else "none", why)
    rule = defaults.ROOT_GIB
    yield Note(f"{at}.root", f"{rule.value:g} GiB", rule.reason)


def of_storage(spec: ClusterSpec, plan: ClusterPlan) -> Iterator[Note]:
    """The fields of a mount that the spec does not set."""
    for requested, mount in zip(spec.storage, plan.storage, strict=True):
        at = f"storage[{mount.path}]"
        lustre = requested.fsx_lustre
        if lustre is not None and lustre.id is None and lustre.throughput is None:
            rule = defaults.LUSTRE_THROUGHPUT
            yield Note(f"{at}.throughput", f"{rule.value:g} MB/s a TiB", rule.reason)
        yield from _mount(at, mount)


def _mount(at: str, mount: Mount) -> Iterator[Note]:
    if isinstance(mount.source, NfsFromHead):
        why = f"from the head's volume '{names.export_key(mount.path)}', exported only to machines of the cluster"
        yield Note(f"{at}.export", f"{mount.source.server}:{mount.source.export}", why)
    elif isinstance(mount.source, Efs):
        yield Note(f"{at}.targets", "one for each zone", "machines use the mount target of their own zone")
    elif isinstance(mount.source, Nvme):
        yield Note(
            f"{at}.kept",
            "until the machine ends",
            "on the machine's local disks, empty at each boot; on the root volume if it has none",
        )


_WHY_JOBS = (
    "the agent of the node gives each job credentials for an hour; jobs cannot use the role of the machine"
)
_WHY_NEAR = "the machines have EFA: in a cluster placement group their traffic has fewer hops"
_WHY_NOT = "no EFA, one node, or prepaid capacity: a placement group would only reduce the available capacity"
