"""File systems: one kind each, one mount point each, and only where that kind is supported."""

from collections.abc import Iterator

from gpucluster.catalog import Catalog, mount_options
from gpucluster.plan import names
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.problem import Finding
from gpucluster.spec.rules.findings import error, or_none
from gpucluster.spec.rules.hosts import touched, why_touched
from gpucluster.spec.storage import KINDS, FsxLustre
from gpucluster.text import quoted

LUSTRE_GIB = 1200  # FSx sells 1200 GiB, then steps of 2400
MOST_LINKS = 8  # of one file system (T45)
OF_AWS = ("efs", "fsx_lustre", "nvme")


def kinds(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    chosen = [kind for kind in KINDS if getattr(spec.storage[index], kind) is not None]
    if len(chosen) != 1:
        found = " and ".join(chosen) or "none"
        message = f"write exactly one of {', '.join(KINDS)}; found {found}"
        yield error("storage", index, id="storage-kind", message=message)


def mounted_twice(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    mounts = [or_none(lambda one=one: one.mount) for one in spec.storage]
    for index, mount in enumerate(mounts):
        if mount is not None and mount in mounts[:index]:
            message = f"{quoted(mount)} is already mounted by storage[{mounts.index(mount)}]"
            yield error("storage", index, "mount", id="mounted-twice", message=message)


def mounted_within(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse a mount below the machine's own disks: these are formatted at each boot."""
    require(spec.aws)
    mounts = {index: str(or_none(lambda one=one: one.mount)) for index, one in enumerate(spec.storage)}
    own = [mount for index, mount in mounts.items() if or_none(lambda i=index: spec.storage[i].nvme)]
    for index, mount in mounts.items():
        above = next((one for one in own if mount.startswith(f"{one}/")), None)
        if above is not None:
            message = f"{above} is on the machine's own disks, which are formatted at each boot; choose a mount point outside it"
            yield error("storage", index, "mount", id="mounted-within", message=message)


def over_system(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse a mount or an export that covers a folder of the system."""
    require(spec.aws)
    part = spec.storage[index]
    if system := touched(part.mount):
        message = (
            f"{part.mount} cannot be a mount point: {why_touched(part.mount, system)}the machine needs it"
        )
        yield error("storage", index, "mount", id="mounted-over-system", message=message)
    if part.mount == names.STATE_MOUNT:
        yield error(
            "storage",
            index,
            "mount",
            id="mounted-twice",
            message=f"{part.mount} is the mount point of the head's state",
        )
    nfs = require(part.nfs)
    if nfs.source == "head" and nfs.export is not None and (system := touched(nfs.export)):
        message = f"the head cannot export {nfs.export}: {why_touched(nfs.export, system)}every node could write there"
        yield error("storage", index, "nfs", "export", id="exported-system", message=message)


def server(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    nfs, path = require(spec.storage[index].nfs), ("storage", index, "nfs")
    if nfs.source not in (None, "head"):
        message = f"{quoted(nfs.source)} is not a source of NFS; write `from: head`, or the address of a server in 'server'"
        yield error(*path, "from", id="nfs-source", message=message)
    elif (nfs.source is None) == (nfs.server is None):
        yield error(*path, id="nfs-source", message="write exactly one of 'from: head' and 'server'")


def server_export(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    nfs = require(spec.storage[index].nfs)
    if nfs.server is not None and nfs.export is None:
        message = "'export' is missing: the folder that the server exports"
        yield error("storage", index, "nfs", id="missing-key", message=message)


def other_options(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """Each mount helper has its own options; `nofail` is none of mount.lustre's."""
    other = require(spec.storage[index].other)
    known = mount_options.helper(other.type)
    refused = mount_options.refused(other.type, other.options)
    if known is not None and refused:
        options = ", ".join(map(quoted, refused))
        message = f"{known.program} does not take {options}, and the mount fails; remove the option"
        yield error("storage", index, "other", "options", id="mount-options", message=message)


def lustre(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    part, path = require(spec.storage[index].fsx_lustre), ("storage", index, "fsx_lustre")
    zones = require(spec.aws).network.places
    if part.zone not in zones:
        message = f"{quoted(part.zone)} is not one of the network's zones ({', '.join(zones)})"
        yield error(*path, "zone", id="zone-not-in-network", message=message)
    yield from _existing_lustre(part, path) if part.id is not None else _new_lustre(part, path)


def links(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """FSx takes at most eight links, on folders that do not contain each other."""
    found, at = require(spec.storage[index].fsx_lustre).link, ("storage", index, "fsx_lustre", "link")
    if len(found) > MOST_LINKS:
        yield error(*at, id="too-many-links", message=f"{len(found)} links; FSx takes at most {MOST_LINKS}")
    for position, link in enumerate(found):
        for other in found[:position]:
            if _contains(link.path, other.path) or _contains(other.path, link.path):
                message = f"{link.path} and {other.path} overlap: each folder has one link"
                yield error(*at, position, "path", id="links-overlap", message=message)


def of_aws(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse AWS storage on existing hosts, and local disks, which may hold data there."""
    require(spec.hosts)
    for key, what in zip(
        OF_AWS,
        (
            "EFS is a service of AWS",
            "FSx for Lustre is a service of AWS",
            "gpucluster formats no disks of existing hosts",
        ),
        strict=True,
    ):
        if or_none(lambda key=key: getattr(spec.storage[index], key)) is not None:
            message = f"{what}, and this cluster is on `hosts`"
            yield error("storage", index, key, id="hosts-or-cloud", message=message)
    if or_none(lambda: require(spec.storage[index].nfs).size) is not None:
        message = "'size' belongs to a volume in a cloud; on `hosts` the head exports an existing folder"
        yield error("storage", index, "nfs", "size", id="hosts-or-cloud", message=message)


def _new_lustre(part: FsxLustre, path: tuple[str | int, ...]) -> Iterator[Finding]:
    if part.size is None:
        message = f"'size' is missing: {LUSTRE_GIB}GiB, or a multiple of {2 * LUSTRE_GIB}GiB"
        yield error(*path, id="missing-key", message=message)
    elif part.size != LUSTRE_GIB * 1024 and part.size % (2 * LUSTRE_GIB * 1024):
        message = f"FSx for Lustre is sold as {LUSTRE_GIB}GiB and in multiples of {2 * LUSTRE_GIB}GiB"
        yield error(*path, "size", id="lustre-size", message=message)


def _existing_lustre(part: FsxLustre, path: tuple[str | int, ...]) -> Iterator[Finding]:
    for key in ("size", "throughput", "link"):
        if getattr(part, key):
            message = f"'{key}' belongs to a new file system; '{part.id}' exists and has its own"
            yield error(*path, key, id="not-here", message=message)


def _contains(outer: str, inner: str) -> bool:
    return outer == inner or inner.startswith(f"{outer.rstrip('/')}/")
