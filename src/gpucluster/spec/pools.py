"""Which orchestrator a pool has."""

from gpucluster.spec.kubernetes import Runs
from gpucluster.spec.model import ClusterSpec, Pool


def run_by(spec: ClusterSpec, pool: Pool) -> Runs | None:
    """What was written, or the only one there is; None where there are two and the pool does not say."""
    if pool.runs is not None:
        return Runs(pool.runs)
    if spec.slurm is not None and spec.kubernetes is not None:
        return None
    return Runs.SLURM if spec.kubernetes is None else Runs.KUBERNETES


def of_slurm(spec: ClusterSpec) -> tuple[Pool, ...]:
    """Slurm's pools, in order."""
    return tuple(pool for pool in spec.pools if run_by(spec, pool) is Runs.SLURM)


def of_kubernetes(spec: ClusterSpec) -> tuple[Pool, ...]:
    """Kubernetes' pools, in order."""
    return tuple(pool for pool in spec.pools if run_by(spec, pool) is Runs.KUBERNETES)
