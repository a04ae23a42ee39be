"""Which parts a cluster must have: one place to stand, a scheduler, and what each of these needs."""

from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import written
from gpucluster.spec.problem import Finding
from gpucluster.spec.rules.findings import error


def site(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    if spec.aws is None and spec.hosts is None:
        yield error(id="missing-key", says="'aws' or 'hosts' is missing: where the cluster stands")
    if spec.aws is not None and spec.hosts is not None:
        yield error("hosts", id="two-sites", says="a cluster stands on `aws` or on `hosts`, not on both")


def orchestrator(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    if spec.slurm is None and spec.kubernetes is None:
        yield error(id="missing-key", says="'slurm' or 'kubernetes' is missing: what schedules")


def of_slurm(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    written(spec.slurm)
    if not spec.partitions:
        yield _missing("partitions", "Slurm's queues")
    written(spec.aws)
    if spec.head is None and spec.hosts is None:
        yield _missing("head", "the controller's machine")


def only_slurms(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Parts that would be read by nobody."""
    for key in ("head", "partitions", "login", "access", "users", "directory"):
        if getattr(spec, key) and spec.slurm is None and spec.kubernetes is not None:
            yield error(key, id="no-slurm", says=f"'{key}' is Slurm's, and the cluster has no 'slurm' part")


def of_pool_on_aws(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    written(spec.aws)
    pool = spec.pools[index]
    if spec.hosts is not None:
        return
    if not pool.capacity:
        yield _missing("capacity", "where machines come from", "pools", index)
    if pool.nodes is None:
        yield _missing("nodes", "how many nodes", "pools", index)


def _missing(key: str, what: str, *path: str | int) -> Finding:
    return error(*path, id="missing-key", says=f"'{key}' is missing: {what}")
