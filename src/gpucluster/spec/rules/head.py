"""The head, its standby, and the storage of their state."""

from collections.abc import Callable, Iterator

from gpucluster.catalog import Catalog
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules.findings import (
    advice,
    error,
    not_sold,
    or_none,
    security_warning,
    unknown_machine,
    warning,
)
from gpucluster.spec.storage import Storage
from gpucluster.text import quoted

LEAST_GIB = 8  # the smallest volume that is useful
MOST_GIB = 16384  # of one gp3 volume
HOMES = "/home"  # on every machine


_MACHINES: tuple[tuple[Path, Callable[[ClusterSpec], str], str], ...] = (
    (("head",), lambda spec: require(spec.head).machine, "the head"),
    (("head", "standby"), lambda spec: require(require(spec.head).standby).machine, "the head"),
    (("login",), lambda spec: require(spec.login).machine, "a login machine"),
)


def machines(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Check the machine types of the head, the standby and the login machines."""
    for path, read, words in _MACHINES:
        name = or_none(lambda read=read: read(spec))
        if not isinstance(name, str):
            continue
        machine = catalog.machines.get(name)
        if machine is None:
            yield unknown_machine(name, (*path, "machine"), catalog)
            continue
        if machine.gpu is not None:
            message = f"'{name}' has {machine.gpu.count} GPUs, which no job uses on {words}"
            yield warning(*path, "machine", id="head-with-gpu", message=message)
        region = or_none(lambda: require(spec.aws).region)
        if region in catalog.regions and region not in machine.zones_selling:
            message = not_sold(name, str(region), catalog, "it cannot be launched")
            yield warning(*path, "machine", id="machine-not-sold", message=message)


def state(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Slurm's queue survives the head only on a volume or file system that does."""
    require(spec.aws)
    head = require(spec.head)
    if head.state is None and head.standby is None:
        message = "Slurm's state is on the head's root volume and is deleted with it: `state: 100GiB` adds a protected volume"
        yield advice("head", id="head-state", message=message)
    if head.state is not None:
        yield from _size(head.state, ("head", "state"))
    if head.state is not None and head.standby is not None:
        message = "with a standby the state is on `standby.state`, which both heads mount"
        yield error("head", "state", id="not-here", message=message)


def standby(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Both heads must mount the same state, and should be in different zones."""
    network, part = require(spec.aws).network, require(require(spec.head).standby)
    at = ("head", "standby")
    if part.zone not in network.places:
        message = f"{quoted(part.zone)} is not one of the network's zones ({', '.join(network.places)})"
        yield error(*at, "zone", id="zone-not-in-network", message=message)
    elif part.zone == network.places[0] and len(network.places) > 1:
        message = f"the head is in {part.zone}, too: a failure of the zone stops both"
        yield warning(*at, "zone", id="standby-zone", message=message)
    shared = [one.mount for one in spec.storage if _is_shared(one)]
    if part.state == HOMES:
        message = f"only the heads mount the state, and {HOMES} is on every machine; give the state an EFS of its own, such as /state"
        yield error(*at, "state", id="standby-state", message=message)
    elif part.state not in shared:
        there = f"; there are {', '.join(shared)}" if shared else "; there is none"
        message = f"{quoted(part.state)} is not the mount point of an EFS or of an NFS server other than the head{there}"
        yield error(*at, "state", id="standby-state", message=message)
    elif any(one.mount == part.state and _is_of_the_site(one) for one in spec.storage):
        message = f"{part.state} is a file system of the site: its policy or its exports must admit the heads alone, "
        message += "because who reads it reads the queue, and who writes it runs jobs as other users"
        yield security_warning(*at, "state", id="standby-state-access", message=message)


def _is_of_the_site(one: Storage) -> bool:
    return or_none(lambda: one.nfs) is not None or or_none(lambda: require(one.efs).id) is not None


def exports(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """In a cloud, an export of the head is on its own volume."""
    require(spec.aws)
    nfs, at = require(spec.storage[index].nfs), ("storage", index, "nfs")
    if nfs.server is not None and nfs.size is not None:
        yield error(
            *at,
            "size",
            id="not-here",
            message="'size' belongs to the head's volume; an existing server has its own",
        )
    if nfs.source != "head" or nfs.server is not None or spec.head is None:
        return
    if nfs.size is None:
        message = "'size' is missing: the size of the head's protected volume, such as 200GiB"
        yield error(*at, id="missing-key", message=message)
    else:
        yield from _size(nfs.size, (*at, "size"))
    if or_none(lambda: require(spec.head).standby) is not None:
        message = "with a standby the head cannot export: the standby cannot attach its volume; use EFS"
        yield error(*at, "from", id="nfs-source", message=message)


def _size(mib: int, path: tuple[str | int, ...]) -> Iterator[Finding]:
    if not LEAST_GIB * 1024 <= mib <= MOST_GIB * 1024:
        yield error(*path, id="out-of-range", message=f"an EBS volume has {LEAST_GIB}GiB to {MOST_GIB}GiB")


def _is_shared(one: Storage) -> bool:
    nfs = or_none(lambda: one.nfs)
    server = or_none(lambda: require(one.nfs).server) if nfs is not None else None
    return or_none(lambda: one.efs) is not None or server is not None
