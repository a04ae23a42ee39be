"""The parts that a cluster must have: `aws` or `hosts`, a scheduler, and the parts that these need."""

from collections.abc import Iterator
from pathlib import PurePath

from gpucluster.catalog import Catalog
from gpucluster.spec.decode import example_of
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.problem import Finding
from gpucluster.spec.rules.findings import error
from gpucluster.text import quoted


def site(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    if spec.aws is None and spec.hosts is None:
        yield error(id="missing-key", message="'aws' or 'hosts' is missing: the place of the cluster")
    if spec.aws is not None and spec.hosts is not None:
        yield error("hosts", id="two-sites", message="a cluster is on `aws` or on `hosts`, not on both")


def name_of_file(spec: ClusterSpec, file: str) -> Iterator[Finding]:
    """In a folder `stacks` the file has the name of the cluster: `pulumi up -s NAME` reads stacks/NAME.yaml."""
    path, name = PurePath(file), require(spec.name)
    if path.parent.name == "stacks" and path.suffix == ".yaml" and path.stem != name:
        message = f"{quoted(name)} is not the name of the file: write `name: {path.stem}`, or name the file {name}.yaml; `pulumi up -s NAME` reads stacks/NAME.yaml"
        yield error("name", id="name-not-file", message=message)


def orchestrator(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    if spec.slurm is None and spec.kubernetes is None:
        yield error(id="missing-key", message="'slurm' or 'kubernetes' is missing: the scheduler")


def of_slurm(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    require(spec.slurm)
    if not spec.partitions:
        yield _missing("partitions", "Slurm's queues")
    require(spec.aws)
    if spec.head is None and spec.hosts is None:
        yield _missing("head", "the controller's machine")


def parts_of_slurm(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse parts that only Slurm uses in a cluster without Slurm."""
    for key in ("head", "partitions", "login", "access", "users", "directory", "health"):
        if getattr(spec, key) and spec.slurm is None and spec.kubernetes is not None:
            yield error(key, id="no-slurm", message=f"'{key}' needs a 'slurm' part, and the cluster has none")


def of_pool_on_aws(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    require(spec.aws)
    pool = spec.pools[index]
    if spec.hosts is not None:
        return
    if not pool.capacity:
        yield _missing("capacity", "the sources of machines", "pools", index)
    if pool.nodes is None:
        yield _missing("nodes", "the number of nodes", "pools", index)


def _missing(key: str, what: str, *path: str | int) -> Finding:
    example = example_of(f"{path[0]}[].{key}" if path else key)
    return error(*path, id="missing-key", message=f"'{key}' is missing: {what}{example}")
