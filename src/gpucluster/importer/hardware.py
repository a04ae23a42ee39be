"""The hardware of a node, as its line of slurm.conf says it, and as a machine of a spec."""

from dataclasses import dataclass

from gpucluster.importer.gpus import gpus_of
from gpucluster.importer.names import partition_name
from gpucluster.importer.site import Settings
from gpucluster.importer.write_yaml import Value
from gpucluster.plan import defaults
from gpucluster.text import format_size

NO_MEMORY_MIB = 1024  # of a node without RealMemory, for each CPU
LEAST_MEMORY_MIB = 512
MOST_GPUS = 64  # of a machine
_MOST = {"socketsperboard": 64, "corespersocket": 1024, "threadspercore": 8}


@dataclass(frozen=True, slots=True)
class Hardware:
    """What nodes of one kind have in common."""

    sockets: int
    cores: int
    threads: int
    memory_mib: int  # RealMemory
    gpu_model: str
    gpu_count: int
    sharing: tuple[str, int] | None = None  # the key of `sharing`, and the parts of each GPU
    slices: bool = False  # its GPUs are MIG slices


def hardware_of(settings: Settings) -> Hardware:
    """The hardware of a node. What the line does not say is inferred as slurmctld does."""
    cores, threads = (number_of(settings, key) or 1 for key in ("corespersocket", "threadspercore"))
    boards, listed = number_of(settings, "boards") or 1, number_of(settings, "cpus")
    sockets = (number_of(settings, "socketsperboard") or 0) * boards or number_of(settings, "sockets") or 0
    if not sockets and listed:
        sockets = max(1, listed // (cores * threads))
        if "corespersocket" not in settings:  # CPUs alone: one socket with so many cores is as good
            sockets, cores = 1, max(1, listed // threads)
    sockets = sockets or 1
    gpus = gpus_of(settings)
    cpus = sockets * cores * threads
    return Hardware(
        sockets=min(sockets, _MOST["socketsperboard"]),
        cores=min(cores, _MOST["corespersocket"]),
        threads=min(threads, _MOST["threadspercore"]),
        memory_mib=number_of(settings, "realmemory") or NO_MEMORY_MIB * cpus,
        gpu_model=partition_name(gpus.model) or "gpu" if gpus.count else "",
        gpu_count=min(gpus.count, MOST_GPUS, cpus),
        sharing=gpus.sharing,
        slices=gpus.slices,
    )


def machine_of(hardware: Hardware) -> dict[str, Value]:
    percent = int(defaults.MEMORY_PERCENT.value)
    sheet = max(LEAST_MEMORY_MIB, -(-hardware.memory_mib * 100 // percent))  # the plan takes its share
    made: dict[str, Value] = {
        "sockets": hardware.sockets,
        "cores_per_socket": hardware.cores,
        "threads_per_core": hardware.threads,
        "memory": format_size(sheet),
    }
    if hardware.gpu_count:
        made["gpus"] = {"model": hardware.gpu_model, "count": hardware.gpu_count}
    return made


def cpus_of(hardware: Hardware) -> int:
    return hardware.sockets * hardware.cores * hardware.threads


def threads_as_one(node: Settings) -> int:
    """The threads of a core where the site counts each core as one CPU; else 1."""
    found = hardware_of(node)
    return found.threads if number_of(node, "cpus") == found.sockets * found.cores else 1


def number_of(settings: Settings, key: str) -> int | None:
    text = settings[key].value if key in settings else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
