"""What nodes, partitions, files and mounts must be, as the plan has them. Pure."""

import hashlib
from collections.abc import Iterator

from gpucluster.checks import hardware, machine, partitions, slurm
from gpucluster.plan import names
from gpucluster.plan.model import ClusterPlan, Mount, Partition, Pool


def nodes(plan: ClusterPlan) -> slurm.Nodes:
    steady = tuple(node for pool in plan.pools for node in pool.always_on())
    others = tuple(n for pool in plan.pools for n in slots_of(pool) if n not in steady)
    return slurm.Nodes(elastic=others, static=steady)


def hardware_line(pool: Pool) -> slurm.Hardware:
    shape = pool.shape
    return slurm.Hardware(
        nodes=slots_of(pool),
        cpus=shape.cpus,
        sockets=shape.sockets,
        cores=shape.cores_per_socket,
        threads=shape.threads_per_core,
        memory_mib=shape.real_memory_mib,
        gres=f"gpu:{shape.gpu_model}:{shape.gpu_count}" if shape.gpu_count else "",
    )


def board(pool: Pool) -> hardware.Board:
    shape = pool.shape
    return hardware.Board(
        cpus=shape.cpus,
        sockets=shape.sockets,
        cores=shape.cores_per_socket,
        threads=shape.threads_per_core,
        memory_mib=shape.real_memory_mib,
    )


def partition_wants(plan: ClusterPlan) -> Iterator[partitions.PartitionWant]:
    for partition in plan.partitions:
        yield partitions.PartitionWant(
            name=partition.name,
            default=partition.default,
            max_time_min=None if partition.max_time_s is None else -(-partition.max_time_s // 60),
            nodes=partition_nodes(plan, partition),
        )


def slurm_files(plan: ClusterPlan, folder: str) -> dict[str, str]:
    from gpucluster.slurm import render  # noqa: PLC0415  jinja2: a run that expects nothing does without

    below = f"{names.SLURM_DIR}/"
    found = (a for a in render(plan) if a.path.startswith(below))
    return {f"{folder}/{a.path.removeprefix(below)}": _sha256(a.content) for a in found}


def mounts(plan: ClusterPlan, *, on_head: bool) -> Iterator[machine.MountWant]:
    """Without a machine's own disks: one that has none has a folder."""
    for mount in plan.storage:
        if mount.nvme is not None:
            continue
        own = on_head and mount.nfs is not None and mount.nfs.from_head
        if mount.nfs is None or not own:
            yield _mount(mount)
        elif mount.nfs.export != mount.path:  # its own disk, bound there as the nodes see it
            yield machine.MountWant(path=mount.path, types=(), source="")


def scratch(plan: ClusterPlan) -> tuple[str, ...]:
    """Where a machine's own disks are, or the folder in their place."""
    return tuple(mount.path for mount in plan.storage if mount.nvme is not None)


def partition_nodes(plan: ClusterPlan, partition: Partition) -> tuple[str, ...]:
    return tuple(node for pool in plan.pools if pool.name in partition.pools for node in slots_of(pool))


def slots_of(pool: Pool) -> tuple[str, ...]:
    return tuple(node for span in pool.slots for node in span)


def _mount(mount: Mount) -> machine.MountWant:
    if mount.nfs is not None and mount.nfs.stand_in:
        return machine.MountWant(path=mount.path, types=(), source="")
    if mount.nfs is not None:
        source = f"{mount.nfs.server}:{mount.nfs.export}"
        return machine.MountWant(path=mount.path, types=("nfs", "nfs4"), source=source)
    if mount.other is not None:
        return machine.MountWant(path=mount.path, types=(mount.other.type,), source=mount.other.source)
    if mount.efs is not None:
        return machine.MountWant(path=mount.path, types=("nfs", "nfs4"), source="")  # by a name of AWS's
    return machine.MountWant(path=mount.path, types=("lustre",), source="")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
