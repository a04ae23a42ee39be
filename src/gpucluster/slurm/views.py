"""One View a template: exactly its variables, already formatted. Made from the plan, with no look-up."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gpucluster.plan import defaults, hostlist, names
from gpucluster.plan.model import ClusterPlan, Partition, Pool, SlotRange, there

DARK_ADDRESSES = 254  # of 192.0.2.0/24, shared by the names of nodes that are off
LONGEST_TIMEOUT_S = 65535  # slurm.conf holds it in 16 bits
DAY_MIN = 1440


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLine:
    """One NodeName line: a range of slots."""

    names: str
    addresses: str
    cpus: str
    sockets: str
    cores: str
    threads: str
    memory_mib: str
    gres: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLine:
    """One PartitionName line; `shares` is what a job gets with each GPU, so that jobs share a node."""

    name: str
    nodes: str
    default: str
    max_time: str
    suspend_time: str
    shares: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prologs:
    """What runs before a job."""

    on_node: str
    on_controller: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reboots:
    """`scontrol reboot` of a node that is always there."""

    program: str
    within_s: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSaving:
    """Nodes that come and go."""

    resume_program: str
    suspend_program: str
    resume_fail_program: str
    resume_timeout_s: str
    suspend_timeout_s: str
    always_on: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A line of SlurmctldHost."""

    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConf:
    """templates/slurm/slurm.conf.j2"""

    cluster: str
    controllers: tuple[Controller, ...]
    controller_port: str
    slurmd_port: str
    srun_ports: str
    auth_info: str
    slurmctld_parameters: str
    prologs: tuple[Prologs, ...]  # one, or none
    task_prolog: str
    prolog_flags: str
    return_to_service: str
    reboots: tuple[Reboots, ...]  # one, or none
    bf_window_min: str
    bf_resolution_s: str
    scheduler_waits: str
    gres_types: str
    topology_plugin: str
    power_saving: tuple[PowerSaving, ...]  # one, or none
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
class SpineLine:
    """A switch above switches."""

    name: str
    leaves: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyConf:
    """templates/slurm/topology.conf.j2"""

    cluster: str
    why: str
    leaves: tuple[LeafLine, ...]
    spines: tuple[SpineLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLine:
    """One name and where it leads."""

    address: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """templates/slurm/hosts.j2"""

    cluster: str
    head_address: str
    head_name: str
    hosts: tuple[HostLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """templates/slurm/names.j2"""

    cluster: str
    hosts: tuple[HostLine, ...]


_A_YEAR_S = 365 * 86_400
_PROLOGS = Prologs(on_node=names.PROLOG, on_controller=f"{names.HOOK_DIR}/prolog_slurmctld")
_NO_COMMON_SWITCH = "One leaf a zone and no common switch: Slurm keeps every job in one zone."
_TREE = "Leaves and spines as the spec says; two spines have no common switch, so no job spans them."
_ALWAYS_THERE, _ANY_REBOOT = (
    "1",
    "2",
)  # of ReturnToService: only a node that was merely silent; any that registers


def slurm_conf(plan: ClusterPlan) -> SlurmConf:
    window_min = _backfill_window_min(plan.partitions)
    return SlurmConf(
        cluster=plan.name,
        controllers=_controllers(plan),
        controller_port=str(there(plan.head).controller_port),
        slurmd_port=str(names.SLURMD_PORT),
        srun_ports="-".join(str(port) for port in names.SRUN_PORTS),
        auth_info=f"cred_expire={plan.times.cred_expire_s}",
        slurmctld_parameters=_slurmctld_parameters(plan),
        prologs=() if plan.aws is None else (_PROLOGS,),
        task_prolog=names.TASK_PROLOG if plan.aws and plan.aws.jobs else "",
        prolog_flags="Alloc,Contain" if plan.aws is None else "Alloc,Contain,DeferBatch",
        return_to_service=_return_to_service(plan),
        reboots=_reboots(plan),
        bf_window_min=str(window_min),
        bf_resolution_s=str(60 if window_min <= 2 * DAY_MIN else 600),
        scheduler_waits=""
        if plan.aws is None
        else ",salloc_wait_nodes,sbatch_wait_nodes,nohold_on_prolog_fail",
        gres_types="gpu" if any(pool.shape.gpu_count for pool in plan.pools) else "",
        topology_plugin="topology/tree" if plan.leaves else "",
        power_saving=() if plan.aws is None else (_power_saving(plan),),
        nodes=tuple(line for pool in plan.pools for line in _nodes(pool)),
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
    spines = (SpineLine(name=spine.name, leaves=",".join(spine.leaves)) for spine in plan.spines)
    return TopologyConf(
        cluster=plan.name,
        why=_NO_COMMON_SWITCH if plan.hosts is None else _TREE,
        leaves=tuple(lines),
        spines=tuple(spines),
    )


def hosts(plan: ClusterPlan) -> Hosts:
    return Hosts(
        cluster=plan.name,
        head_address=there(plan.head).address,
        head_name=there(plan.head).name,
        hosts=tuple(host for pool in plan.pools for span in pool.slots for host in _dark_hosts(span)),
    )


def all_names(plan: ClusterPlan) -> Names:
    """Of hosts that exist: real addresses, the head's first."""
    head = there(plan.head)
    pairs = ((head.name, head.address), *(pair for pool in plan.pools for pair in pool.hosts()))
    return Names(cluster=plan.name, hosts=tuple(HostLine(address=at, name=name) for name, at in pairs))


def _dark_hosts(span: SlotRange) -> Iterable[HostLine]:
    """A slot's address depends on its number alone: no other pool or zone moves it."""
    for number, name in enumerate(span, start=span.first):
        yield HostLine(address=f"192.0.2.{(number - 1) % DARK_ADDRESSES + 1}", name=name)


def _controllers(plan: ClusterPlan) -> tuple[Controller, ...]:
    """The head, then the one that waits: slurmctld's backup."""
    head = there(plan.head)
    hosts = ((head.name, head.address),)
    if head.standby is not None:
        hosts += ((names.standby_name(plan.name), head.standby.address),)
    return tuple(Controller(host=f"{name}({address})") for name, address in hosts)


def _slurmctld_parameters(plan: ClusterPlan) -> str:
    """node_reg_mem_percent last (24.11); a host that exists must show all that its line says, Slurm's own default."""
    words = ["enable_configless", *(() if plan.aws is None else ("idle_on_node_suspend",))]
    percent = 100 if plan.aws is None else int(defaults.NODE_REG_MEM_PERCENT.value)
    return ",".join((*words, f"node_reg_mem_percent={percent}"))


def _return_to_service(plan: ClusterPlan) -> str:
    """A host that exists and rebooted by itself is looked at by a person first; a cloud's boots all the time."""
    return _ALWAYS_THERE if plan.aws is None else _ANY_REBOOT


def _reboots(plan: ClusterPlan) -> tuple[Reboots, ...]:
    return () if plan.aws else (Reboots(program="/sbin/reboot", within_s=_resume_timeout_s(plan)),)


def _power_saving(plan: ClusterPlan) -> PowerSaving:
    return PowerSaving(
        resume_program=f"{names.HOOK_DIR}/resume",
        suspend_program=f"{names.HOOK_DIR}/suspend",
        resume_fail_program=f"{names.HOOK_DIR}/resume_fail",
        resume_timeout_s=_resume_timeout_s(plan),
        suspend_timeout_s=str(plan.times.suspend_timeout_s),
        always_on=_hostlist(_always_on(pool) for pool in plan.pools if pool.min),
    )


def _resume_timeout_s(plan: ClusterPlan) -> str:
    """The longest boot, and the time until the last of all nodes is even launched."""
    boot_s = max(pool.boot_timeout_s for pool in plan.pools) + int(defaults.RESUME_MARGIN_S.value)
    late = max(0, sum(pool.max for pool in plan.pools if pool.sources) - int(defaults.LAUNCHED_AT_ONCE.value))
    return str(min(boot_s + math.ceil(late / defaults.LAUNCHED_A_SECOND.value), LONGEST_TIMEOUT_S))


def _nodes(pool: Pool) -> Iterable[NodeLine]:
    """One line a range; the addresses of hosts that exist stand in the order of their names."""
    at = 0
    for span in pool.slots:
        addresses = pool.addresses[at : at + len(span)]
        at += len(span)
        yield _node(pool, span, addresses)


def _node(pool: Pool, span: SlotRange, addresses: tuple[str, ...]) -> NodeLine:
    shape = pool.shape
    return NodeLine(
        names=span.hostlist,
        addresses=f" NodeAddr={hostlist.fold(addresses)}" if addresses else "",
        cpus=str(shape.cpus),
        sockets=str(shape.sockets),
        cores=str(shape.cores_per_socket),
        threads=str(shape.threads_per_core),
        memory_mib=str(shape.real_memory_mib),
        gres=f" Gres=gpu:{shape.gpu_model}:{shape.gpu_count}" if shape.gpu_count else "",
        state="UNKNOWN" if addresses else "CLOUD",
    )


def _partition(partition: Partition, plan: ClusterPlan) -> PartitionLine:
    pools = [pool for pool in plan.pools if pool.name in partition.pools]
    return PartitionLine(
        name=partition.name,
        nodes=_hostlist(span for pool in pools for span in pool.slots),
        default="YES" if partition.default else "NO",
        max_time=_slurm_time(partition.max_time_s),
        suspend_time="" if plan.aws is None else f" SuspendTime={_suspend_time_s(pools)}",
        shares=_shares(pools),
    )


def _suspend_time_s(pools: list[Pool]) -> int:
    """Spares idle for ever, and which nodes they are changes: there Slurm's backstop would only make the daemon power
    up others. Not INFINITE: without one that is finite power saving is off.
    """
    if any(pool.spares for pool in pools):
        return _A_YEAR_S
    return max(pool.idle_s for pool in pools) + int(defaults.SUSPEND_BACKSTOP_S.value)


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
