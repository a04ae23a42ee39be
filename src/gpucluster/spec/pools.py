"""The orchestrator, the sources and the hardware of each pool."""

from gpucluster.catalog import Catalog, Machine
from gpucluster.plan.model.capacity import Source
from gpucluster.plan.model.shapes import NodeShape
from gpucluster.slurm import hardware
from gpucluster.spec.kubernetes import Runs
from gpucluster.spec.model import ClusterSpec, Pool


def run_by(spec: ClusterSpec, pool: Pool) -> Runs | None:
    """Return the orchestrator of the pool, or the only one of the cluster; None if there are two and the pool names none."""
    if pool.runs is not None:
        return Runs(pool.runs)
    if spec.slurm is not None and spec.kubernetes is not None:
        return None
    return Runs.SLURM if spec.kubernetes is None else Runs.KUBERNETES


def of_slurm(spec: ClusterSpec) -> tuple[Pool, ...]:
    """Return Slurm's pools, in order."""
    return tuple(pool for pool in spec.pools if run_by(spec, pool) is Runs.SLURM)


def of_kubernetes(spec: ClusterSpec) -> tuple[Pool, ...]:
    """Return Kubernetes' pools, in order."""
    return tuple(pool for pool in spec.pools if run_by(spec, pool) is Runs.KUBERNETES)


def sources_of(pool: Pool, zones: tuple[str, ...]) -> tuple[Source, ...]:
    """Return the sources of a pool. A source without zones has all of the network."""
    return tuple(
        Source(
            position=position,
            market=requested.source,
            machines=requested.machines,
            zones=requested.zones or zones,
            max=requested.max,
            reservation=requested.id,
            max_price=requested.max_price,
        )
        for position, requested in enumerate(pool.capacity)
    )


def machines_of_aws(pool: Pool, catalog: Catalog) -> tuple[Machine, ...]:
    """Return the machines of the pool that the catalog knows."""
    found = (catalog.machines.get(name) for source in pool.capacity for name in source.machines)
    return tuple(machine for machine in found if machine is not None)


def shape_of(spec: ClusterSpec, pool: Pool, catalog: Catalog) -> NodeShape | None:
    """Return the hardware of the pool's nodes, as the plan has it; None if no machine is known."""
    own, of_aws = spec.machines.get(pool.machine or ""), machines_of_aws(pool, catalog)
    shape = hardware.of_host(own) if own is not None else hardware.of_aws(of_aws) if of_aws else None
    return None if shape is None else hardware.without_reserved(shape, pool.extra)
