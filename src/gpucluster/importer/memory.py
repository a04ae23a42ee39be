"""The memory of jobs: where the site counts a core as a CPU, a CPU of the spec is a thread."""

from dataclasses import replace

from gpucluster.importer.hardware import number_of
from gpucluster.importer.site import Setting, Settings

_OF_CPU = ("defmempercpu", "maxmempercpu")
_MEMORY = ("defmempercpu", "defmempernode", "defmempergpu")


def memory_of_threads(settings: Settings, threads: int) -> Settings:
    """The memory of a CPU, for a thread instead of a core."""
    found = {key: number_of(settings, key) for key in _OF_CPU}
    return {
        key: replace(settings[key], value=str(number // threads))
        for key, number in found.items()
        if number and threads > 1
    }


def why_of_threads(key: str, threads: int) -> str:
    end = "a core has as much: nothing changes" if key.startswith("max") else "and a task may have one thread"
    return f"the site counts a core as a CPU, gpucluster its {threads} threads: the value is that of a thread, {end}"


def counts_memory(cluster: Settings) -> bool:
    """Whether memory is a consumable resource, as it is without the key."""
    parameters = cluster.get("selecttypeparameters")
    return parameters is None or "memory" in parameters.value.lower()


def kept_memory(cluster: Settings, partition: Settings) -> Settings:
    """Without a default, a job has all memory of its nodes where Slurm counts memory; a share of it could end the job."""
    if not counts_memory(cluster) or any(key in of for key in _MEMORY for of in (cluster, partition)):
        return {}
    return {"defmempercpu": Setting("0", partition["partitionname"].place, "DefMemPerCPU")}
