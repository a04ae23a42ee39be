"""What the health programs compare with on the plan's nodes. Pure."""

from collections.abc import Mapping

from gpucluster.checks import health, mount_wants, mounts
from gpucluster.checks.node_health import HealthSettings
from gpucluster.plan import names
from gpucluster.plan.health import least_memory_mib
from gpucluster.plan.model import HostPool, InterfaceKind, Pool, SlurmPlan

FABRICS_WITH_PORTS = ("infiniband", "roce")


def settings(plan: SlurmPlan, pool: Pool, node: str, environment: Mapping[str, str]) -> HealthSettings:
    """Return the expectations of `node`. `environment` may name other files for the kernel log and the ports (sandbox)."""
    shape = pool.shape
    return HealthSettings(
        node=node,
        pool=pool.name,
        nodes=pool.hostlist,
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
    """Type, source and options are of validation: a job needs that the path is mounted, and writable unless the plan says ro."""
    return mounts.MountWant(path=want.path, types=(), source="", lacks=tuple({"ro"} & set(want.lacks)))
