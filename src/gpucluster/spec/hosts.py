"""Hosts that exist, the machines that they are, their topology, and the people on them."""

from collections.abc import Mapping

from gpucluster.spec.fields import Name, Size, UpdateClass, wish
from gpucluster.spec.host_fields import (
    Cores,
    FabricKind,
    GpuCount,
    HostAddress,
    Hostlist,
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

    user: UserName = wish(UpdateClass.LIVE, "An account on every host that may `sudo` without a password.")
    port: Port = wish(UpdateClass.LIVE, "sshd's port.", default=22)


class HeadHost(Part):
    """The host of slurmctld."""

    name: HostName = wish(UpdateClass.STOP_FLEET, "Its short name, as `hostname -s` says it.")
    address: HostAddress = wish(UpdateClass.STOP_FLEET, "Its address, for ssh and for Slurm.")


class Hosts(Part):
    """Machines that are there already, instead of a cloud."""

    ssh: Ssh = wish(UpdateClass.LIVE, "How Ansible logs in.")
    head: HeadHost = wish(UpdateClass.STOP_FLEET, "The controller.")


class Gpus(Part):
    """The GPUs of a machine, all alike."""

    model: Name = wish(UpdateClass.DRAIN, "Slurm's type: `--gres=gpu:MODEL:2`.")
    count: GpuCount = wish(UpdateClass.DRAIN, "How many.")
    memory: Size | None = wish(UpdateClass.LIVE, "The memory of each, for validation.", default=None)


class Fabric(Part):
    """What joins the machines for a job's own traffic."""

    kind: FabricKind = wish(UpdateClass.LIVE, "infiniband, roce or ethernet.")
    ports: PortCount = wish(UpdateClass.LIVE, "How many of each machine's ports are in it.", default=1)


class HostMachine(Part):
    """A kind of machine, as its maker describes it."""

    sockets: Sockets = wish(UpdateClass.DRAIN, "Processors.")
    cores_per_socket: Cores = wish(UpdateClass.DRAIN, "Cores of each.")
    threads_per_core: Threads = wish(UpdateClass.DRAIN, "Threads of each core.", default=1)
    memory: Size = wish(UpdateClass.DRAIN, "The nameplate's; the plan leaves a margin.")
    gpus: Gpus | None = wish(UpdateClass.DRAIN, "Its GPUs.", default=None)
    fabric: Fabric | None = wish(UpdateClass.LIVE, "Its fabric.", default=None)


class Topology(Part):
    """Who is near whom."""

    tree: Mapping[Name, Mapping[Name, Hostlist]] = wish(
        UpdateClass.STOP_FLEET, "Spine: {leaf: hosts}. Two spines have nothing in common: no job spans them."
    )


class User(Part):
    """A person on every host."""

    name: UserName = wish(UpdateClass.LIVE, "The account.")
    uid: Uid = wish(UpdateClass.DRAIN, "The same on every host, for files and Slurm.")
    keys: tuple[PublicKey, ...] = wish(
        UpdateClass.LIVE, "Public keys that open it.", default=(), min_length=1
    )
