"""File systems: one kind each, mounted once, and only where we know how."""

from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.plan import names
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import written
from gpucluster.spec.problem import Finding, quoted
from gpucluster.spec.rules.findings import error, or_none
from gpucluster.spec.rules.hosts import touched, why_touched
from gpucluster.spec.storage import KINDS, FsxLustre

LUSTRE_GIB = 1200  # FSx sells 1200 GiB, then steps of 2400
MOST_LINKS = 8  # of one file system (T45)
OF_AWS = ("efs", "fsx_lustre", "nvme")


def kinds(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    chosen = [kind for kind in KINDS if getattr(spec.storage[index], kind) is not None]
    if len(chosen) != 1:
        found = " and ".join(chosen) or "none"
        says = f"exactly one of {', '.join(KINDS)} says what is mounted; found {found}"
        yield error("storage", index, id="storage-kind", says=says)


def mounted_twice(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    mounts = [or_none(lambda one=one: one.mount) for one in spec.storage]
    for index, mount in enumerate(mounts):
        if mount is not None and mount in mounts[:index]:
            says = f"{quoted(mount)} is already mounted by storage[{mounts.index(mount)}]"
            yield error("storage", index, "mount", id="mounted-twice", says=says)


def mounted_within(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """The machine's own disks below nothing, and nothing below them: they are made at each boot."""
    written(spec.aws)
    mounts = {index: str(or_none(lambda one=one: one.mount)) for index, one in enumerate(spec.storage)}
    own = [mount for index, mount in mounts.items() if or_none(lambda i=index: spec.storage[i].nvme)]
    for index, mount in mounts.items():
        above = next((one for one in own if mount.startswith(f"{one}/")), None)
        if above is not None:
            says = f"{above} is made of the machine's own disks at each boot; mount nothing below it"
            yield error("storage", index, "mount", id="mounted-within", says=says)


def over_system(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """Nothing is mounted, and nothing exported, over what a machine lives by."""
    written(spec.aws)
    wish = spec.storage[index]
    if system := touched(wish.mount):
        says = f"nothing is mounted over {wish.mount}: {why_touched(wish.mount, system)}the machine would not live without it"
        yield error("storage", index, "mount", id="mounted-over-system", says=says)
    if wish.mount == names.STATE_MOUNT:
        yield error(
            "storage", index, "mount", id="mounted-twice", says=f"{wish.mount} is the head's own state"
        )
    nfs = written(wish.nfs)
    if nfs.source == "head" and nfs.export is not None and (system := touched(nfs.export)):
        says = f"the head does not export {nfs.export}: {why_touched(nfs.export, system)}every node could write there"
        yield error("storage", index, "nfs", "export", id="exported-system", says=says)


def server(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    nfs, path = written(spec.storage[index].nfs), ("storage", index, "nfs")
    if nfs.source not in (None, "head"):
        says = f"{quoted(nfs.source)} cannot export; only 'head' can, or name a server by its address"
        yield error(*path, "from", id="nfs-source", says=says)
    elif (nfs.source is None) == (nfs.server is None):
        yield error(*path, id="nfs-source", says="exactly one of 'from: head' and 'server' says who exports")


def server_export(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    nfs = written(spec.storage[index].nfs)
    if nfs.server is not None and nfs.export is None:
        says = "'export' is missing: the folder that the server exports"
        yield error("storage", index, "nfs", id="missing-key", says=says)


def lustre(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    wish, path = written(spec.storage[index].fsx_lustre), ("storage", index, "fsx_lustre")
    zones = written(spec.aws).network.places
    if wish.zone not in zones:
        says = f"{quoted(wish.zone)} is not one of the network's zones ({', '.join(zones)})"
        yield error(*path, "zone", id="zone-not-in-network", says=says)
    yield from _lustre_there(wish, path) if wish.id is not None else _lustre_made(wish, path)


def links(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """FSx takes eight, on folders that do not hold one another."""
    found, at = written(spec.storage[index].fsx_lustre).link, ("storage", index, "fsx_lustre", "link")
    if len(found) > MOST_LINKS:
        yield error(*at, id="too-many-links", says=f"{len(found)} links; FSx takes {MOST_LINKS}")
    for position, link in enumerate(found):
        for other in found[:position]:
            if _holds(link.path, other.path) or _holds(other.path, link.path):
                says = f"{link.path} and {other.path} are not apart: each folder follows one place"
                yield error(*at, position, "path", id="links-overlap", says=says)


def of_aws(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """On hosts that exist these have no meaning, or would take disks that hold something."""
    written(spec.hosts)
    for key, what in zip(
        OF_AWS, ("EFS is AWS's", "FSx for Lustre is AWS's", "disks are the site's own"), strict=True
    ):
        if or_none(lambda key=key: getattr(spec.storage[index], key)) is not None:
            says = f"{what}, and this cluster stands on `hosts`"
            yield error("storage", index, key, id="hosts-or-cloud", says=says)
    if or_none(lambda: written(spec.storage[index].nfs).size) is not None:
        says = "'size' is of a cloud's volume; the head exports a folder that it has"
        yield error("storage", index, "nfs", "size", id="hosts-or-cloud", says=says)


def _lustre_made(wish: FsxLustre, path: tuple[str | int, ...]) -> Iterator[Finding]:
    if wish.size is None:
        says = f"'size' is missing: {LUSTRE_GIB}GiB, or a multiple of {2 * LUSTRE_GIB}GiB"
        yield error(*path, id="missing-key", says=says)
    elif wish.size != LUSTRE_GIB * 1024 and wish.size % (2 * LUSTRE_GIB * 1024):
        says = f"FSx for Lustre is sold as {LUSTRE_GIB}GiB and in multiples of {2 * LUSTRE_GIB}GiB"
        yield error(*path, "size", id="lustre-size", says=says)


def _lustre_there(wish: FsxLustre, path: tuple[str | int, ...]) -> Iterator[Finding]:
    for key in ("size", "throughput", "link"):
        if getattr(wish, key):
            says = f"'{key}' is of a file system that is made; '{wish.id}' is there and has its own"
            yield error(*path, key, id="not-here", says=says)


def _holds(outer: str, inner: str) -> bool:
    return outer == inner or inner.startswith(f"{outer.rstrip('/')}/")
