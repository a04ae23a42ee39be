"""The head, the one that waits beside it, and where their state lies."""

from collections.abc import Callable, Iterator

from gpucluster.catalog import Catalog
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import written
from gpucluster.spec.problem import Finding, Path, quoted
from gpucluster.spec.rules.findings import advice, error, not_sold, or_none, unknown_machine, warning
from gpucluster.spec.storage import Storage

LEAST_GIB = 8  # of a volume with a file system that is worth one
MOST_GIB = 16384  # of one gp3 volume


_MACHINES: tuple[tuple[Path, Callable[[ClusterSpec], str], str], ...] = (
    (("head",), lambda spec: written(spec.head).machine, "the head"),
    (("head", "standby"), lambda spec: written(written(spec.head).standby).machine, "the head"),
    (("login",), lambda spec: written(spec.login).machine, "a login machine"),
)


def machines(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Of the head, the standby and the login machines alike."""
    for path, read, words in _MACHINES:
        name = or_none(lambda read=read: read(spec))
        if not isinstance(name, str):
            continue
        machine = catalog.machines.get(name)
        if machine is None:
            yield unknown_machine(name, (*path, "machine"), catalog)
            continue
        if machine.gpu is not None:
            says = f"'{name}' has {machine.gpu.count} GPUs, and no job runs on {words}"
            yield warning(*path, "machine", id="head-with-gpu", says=says)
        region = or_none(lambda: written(spec.aws).region)
        if region in catalog.regions and region not in machine.zones_selling:
            says = not_sold(name, str(region), catalog, "it cannot be launched")
            yield warning(*path, "machine", id="machine-not-sold", says=says)


def state(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Slurm's queue outlives its machine only where it lies on something that does."""
    written(spec.aws)
    head = written(spec.head)
    if head.state is None and head.standby is None:
        says = "Slurm's state lies on the head's own disk and goes with it: `state: 100GiB` gives it a protected volume"
        yield advice("head", id="head-state", says=says)
    if head.state is not None:
        yield from _size(head.state, ("head", "state"))
    if head.state is not None and head.standby is not None:
        says = "with a standby the state lies on `standby.state`, which both heads mount"
        yield error("head", "state", id="not-here", says=says)


def standby(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Both heads must see one state, and one of them must outlive the other's zone."""
    network, wish = written(spec.aws).network, written(written(spec.head).standby)
    at = ("head", "standby")
    if wish.zone not in network.places:
        says = f"{quoted(wish.zone)} is not one of the network's zones ({', '.join(network.places)})"
        yield error(*at, "zone", id="zone-not-in-network", says=says)
    elif wish.zone == network.places[0] and len(network.places) > 1:
        says = f"the head stands in {wish.zone}, too: when the zone goes dark both do"
        yield warning(*at, "zone", id="standby-zone", says=says)
    shared = [one.mount for one in spec.storage if _is_shared(one)]
    if wish.state not in shared:
        there = f"; there are {', '.join(shared)}" if shared else "; there is none"
        says = f"{quoted(wish.state)} is not a mount of EFS or of an NFS server that is not the head{there}"
        yield error(*at, "state", id="standby-state", says=says)


def exports(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """On a cloud what the head exports lies on a volume of its own."""
    written(spec.aws)
    nfs, at = written(spec.storage[index].nfs), ("storage", index, "nfs")
    if nfs.server is not None and nfs.size is not None:
        yield error(
            *at,
            "size",
            id="not-here",
            says="'size' is of the head's volume; a server that is there has its own",
        )
    if nfs.source != "head" or nfs.server is not None or spec.head is None:
        return
    if nfs.size is None:
        says = "'size' is missing: the head's protected volume for it, such as 200GiB"
        yield error(*at, id="missing-key", says=says)
    else:
        yield from _size(nfs.size, (*at, "size"))
    if or_none(lambda: written(spec.head).standby) is not None:
        says = "with a standby no head exports: the other could not take over its disk; use EFS"
        yield error(*at, "from", id="nfs-source", says=says)


def _size(mib: int, path: tuple[str | int, ...]) -> Iterator[Finding]:
    if not LEAST_GIB * 1024 <= mib <= MOST_GIB * 1024:
        yield error(*path, id="out-of-range", says=f"a volume of EBS is {LEAST_GIB}GiB to {MOST_GIB}GiB")


def _is_shared(one: Storage) -> bool:
    nfs = or_none(lambda: one.nfs)
    server = or_none(lambda: written(one.nfs).server) if nfs is not None else None
    return or_none(lambda: one.efs) is not None or server is not None
