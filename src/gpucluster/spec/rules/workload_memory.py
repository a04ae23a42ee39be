"""Shared memory and checkpoints of workloads."""

from collections.abc import Iterator

from gpucluster.catalog import Catalog
from gpucluster.plan import names
from gpucluster.plan.kubernetes import GRACE_AFTER_S, READY_S, SHM_LEAST_MIB
from gpucluster.plan.model.values import GPU, MEMORY, Market, quantity
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.operations import SPOT_NOTICE_S
from gpucluster.spec.part import require
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.resources import in_unit
from gpucluster.spec.rules.findings import error, warning
from gpucluster.spec.rules.places import amounts, memory_of, places_of, pools_of
from gpucluster.spec.workloads import Checkpoint, Serve, Train
from gpucluster.text import format_duration, quoted


def shm(one: Serve | Train, cluster: ClusterSpec | None, catalog: Catalog, path: Path) -> Iterator[Finding]:
    """Check that /dev/shm leaves memory to the program: its content counts as memory of the pod."""
    size = in_unit(MEMORY, require(one.shm))
    if not size:
        yield error(*path, "shm", id="bad-amount", message="memory is counted in MiB or more, such as 16Gi")
        return
    wanted = amounts(one.resources) if isinstance(one, Serve) else {GPU: one.gpus_per_node}
    memory = memory_of(places_of(one.team, require(cluster), catalog), wanted)
    if memory is not None and size >= memory:
        has = quantity(MEMORY, memory)
        message = (
            f"shared memory counts as memory of the pod, and the pod has {has}; leave some to the program"
        )
        yield error(*path, "shm", id="shm-above-memory", message=message)


def memory(
    one: Serve | Train, cluster: ClusterSpec | None, catalog: Catalog, path: Path
) -> Iterator[Finding]:
    """Check that memory which follows a small request for CPUs or slices is enough for a program to start."""
    if isinstance(one, Train) or one.shm is not None:
        return
    found = memory_of(places_of(one.team, require(cluster), catalog), amounts(one.resources))
    if found is not None and found <= SHM_LEAST_MIB:
        has, least = quantity(MEMORY, found), quantity(MEMORY, SHM_LEAST_MIB)
        key = MEMORY if MEMORY in one.resources else None
        why = "" if key else ", which follows its other resources; name 'memory' too"
        message = f"a replica has {has} of memory, and its /dev/shm takes up to {least} of it{why}"
        yield error(*path, "resources", *([key] if key else []), id="too-little-memory", message=message)


def checkpoint(one: Train, cluster: ClusterSpec | None, catalog: Catalog, path: Path) -> Iterator[Finding]:
    found, path = require(one.checkpoint), (*path, "checkpoint")
    spec = require(cluster)
    mounts = [part.mount for part in spec.storage if part.nfs is not None or part.fsx_lustre is not None]
    if found.mount not in mounts:
        there = f"pods mount {', '.join(mounts)}" if mounts else "pods of this cluster mount none"
        message = f"{quoted(found.mount)} is no file system of the pods; {there}"
        yield error(*path, "mount", id="unknown-mount", message=message)
    if names.CHECKPOINT_VARIABLE in {**one.env, **one.secrets}:
        message = f"'{names.CHECKPOINT_VARIABLE}' is set by gpucluster for the checkpoint; use another name"
        yield error(*path, id="reserved-name", message=message)
    yield from _within_the_queues_time(found, path)
    pools = pools_of(one.team, spec, catalog, {GPU: one.gpus_per_node})
    spot = [pool.name for pool in pools for source in pool.capacity if source.source is Market.SPOT]
    if spot and found.takes > SPOT_NOTICE_S:
        takes = format_duration(found.takes)
        message = f"the pool '{spot[0]}' has spot machines, which end {SPOT_NOTICE_S} s after their notice; a checkpoint of {takes} is not complete by then"
        yield warning(*path, "takes", id="checkpoint-above-notice", message=message)


def _within_the_queues_time(found: Checkpoint, path: Path) -> Iterator[Finding]:
    """Warn if pods hold their GPUs for longer than Kueue gives the next gang there, or this one after a drain, to start.

    Kueue counts the pods of a suspended gang as gone when they begin to end (v0.19.2: IsActive of its JobSet integration, by `active`
    of the Job, which leaves out pods that end).
    """
    if found.takes + GRACE_AFTER_S.value >= READY_S.value:
        takes, limit = format_duration(found.takes), format_duration(READY_S.value)
        message = f"pods that end hold their GPUs for {takes}, and Kueue gives a gang {limit} to start: it evicts the gang that takes their place, and this one after a drain"
        yield warning(*path, "takes", id="checkpoint-above-queue", message=message)
