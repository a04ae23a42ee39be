"""The parts of a plan that stand on hosts that exist: how they are reached, the head, pools whose nodes are always there. Pure."""

from collections.abc import Iterable, Mapping

from gpucluster.plan import defaults, names
from gpucluster.plan.hostlist import runs
from gpucluster.plan.model import Hardware, Head, Hosts, Leaf, NodeShape, Pool, SlotRange, Spine, there
from gpucluster.spec.hosts import HostMachine, Topology
from gpucluster.spec.hosts import Hosts as HostsSpec
from gpucluster.spec.model import Pool as PoolSpec


def site(wish: HostsSpec) -> Hosts:
    """How they are reached."""
    return Hosts(ssh_user=wish.ssh.user, ssh_port=wish.ssh.port)


def head(wish: HostsSpec) -> Head:
    """The controller's host; it has neither a type nor a zone of a cloud."""
    return Head(
        name=wish.head.name,
        machine=None,
        zone=None,
        address=wish.head.address,
        controller_port=names.CONTROLLER_PORT,
        registration_port=names.REGISTRATION_PORT,
    )


def pool(wish: PoolSpec, machines: Mapping[str, HostMachine]) -> Pool:
    """Every host is a node that is always there: min and max are their number."""
    machine, hosts = machines[there(wish.machine)], there(wish.hosts)
    boot_s = defaults.BOOT_TIMEOUT_S.value if wish.boot_timeout is None else wish.boot_timeout
    return Pool(
        name=wish.name,
        min=len(hosts),
        max=len(hosts),
        idle_s=0,
        boot_timeout_s=int(boot_s),
        shape=shape_of(machine),
        sources=(),
        slots=spans(hosts),
        templates=(),
        addresses=there(wish.addresses),
        hardware=_hardware(there(wish.machine), machine),
    )


def shape_of(machine: HostMachine) -> NodeShape:
    """What Slurm is told, from what the maker says."""
    gpus = machine.gpus
    return NodeShape(
        sockets=machine.sockets,
        cores_per_socket=machine.cores_per_socket,
        threads_per_core=machine.threads_per_core,
        real_memory_mib=machine.memory * int(defaults.MEMORY_PERCENT.value) // 100,
        gpu_model=None if gpus is None else gpus.model,
        gpu_count=0 if gpus is None else gpus.count,
    )


def spans(hosts: Iterable[str]) -> tuple[SlotRange, ...]:
    """The hosts as ranges, in their order."""
    return tuple(
        SlotRange(zone="", prefix=run.prefix, first=run.first, last=run.last, width=run.width)
        for run in runs(hosts)
    )


def switches(wish: Topology | None) -> tuple[tuple[Leaf, ...], tuple[Spine, ...]]:
    """The leaves and what joins them; none if nothing was said: then all nodes are as near."""
    if wish is None:
        return (), ()
    leaves = tuple(
        Leaf(name=leaf, slots=spans(hosts)) for below in wish.tree.values() for leaf, hosts in below.items()
    )
    return leaves, tuple(Spine(name=spine, leaves=tuple(below)) for spine, below in wish.tree.items())


def _hardware(name: str, machine: HostMachine) -> Hardware:
    fabric = machine.fabric
    return Hardware(
        machine=name,
        gpu_memory_mib=None if machine.gpus is None else machine.gpus.memory,
        fabric=None if fabric is None else fabric.kind,
        fabric_ports=0 if fabric is None else fabric.ports,
    )
