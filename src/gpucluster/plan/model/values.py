"""Words, constants and units of a plan that the spec uses, too. The spec reads this module
without the others, which hold some sixty dataclasses.

Amounts of resources are whole numbers in the unit of their name: `cpu` in thousandths of a CPU; memory, huge pages
and ephemeral storage in MiB; everything else (GPUs, MIG slices, EFA interfaces) counted. `quantity` writes them.
"""

from dataclasses import dataclass
from enum import StrEnum

HOURS_A_MONTH = 730  # as public calculators count a month

CPU, MEMORY, EPHEMERAL = "cpu", "memory", "ephemeral-storage"
HUGE_PAGES = "hugepages-2Mi"
GPU = "nvidia.com/gpu"
MIG_PREFIX = "nvidia.com/mig-"
EFA = "vpc.amazonaws.com/efa"
JOBSET, TRAINJOB = "JobSet", "TrainJob"  # kinds of a gang
SERVICE, GANG = "service", "gang"  # priorities of workloads that name none
IN_MIB = frozenset({MEMORY, EPHEMERAL, HUGE_PAGES})
ROOT_ACCOUNT = "root"  # Slurm's account at the top of the tree
NORMAL_QOS = "normal"  # the QOS that slurmdbd makes, and the default of every account
# computeCapacity in pkg/providers/instancetype/types.go of aws/karpenter-provider-aws (1d927085d), of the resources that the plan has
KNOWN_TO_KARPENTER = frozenset({CPU, MEMORY, EPHEMERAL, GPU, EFA})


class Market(StrEnum):
    """The market of an instance."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    RESERVATION = "reservation"  # reserved capacity, at the on-demand price
    CAPACITY_BLOCK = "capacity-block"  # prepaid, for a window of time

    @property
    def is_reserved(self) -> bool:
        """Whether its instances come from a reservation or a block that is named by its id."""
        return self in (Market.RESERVATION, Market.CAPACITY_BLOCK)


class Containers(StrEnum):
    """How jobs run in containers."""

    APPTAINER = "apptainer"  # a program that a job starts itself
    PYXIS = "pyxis"  # a plugin of Slurm with Enroot: `srun --container-image=...`


class Follow(StrEnum):
    """The changes that a link between Lustre and S3 copies."""

    NEW = "new"
    CHANGED = "changed"
    DELETED = "deleted"


class Distribution(StrEnum):
    """The operator of the control plane."""

    EKS = "eks"
    EXISTING = "existing"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyLevel:
    """One level of the topology: the spec's name for it, and the node label of its domains."""

    word: str
    label: str


def accelerators(gpus: int, mig: dict[str, int]) -> dict[str, int]:
    """The GPU resources that pods request: whole GPUs, or slices of each."""
    if mig and gpus:
        return {f"{MIG_PREFIX}{profile}": gpus * slices for profile, slices in sorted(mig.items())}
    return {GPU: gpus} if gpus else {}


def weight(resource: str) -> int:
    """The weight of one unit when the rest of its node is divided: a slice counts by its sevenths of the GPU."""
    return int(resource.removeprefix(MIG_PREFIX).partition("g")[0]) if resource.startswith(MIG_PREFIX) else 1


def quantity(resource: str, amount: int) -> str:
    """An amount in the form in which Kubernetes stores it: `3500m`, `96`, `1Ti`, `1500Mi`. Another form would change at each apply."""
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    return _binary(amount) if resource in IN_MIB else str(amount)


def _binary(mib: int) -> str:
    """The largest unit that leaves a whole number."""
    suffixes = iter(("Mi", "Gi", "Ti", "Pi", "Ei"))
    suffix = next(suffixes)
    while mib and mib % 1024 == 0 and suffix != "Ei":
        mib, suffix = mib // 1024, next(suffixes)
    return f"{mib}{suffix}" if mib else "0"
