"""Starts a machine for each instance that EC2 launches, and ends the machine of each terminated instance.

It takes one step at a time in one thread. A machine that cannot start ends its instance with a reason, and the loop goes on.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from gpucluster.cloud.port import InstanceState
from gpucluster.errors import GpuclusterError
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.lifecycle import GUEST
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance
from gpucluster.sandbox.machines import gpu_facts
from gpucluster.sandbox.machines.machine import REBOOT, Machine, MachineHost, MachineSpec

log = logging.getLogger(__name__)

NO_ROOM = "Server.InsufficientInstanceCapacity"  # EC2's code for a launch without a host
BROKEN = "Server.InternalError"


class RunnableMachine(Protocol):
    """What the launcher needs of a machine; `machine.Machine` implements it."""

    def start(self) -> None: ...
    def boot(self) -> None: ...
    def ended(self) -> int | None: ...
    def end(self, *, keep_disk: bool = False) -> None: ...


class Launcher:
    """Starts and ends machines by EC2's state. `gpus` is by machine type; `room` is the number that fits on this host."""

    def __init__(
        self,
        model: CloudModel,
        host: MachineHost,
        *,
        gpus: Mapping[str, int],
        room: int,
        clock: Callable[[], float] = time.time,
        build: Callable[[MachineSpec, MachineHost], RunnableMachine] = Machine,
        ours: Callable[[Ec2Instance], bool] = lambda _: True,
    ) -> None:
        self._model, self._host, self._gpus, self._room, self._clock = model, host, gpus, room, clock
        self._build, self._ours = build, ours
        self._machines: dict[str, RunnableMachine] = {}
        self._made = 0

    def step(self) -> None:
        """Handle ended machines first, then terminations, then launches; otherwise a dead machine starts again."""
        for instance_id in tuple(self._machines):
            self._handle_end(instance_id)
        for instance in filter(self._ours, self._model.ending(self._clock())):
            self._end(instance)
        for instance in filter(self._ours, self._model.wanted(self._clock())):
            if instance.id not in self._machines:
                self._start(instance)

    def _handle_end(self, instance_id: str) -> None:
        machine = self._machines[instance_id]
        code = machine.ended()
        if code is None:
            return
        if code == REBOOT:
            log.info("%s reboots", instance_id)
            machine.boot()
            return
        log.info("%s ended by itself, code %s", instance_id, code)
        del self._machines[instance_id]
        machine.end()
        reason = (GUEST, "Instance initiated shutdown") if code == 0 else (BROKEN, f"systemd-nspawn: {code}")
        self._model.mark_ended(instance_id, self._clock(), f"{reason[0]}: {reason[1]}", reason[0])

    def _end(self, instance: Ec2Instance) -> None:
        machine = self._machines.pop(instance.id, None)
        if machine is not None:
            log.info("%s ends: %s", instance.id, instance.reason)
            machine.end(keep_disk=instance.state is InstanceState.STOPPING)
        self._model.mark_ended(instance.id, self._clock())

    def _start(self, instance: Ec2Instance) -> None:
        if len(self._machines) >= self._room:
            text = f"{NO_ROOM}: this host has room for {self._room} machines at once"
            log.warning("%s: %s", instance.id, text)
            self._model.mark_ended(instance.id, self._clock(), text, NO_ROOM)
            return
        machine = self._build(self._spec(instance), self._host)
        try:
            machine.start()
        except (OSError, GpuclusterError) as error:
            log.exception("%s cannot start", instance.id)
            machine.end()
            self._model.mark_ended(instance.id, self._clock(), f"{BROKEN}: {error}", BROKEN)
            return
        self._machines[instance.id] = machine
        log.info("%s runs at %s", instance.id, instance.address)
        self._model.mark_running(instance.id, self._clock())

    def _spec(self, instance: Ec2Instance) -> MachineSpec:
        self._made += 1
        return MachineSpec(
            id=instance.id,
            address=instance.address or "",
            mac=instance.mac,
            gpus=self._gpus.get(instance.spec.machine, 0),
            number=self._made,
            gpu_facts=gpu_facts.of_type(instance.spec.machine),
        )
