"""File systems that every machine of a cluster mounts."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from gpucluster.plan.model.values import Follow


@dataclass(frozen=True, slots=True, kw_only=True)
class NfsFromHead:
    """A folder that the head exports from its own disk."""

    kind: ClassVar[Literal["nfs-from-head"]] = "nfs-from-head"
    server: str  # the head's address
    export: str
    stand_in: bool = (
        False  # only in a rehearsal: a stand-in mounts it, so type and source are not those of NFS
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NfsFromServer:
    """An export of an NFS server of the site."""

    kind: ClassVar[Literal["nfs-from-server"]] = "nfs-from-server"
    server: str  # address
    export: str
    stand_in: bool = False  # as in `NfsFromHead`


Nfs = NfsFromHead | NfsFromServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Efs:
    """An EFS of ours, with a mount target in each zone. Its id is in the bindings."""

    kind: ClassVar[Literal["efs"]] = "efs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteEfs:
    """An existing EFS of the site."""

    kind: ClassVar[Literal["site-efs"]] = "site-efs"
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LustreLink:
    """A folder of the Lustre that is linked with a prefix of S3."""

    path: str
    s3: str  # s3://BUCKET/PREFIX
    imports: tuple[Follow, ...] = ()
    exports: tuple[Follow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FsxLustre:
    """An FSx for Lustre of ours. Its id, DNS name and mount name are in the bindings."""

    kind: ClassVar[Literal["fsx-lustre"]] = "fsx-lustre"
    zone: str
    size_gib: int
    throughput: int = 125  # MB/s for each TiB
    links: tuple[LustreLink, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteLustre:
    """An existing FSx for Lustre of the site. The spec does not name its size."""

    kind: ClassVar[Literal["site-lustre"]] = "site-lustre"
    id: str
    zone: str


Lustre = FsxLustre | SiteLustre


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvme:
    """The machine's own disks. The agent stripes them, and they are empty at each boot. A machine without disks has a folder."""

    kind: ClassVar[Literal["nvme"]] = "nvme"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherMount:
    """The arguments of `mount -t`."""

    kind: ClassVar[Literal["other"]] = "other"
    type: str
    source: str
    options: tuple[str, ...]


AwsFileSystem = (
    Efs | SiteEfs | FsxLustre | SiteLustre
)  # file systems with an id from AWS, which the bindings name
FileSystem = NfsFromHead | NfsFromServer | Efs | SiteEfs | FsxLustre | SiteLustre | Nvme | OtherMount


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A file system at `path` of every machine."""

    path: str
    source: FileSystem
