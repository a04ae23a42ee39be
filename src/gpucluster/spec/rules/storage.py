"""File systems: one kind each, mounted once, and only where we know how."""

from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import written
from gpucluster.spec.problem import Finding, quoted
from gpucluster.spec.rules.findings import error, or_none
from gpucluster.spec.storage import KINDS

LUSTRE_GIB = 1200  # FSx sells 1200 GiB, then steps of 2400


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


def server(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    nfs, path = written(spec.storage[index].nfs), ("storage", index, "nfs")
    if nfs.source not in (None, "head"):
        says = f"{quoted(nfs.source)} cannot export; only 'head' can, or name a server by its address"
        yield error(*path, "from", id="nfs-source", says=says)
    elif (nfs.source is None) == (nfs.server is None):
        yield error(*path, id="nfs-source", says="exactly one of 'from: head' and 'server' says who exports")


def lustre(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    wish, path = written(spec.storage[index].fsx_lustre), ("storage", index, "fsx_lustre")
    zones = written(spec.aws).network.zones
    if wish.zone not in zones:
        says = f"{quoted(wish.zone)} is not one of the network's zones ({', '.join(zones)})"
        yield error(*path, "zone", id="zone-not-in-network", says=says)
    if wish.size != LUSTRE_GIB * 1024 and wish.size % (2 * LUSTRE_GIB * 1024):
        says = f"FSx for Lustre is sold as {LUSTRE_GIB}GiB and in multiples of {2 * LUSTRE_GIB}GiB"
        yield error(*path, "size", id="lustre-size", says=says)


def on_aws(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """Slurm's machines on AWS mount nothing yet; manifests do."""
    written(spec.aws)
    written(spec.slurm)
    says = "storage for Slurm's machines on AWS is not supported yet"
    yield error("storage", index, id="not-supported", says=says)
