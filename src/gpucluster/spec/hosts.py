"""Existing hosts: their machines, topology and users."""

from gpucluster.spec.fields import Size, SlurmName, UpdateClass, spec_field
from gpucluster.spec.host_fields import (
    Cores,
    FabricKind,
    GpuCount,
    HostAddress,
    HostName,
    Port,
    PortCount,
    PublicKey,
    Sockets,
    Threads,
    Uid,
    UserName,
)
from gpucluster.spec.part import Part


class Ssh(Part):
    """How Ansible logs in."""

    user: UserName = spec_field(
        UpdateClass.LIVE, "An account on every host that may `sudo` without a password."
    )
    port: Port = spec_field(UpdateClass.LIVE, "Port of sshd.", default=22)


class HeadHost(Part):
    """The host of slurmctld."""

    name: HostName = spec_field(UpdateClass.STOP_FLEET, "Its short name, as `hostname -s` prints it.")
    address: HostAddress = spec_field(UpdateClass.STOP_FLEET, "Its address, for ssh and for Slurm.")


class Hosts(Part):
    """Hosts that exist already."""

    ssh: Ssh = spec_field(UpdateClass.LIVE, "How Ansible logs in.")
    head: HeadHost = spec_field(UpdateClass.STOP_FLEET, "The controller.")


class Gpus(Part):
    """The GPUs of a machine, all alike."""

    model: SlurmName = spec_field(UpdateClass.DRAIN, "Slurm's type: `--gres=gpu:MODEL:2`.")
    count: GpuCount = spec_field(UpdateClass.DRAIN, "Number of them.")
    memory: Size | None = spec_field(UpdateClass.LIVE, "Memory of each GPU, for validation.", default=None)
    nvlink: GpuCount | None = spec_field(
        UpdateClass.DRAIN,
        "Number of GPUs that NVLink joins, in the order of their numbers: 2 for bridges over pairs, all with an NVSwitch.",
        default=None,
    )


class Fabric(Part):
    """The network between machines for the traffic of jobs."""

    kind: FabricKind = spec_field(UpdateClass.LIVE, "`infiniband`, `roce` or `ethernet`.")
    ports: PortCount = spec_field(
        UpdateClass.LIVE, "Number of ports of each machine in this network.", default=1
    )


class HostMachine(Part):
    """A kind of machine, by its data sheet."""

    sockets: Sockets = spec_field(UpdateClass.DRAIN, "Processors.")
    cores_per_socket: Cores = spec_field(UpdateClass.DRAIN, "Cores of each processor.")
    threads_per_core: Threads = spec_field(UpdateClass.DRAIN, "Threads of each core.", default=1)
    memory: Size = spec_field(UpdateClass.DRAIN, "Memory by the data sheet. The plan leaves a margin.")
    gpus: Gpus | None = spec_field(UpdateClass.DRAIN, "Its GPUs.", default=None)
    fabric: Fabric | None = spec_field(UpdateClass.LIVE, "Its fabric.", default=None)


class User(Part):
    """A user account on every host."""

    name: UserName = spec_field(UpdateClass.LIVE, "The account.")
    uid: Uid = spec_field(UpdateClass.DRAIN, "User id, the same on every host.")
    keys: tuple[PublicKey, ...] = spec_field(
        UpdateClass.LIVE, "SSH public keys of the account.", default=(), min_length=1
    )
