"""The head, its standby, and the login machines."""

from gpucluster.spec.fields import AbsolutePath, PositiveCount, Size, Text, UpdateClass, spec_field
from gpucluster.spec.host_fields import HostAddress, LoginCount
from gpucluster.spec.part import Part


class Standby(Part):
    """A standby head. Both heads share the state."""

    machine: Text = spec_field(UpdateClass.RESTART, "Machine type.")
    zone: Text = spec_field(UpdateClass.REPLACE, "Its zone, another one than the head's.")
    state: AbsolutePath = spec_field(
        UpdateClass.STOP_FLEET,
        "The mount of EFS or NFS that holds both heads' state. Only the heads mount it.",
    )
    address: HostAddress | None = spec_field(
        UpdateClass.REPLACE, "Private address of the machine. An existing VPC needs it.", default=None
    )


class Head(Part):
    """The machine of slurmctld and the elastic daemon."""

    machine: Text = spec_field(UpdateClass.RESTART, "Machine type.")
    address: HostAddress | None = spec_field(
        UpdateClass.REPLACE, "Private address of the machine. An existing VPC needs it.", default=None
    )
    state: Size | None = spec_field(
        UpdateClass.LIVE,
        "Size of a protected volume for Slurm's state. It outlives the machine.",
        default=None,
    )
    standby: Standby | None = spec_field(UpdateClass.STOP_FLEET, "A standby head.", default=None)


class Sessions(Part):
    """Limits of all sessions of one user on a login machine together. Root has none."""

    memory: Size | None = spec_field(
        UpdateClass.LIVE, "Most memory. The default is a quarter of the machine's.", default=None
    )
    tasks: PositiveCount | None = spec_field(
        UpdateClass.LIVE, "Most processes and threads. The default is 2000.", default=None
    )
    cpus: PositiveCount | None = spec_field(
        UpdateClass.LIVE, "Most CPUs. The default is half of the machine's.", default=None
    )


class Login(Part):
    """Login machines."""

    machine: Text = spec_field(UpdateClass.RESTART, "Machine type.")
    count: LoginCount = spec_field(UpdateClass.RESTART, "Number of them.", default=1)
    zone: Text | None = spec_field(
        UpdateClass.REPLACE, "Their zone. The default is the head's zone.", default=None
    )
    sessions: Sessions | None = spec_field(UpdateClass.LIVE, "Limits of a user's sessions.", default=None)
