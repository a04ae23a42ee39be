"""Slurm's generic resources of a node: whole GPUs, MIG slices, or GPUs with shards or parts of MPS. Standard library only. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpucluster.plan import names
from gpucluster.plan.model import Containers, Mig, Mps, NodeShape, Pool, Shards, SlurmPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceDevice:
    """One MIG slice: its GPU, its profile, and the files of its GPU instance and its compute instance."""

    gpu: int
    profile: str
    number: int  # on its GPU, from 0

    @property
    def files(self) -> tuple[str, str, str]:
        """The GPU, then the capabilities of the two instances. The agent makes the last two at the boot."""
        own = f"{names.MIG_FOLDER}/{self.gpu}-{self.number}"
        return (f"/dev/nvidia{self.gpu}", f"{own}-gi", f"{own}-ci")


def of_node(shape: NodeShape) -> str:
    """The value of Gres= in a NodeName line; empty without GPUs."""
    if not shape.gpu_count:
        return ""
    match shape.sharing:
        case Mig() as mig:
            return ",".join(f"gpu:{one.profile}:{one.count * shape.gpu_count}" for one in mig.slices)
        case Shards() | Mps() | None:
            whole, part = f"gpu:{shape.gpu_model}:{shape.gpu_count}", part_of(shape)
            return whole if part is None else f"{whole},{part[0]}:{part[1] * shape.gpu_count}"


def part_of(shape: NodeShape) -> tuple[str, int] | None:
    """The name in Slurm of the parts of a GPU that jobs share, and their number on each GPU."""
    if not shape.gpu_count:
        return None
    match shape.sharing:
        case Shards(each=each):
            return "shard", each
        case Mps(each=each):
            return "mps", each
        case Mig() | None:
            return None


def types(shape: NodeShape) -> tuple[str, ...]:
    """The names for GresTypes."""
    if not shape.gpu_count:
        return ()
    part = part_of(shape)
    return ("gpu",) if part is None else ("gpu", part[0])


def has_mps(pools: Iterable[Pool]) -> bool:
    """Whether jobs share the GPUs of one of these pools by MPS."""
    return any(isinstance(pool.shape.sharing, Mps) for pool in pools)


def has_task_prolog(plan: SlurmPlan) -> bool:
    """Whether slurmd runs our TaskProlog, which sets variables of jobs.

    For the restarts alone not with Pyxis: it runs the TaskProlog inside the container, where the program is missing.
    """
    if plan.aws is None:
        return has_mps(plan.pools)
    return has_mps(plan.pools) or plan.aws.jobs is not None or plan.slurm.containers is not Containers.PYXIS


def units(shape: NodeShape) -> int:
    """The number of resources `gpu` of a node: GPUs, or MIG slices."""
    each = sum(one.count for one in shape.sharing.slices) if isinstance(shape.sharing, Mig) else 1
    return shape.gpu_count * each


def gpu_types(shape: NodeShape) -> tuple[str, ...]:
    """The types of the resource `gpu` of a node, as jobs ask for them: its model, or the profiles of its MIG slices."""
    if shape.gpu_model is None:
        return ()
    if isinstance(shape.sharing, Mig):
        return tuple(one.profile for one in shape.sharing.slices)
    return (shape.gpu_model,)


def slices(shape: NodeShape) -> Iterator[SliceDevice]:
    """The MIG slices of a node, by GPU, in the order in which the agent creates them: the largest first."""
    if not isinstance(shape.sharing, Mig):
        return
    profiles = [one.profile for one in shape.sharing.slices for _ in range(one.count)]
    for gpu in range(shape.gpu_count):
        for number, profile in enumerate(profiles):
            yield SliceDevice(gpu=gpu, profile=profile, number=number)
