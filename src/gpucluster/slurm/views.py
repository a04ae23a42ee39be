"""One View a template: exactly its variables, already formatted. Made from the plan, with no look-up."""

from collections.abc import Iterable
from dataclasses import dataclass

from gpucluster.plan import defaults, names
from gpucluster.plan.model import ClusterPlan, Partition, Pool, SlotRange, there

RESUME_MARGIN_S = 60  # after a pool's boot timeout: the daemon ends the wait first, and says why
SUSPEND_BACKSTOP_S = 1800  # after a pool's idle time: only a daemon that is away lets it pass
NODE_REG_MEM_PERCENT = (
    90  # of RealMemory, which is 95 % of the nameplate: Slurm's own tolerance for cloud nodes
)
DARK_ADDRESSES = 254  # of 192.0.2.0/24, shared by the names of nodes that are off
DAY_MIN = 1440


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLine:
    """One NodeName line: a range of slots."""

    names: str
    cpus: str
    sockets: str
    cores: str
    threads: str
    memory_mib: str
    gres: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLine:
    """One PartitionName line; `shares` is what a job gets with each GPU, so that jobs share a node."""

    name: str
    nodes: str
    default: str
    max_time: str
    suspend_time_s: str
    shares: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConf:
    """templates/slurm/slurm.conf.j2"""

    cluster: str
    controller: str
    controller_port: str
    slurmd_port: str
    srun_ports: str
    auth_info: str
    node_reg_mem_percent: str
    prolog: str
    prolog_slurmctld: str
    bf_window_min: str
    bf_resolution_s: str
    gres_types: str
    resume_program: str
    suspend_program: str
    resume_fail_program: str
    resume_timeout_s: str
    suspend_timeout_s: str
    always_on: str
    nodes: tuple[NodeLine, ...]
    partitions: tuple[PartitionLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLine:
    """One line of gres.conf."""

    names: str
    model: str
    files: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GresConf:
    """templates/slurm/gres.conf.j2"""

    cluster: str
    gpus: tuple[GpuLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupConf:
    """templates/slurm/cgroup.conf.j2"""

    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafLine:
    """One switch of topology.conf."""

    name: str
    nodes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyConf:
    """templates/slurm/topology.conf.j2"""

    cluster: str
    leaves: tuple[LeafLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLine:
    """One name that must resolve while its node is off."""

    address: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """templates/slurm/hosts.j2"""

    cluster: str
    head_address: str
    head_name: str
    hosts: tuple[HostLine, ...]


def slurm_conf(plan: ClusterPlan) -> SlurmConf:
    window_min = _backfill_window_min(plan.partitions)
    return SlurmConf(
        cluster=plan.name,
        controller=f"{there(plan.head).name}({there(plan.head).address})",
        controller_port=str(there(plan.head).controller_port),
        slurmd_port=str(names.SLURMD_PORT),
        srun_ports="-".join(str(port) for port in names.SRUN_PORTS),
        auth_info=f"cred_expire={plan.times.cred_expire_s}",
        node_reg_mem_percent=str(int(defaults.NODE_REG_MEM_PERCENT.value)),
        prolog=names.PROLOG,
        prolog_slurmctld=f"{names.HOOK_DIR}/prolog_slurmctld",
        bf_window_min=str(window_min),
        bf_resolution_s=str(60 if window_min <= 2 * DAY_MIN else 600),
        gres_types="gpu" if any(pool.shape.gpu_count for pool in plan.pools) else "",
        resume_program=f"{names.HOOK_DIR}/resume",
        suspend_program=f"{names.HOOK_DIR}/suspend",
        resume_fail_program=f"{names.HOOK_DIR}/resume_fail",
        resume_timeout_s=str(
            max(pool.boot_timeout_s for pool in plan.pools) + int(defaults.RESUME_MARGIN_S.value)
        ),
        suspend_timeout_s=str(plan.times.suspend_timeout_s),
        always_on=_hostlist(_always_on(pool) for pool in plan.pools if pool.min),
        nodes=tuple(_node(pool, span) for pool in plan.pools for span in pool.slots),
        partitions=tuple(_partition(partition, plan) for partition in plan.partitions),
    )


def gres_conf(plan: ClusterPlan) -> GresConf:
    return GresConf(
        cluster=plan.name,
        gpus=tuple(
            GpuLine(names=span.hostlist, model=pool.shape.gpu_model, files=_devices(pool.shape.gpu_count))
            for pool in plan.pools
            for span in pool.slots
            if pool.shape.gpu_model is not None
        ),
    )


def cgroup_conf(plan: ClusterPlan) -> CgroupConf:
    return CgroupConf(cluster=plan.name)


def topology_conf(plan: ClusterPlan) -> TopologyConf:
    lines = (LeafLine(name=leaf.name, nodes=_hostlist(leaf.slots)) for leaf in plan.leaves)
    return TopologyConf(cluster=plan.name, leaves=tuple(lines))


def hosts(plan: ClusterPlan) -> Hosts:
    return Hosts(
        cluster=plan.name,
        head_address=there(plan.head).address,
        head_name=there(plan.head).name,
        hosts=tuple(host for pool in plan.pools for span in pool.slots for host in _dark_hosts(span)),
    )


def _dark_hosts(span: SlotRange) -> Iterable[HostLine]:
    """A slot's address depends on its number alone: no other pool or zone moves it."""
    for number, name in enumerate(span, start=span.first):
        yield HostLine(address=f"192.0.2.{(number - 1) % DARK_ADDRESSES + 1}", name=name)


def _node(pool: Pool, span: SlotRange) -> NodeLine:
    shape = pool.shape
    return NodeLine(
        names=span.hostlist,
        cpus=str(shape.cpus),
        sockets=str(shape.sockets),
        cores=str(shape.cores_per_socket),
        threads=str(shape.threads_per_core),
        memory_mib=str(shape.real_memory_mib),
        gres=f" Gres=gpu:{shape.gpu_model}:{shape.gpu_count}" if shape.gpu_count else "",
    )


def _partition(partition: Partition, plan: ClusterPlan) -> PartitionLine:
    pools = [pool for pool in plan.pools if pool.name in partition.pools]
    return PartitionLine(
        name=partition.name,
        nodes=_hostlist(span for pool in pools for span in pool.slots),
        default="YES" if partition.default else "NO",
        max_time=_slurm_time(partition.max_time_s),
        suspend_time_s=str(max(pool.idle_s for pool in pools) + int(defaults.SUSPEND_BACKSTOP_S.value)),
        shares=_shares(pools),
    )


def _shares(pools: list[Pool]) -> str:
    """Without these a job takes a node's whole memory. Slurm allows one of DefMemPerGPU and DefMemPerCPU."""
    shapes = [pool.shape for pool in pools if pool.shape.gpu_count]
    if not shapes:
        return f" DefMemPerCPU={min(p.shape.real_memory_mib // p.shape.cpus for p in pools)}"
    cpus = min(shape.cpus // shape.gpu_count for shape in shapes)
    memory_mib = min(shape.real_memory_mib // shape.gpu_count for shape in shapes)
    return f" DefCpuPerGPU={cpus} DefMemPerGPU={memory_mib}"


def _always_on(pool: Pool) -> SlotRange:
    first = next(span for span in pool.slots if span.zone == pool.sources[0].zones[0])
    return SlotRange(zone=first.zone, prefix=first.prefix, first=first.first, last=first.first + pool.min - 1)


def _hostlist(spans: Iterable[SlotRange]) -> str:
    return ",".join(span.hostlist for span in spans)


def _devices(count: int) -> str:
    return "/dev/nvidia0" if count == 1 else f"/dev/nvidia[0-{count - 1}]"


def _backfill_window_min(partitions: Iterable[Partition]) -> int:
    """Backfill must look as far ahead as the longest job, or it lets short ones pass a long one for ever."""
    longest = max((p.max_time_s // 60 if p.max_time_s else 7 * DAY_MIN) for p in partitions)
    return min(max(longest, DAY_MIN), 30 * DAY_MIN)


def _slurm_time(seconds: int | None) -> str:
    """`1-00:00:00`; Slurm counts in minutes, so seconds are rounded up to one."""
    if seconds is None:
        return "UNLIMITED"
    minutes = -(-seconds // 60)
    days, hours = divmod(minutes // 60, 24)
    return f"{days}-{hours:02}:{minutes % 60:02}:00"
