"""Slurm's side: its version, the names of pools and partitions, and what each partition stands on."""

from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.kubernetes import Runs
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import written
from gpucluster.spec.pools import run_by
from gpucluster.spec.problem import Finding, quoted
from gpucluster.spec.rules.findings import error, or_none, repeated, same_names


def slurm_version(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    version, supported = written(spec.slurm).version, ", ".join(catalog.slurm_supported)
    if version in catalog.slurm_supported:
        return
    if version in catalog.slurm_known:
        says = f"Slurm {version} is known but not supported yet; supported: {supported}"
    else:
        known = ", ".join(catalog.slurm_known)
        says = f"{quoted(version)} is not a Slurm release that we know ({known}); supported: {supported}"
    yield error("slurm", "version", id="slurm-version", says=says)


def pool_names(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    yield from same_names([lambda pool=pool: pool.name for pool in spec.pools], "pools")


def partition_names(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    yield from same_names([lambda part=part: part.name for part in spec.partitions], "partitions")


def defaults(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    chosen = [i for i, partition in enumerate(spec.partitions) if or_none(lambda p=partition: p.default)]
    for index in chosen[1:]:
        says = f"there can be one default partition, and partitions[{chosen[0]}] already is it"
        yield error("partitions", index, "default", id="two-defaults", says=says)


def unused_pools(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    written(spec.slurm)
    used = {name for partition in spec.partitions for name in partition.pools}
    for index, pool in enumerate(spec.pools):
        name = or_none(lambda pool=pool: pool.name)
        slurms = or_none(lambda pool=pool: run_by(spec, pool)) is Runs.SLURM
        if name is not None and name not in used and slurms:
            says = f"no partition uses the pool '{name}', so no job could reach it"
            yield error("pools", index, "name", id="unused-pool", says=says)


def pool_size(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    nodes = written(spec.pools[index].nodes)
    if nodes.min > nodes.max:
        says = f"min {nodes.min} is above max {nodes.max}"
        yield error("pools", index, "nodes", "min", id="min-above-max", says=says)


def partition_pools(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    names = spec.partitions[index].pools
    path = ("partitions", index, "pools")
    yield from repeated(names, path, "the pool")
    known = [pool.name for pool in spec.pools]
    for at, name in enumerate(names):
        if name not in known:
            near = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            yield error(*path, at, id="unknown-pool", says=f"{quoted(name)} is not a pool{near}")
