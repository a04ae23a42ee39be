"""The service that makes this machine a part of the cluster: `python -m gpucluster.node.agent`, as root.

It starts at every boot, waits for the user data's file, and takes the role that it names. On a host that exists the
file is Ansible's, and the agent ends when all is so. Every line that it says goes to the journal and to the console, where the cloud keeps it for those who cannot log in.
"""

import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

from gpucluster.node import (
    effects,
    guard,
    head_role,
    host_role,
    identity,
    login_role,
    node_role,
    standby_role,
)
from gpucluster.node.doorbell import Doorbell
from gpucluster.node.imds import Metadata
from gpucluster.node.kernel_log import Lines
from gpucluster.node.known import Known
from gpucluster.node.machine import Machine
from gpucluster.node.senses import Senses
from gpucluster.node.walk import walk
from gpucluster.plan import names

FIRST = (("guard", guard.strict), ("machine", identity.find))


def main() -> int:
    """Run until the machine ends; on a host that exists, until it is ready."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("gpucluster").setLevel(logging.INFO)  # and nothing of botocore's chatter
    machine = effects.real()
    if identity.is_host(machine):
        host_role.live(machine)
    elif role(machine) == names.ROLE_HEAD:
        head_role.live(machine)
    elif role(machine) == names.ROLE_STANDBY:
        standby_role.live(machine)
    elif role(machine) == names.ROLE_LOGIN:
        login_role.live(machine)
    else:
        with Doorbell(machine.place(names.DOORBELL)) as bell:
            senses = Senses(ask=Metadata().maybe, lines=Lines(kernel_log()), ring=bell.nudge)
            senses.start()
            node_role.live(replace(machine, heard=senses), bell)
    return 0


def kernel_log() -> Path:
    """In a container the kernel's log is not the machine's own: there the environment names a stand-in."""
    return Path(os.environ.get(names.KERNEL_LOG_VARIABLE) or names.KERNEL_LOG)


def role(machine: Machine) -> str:
    """What the user data says; until it is there, only the guard is up."""
    if (told := identity.role_told(machine)) is None:
        known = walk(machine, FIRST, Known(), until=lambda _: float("inf"))
        told = known.identity.role if known.identity else names.ROLE_NODE
    return told


if __name__ == "__main__":
    sys.exit(main())
