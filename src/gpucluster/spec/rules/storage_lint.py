"""Storage that is valid and slow, or too small. These are warnings, because only the site knows its jobs."""

from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.plan import defaults
from gpucluster.spec.model import ClusterSpec, Pool
from gpucluster.spec.part import require
from gpucluster.spec.pools import of_slurm
from gpucluster.spec.problem import Finding
from gpucluster.spec.rules.findings import advice, or_none, warning
from gpucluster.spec.rules.network import zones_of

# The least that training reads, in MB/s for each GPU: the lowest of NVIDIA's three classes for a DGX SuperPOD of H100 systems
# is 15 GB/s for 32 nodes of eight [not verified].
LEAST_A_GPU = 50
HOME = "/home"


def lustre_speed(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    """Warn if Lustre is slow for the GPUs of Slurm's jobs, which may all read at once. Pods have their own claims."""
    require(spec.slurm)
    part = require(spec.storage[index].fsx_lustre)
    if part.id is not None:
        return
    each = part.throughput or int(defaults.LUSTRE_THROUGHPUT.value)
    gives = require(part.size) // 1024 * each // 1024  # GiB, and MB/s a TiB
    gpus = sum(_gpus(pool, catalog) for pool in of_slurm(spec))
    if gpus and gives < LEAST_A_GPU * gpus:
        message = f"{gives} MB/s for up to {gpus} GPUs is {gives / gpus:.0f} MB/s each, and training reads {LEAST_A_GPU} or more: choose a larger size or throughput"
        yield warning("storage", index, "fsx_lustre", id="lustre-slow", message=message)


def lustre_zone(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """Lustre is in one zone. Traffic from another zone is slower and has a price."""
    require(spec.slurm)
    part = require(spec.storage[index].fsx_lustre)
    for pool in of_slurm(spec):
        zones = {zone for source in pool.capacity for zone in zones_of(spec, source)}
        if zones - {part.zone}:
            far = ", ".join(sorted(zones - {part.zone}))
            message = f"the pool '{pool.name}' can get nodes in {far}: their reads cross zones, which is slower and has a price"
            yield warning("storage", index, "fsx_lustre", "zone", id="lustre-zone", message=message)
            return


def own_disks(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    """Warn about machines without local disks: there the mount is a folder of the root volume."""
    mounts = [one.mount for one in spec.storage if or_none(lambda one=one: one.nvme) is not None]
    if not mounts or spec.hosts is not None or spec.pools[index] not in of_slurm(spec):
        return
    for position, source in enumerate(spec.pools[index].capacity):
        for at, name in enumerate(source.machines):
            machine = catalog.machines.get(name)
            if machine is not None and not machine.local_disks:
                message = f"'{name}' has no local disks: there {mounts[0]} is a folder of the root volume"
                yield warning(
                    "pools", index, "capacity", position, "machines", at, id="no-own-disks", message=message
                )


def checkpoints(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Suggest a file system for checkpoints if jobs of several nodes share only the homes."""
    require(spec.aws)
    shared = [one for one in spec.storage if one.nvme is None]
    spread = [pool.name for pool in of_slurm(spec) if _gpus(pool, catalog) and require(pool.nodes).max > 1]
    if spread and len(shared) == 1 and shared[0].mount == HOME and shared[0].fsx_lustre is None:
        message = f"the nodes of '{spread[0]}' share only {HOME}: checkpoints would fill it and be slow; add a file system for data"
        yield advice(
            "storage", spec.storage.index(shared[0]), "mount", id="checkpoints-on-home", message=message
        )


def _gpus(pool: Pool, catalog: Catalog) -> int:
    """Return the GPUs of the pool at its max. Machines outside the catalog count as none."""
    names = [name for source in pool.capacity for name in source.machines]
    machines = [catalog.machines[name] for name in names if name in catalog.machines]
    most = max((machine.gpu.count for machine in machines if machine.gpu is not None), default=0)
    return most * require(pool.nodes).max
