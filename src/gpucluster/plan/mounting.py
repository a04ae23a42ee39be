"""What `mount` is told of each file system of a plan, and what the head exports. Pure; the cloud's machines and hosts alike."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network

from gpucluster.plan.model import ClusterPlan, FileSystemBinding, Mount, Nfs

EXPORT = "rw,sync,no_subtree_check"  # root of a client is nobody here: the server's default
NFS = "rw,hard,nosuid,nodev,_netdev,nofail"  # nofail: a dead server must not stop a boot; the agent waits for it
BIND = "bind,nofail"
# AWS's own advice for EFS without its helper; nofail as above
EFS = (
    "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,nosuid,nodev,_netdev,nofail"
)
EFS_HELPER = "tls,nosuid,nodev,_netdev,nofail"  # amazon-efs-utils: the transport is encrypted
LUSTRE = "noatime,flock,nosuid,nodev,_netdev,nofail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One mount, in fstab's words."""

    path: str
    source: str
    type: str
    options: str


def lines(
    plan: ClusterPlan,
    bound: Mapping[str, FileSystemBinding],
    *,
    on_head: bool,
    efs_helper: bool = False,
) -> tuple[Line, ...]:
    """What is mounted on a machine, outer mount points first; `efs_helper`: it has AWS's helper for EFS.

    A machine's own disks are no part of it. KeyError for a file system that the bindings do not have.
    """
    ordered = sorted(plan.storage, key=lambda mount: mount.path)
    return tuple(line for mount in ordered for line in _of(mount, bound, on_head, efs_helper))


def exports(plan: ClusterPlan) -> tuple[str, ...]:
    """Folders that the head exports."""
    return tuple(sorted({nfs.export for nfs in _from_head(plan)}))


def clients(plan: ClusterPlan) -> tuple[str, ...]:
    """Whom it exports to: each host that exists, or the ranges in which the cloud's machines stand."""
    hosts = tuple(address for pool in plan.pools for _, address in pool.hosts())
    if plan.aws is None:
        return hosts
    subnets = plan.aws.network.subnets
    found = {cidr for subnet in subnets for cidr in (subnet.cidr, subnet.public_cidr) if cidr}
    return (*hosts, *sorted(found, key=ip_network))


def export_lines(plan: ClusterPlan) -> str:
    """The file of exports."""
    to = " ".join(f"{client}({EXPORT})" for client in clients(plan))
    return "".join(f"{path} {to}\n" for path in exports(plan))


def shares_homes(plan: ClusterPlan) -> Mount | None:
    """The mount that every machine's /home lies on."""
    return next((mount for mount in plan.storage if mount.path == "/home" and mount.nvme is None), None)


def _of(mount: Mount, bound: Mapping[str, FileSystemBinding], on_head: bool, helper: bool) -> Iterator[Line]:
    if mount.nfs is not None:
        yield from _nfs(mount.path, mount.nfs, on_head)
    elif mount.efs is not None:
        yield _efs(mount.path, bound[mount.path], helper)
    elif mount.lustre is not None:
        found = bound[mount.path]
        source = f"{found.dns_name}@tcp:/{found.mount_name}"
        yield Line(path=mount.path, source=source, type="lustre", options=LUSTRE)
    elif mount.other is not None:
        options = ",".join(mount.other.options) or "defaults"
        yield Line(path=mount.path, source=mount.other.source, type=mount.other.type, options=options)


def _nfs(path: str, nfs: Nfs, on_head: bool) -> Iterator[Line]:
    if not (on_head and nfs.from_head):
        yield Line(path=path, source=f"{nfs.server}:{nfs.export}", type="nfs4", options=NFS)
    elif nfs.export != path:
        yield Line(path=path, source=nfs.export, type="none", options=BIND)


def _efs(path: str, bound: FileSystemBinding, helper: bool) -> Line:
    """An access point's root is the folder of the mount's own path, which a machine without the helper mounts."""
    if helper:
        point = f",accesspoint={bound.access_point}" if bound.access_point else ""
        return Line(path=path, source=f"{bound.id}:/", type="efs", options=EFS_HELPER + point)
    root = path if bound.access_point else "/"
    return Line(path=path, source=f"{bound.dns_name}:{root}", type="nfs4", options=EFS)


def _from_head(plan: ClusterPlan) -> Iterator[Nfs]:
    return (mount.nfs for mount in plan.storage if mount.nfs is not None and mount.nfs.from_head)
