"""The transport by Systems Manager, for a stack on AWS with `access: {ssm: true}`."""

import time
from collections.abc import Sequence
from pathlib import Path

from gpucluster.cli.output import progress
from gpucluster.cloud.managed_machines import ManagedMachines
from gpucluster.cloud.run_command import ManagedMachine, RunCommand, aws_clients
from gpucluster.cloud.terminate_nodes import Clock
from gpucluster.errors import HostError
from gpucluster.plan.model import ClusterPlan, SlurmOnAws
from gpucluster.plan.names import ROLE_HEAD
from gpucluster.shell import Result

LOOK_UP_S = 30.0


class SsmMachines:
    """The machines of one cluster. Each is looked up once, when it is used first."""

    def __init__(self, cluster: str, region: str) -> None:
        self.clients = aws_clients(region)
        self._machines = ManagedMachines(
            cluster, region, self.clients, lambda argv: self.run(ROLE_HEAD, argv, LOOK_UP_S)
        )
        self._found: dict[str, ManagedMachine] = {}

    def find(self, machine: str) -> ManagedMachine:
        """Return the running machine; StateError if there is none."""
        if machine not in self._found:
            there = self._found[machine] = self._machines.find(machine)
            _report_standby(machine, there)
        return self._found[machine]

    def run(self, machine: str, argv: Sequence[str], limit_s: float) -> Result:
        """Run a command there as root."""
        clock = Clock(time.monotonic, time.sleep)
        return RunCommand(self.find(machine), self.clients, clock, progress).run(argv, limit_s=limit_s)


def ssm_plan(plan: ClusterPlan, file: Path) -> SlurmOnAws:
    """Return the plan of a cluster that Systems Manager reaches; HostError says what to do for another one."""
    if not isinstance(plan, SlurmOnAws) or not plan.access.ssm:
        raise _not_from_here(plan, file)
    return plan


def _report_standby(machine: str, there: ManagedMachine) -> None:
    if machine == ROLE_HEAD and there.role != ROLE_HEAD:
        progress(f"the head of {there.cluster} does not run: asking {there}")


def _not_from_here(plan: ClusterPlan, file: Path) -> HostError:
    if plan.head is None:
        return HostError(
            f"{plan.name} has no Slurm, so it has no head", next_step="name a cluster with `slurm:`"
        )
    return HostError(
        f"{plan.name} is on AWS, and its head, {plan.head.address}, has no public address and no `access.ssm`",
        next_step=f"write `access: {{ssm: true}}` and apply it; or --ssh USER@{plan.head.address}, with --ssh-config for a jump host;"
        " or run it on the head (docs/aws.md);"
        f" to rehearse: gpucluster sandbox up {file}",
    )
