"""The hardware of a pool's nodes in slurm.conf, by the machines that they can be, and what `extra` leaves of it for jobs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from gpucluster.catalog import Machine, nvswitch
from gpucluster.plan import defaults
from gpucluster.plan.model.shapes import NodeShape
from gpucluster.slurm import sizes


class GpusOfHost(Protocol):
    """The GPUs of such a machine."""

    @property
    def model(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def memory(self) -> int | None: ...
    @property
    def nvlink(self) -> int | None: ...


class HostMachine(Protocol):
    """A machine of `machines` in the spec."""

    @property
    def sockets(self) -> int: ...
    @property
    def cores_per_socket(self) -> int: ...
    @property
    def threads_per_core(self) -> int: ...
    @property
    def memory(self) -> int: ...
    @property
    def gpus(self) -> GpusOfHost | None: ...


def of_aws(machines: Sequence[Machine]) -> NodeShape:
    """The hardware in slurm.conf of nodes that may be any of `machines`: the least cores, the least memory."""
    small = min(machines, key=lambda m: (m.sockets * m.cores_per_socket * m.threads_per_core, m.name))
    gpu = small.gpu
    return NodeShape(
        sockets=small.sockets,
        cores_per_socket=small.cores_per_socket,
        threads_per_core=small.threads_per_core,
        real_memory_mib=min(m.memory_mib for m in machines) * int(defaults.MEMORY_PERCENT.value) // 100,
        gpu_model=None if gpu is None else gpu.model,
        gpu_count=0 if gpu is None else gpu.count,
        nvswitch=any(nvswitch.has_nvswitch(m.name) for m in machines),
        gpu_memory_mib=None if gpu is None else min(m.gpu.memory_mib for m in machines if m.gpu is not None),
        nvlinks=min(nvswitch.links(m.name, "" if m.gpu is None else m.gpu.model) for m in machines),
        nvlink_group=gpu.count
        if gpu is not None and all(nvswitch.has_nvswitch(m.name) for m in machines)
        else 0,
    )


def of_host(machine: HostMachine) -> NodeShape:
    """The hardware in slurm.conf, from the maker's data."""
    gpus = machine.gpus
    return NodeShape(
        sockets=machine.sockets,
        cores_per_socket=machine.cores_per_socket,
        threads_per_core=machine.threads_per_core,
        real_memory_mib=machine.memory * int(defaults.MEMORY_PERCENT.value) // 100,
        gpu_model=None if gpus is None else gpus.model,
        gpu_count=0 if gpus is None else gpus.count,
        gpu_memory_mib=None if gpus is None else gpus.memory,
        nvlink_group=0 if gpus is None else gpus.nvlink or 0,
    )


def without_reserved(shape: NodeShape, extra: Mapping[str, str]) -> NodeShape:
    """Return the shape with what `extra` of its pool reserves for the system."""
    found = sizes.reserved(extra, shape.threads_per_core)
    return replace(shape, system_cpus=found.cpus, system_memory_mib=found.memory_mib)
