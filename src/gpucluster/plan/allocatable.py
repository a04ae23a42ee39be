"""What a node gives to pods: the nameplate, less what the system and its daemons need."""

from collections.abc import Mapping, Sequence

from gpucluster.catalog import Machine
from gpucluster.plan import defaults_kubernetes as kube
from gpucluster.plan.kubernetes import CPU, EFA, HUGE_PAGES, MEMORY, accelerators


def allocatable(machines: Sequence[Machine], mig: Mapping[str, int]) -> dict[str, int]:
    """Of a node that may be any of `machines`: the least of each resource. Sliced GPUs have no fabric."""
    efa = 0 if mig else min(machine.efa for machine in machines)
    found = {
        CPU: _cpu_milli(min(machine.vcpus for machine in machines)),
        MEMORY: _memory_mib(min(machine.memory_mib for machine in machines), pages=efa > 0),
        **accelerators(gpus_of(machines), dict(mig)),
    }
    return {**found, EFA: efa, HUGE_PAGES: int(kube.HUGE_PAGES_MIB.value)} if efa else found


def gpus_of(machines: Sequence[Machine]) -> int:
    """GPUs of a node; the spec's rules hold the machines of a pool alike."""
    return min(0 if machine.gpu is None else machine.gpu.count for machine in machines)


def _cpu_milli(vcpus: int) -> int:
    share = vcpus * 10 * int(kube.CPU_PERCENT.value)
    return vcpus * 1000 - max(share, int(kube.CPU_LEAST_MILLI.value))


def _memory_mib(nameplate: int, *, pages: bool) -> int:
    visible = nameplate * int(kube.MEMORY_PERCENT.value) // 100
    daemons = nameplate * int(kube.DAEMONS_MEMORY_PERCENT.value) // 100
    aside = int(kube.HUGE_PAGES_SET_ASIDE_MIB.value) if pages else 0
    return visible - max(daemons, int(kube.DAEMONS_MEMORY_LEAST_MIB.value)) - aside
