"""The parts of a plan for existing hosts: access, the head, and pools whose nodes are always on. Pure."""

from collections.abc import Iterable, Mapping

from gpucluster.catalog import environment
from gpucluster.plan import defaults, names
from gpucluster.plan.model import Hardware, HostHead, HostPool, Hosts, SlotRange
from gpucluster.plan.resolve import operations
from gpucluster.plan.resolve.sharing import shared
from gpucluster.slurm import hardware
from gpucluster.slurm.hostlist import runs
from gpucluster.spec.health import Health
from gpucluster.spec.hosts import HostMachine
from gpucluster.spec.hosts import Hosts as HostsSpec
from gpucluster.spec.model import Pool as PoolSpec
from gpucluster.spec.part import require


def site(requested: HostsSpec) -> Hosts:
    """The access to the hosts."""
    return Hosts(ssh_user=requested.ssh.user, ssh_port=requested.ssh.port)


def head(requested: HostsSpec) -> HostHead:
    """The controller's host."""
    return HostHead(
        name=requested.head.name,
        address=requested.head.address,
        controller_port=names.CONTROLLER_PORT,
        registration_port=names.REGISTRATION_PORT,
    )


def pool(requested: PoolSpec, machines: Mapping[str, HostMachine], health: Health | None = None) -> HostPool:
    """Every host is a node that is always on."""
    name = require(requested.machine)
    machine = machines[name]
    boot_s = defaults.BOOT_TIMEOUT_S.value if requested.boot_timeout is None else requested.boot_timeout
    return HostPool(
        name=requested.name,
        boot_timeout_s=int(boot_s),
        shape=hardware.without_reserved(
            shared(hardware.of_host(machine), requested.sharing), requested.extra
        ),
        slots=spans(require(requested.hosts)),
        features=tuple(sorted({*_features(requested.name, name, machines), *requested.features})),
        health_limit=operations.health_limit(health, len(require(requested.addresses))),
        addresses=require(requested.addresses),
        hardware=_hardware(name, machine),
        environment=environment.of_pool(
            environment.ETHERNET if machine.fabric is None else machine.fabric.kind,
            (),
            nodes=len(require(requested.addresses)),
        ),
    )


def _features(pool: str, machine: str, machines: Mapping[str, HostMachine]) -> tuple[str, ...]:
    """GPU model, kind of the hosts, and pool, unless the name of the pool is that of a GPU model."""
    models = {one.gpus.model for one in machines.values() if one.gpus is not None}
    gpus = machines[machine].gpus
    return tuple(sorted({machine, *(() if gpus is None else (gpus.model,)), *({pool} - models)}))


def spans(hosts: Iterable[str]) -> tuple[SlotRange, ...]:
    """The hosts as ranges, in their order."""
    return tuple(
        SlotRange(zone="", prefix=run.prefix, first=run.first, last=run.last, width=run.width)
        for run in runs(hosts)
    )


def _hardware(name: str, machine: HostMachine) -> Hardware:
    fabric = machine.fabric
    return Hardware(
        machine=name,
        gpu_memory_mib=None if machine.gpus is None else machine.gpus.memory,
        fabric=None if fabric is None else fabric.kind,
        fabric_ports=0 if fabric is None else fabric.ports,
    )
