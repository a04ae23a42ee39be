"""The hardware of a node in slurm.conf, and how jobs share its GPUs. `check` needs no more of the plan, so this is a module of its own."""

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class MigSlice:
    """Slices of one profile on each GPU."""

    profile: str  # NVIDIA's name, `1g.10gb`
    count: int  # on each GPU

    @property
    def sevenths(self) -> int:
        """The slices of compute, by NVIDIA's name: a GPU has seven."""
        return int(self.profile.partition("g")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """Each GPU is sliced by MIG; a job requests slices. The largest profile is first."""

    kind: ClassVar[Literal["mig"]] = "mig"
    slices: tuple[MigSlice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """Several jobs share a GPU without any limit of its memory: Slurm's gres/shard."""

    kind: ClassVar[Literal["shards"]] = "shards"
    each: int  # of each GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Mps:
    """Jobs of one user share a GPU, each with its share of the GPU's threads: Slurm's gres/mps."""

    kind: ClassVar[Literal["mps"]] = "mps"
    each: int  # parts of each GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """The hardware of every node of a pool in slurm.conf: the least of its machines."""

    sockets: int
    cores_per_socket: int
    threads_per_core: int
    real_memory_mib: int  # nominal memory without the plan's margin
    gpu_model: str | None
    gpu_count: int
    nvswitch: bool = False  # CUDA works only after Fabric Manager is done
    gpu_memory_mib: int | None = None  # of each GPU, by the data sheet; None: not known
    nvlinks: int = 0  # of each GPU; 0: none, or not known
    nvlink_group: int = 0  # number of GPUs in each group that NVLink joins; 0: none, or not known
    sharing: Mig | Mps | Shards | None = None  # None: a job has whole GPUs
    system_cpus: int = 0  # of whole cores that `extra` reserves; no job gets them
    system_memory_mib: int = 0

    @property
    def cpus(self) -> int:
        return self.sockets * self.cores_per_socket * self.threads_per_core

    @property
    def job_cpus(self) -> int:
        """The CPUs that jobs can get."""
        return self.cpus - self.system_cpus

    @property
    def job_memory_mib(self) -> int:
        """The memory that jobs can get."""
        return self.real_memory_mib - self.system_memory_mib
