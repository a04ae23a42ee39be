"""Shared GPUs: one way for each pool, profiles that the pool's GPU has, and slices that fit on it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucluster.catalog import Catalog, MigProfile
from gpucluster.spec.kubernetes import Runs
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.pools import run_by
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules.findings import error, warning
from gpucluster.spec.rules.kubernetes import machines_of
from gpucluster.text import quoted

MPS_PARTS = 100
SEVENTHS, EIGHTHS = 7, 8  # of a GPU's compute and memory, whatever the model


@dataclass(frozen=True, slots=True)
class _Gpu:
    """The GPU of a pool's machine; no model: the machine has none."""

    machine: str
    model: str = ""
    memory_mib: int = 0


def one_way(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    sharing = require(spec.pools[index].sharing)
    if [sharing.mig, sharing.mps, sharing.shards].count(None) != 2:
        message = "write one of 'mig', 'mps' and 'shards': a GPU is shared in one way"
        yield error("pools", index, "sharing", id="sharing-one-way", message=message)


def shards(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    require(require(spec.pools[index].sharing).shards)
    gpu = _gpu_of(spec, index, catalog)
    if not gpu.model:
        message = f"'{gpu.machine}' has no GPU to share"
        yield error("pools", index, "sharing", "shards", id="no-gpu-to-share", message=message)


def mps(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    """Refuse parts below one percent: Slurm rounds a job's share down to a whole percentage, but to 1 at least (S31)."""
    path, parts = ("pools", index, "sharing", "mps"), require(require(spec.pools[index].sharing).mps)
    gpu = _gpu_of(spec, index, catalog)
    if not gpu.model:
        yield error(*path, id="no-gpu-to-share", message=f"'{gpu.machine}' has no GPU to share")
    if parts > MPS_PARTS:
        message = f"Slurm gives a job at least one percent of a GPU's threads, so a GPU has at most {MPS_PARTS} parts"
        yield error(*path, id="mps-parts", message=message)


def mps_alone(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse MPS beside other pools: its nodes are of one user at a time, and Slurm's setting is of the whole partition."""
    partition = spec.partitions[index]
    pools = {pool.name: pool.sharing for pool in spec.pools}
    members = [(name, pools[name]) for name in partition.pools if name in pools]
    of_mps = [quoted(name) for name, sharing in members if sharing is not None and sharing.mps is not None]
    others = [quoted(name) for name, sharing in members if sharing is None or sharing.mps is None]
    if of_mps and others:
        message = f"the GPUs of {', '.join(of_mps)} are shared by MPS, so each node of this partition is of one user at a time; put {', '.join(others)} into another partition"
        yield error("partitions", index, "pools", id="mps-alone", message=message)


def mig(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    wanted = require(require(spec.pools[index].sharing).mig)
    path, found = ("pools", index, "sharing", "mig"), _gpu_of(spec, index, catalog)
    if not found.model:
        yield error(*path, id="no-mig", message=f"'{found.machine}' has no GPU for MIG")
        return
    if not found.memory_mib:
        message = f"the profiles depend on the memory of the GPU; write it as `machines.{found.machine}.gpus.memory`"
        yield error(*path, id="mig-memory", message=message)
        return
    gpu = f"{found.model} of {found.memory_mib} MiB"
    profiles = catalog.mig.get((found.model, found.memory_mib))
    if profiles is None:
        yield error(*path, id="no-mig", message=f"the {gpu} of '{found.machine}' does not support MIG")
        return
    yield from _profiles(wanted, profiles, gpu, path)


def mig_gangs(spec: ClusterSpec, index: int, catalog: Catalog) -> Iterator[Finding]:
    """Warn of slices on machines that are bought for gangs: a slice has neither NVLink nor peer-to-peer."""
    pool = spec.pools[index]
    require(require(pool.sharing).mig)
    if run_by(spec, pool) is not Runs.SLURM or not any(m.efa for m in machines_of(pool, catalog)):
        return
    if require(pool.nodes).max > 1:
        message = "a MIG slice has neither NVLink nor peer-to-peer, so NCCL cannot join slices, and no job of slices uses the EFA of this pool; take machines without EFA, or whole GPUs"
        yield warning("pools", index, "sharing", "mig", id="mig-fabric", message=message)


def _gpu_of(spec: ClusterSpec, index: int, catalog: Catalog) -> _Gpu:
    pool = spec.pools[index]
    if pool.machine is not None:
        gpus = require(spec.machines.get(pool.machine)).gpus
        return _Gpu(pool.machine) if gpus is None else _Gpu(pool.machine, gpus.model, gpus.memory or 0)
    machine = machines_of(pool, catalog)[0]
    gpu = machine.gpu
    return _Gpu(machine.name) if gpu is None else _Gpu(machine.name, gpu.model, gpu.memory_mib)


def _profiles(
    wanted: Mapping[str, int], profiles: Mapping[str, MigProfile], gpu: str, path: Path
) -> Iterator[Finding]:
    for name in wanted:
        if name not in profiles:
            message = f"the {gpu} has no profile {quoted(name)}; it has {', '.join(profiles)}"
            yield error(*path, name, id="unknown-profile", message=message)
    known = {name: count for name, count in wanted.items() if name in profiles}
    compute = sum(profiles[name].compute * count for name, count in known.items())
    memory = sum(profiles[name].memory * count for name, count in known.items())
    if compute > SEVENTHS or memory > EIGHTHS or any(n > profiles[name].most for name, n in known.items()):
        most = ", ".join(f"at most {profiles[name].most} of {name}" for name in known)
        message = f"one GPU has {SEVENTHS} compute slices and {EIGHTHS} memory slices; these profiles take {compute} and {memory} ({most})"
        yield error(*path, id="too-many-slices", message=message)
