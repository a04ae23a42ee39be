"""The controller's machine, the one that waits beside it, and the machines that people log in to."""

from gpucluster.spec.fields import AbsolutePath, Size, Text, UpdateClass, wish
from gpucluster.spec.host_fields import HostAddress, LoginCount
from gpucluster.spec.part import Part


class Standby(Part):
    """A second head that waits; both share the state."""

    machine: Text = wish(UpdateClass.RESTART, "Machine type.")
    zone: Text = wish(UpdateClass.REPLACE, "Another zone than the head's, so that one may go dark.")
    state: AbsolutePath = wish(
        UpdateClass.STOP_FLEET, "The mount of EFS or NFS that holds both heads' state."
    )
    address: HostAddress | None = wish(
        UpdateClass.REPLACE, "Its private address; needed in a VPC that is there.", default=None
    )


class Head(Part):
    """The machine of slurmctld and the elastic daemon."""

    machine: Text = wish(UpdateClass.RESTART, "Machine type.")
    address: HostAddress | None = wish(
        UpdateClass.REPLACE, "Its private address; needed in a VPC that is there.", default=None
    )
    state: Size | None = wish(
        UpdateClass.LIVE, "A protected volume for Slurm's state, which outlives the machine.", default=None
    )
    standby: Standby | None = wish(UpdateClass.STOP_FLEET, "A second head that waits.", default=None)


class Login(Part):
    """Machines that people log in to."""

    machine: Text = wish(UpdateClass.RESTART, "Machine type.")
    count: LoginCount = wish(UpdateClass.RESTART, "How many.", default=1)
    zone: Text | None = wish(
        UpdateClass.REPLACE, "Where they stand; the head's zone if absent.", default=None
    )
