"""The checks of the health programs, and what they compare with on one node. Pure.

Each job waits for these programs, so this module imports no plan: `health_wants` makes the settings of a plan's node.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import hardware, health, mounts, remedies
from gpucluster.checks.check import Check

PROLOG = ("gpu.count", "gpu.smi", "gpu.ecc", "gpu.remap", "xid.scan", "fs.mount", "fabric.ports")
EPILOG = ("gpu.count", "xid.scan")  # a job's end waits for the Epilog, so it runs no program that may be slow

GPU_COUNT: Check[Any, Any] = Check(
    id="gpu.count",
    tier=0,
    title="all GPUs exist",
    query=hardware.query_gpus,
    parse=hardware.parse_gpus,
    evaluate=hardware.evaluate_gpus,
    want=hardware.Gpus,
    remedy="on {machine}: nvidia-smi -L; lspci -d 10de: ; then on the head: scontrol update nodename={machine} state=drain reason='[node_problem] gpu.count', and replace it",
)
FS_MOUNT: Check[Any, Any] = Check(
    id="fs.mount",
    tier=0,
    title="the file systems are mounted with the plan's options, and answer",
    query=mounts.query_mounts,
    parse=mounts.parse_mounts,
    evaluate=mounts.evaluate_mounts,
    want=mounts.Mounts,
    remedy=f"on {{machine}}: {remedies.restart('gpucluster-agent')}; findmnt; dmesg | tail",
    causes=("disk:/run", "net.resolve:dns"),  # a mount of EFS has a name of DNS
)
_ALL: tuple[Check[Any, Any], ...] = (
    GPU_COUNT,
    FS_MOUNT,
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
    nodes: str  # of the pool, as a hostlist
    limit: int  # most nodes of the pool that are drained for their health at one time
    gpus: health.GpuWant
    memory: health.MemoryWant
    ports: health.PortWant
    mounts: mounts.Mounts
    kernel_log: str


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
