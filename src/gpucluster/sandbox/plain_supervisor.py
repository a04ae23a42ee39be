"""The process that a capsule of plain machines is there for: no cloud, no API; only machines that reboot when they ask.

Started by `capsule.start` as the child of PID 1; when it ends, in whatever way, the capsule ends.
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
from gpucluster.sandbox.capsule import Charge, Plain
from gpucluster.sandbox.ledger import Home
from gpucluster.sandbox.machines import REBOOT, Machine, MachineSpec
from gpucluster.sandbox.supervisor import ground_of, prepare, watch

log = logging.getLogger("gpucluster.sandbox")

_STEP_S = 0.2


def main(text: str) -> int:
    """Run until killed, or until whoever started us is gone before it said `keep`."""
    charge = codec.loads(Charge, text)
    home = Home(name=charge.name, root=Path(charge.state_root))
    socket.socket(fileno=charge.listener).close()  # nobody asks a cloud here
    prepare()
    ground = ground_of(charge, home)
    machines = {spec.id: Machine(spec, ground) for spec in specs(charge.plain)}
    with socket.socket(fileno=charge.hello) as hello:
        for name, machine in machines.items():
            machine.start()
            log.info("%s runs", name)
        hello.sendall(b"ready\n")
        threading.Thread(target=watch, args=(hello,), daemon=True).start()
        while True:
            _look_after(machines)
            time.sleep(_STEP_S)


def specs(machines: Iterable[Plain]) -> tuple[MachineSpec, ...]:
    """A machine's address makes its MAC, its place in the list its link."""
    return tuple(
        MachineSpec(
            id=one.name,
            address=one.address,
            mac="02:00:" + ipaddress.IPv4Address(one.address).packed.hex(":"),
            gpus=one.gpus,
            number=number,
            called=one.name,
        )
        for number, one in enumerate(machines, start=1)
    )


def _look_after(machines: dict[str, Machine]) -> None:
    """A machine that asked for a reboot gets one; one that went off is off, as a host would be."""
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
