"""Which parts a cluster must have: one place to stand, a scheduler, and what each of these needs."""

from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import written
from gpucluster.spec.problem import Finding
from gpucluster.spec.rules.findings import error


def site(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    if spec.aws is None:
        yield _missing("aws", "the cloud")


def orchestrator(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    if spec.slurm is None:
        yield _missing("slurm", "the scheduler")


def of_slurm(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    written(spec.slurm)
    if not spec.partitions:
        yield _missing("partitions", "Slurm's queues")
    written(spec.aws)
    if spec.head is None:
        yield _missing("head", "the controller's machine")


def of_pool_on_aws(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    written(spec.aws)
    pool = spec.pools[index]
    if not pool.capacity:
        yield _missing("capacity", "where machines come from", "pools", index)
    if pool.nodes is None:
        yield _missing("nodes", "how many nodes", "pools", index)


def _missing(key: str, what: str, *path: str | int) -> Finding:
    return error(*path, id="missing-key", says=f"'{key}' is missing: {what}")
