"""Arguments of `mount` for each file system of a plan, and the exports of the head. For cloud machines and hosts. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import assert_never

from gpucluster.plan.model import (
    ClusterPlan,
    Efs,
    FileSystemBinding,
    FsxLustre,
    Mount,
    Nfs,
    NfsFromHead,
    NfsFromServer,
    Nvme,
    OtherMount,
    OwnNetwork,
    SiteEfs,
    SiteLustre,
    SlurmOnAws,
)

EXPORT = "rw,sync,no_subtree_check"  # the server maps a client's root to `nobody`: the default of NFS
NFS = "rw,hard,nosuid,nodev,_netdev,nofail"  # nofail: a boot must not fail on a dead server; the agent waits for it
BIND = "bind,nofail"
# AWS's own advice for an EFS of the site without its helper; nofail as above. AWS advises noresvport, too: the guard admits the
# kernel's client by its port below 1024.
EFS = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,nosuid,nodev,_netdev,nofail"
# amazon-efs-utils: the transport is encrypted. It adds noresvport unless the word is there, and the kernel takes the last of the two.
SITE_EFS_HELPER = "tls,noresvport,resvport,nosuid,nodev,_netdev,nofail"
EFS_HELPER = f"iam,{SITE_EFS_HELPER}"  # the role of the machine signs the mount (T47)
# mount.lustre passes `nofail` on to the kernel, and the client refuses it
LUSTRE = "noatime,flock,nosuid,nodev,_netdev"
# In fstab, for types whose helper may refuse `nofail`: a boot wants the mount and does not require it. mount(8) passes no `x-` option on.
WANTED = "x-systemd.wanted-by=remote-fs.target"


@dataclass(frozen=True, slots=True, kw_only=True)
class FstabLine:
    """One mount, in the fields of fstab."""

    path: str
    source: str
    type: str
    options: str

    def fstab_options(self) -> str:
        """Return the options for fstab. A boot must not fail on a dead server, and some helpers refuse `nofail`."""
        words = self.options.split(",")
        if {"nofail", "noauto"} & set(words) or any(word.startswith("x-systemd.") for word in words):
            return self.options
        return f"{self.options},{WANTED}"


def lines(
    plan: ClusterPlan,
    bound: Mapping[str, FileSystemBinding],
    *,
    on_head: bool,
    efs_helper: bool = False,
) -> tuple[FstabLine, ...]:
    """The mounts of a machine, outer mount points first; `efs_helper`: it has AWS's helper for EFS.

    A machine's own disks are not included. Our own EFS always needs the helper.
    KeyError for a file system that the bindings do not have.
    """
    away = None if on_head else heads_only(plan)
    ordered = sorted((one for one in plan.storage if one.path != away), key=lambda mount: mount.path)
    return tuple(line for mount in ordered for line in _of(mount, bound, on_head, efs_helper))


def heads_only(plan: ClusterPlan) -> str | None:
    """The mount point that only the two heads mount: slurmctld's state. Who writes it decides about every job."""
    standby = plan.head.standby if isinstance(plan, SlurmOnAws) else None
    return None if standby is None else standby.state


def exports(plan: ClusterPlan) -> tuple[str, ...]:
    """Folders that the head exports."""
    return tuple(sorted({nfs.export for nfs in _from_head(plan)}))


def clients(plan: ClusterPlan) -> tuple[str, ...]:
    """The clients of the exports: each existing host, or the address ranges of the cloud's machines."""
    hosts = tuple(address for pool in plan.pools for _, address in pool.hosts())
    if plan.aws is None or not isinstance(plan.aws.network, OwnNetwork):
        return hosts
    subnets = plan.aws.network.subnets
    found = {cidr for subnet in subnets for cidr in (subnet.cidr, subnet.public_cidr) if cidr}
    return tuple(sorted(found, key=ip_network))


def export_lines(plan: ClusterPlan) -> str:
    """The text of the exports file."""
    to = " ".join(f"{client}({EXPORT})" for client in clients(plan))
    return "".join(f"{path} {to}\n" for path in exports(plan))


def shares_homes(plan: ClusterPlan) -> Mount | None:
    """The mount that contains every machine's /home."""
    return next(
        (mount for mount in plan.storage if mount.path == "/home" and not isinstance(mount.source, Nvme)),
        None,
    )


def _of(
    mount: Mount, bound: Mapping[str, FileSystemBinding], on_head: bool, helper: bool
) -> Iterator[FstabLine]:
    match mount.source:
        case NfsFromHead() | NfsFromServer() as nfs:
            yield from _nfs(mount.path, nfs, on_head)
        case Efs():
            yield _efs(mount.path, bound[mount.path], EFS_HELPER)
        case SiteEfs() if helper:
            yield _efs(mount.path, bound[mount.path], SITE_EFS_HELPER)
        case SiteEfs():
            yield FstabLine(
                path=mount.path, source=f"{bound[mount.path].dns_name}:/", type="nfs4", options=EFS
            )
        case FsxLustre() | SiteLustre():
            found = bound[mount.path]
            source = f"{found.dns_name}@tcp:/{found.mount_name}"
            yield FstabLine(path=mount.path, source=source, type="lustre", options=LUSTRE)
        case OtherMount() as other:
            yield FstabLine(
                path=mount.path, source=other.source, type=other.type, options=other_options(other)
            )
        case Nvme():
            return
        case _:
            assert_never(mount.source)


def other_options(other: OtherMount) -> str:
    """Return the options of the spec. Set-user-ID programs and device files work only if the spec asks for them."""
    safe = [f"no{word}" for word in ("suid", "dev") if not {word, f"no{word}"} & set(other.options)]
    return ",".join((*(other.options or ("defaults",)), *safe))


def _nfs(path: str, nfs: Nfs, on_head: bool) -> Iterator[FstabLine]:
    if not (on_head and isinstance(nfs, NfsFromHead)):
        yield FstabLine(path=path, source=f"{nfs.server}:{nfs.export}", type="nfs4", options=NFS)
    elif nfs.export != path:
        yield FstabLine(path=path, source=nfs.export, type="none", options=BIND)


def _efs(path: str, bound: FileSystemBinding, options: str) -> FstabLine:
    """The access point makes the folder of the mount's own path, and it is the root that the machine sees."""
    point = f",accesspoint={bound.access_point}" if bound.access_point else ""
    return FstabLine(path=path, source=f"{bound.id}:/", type="efs", options=options + point)


def _from_head(plan: ClusterPlan) -> Iterator[NfsFromHead]:
    return (mount.source for mount in plan.storage if isinstance(mount.source, NfsFromHead))
