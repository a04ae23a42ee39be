"""The values of each template of Slurm's files: one class for each template, with exactly its variables as text."""

import math
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpucluster import catalog
from gpucluster.plan import defaults, gres, names
from gpucluster.plan.health import registered_memory_percent
from gpucluster.plan.model import (
    Health,
    JobEnvironment,
    Mig,
    Mps,
    NodeShape,
    Partition,
    Pool,
    SlotRange,
    SlurmPlan,
    Variable,
)
from gpucluster.slurm import hostlist
from gpucluster.slurm.config import accounting_views, prolog_limits, topology
from gpucluster.slurm.config.times import slurm_time

PLACEHOLDER_ADDRESSES = 254  # of 192.0.2.0/24, for the names of nodes that are powered down
LONGEST_TIMEOUT_S = 65535  # Slurm stores it in 16 bits
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
    features: str
    weight: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLine:
    """One PartitionName line.

    `job_defaults` has the default CPUs of a GPU, and the default memory of a CPU; `cpu_limits` the most CPUs of a node, and
    the most memory of a CPU. `order` says who may use the partition, and before whom; `billing` what its jobs cost of their
    account's share.
    """

    name: str
    nodes: str
    default: str
    max_time: str
    default_time: str
    suspend_time: str
    job_defaults: str
    cpu_limits: str
    order: str
    billing: str
    topology: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrologLines:
    """The programs that run before a job."""

    on_node: str
    on_controller: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPrologLines:
    """The health programs before and after a job."""

    prolog: str
    epilog: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheckLines:
    """The health program of idle nodes, and its interval in seconds."""

    program: str
    every_s: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RebootLines:
    """The time limit of `scontrol reboot` on existing hosts. With power saving it is the time limit of a boot."""

    within_s: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSavingLines:
    """Slurm's power saving, for nodes that are launched and terminated on demand."""

    resume_program: str
    suspend_program: str
    resume_fail_program: str
    resume_timeout_s: str
    suspend_timeout_s: str
    kept_up: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerLine:
    """One SlurmctldHost line."""

    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConf:
    """templates/slurm/slurm.conf.j2"""

    cluster: str
    controllers: tuple[ControllerLine, ...]
    controller_port: str
    slurmd_port: str
    srun_ports: str
    auth_info: str
    slurmctld_parameters: str
    prologs: tuple[PrologLines, ...]  # one, or none
    health_prologs: tuple[HealthPrologLines, ...]  # one, or none
    health_checks: tuple[HealthCheckLines, ...]  # one, or none
    task_prolog: str
    prolog_limits: tuple[prolog_limits.LimitLine, ...]
    prolog_flags: str
    private_tmp: str  # the line of the plugin, or empty
    return_to_service: str
    slurmd_timeout_s: str
    reboots: tuple[RebootLines, ...]  # one, or none
    bf_window_min: str
    bf_resolution_s: str
    scheduler_parameters: str
    gres_types: str
    job_submit: str
    topology_plugin: str
    switch_type: str
    requeue: str
    licenses: str
    accounting: tuple[accounting_views.AccountingLines, ...]  # one, or none
    job_completions: str
    preemption: tuple[accounting_views.PreemptionLines, ...]  # one, or none
    power_saving: tuple[PowerSavingLines, ...]  # one, or none
    nodes: tuple[NodeLine, ...]
    partitions: tuple[PartitionLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLine:
    """One line of gres.conf."""

    names: str
    model: str
    files: str  # with its key: File or MultipleFiles
    cores: str
    links: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLine:
    """The shards of a node's GPUs, or their parts of MPS."""

    names: str
    name: str
    count: str
    flags: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GresConf:
    """templates/slurm/gres.conf.j2"""

    cluster: str
    autodetect: str  # why it is off
    gpus: tuple[GpuLine, ...]
    shared: tuple[SharedLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupConf:
    """templates/slurm/cgroup.conf.j2"""

    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMemoryLine:
    """The nodes whose jobs have the node's /dev/shm."""

    names: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContainerConf:
    """templates/slurm/job_container.conf.j2"""

    cluster: str
    base_path: str
    shared_memory: tuple[SharedMemoryLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPartition:
    """A partition that refuses jobs without GPUs, and what the user reads then."""

    name: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPartition:
    """A partition with shared GPUs, and the parts of its GPU with the most."""

    name: str
    kind: str
    most: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmit:
    """templates/slurm/job_submit.lua.j2"""

    cluster: str
    default: str
    partitions: tuple[GpuPartition, ...]
    shared: tuple[SharedPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLine:
    """A name with its address."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlugstackConf:
    """templates/slurm/plugstack.conf.j2"""

    cluster: str
    plugin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderLine:
    """A folder on shared storage."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """templates/slurm/profile.sh.j2"""

    cluster: str
    modules: tuple[FolderLine, ...]  # one, or none
    condas: tuple[FolderLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableLine:
    """One environment variable with its reason and its source."""

    name: str
    value: str
    reason: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsetLine:
    """A variable that no file sets, with the reason and its source."""

    name: str
    reason: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnv:
    """templates/slurm/env.sh.j2"""

    cluster: str
    pool: str
    fabric: str
    variables: tuple[VariableLine, ...]
    symptoms: tuple[VariableLine, ...]
    unset: tuple[UnsetLine, ...]


_HEALTH_PROLOGS = HealthPrologLines(prolog=names.HEALTH_PROLOG, epilog=names.HEALTH_EPILOG)
_PROLOGS = PrologLines(on_node=names.PROLOG, on_controller=f"{names.HOOK_DIR}/prolog_slurmctld")
_AFTER_NO_RESPONSE, _AFTER_REGISTRATION = "1", "2"  # values of ReturnToService


def slurm_conf(plan: SlurmPlan) -> SlurmConf:
    window_min = _backfill_window_min(plan.partitions)
    return SlurmConf(
        cluster=plan.name,
        controllers=_controllers(plan),
        controller_port=str(plan.head.controller_port),
        slurmd_port=str(names.SLURMD_PORT),
        srun_ports="-".join(str(port) for port in names.SRUN_PORTS),
        auth_info=f"cred_expire={plan.times.cred_expire_s}",
        slurmctld_parameters=_slurmctld_parameters(plan),
        prologs=() if plan.aws is None else (_PROLOGS,),
        task_prolog=names.TASK_PROLOG if gres.has_task_prolog(plan) else "",
        health_prologs=(_HEALTH_PROLOGS,) if _has_health_prolog(plan) else (),
        health_checks=() if plan.health is None else (_health_check(plan.health),),
        prolog_limits=prolog_limits.limits(plan, int(_resume_timeout_s(plan))),
        prolog_flags="Alloc,Contain,DeferBatch" if plan.aws or _has_health_prolog(plan) else "Alloc,Contain",
        private_tmp=_private_tmp(plan),
        return_to_service=_return_to_service(plan),
        slurmd_timeout_s=str(int(defaults.slurmd_timeout(plan).value)),
        reboots=() if plan.aws else (RebootLines(within_s=_resume_timeout_s(plan)),),
        bf_window_min=str(window_min),
        bf_resolution_s=str(60 if window_min <= 2 * DAY_MIN else 600),
        scheduler_parameters=_scheduler_parameters(plan),
        gres_types=",".join(dict.fromkeys(name for pool in plan.pools for name in gres.types(pool.shape))),
        job_submit="lua" if has_job_submit(plan) else "",
        requeue="1" if plan.slurm.requeue else "0",
        licenses=",".join(f"{one.name}:{one.count}" for one in plan.slurm.licenses),
        accounting=tuple(accounting_views.accounting(plan)),
        job_completions=names.JOB_COMPLETIONS,
        preemption=tuple(accounting_views.preemption(plan)),
        topology_plugin=topology.plugin(plan),
        switch_type=topology.switch_type(plan),
        power_saving=() if plan.aws is None else (_power_saving(plan),),
        nodes=tuple(line for pool in plan.pools for line in _nodes(pool)),
        partitions=tuple(_partition(partition, plan) for partition in plan.partitions),
    )


def gres_conf(plan: SlurmPlan) -> GresConf:
    return GresConf(
        cluster=plan.name,
        autodetect="AutoDetect cannot be used with cloud nodes."
        if plan.hosts is None
        else "AutoDetect needs a slurmd that is built with NVML.",
        gpus=tuple(line for pool in plan.pools for span in pool.slots for line in _gpus(pool.shape, span)),
        shared=tuple(
            line for pool in plan.pools for span in pool.slots for line in _shared(pool.shape, span)
        ),
    )


def cgroup_conf(plan: SlurmPlan) -> CgroupConf:
    return CgroupConf(cluster=plan.name)


def job_container_conf(plan: SlurmPlan) -> JobContainerConf:
    """CUDA and the MPS server share memory below /dev/shm, so jobs of these nodes have the node's (S31)."""
    spans = [s for pool in plan.pools if isinstance(pool.shape.sharing, Mps) for s in pool.slots]
    return JobContainerConf(
        cluster=plan.name,
        base_path=plan.slurm.private_tmp or "",
        shared_memory=tuple(SharedMemoryLine(names=span.hostlist) for span in spans),
    )


def has_job_submit(plan: SlurmPlan) -> bool:
    """Whether slurmctld runs a script at each submission."""
    return any(partition.requires_gpus for partition in plan.partitions) or any(_shared_partitions(plan))


def _shared_partitions(plan: SlurmPlan) -> Iterator[SharedPartition]:
    for partition in plan.partitions:
        pools = [pool for pool in plan.pools if pool.name in partition.pools]
        found = [part for pool in pools if (part := gres.part_of(pool.shape)) is not None]
        for kind in sorted({kind for kind, _ in found}):
            most = str(max(each for name, each in found if name == kind))
            yield SharedPartition(name=partition.name, kind=kind, most=most)


def job_submit(plan: SlurmPlan) -> JobSubmit:
    others = [partition.name for partition in plan.partitions if not partition.requires_gpus]
    advice = f", or use --partition={others[0]}" if others else ""
    return JobSubmit(
        cluster=plan.name,
        default=next((partition.name for partition in plan.partitions if partition.default), ""),
        partitions=tuple(
            GpuPartition(name=partition.name, advice=f"request GPUs, for example --gpus=1{advice}")
            for partition in plan.partitions
            if partition.requires_gpus
        ),
        shared=tuple(_shared_partitions(plan)),
    )


def hosts(plan: SlurmPlan) -> Hosts:
    return Hosts(
        cluster=plan.name,
        head_address=plan.head.address,
        head_name=plan.head.name,
        hosts=tuple(host for pool in plan.pools for span in pool.slots for host in _placeholder_hosts(span)),
    )


def all_names(plan: SlurmPlan) -> Names:
    """The names of existing hosts with their addresses, the head first."""
    head = plan.head
    pairs = ((head.name, head.address), *(pair for pool in plan.pools for pair in pool.hosts()))
    return Names(cluster=plan.name, hosts=tuple(HostLine(address=at, name=name) for name, at in pairs))


def plugstack_conf(plan: SlurmPlan) -> PlugstackConf:
    """The plugin for containers."""
    return PlugstackConf(cluster=plan.name, plugin=names.PYXIS_PLUGIN)


def profile(plan: SlurmPlan) -> Profile:
    """What a login shell reads, for software on shared storage."""
    found = plan.slurm.software
    return Profile(
        cluster=plan.name,
        modules=_folder(None if found is None else found.modules),
        condas=_folder(None if found is None else found.conda),
    )


def _folder(path: str | None) -> tuple[FolderLine, ...]:
    return () if path is None else (FolderLine(path=path),)


def job_env(cluster: str, pool: str, environment: JobEnvironment) -> JobEnv:
    """The environment of a pool's jobs as a file for a shell."""
    return JobEnv(
        cluster=cluster,
        pool=pool,
        fabric=environment.fabric,
        variables=_variables(environment.set),
        symptoms=_variables(environment.on_symptom),
        unset=tuple(
            UnsetLine(name=one.name, reason=one.reason, source=one.source) for one in environment.never
        ),
    )


def _variables(found: Iterable[Variable]) -> tuple[VariableLine, ...]:
    return tuple(
        VariableLine(name=one.name, value=shlex.quote(one.value), reason=one.reason, source=one.source)
        for one in found
    )


def _placeholder_hosts(span: SlotRange) -> Iterable[HostLine]:
    """Placeholder addresses. Each depends only on the slot's number, so that a change of another pool does not change it."""
    for number, name in enumerate(span, start=span.first):
        yield HostLine(address=f"192.0.2.{(number - 1) % PLACEHOLDER_ADDRESSES + 1}", name=name)


def _controllers(plan: SlurmPlan) -> tuple[ControllerLine, ...]:
    """The head, then the standby as slurmctld's backup controller."""
    head = plan.head
    hosts = ((head.name, head.address),)
    if head.standby is not None:
        hosts += ((names.standby_name(plan.name), head.standby.address),)
    return tuple(ControllerLine(host=f"{name}({address})") for name, address in hosts)


def _slurmctld_parameters(plan: SlurmPlan) -> str:
    """node_reg_mem_percent must be last (24.11). An existing host must register with 100 % of its memory, as by default."""
    words = ["enable_configless", *(() if plan.aws is None else ("idle_on_node_suspend",))]
    return ",".join((*words, f"node_reg_mem_percent={registered_memory_percent(plan)}"))


def _scheduler_parameters(plan: SlurmPlan) -> str:
    """A job whose Prolog failed waits for other nodes, and is not held.

    On hosts, jobs that request one CPU take the last nodes and larger jobs the first, so they do not divide each other's nodes (S38).
    On AWS a larger job gets new nodes, and small jobs take nodes that are up.
    """
    words = ("salloc_wait_nodes", "sbatch_wait_nodes") if plan.aws else ("pack_serial_at_end",)
    words += ("nohold_on_prolog_fail",) if plan.aws or _has_health_prolog(plan) else ()
    return "".join(f",{word}" for word in words)


def _has_health_prolog(plan: SlurmPlan) -> bool:
    return plan.health is not None and plan.health.prolog


def _health_check(health: Health) -> HealthCheckLines:
    return HealthCheckLines(program=names.HEALTH_CHECK, every_s=str(health.every_s))


def _private_tmp(plan: SlurmPlan) -> str:
    """The plugin that gives each job its own /tmp. Slurm 25.11 has renamed key and plugin."""
    if plan.slurm.private_tmp is None:
        return ""
    if "namespacetype" in catalog.slurm_facts(plan.slurm.version).keys["slurm.conf"]:
        return "NamespaceType=namespace/tmpfs"
    return "JobContainerType=job_container/tmpfs"


def _return_to_service(plan: SlurmPlan) -> str:
    """An existing host stays DOWN after an unexpected reboot, until a person resumes it. With 1 a cloud node that boots late stays DOWN (S48)."""
    return _AFTER_NO_RESPONSE if plan.aws is None else _AFTER_REGISTRATION


def _power_saving(plan: SlurmPlan) -> PowerSavingLines:
    return PowerSavingLines(
        resume_program=f"{names.HOOK_DIR}/resume",
        suspend_program=f"{names.HOOK_DIR}/suspend",
        resume_fail_program=f"{names.HOOK_DIR}/resume_fail",
        resume_timeout_s=_resume_timeout_s(plan),
        suspend_timeout_s=str(plan.times.suspend_timeout_s),
        kept_up=",".join(word for pool in plan.pools for word in _kept_up(pool)),
    )


def _resume_timeout_s(plan: SlurmPlan) -> str:
    """The longest boot, and the time until the last node is launched, in seconds."""
    boot_s = max(pool.boot_timeout_s for pool in plan.pools) + int(defaults.RESUME_MARGIN_S.value)
    late = max(0, sum(pool.max for pool in plan.pools if pool.sources) - int(defaults.LAUNCHED_AT_ONCE.value))
    return str(min(boot_s + math.ceil(late / defaults.LAUNCHED_A_SECOND.value), LONGEST_TIMEOUT_S))


def _nodes(pool: Pool) -> Iterable[NodeLine]:
    """One line for each range of always-on or elastic slots. The addresses of hosts have the order of their names."""
    at = 0
    for span, always_on in pool.by_start():
        addresses = pool.addresses[at : at + len(span)]
        at += len(span)
        yield _node(pool, span, addresses, always_on=always_on)


def _node(pool: Pool, span: SlotRange, addresses: tuple[str, ...], *, always_on: bool) -> NodeLine:
    shape = pool.shape
    return NodeLine(
        names=span.hostlist,
        addresses=f" NodeAddr={hostlist.fold(addresses)}" if addresses else "",
        cpus=str(shape.cpus),
        sockets=str(shape.sockets),
        cores=str(shape.cores_per_socket),
        threads=str(shape.threads_per_core),
        memory_mib=str(shape.real_memory_mib),
        gres=f" Gres={gres.of_node(shape)}" if shape.gpu_count else "",
        features=f" Feature={','.join(pool.features)}" if pool.features else "",
        weight=str(defaults.WEIGHTS[shape.gpu_count > 0, always_on]),
        state="UNKNOWN" if addresses else "CLOUD",
    )


def _partition(partition: Partition, plan: SlurmPlan) -> PartitionLine:
    pools = [pool for pool in plan.pools if pool.name in partition.pools]
    return PartitionLine(
        name=partition.name,
        nodes=",".join(pool.hostlist for pool in pools),
        default="YES" if partition.default else "NO",
        max_time=slurm_time(partition.max_time_s),
        default_time=slurm_time(partition.default_time_s),
        suspend_time="" if plan.aws is None else f" SuspendTime={_suspend_time_s(pools)}",
        job_defaults=_job_defaults(partition),
        cpu_limits=_cpu_limits(partition),
        order=accounting_views.order(partition) + _one_user(pools),
        billing="" if plan.slurm.accounting is None else accounting_views.billing(pools),
        topology="" if partition.topology is None else f" Topology={partition.topology}",
    )


def _suspend_time_s(pools: list[Pool]) -> int:
    """SuspendTime of a partition, in seconds. Slurm turns power saving off without one finite value."""
    return max(pool.idle_s for pool in pools) + int(defaults.SUSPEND_BACKSTOP_S.value)


def _cpu_limits(partition: Partition) -> str:
    """The most CPUs of a node, and the most memory of a CPU. Without the second a job could take the whole memory (S16)."""
    if partition.sizes.most_cpus_of_node is None:
        return ""
    return f" MaxCPUsPerNode={partition.sizes.most_cpus_of_node} MaxMemPerCPU={partition.sizes.memory_of_cpu_mib}"


def _job_defaults(partition: Partition) -> str:
    """Default CPUs of a GPU and memory of a CPU. Without them a job takes all memory of a node.

    DefMemPerCPU counts for jobs without GPUs, too; DefMemPerGPU does not, and Slurm takes only one of them (S16).
    """
    sizes = partition.sizes
    memory = f" DefMemPerCPU={sizes.memory_of_cpu_mib}"
    return memory if sizes.cpus_of_gpu is None else f" DefCpuPerGPU={sizes.cpus_of_gpu}{memory}"


def _kept_up(pool: Pool) -> Iterator[str]:
    """What Slurm itself never suspends: the always-on slots, and in each zone as many idle nodes as the pool has spares."""
    yield from (span.hostlist for span, always_on in pool.by_start() if always_on)
    if pool.spares:
        yield from (f"{span.hostlist}:{pool.spares}" for span in pool.slots)


def _gpus(shape: NodeShape, span: SlotRange) -> Iterator[GpuLine]:
    """A line for the GPUs of each socket with the socket's cores, or for each MIG slice.

    A line for each GPU if NVLink joins only some of them: Links is of one GPU (man gres.conf). If NVLink joins all, Links
    would be the same for each and change nothing.
    """
    if shape.gpu_model is None:
        return
    if isinstance(shape.sharing, Mig):
        for one in gres.slices(shape):
            yield GpuLine(
                names=span.hostlist,
                model=one.profile,
                files=f"MultipleFiles={','.join(one.files)}",
                cores=_cores(shape, one.gpu),
                links="",  # NVLink joins no slices
            )
        return
    sockets = 1 if shape.gpu_count % shape.sockets else shape.sockets
    of_socket = shape.gpu_count // sockets
    step = 1 if 0 < shape.nvlink_group < shape.gpu_count else of_socket
    for first in range(0, shape.gpu_count, step):
        yield GpuLine(
            names=span.hostlist,
            model=shape.gpu_model,
            files=f"File={_devices(first, first + step - 1)}",
            cores=_cores(shape, first),
            links=f" Links={_links(shape, first)}" if 0 < shape.nvlink_group < shape.gpu_count else "",
        )


def _cores(shape: NodeShape, gpu: int) -> str:
    """The cores of the GPU's socket. None if the GPUs do not divide evenly over the sockets."""
    if shape.gpu_count % shape.sockets:
        return ""
    first = gpu // (shape.gpu_count // shape.sockets) * shape.cores_per_socket
    return f" Cores={_range(first, first + shape.cores_per_socket - 1)}"


def _links(shape: NodeShape, gpu: int) -> str:
    """-1 for the GPU itself, 1 for those of its group, 0 for the others."""
    group = gpu // shape.nvlink_group
    return ",".join(
        "-1" if n == gpu else str(int(n // shape.nvlink_group == group)) for n in range(shape.gpu_count)
    )


def _shared(shape: NodeShape, span: SlotRange) -> Iterator[SharedLine]:
    """slurmd divides the shards or parts evenly over the GPUs of the lines before.

    By default Slurm uses one GPU of a node for MPS. Each GPU has a control daemon of its own, so all may be used (S31).
    """
    part = gres.part_of(shape)
    if part is not None:
        flags = " Flags=all_sharing" if isinstance(shape.sharing, Mps) else ""
        yield SharedLine(names=span.hostlist, name=part[0], count=str(part[1] * shape.gpu_count), flags=flags)


def _one_user(pools: list[Pool]) -> str:
    """An MPS server has one user: a job of another waits in CUDA until it ends, and Slurm sees it run (S31).

    26.05 has `Exclusive=USER` for it, and takes the word of 24.11.
    """
    return " ExclusiveUser=YES" if gres.has_mps(pools) else ""


def _devices(first: int, last: int) -> str:
    return f"/dev/nvidia{first}" if first == last else f"/dev/nvidia[{first}-{last}]"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _backfill_window_min(partitions: Iterable[Partition]) -> int:
    """Minutes that backfill plans ahead: as long as the longest job, or short jobs delay a long one without end."""
    longest = max((p.max_time_s // 60 if p.max_time_s else 7 * DAY_MIN) for p in partitions)
    return min(max(longest, DAY_MIN), 30 * DAY_MIN)
