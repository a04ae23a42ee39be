"""The supervisor of plain machines: no cloud and no API. It restarts a machine that reboots.

`capsule.process.start` starts it as the child of PID 1. When it ends, the capsule ends.
"""

import ipaddress
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from gpucluster.plan import codec
from gpucluster.sandbox.capsule.process import PlainMachine, SupervisorInput
from gpucluster.sandbox.capsule.supervisor import host_of, prepare, watch
from gpucluster.sandbox.machines.machine import REBOOT, Machine, MachineSpec
from gpucluster.sandbox.state_dir import SandboxDir

log = logging.getLogger("gpucluster.sandbox")

_STEP_S = 0.2


def main(text: str) -> int:
    """Run until killed, or until the starting process ends without `keep`."""
    settings = codec.loads(SupervisorInput, text)
    home = SandboxDir(name=settings.name, root=Path(settings.state_root))
    socket.socket(fileno=settings.listener).close()  # there is no cloud to call
    prepare()
    host = host_of(settings, home)
    machines = {spec.id: Machine(spec, host) for spec in specs(settings.plain)}
    with socket.socket(fileno=settings.keep_alive) as hello:
        for name, machine in machines.items():
            machine.start()
            log.info("%s runs", name)
        hello.sendall(b"ready\n")
        threading.Thread(target=watch, args=(hello,), daemon=True).start()
        while True:
            _handle_ends(machines)
            time.sleep(_STEP_S)


def specs(machines: Iterable[PlainMachine]) -> tuple[MachineSpec, ...]:
    """The MAC follows from the machine's address, its link from its position in the list."""
    return tuple(
        MachineSpec(
            id=one.name,
            address=one.address,
            mac="02:00:" + ipaddress.IPv4Address(one.address).packed.hex(":"),
            gpus=one.gpus,
            number=number,
            called=one.name,
            gpu_facts=one.gpu_facts,
        )
        for number, one in enumerate(machines, start=1)
    )


def _handle_ends(machines: dict[str, Machine]) -> None:
    """Restart a machine that asked for a reboot; a machine that powered off stays off."""
    for name, machine in tuple(machines.items()):
        code = machine.ended()
        if code == REBOOT:
            log.info("%s reboots", name)
            machine.boot()
        elif code is not None:
            log.info("%s went off, code %s", name, code)
            del machines[name]
            machine.end(keep_disk=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    sys.exit(main(sys.argv[1]))
