"""The checks of the health programs, and what they compare with on one node of the plan. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import hardware, health, mount_wants, mounts
from gpucluster.checks.check import Check
from gpucluster.checks.table import CHECKS
from gpucluster.plan import names
from gpucluster.plan.health import least_memory_mib
from gpucluster.plan.model import HostPool, InterfaceKind, Pool, SlotRange, SlurmPlan

FABRICS_WITH_PORTS = ("infiniband", "roce")
PROLOG = ("gpu.count", "gpu.smi", "gpu.ecc", "gpu.remap", "xid.scan", "fs.mount", "fabric.ports")
EPILOG = ("gpu.count", "xid.scan")  # a job's end waits for the Epilog, so it runs no program that may be slow


_ALL: tuple[Check[Any, Any], ...] = (
    CHECKS["gpu.count"],
    CHECKS["fs.mount"],
    Check(
        id="gpu.smi",
        tier=0,
        title="nvidia-smi lists all GPUs with their memory",
        query=health.query_smi,
        parse=health.parse_rows,
        evaluate=health.evaluate_smi,
        want=health.GpuWant,
        remedy="on {machine}: nvidia-smi; dmesg | grep -e NVRM -e nvidia; reboot or replace the machine",
    ),
    Check(
        id="gpu.ecc",
        tier=0,
        title="no GPU has uncorrectable ECC errors",
        query=health.query_ecc,
        parse=health.parse_rows,
        evaluate=health.evaluate_ecc,
        want=health.GpuWant,
        remedy="on {machine}: nvidia-smi -q -d ECC; reset the GPU (nvidia-smi --gpu-reset) or reboot; after a second time replace the machine",
    ),
    Check(
        id="gpu.remap",
        tier=0,
        title="no GPU waits for a row remapping",
        query=health.query_remap,
        parse=health.parse_remap,
        evaluate=health.evaluate_remap,
        want=health.GpuWant,
        remedy="on {machine}: nvidia-smi -q -d ROW_REMAPPER; pending: reset the GPU or reboot; failed: replace the machine",
    ),
    Check(
        id="gpu.clocks",
        tier=0,
        title="no idle GPU is slowed by heat or power",
        query=health.query_clocks,
        parse=health.parse_rows,
        evaluate=health.evaluate_clocks,
        want=health.GpuWant,
        remedy="on {machine}: nvidia-smi -q -d PERFORMANCE; check fans, power and the temperature of the room, or replace the machine",
    ),
    Check(
        id="nvl.links",
        tier=0,
        title="all NVLinks are active",
        query=health.query_links,
        parse=health.parse_links,
        evaluate=health.evaluate_links,
        want=health.GpuWant,
        remedy="on {machine}: nvidia-smi nvlink --status; systemctl status nvidia-fabricmanager; reset the GPUs, or replace the machine",
    ),
    Check(
        id="xid.scan",
        tier=0,
        title="the kernel log has no GPU fault",
        query=health.query_faults,
        parse=health.parse_faults,
        evaluate=health.evaluate_faults,
        want=health.FaultWant,
        remedy="on {machine}: dmesg | grep 'NVRM: Xid'; reset the GPU or reboot, as the reason says, or replace the machine",
    ),
    Check(
        id="mem.total",
        tier=0,
        title="the node has its memory",
        query=health.query_memory,
        parse=health.parse_memory,
        evaluate=health.evaluate_memory,
        want=health.MemoryWant,
        remedy="on {machine}: grep MemTotal /proc/meminfo; slurmd -C; replace the memory module or the machine",
    ),
    Check(
        id="fabric.ports",
        tier=0,
        title="the ports of EFA or InfiniBand are active",
        query=health.query_ports,
        parse=health.parse_ports,
        evaluate=health.evaluate_ports,
        want=health.PortWant,
        remedy="on {machine}: grep . /sys/class/infiniband/*/ports/*/state; check cable and switch, or replace the machine",
    ),
)
NODE_CHECKS: Mapping[str, Check[Any, Any]] = {check.id: check for check in _ALL}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """The checks' expectations for this node, and its pool with the limit of drains."""

    node: str
    pool: str
    slots: tuple[SlotRange, ...]  # of the pool
    limit: int  # most nodes of the pool that are drained for their health at one time
    gpus: health.GpuWant
    memory: health.MemoryWant
    ports: health.PortWant
    mounts: mounts.Mounts
    kernel_log: str


def settings(plan: SlurmPlan, pool: Pool, node: str, environment: Mapping[str, str]) -> HealthSettings:
    """Return the expectations of `node`. `environment` may name other files for the kernel log and the ports (sandbox)."""
    shape = pool.shape
    return HealthSettings(
        node=node,
        pool=pool.name,
        slots=pool.slots,
        limit=pool.health_limit,
        gpus=health.GpuWant(count=shape.gpu_count, memory_mib=shape.gpu_memory_mib, nvlinks=shape.nvlinks),
        memory=health.MemoryWant(mib=least_memory_mib(plan, pool)),
        ports=health.PortWant(
            count=ports_of(pool), path=environment.get(names.FABRIC_VARIABLE, names.FABRIC_FOLDER)
        ),
        mounts=mounts.Mounts(mounts=tuple(_any_type(one) for one in mount_wants.wanted(plan, on_head=False))),
        kernel_log=environment.get(names.KERNEL_LOG_VARIABLE, names.KERNEL_LOG),
    )


def ports_of(pool: Pool) -> int:
    """Return the ports of the fabric that every machine of the pool has."""
    if isinstance(pool, HostPool):
        return pool.hardware.fabric_ports if pool.hardware.fabric in FABRICS_WITH_PORTS else 0
    counts = (
        sum(1 for interface in template.interfaces if interface.kind is not InterfaceKind.ENA)
        for template in pool.templates
    )
    return min(counts, default=0)


def _any_type(want: mounts.MountWant) -> mounts.MountWant:
    """Type and source are of validation: a job needs that the path is mounted and writable."""
    return mounts.MountWant(path=want.path, types=(), source="")


def wanted(found: HealthSettings, judged_at: float = 0.0) -> Iterator[tuple[Check[Any, Any], Any]]:
    """Yield each check that applies to the node, with what it must find."""
    gpus = found.gpus
    if gpus.count:
        yield NODE_CHECKS["gpu.count"], hardware.Gpus(count=gpus.count)
        for check in ("gpu.smi", "gpu.ecc", "gpu.remap", "gpu.clocks"):
            yield NODE_CHECKS[check], gpus
        if gpus.nvlinks:
            yield NODE_CHECKS["nvl.links"], gpus
        yield NODE_CHECKS["xid.scan"], health.FaultWant(path=found.kernel_log, judged_at=judged_at)
    if found.mounts.mounts:
        yield NODE_CHECKS["fs.mount"], found.mounts
    if found.ports.count:
        yield NODE_CHECKS["fabric.ports"], found.ports
    yield NODE_CHECKS["mem.total"], found.memory
