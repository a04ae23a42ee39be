"""The process that the capsule is there for: the API, the metadata service and the machines of one sandbox.

Started by `capsule.start` as the child of PID 1; when it ends, in whatever way, the capsule ends.
"""

import logging
import os
import select
import socket
import sys
import threading
import time
from pathlib import Path

from gpucluster.plan import codec
from gpucluster.sandbox import api, network, within
from gpucluster.sandbox.capsule import Charge
from gpucluster.sandbox.host import CgroupTree
from gpucluster.sandbox.launcher import Launcher
from gpucluster.sandbox.ledger import Home
from gpucluster.sandbox.machines import Ground

log = logging.getLogger("gpucluster.sandbox")

_STEP_S = 0.05  # from RunInstances to the machine's first instruction


def main(text: str) -> int:
    """Serve until killed, or until whoever started us is gone before it said `keep`."""
    charge = codec.loads(Charge, text)
    home = Home(name=charge.name, root=Path(charge.state_root))
    prepare()
    with socket.socket(fileno=charge.hello) as hello, socket.socket(fileno=charge.listener) as listener:
        served = api.start(
            region=charge.region,
            image=charge.image,
            listener=listener,
            console=home.console,
            operator_file=home.operator,
        )
        hello.sendall(b"ready\n")
        threading.Thread(target=_watch, args=(hello,), daemon=True).start()
        trees = [CgroupTree(mount=Path(m), controllers=frozenset(c)) for m, c in charge.trees.items()]
        trees.sort(key=lambda tree: not tree.controllers)  # the v2 one last
        ground = Ground(
            name=charge.name,
            layers=tuple(map(Path, charge.layers)),
            trees=tuple(trees),
            instances=home.instances,
            console=home.console,
        )
        _run(Launcher(served.model, ground, gpus=charge.gpus, room=charge.room))
    return 0


def prepare() -> None:
    """Hide the host's /run and make the network: both are ours alone, and end with us."""
    within.mount("tmpfs", Path("/run"), "tmpfs", "mode=755")
    Path("/run/netns").mkdir()
    network.prepare()


def _run(launcher: Launcher) -> None:
    while True:
        try:
            launcher.step()
        except Exception:  # one bad machine must not end all others
            log.exception("a step of the launcher failed")
        time.sleep(_STEP_S)


def _watch(hello: socket.socket) -> None:
    """End everything if the other side closes before it says `keep`."""
    select.select([hello], [], [])
    if hello.recv(64) != b"keep\n":
        log.warning("whoever started this sandbox is gone; ending it")
        os._exit(3)  # PID 1 ends with us, and the kernel ends the rest


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    sys.exit(main(sys.argv[1]))
