"""Tiers out of proportion: storage that works and disappoints. Warnings, for only the site knows its jobs."""

from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.plan import defaults
from gpucluster.spec.model import ClusterSpec, Pool
from gpucluster.spec.part import written
from gpucluster.spec.pools import of_slurm
from gpucluster.spec.problem import Finding
from gpucluster.spec.rules.findings import advice, or_none, warning
from gpucluster.spec.rules.network import zones_of

# What training reads at least, MB/s a GPU: the lowest of NVIDIA's three classes for a DGX SuperPOD of H100 systems
# is 15 GB/s for 32 nodes of eight [not verified].
LEAST_A_GPU = 50
HOME = "/home"


def lustre_speed(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    """A Lustre that starves the GPUs of Slurm's jobs, which may all read it at once; pods have claims of their own."""
    written(spec.slurm)
    wish = written(spec.storage[index].fsx_lustre)
    if wish.id is not None:
        return
    each = wish.throughput or int(defaults.LUSTRE_THROUGHPUT.value)
    gives = written(wish.size) // 1024 * each // 1024  # GiB, and MB/s a TiB
    gpus = sum(_gpus(pool, catalog) for pool in of_slurm(spec))
    if gpus and gives < LEAST_A_GPU * gpus:
        says = f"{gives} MB/s for up to {gpus} GPUs is {gives / gpus:.0f} MB/s each, and training reads {LEAST_A_GPU} or more: a larger size or throughput"
        yield warning("storage", index, "fsx_lustre", id="lustre-slow", says=says)


def lustre_zone(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """A Lustre stands in one zone; from another each byte is slow, and paid."""
    written(spec.slurm)
    wish = written(spec.storage[index].fsx_lustre)
    for pool in of_slurm(spec):
        zones = {zone for source in pool.capacity for zone in zones_of(spec, source)}
        if zones - {wish.zone}:
            far = ", ".join(sorted(zones - {wish.zone}))
            says = f"the pool '{pool.name}' may stand in {far}: its reads cross zones, slower and paid by the byte"
            yield warning("storage", index, "fsx_lustre", "zone", id="lustre-zone", says=says)
            return


def own_disks(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    """A mount of the machine's own disks where there are none is a folder of the root volume."""
    mounts = [one.mount for one in spec.storage if or_none(lambda one=one: one.nvme) is not None]
    if not mounts or spec.hosts is not None or spec.pools[index] not in of_slurm(spec):
        return
    for position, source in enumerate(spec.pools[index].capacity):
        for at, name in enumerate(source.machines):
            machine = catalog.machines.get(name)
            if machine is not None and not machine.local_disks:
                says = f"'{name}' has no disks of its own: {mounts[0]} is a folder of its root volume there"
                yield warning(
                    "pools", index, "capacity", position, "machines", at, id="no-own-disks", says=says
                )


def checkpoints(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Where jobs of many nodes have only the homes in common, their checkpoints land there."""
    written(spec.aws)
    shared = [one for one in spec.storage if one.nvme is None]
    spread = [pool.name for pool in of_slurm(spec) if _gpus(pool, catalog) and written(pool.nodes).max > 1]
    if spread and len(shared) == 1 and shared[0].mount == HOME and shared[0].fsx_lustre is None:
        says = f"the nodes of '{spread[0]}' share nothing but {HOME}: checkpoints would fill it, and wait for it; add a file system for data"
        yield advice("storage", spec.storage.index(shared[0]), "mount", id="checkpoints-on-home", says=says)


def _gpus(pool: Pool, catalog: Catalog) -> int:
    """At its max; what is not in the catalog counts nothing."""
    names = [name for source in pool.capacity for name in source.machines]
    machines = [catalog.machines[name] for name in names if name in catalog.machines]
    most = max((machine.gpu.count for machine in machines if machine.gpu is not None), default=0)
    return most * written(pool.nodes).max
