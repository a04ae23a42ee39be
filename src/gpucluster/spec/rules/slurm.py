"""Slurm: its version, the names of pools and partitions, and the pools of each partition."""

from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.plan import names
from gpucluster.plan.model.shapes import NodeShape
from gpucluster.plan.model.values import Containers
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.kubernetes import Runs
from gpucluster.spec.model import ClusterSpec, Pool
from gpucluster.spec.part import require
from gpucluster.spec.pools import run_by, shape_of
from gpucluster.spec.problem import Finding, Untrue
from gpucluster.spec.rules.findings import (
    error,
    or_none,
    parsed,
    repeated,
    same_names,
    security_warning,
    warning,
)
from gpucluster.text import format_duration, quoted

_DISTRIBUTIONS = frozenset((
    "distribution", "distributions", "distributor", "distro", "alma", "almalinux", "amazon linux", "canonical", "centos",
    "debian", "fedora", "opensuse", "oracle linux", "red hat", "redhat", "rhel", "rocky", "sles", "suse", "ubuntu",
))  # fmt: skip
_NO_PLACE_FOR_TMP = (  # private to each job, or of the kernel, or of packages
    *("/var/tmp", "/tmp", "/dev", "/proc", "/sys", "/run"),  # noqa: S108
    *("/boot", "/etc", "/usr", "/bin", "/sbin", "/lib"),
)


def slurm_version(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    version, supported = require(spec.slurm).version, ", ".join(catalog.slurm_supported)
    if version in catalog.slurm_supported:
        return
    if version in catalog.slurm_known:
        message = f"Slurm {version} is known but not supported yet; supported: {supported}"
    else:
        known = ", ".join(catalog.slurm_known)
        message = f"{quoted(version)} is not a known Slurm release ({known}); supported: {supported}"
    yield error("slurm", "version", id="slurm-version", message=message)


def slurm_support(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Warn of a version without SchedMD's support. The list's own date counts, because a check reads no clock."""
    version = require(spec.slurm).version
    if version not in catalog.slurm_supported:
        return  # already reported
    end, newest = catalog.slurm_releases[version].end_of_support, catalog.slurm_default
    if end is None or end >= catalog.slurm_date[:7]:
        return
    until = catalog.slurm_releases[newest].end_of_support
    message = (
        f"SchedMD's support of Slurm {version} ended in {end}: it gets no fixes, not even of security faults; "
        f'"{newest}" has support until {until}'
    )
    untrue = or_none(lambda: _mended_by_nobody(spec))
    yield security_warning("slurm", "version", id="slurm-support", message=message, untrue=untrue)


def _mended_by_nobody(spec: ClusterSpec) -> Untrue | None:
    """Return what cannot be said of a Slurm that our image has. An AMI of the site, or a host, may have that of a distribution."""
    if spec.aws is None or (spec.aws.image is not None and spec.aws.image.ami is not None):
        return None
    fact = (
        f"on AWS `gpucluster image build` installs SchedMD's own release of Slurm {require(spec.slurm).version}, "
        "and no distribution mends it: write a reason that names no distribution"
    )
    return Untrue(words=_DISTRIBUTIONS, fact=fact)


def pool_names(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    yield from same_names([lambda pool=pool: pool.name for pool in spec.pools], "pools")


def partition_names(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    yield from same_names([lambda part=part: part.name for part in spec.partitions], "partitions")


def defaults(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    chosen = [i for i, partition in enumerate(spec.partitions) if or_none(lambda p=partition: p.default)]
    for index in chosen[1:]:
        message = f"a cluster has at most one default partition, and partitions[{chosen[0]}] is it already"
        yield error("partitions", index, "default", id="two-defaults", message=message)


def unused_pools(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    require(spec.slurm)
    if not spec.partitions:
        return  # their absence is already reported
    used = {name for partition in spec.partitions for name in partition.pools}
    for index, pool in enumerate(spec.pools):
        name = or_none(lambda pool=pool: pool.name)
        slurms = or_none(lambda pool=pool: run_by(spec, pool)) is Runs.SLURM
        if name is not None and name not in used and slurms:
            message = f"no partition uses the pool '{name}', so no job can run on it"
            yield error("pools", index, "name", id="unused-pool", message=message)


def pool_size(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    nodes = require(spec.pools[index].nodes)
    if nodes.min > nodes.max:
        message = f"min {nodes.min} is above max {nodes.max}"
        yield error("pools", index, "nodes", "min", id="min-above-max", message=message)


def partition_times(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    partition = spec.partitions[index]
    if partition.default_time is None or partition.max_time is None:
        return
    if partition.default_time > partition.max_time:
        limits = f"{format_duration(partition.default_time)} is above max_time {format_duration(partition.max_time)}"
        message = f"{limits}: slurmctld would set the shorter one for each job; set it at most to max_time"
        yield error("partitions", index, "default_time", id="default-time", message=message)


def partition_gpus(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    partition = spec.partitions[index]
    without = [pool.name for pool, shape in _hardware(spec, index, catalog) if not shape.gpu_count]
    if partition.requires_gpus and without:
        message = f"the pool '{without[0]}' has no GPUs: the partition would refuse every job that can run on it; remove the pool, or this key"
        yield error("partitions", index, "requires_gpus", id="requires-gpus", message=message)


def partition_cpus(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    most, at = spec.partitions[index].max_cpus_per_node, ("partitions", index, "max_cpus_per_node")
    found = _hardware(spec, index, catalog)
    if most is None or not found:
        return
    threads = max(shape.threads_per_core for _, shape in found)
    if most < threads:
        message = f"{most} is less than a core ({threads} CPUs), and a job gets whole cores: no job would start; write at least {threads}"
        yield error(*at, id="max-cpus-per-node", message=message)
    kept = {pool.name: shape.system_cpus for pool, shape in found}
    full = max(kept, key=lambda name: kept[name])
    if (left := most - kept[full] + min(kept.values())) < threads <= most:
        message = f"of a node of the pool '{full}' jobs would get {max(0, left)} CPUs: its `extra` reserves more than that of the other pools, and Slurm counts reserved CPUs in this limit; put the pool into another partition"
        yield error(*at, id="max-cpus-per-node", message=message)
    cpus = max(shape.cpus for _, shape in found)
    if most < cpus and spec.partitions[index].exclusive:
        message = f"a job of an exclusive partition has all {cpus} CPUs of its node, so with this limit no job would start; remove one of the two keys"
        yield error(*at, id="max-cpus-per-node", message=message)
    if most >= cpus:
        message = f"{most} limits nothing: a node has at most {cpus} CPUs; write less, or remove this key"
        yield warning(*at, id="no-cpu-limit", message=message)


def partition_cpus_spread(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    """Warn of a limit that makes jobs without GPUs launch more GPU machines than they need."""
    most = spec.partitions[index].max_cpus_per_node
    for pool, shape in _hardware(spec, index, catalog):
        cpus, gpus = shape.cpus, shape.gpu_count
        nodes = or_none(lambda pool=pool: require(pool.nodes))
        if (
            most is None
            or not shape.threads_per_core <= most < cpus
            or not gpus
            or spec.hosts is not None
            or nodes is None
        ):
            continue
        if nodes.max > nodes.min:
            first = f"nodes of the elastic pool '{pool.name}' have {cpus} CPUs and {gpus} GPUs each"
            message = (
                f"{first}: a node takes {most} CPUs of these jobs, and each {most} CPUs more launch another one; "
                "take a pool without GPUs, or one with a fixed number of nodes, or accept the cost"
            )
            yield warning("partitions", index, "max_cpus_per_node", id="cpu-limit-cost", message=message)
            return


def _hardware(spec: ClusterSpec, index: int, catalog: Catalog) -> list[tuple[Pool, NodeShape]]:
    """Return the pools of the partition with known machines, each with its hardware."""
    pools = (pool for pool in spec.pools if pool.name in spec.partitions[index].pools)
    found = ((pool, shape_of(spec, pool, catalog)) for pool in pools)
    return [(pool, shape) for pool, shape in found if shape is not None]


def partition_pools(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    names = spec.partitions[index].pools
    path = ("partitions", index, "pools")
    yield from repeated(names, path, "the pool")
    known = [pool.name for pool in spec.pools]
    if len(set(known)) < len(known):
        return  # a pool may be meant that has the name of another one, which is already reported
    for at, name in enumerate(names):
        if name not in known:
            near = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            yield error(*path, at, id="unknown-pool", message=f"{quoted(name)} is not a pool{near}")


def software(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Software must be on a mount that nodes and login machines share."""
    found = require(require(spec.slurm).software)
    mounts = [
        or_none(lambda at=index: spec.storage[at]) for index in range(len(parsed(lambda: spec.storage)))
    ]
    state = or_none(lambda: require(require(spec.head).standby).state)
    shared = [one.mount for one in mounts if one is not None and one.nvme is None and one.mount != state]
    for key in ("modules", "conda"):
        path = or_none(lambda key=key: getattr(found, key))
        if path is not None and not any(f"{path}/".startswith(f"{mount}/") for mount in shared):
            known = f"; shared are {', '.join(shared)}" if shared else "; the spec has no shared mount"
            message = f"{path} is not on a mount of `storage` that all machines share{known}"
            yield error("slurm", "software", key, id="software-not-shared", message=message)


def containers(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Enroot keeps images and container file systems in /tmp: in a shared one a user could change those of another."""
    slurm = require(spec.slurm)
    tmp = or_none(lambda: slurm.private_tmp)
    if slurm.containers == Containers.PYXIS and tmp is not None and not tmp.enabled:
        message = "pyxis needs `private_tmp`: Enroot keeps the containers of a job in its /tmp, and all users share this one"
        yield error("slurm", "containers", id="containers-shared-tmp", message=message)


def private_tmp(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse a folder for the /tmp of jobs that Slurm cannot use, or that all nodes share."""
    path = require(require(require(spec.slurm).private_tmp).path)
    at = ("slurm", "private_tmp", "path")
    system = next((one for one in _NO_PLACE_FOR_TMP if f"{path}/".startswith(f"{one}/")), None)
    if path == "/" or system is not None:
        message = f"{path} cannot hold the /tmp of jobs: {system or path} is private to each job, or belongs to the kernel or to packages"
        yield error(
            *at, id="private-tmp-path", message=f"{message}; choose a folder such as {names.PRIVATE_TMP}"
        )
    for index in range(len(parsed(lambda: spec.storage))):
        mount = or_none(lambda at=index: spec.storage[at].mount)
        if mount is None or or_none(lambda at=index: spec.storage[at].nvme) is not None:
            continue
        if f"{path}/".startswith(f"{mount}/"):
            message = f"{path} is on {mount}, which all nodes share: the /tmp of a job must be on the node's own disk"
            yield error(*at, id="private-tmp-shared", message=message)
