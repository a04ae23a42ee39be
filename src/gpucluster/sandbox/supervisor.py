"""The process that the capsule is there for: the API, the metadata service and the machines of one sandbox.

Started by `capsule.start` as the child of PID 1; when it ends, in whatever way, the capsule ends.
"""

import logging
import os
import random
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from gpucluster import collector
from gpucluster.cloud.model import CloudModel, Timing
from gpucluster.plan import codec
from gpucluster.sandbox import api, cgroups, mount_service, network, places, within
from gpucluster.sandbox.api import Listener
from gpucluster.sandbox.capsule import Charge
from gpucluster.sandbox.host import CgroupTree
from gpucluster.sandbox.inside import leader_of
from gpucluster.sandbox.launcher import Launcher
from gpucluster.sandbox.ledger import Home
from gpucluster.sandbox.machines import Ground
from gpucluster.sandbox.volumes import Disks

log = logging.getLogger("gpucluster.sandbox")

_STEP_S = 0.05  # from RunInstances to the machine's first instruction
_LINGER_S = 8.0  # an ended instance's interfaces; minutes on AWS (T42), see differences.toml
_CONSOLE = 64 * 1024  # EC2 shows so much of a console's end


def main(text: str) -> int:
    """Serve until killed, or until whoever started us is gone before it said `keep`."""
    charge = codec.loads(Charge, text)
    home = Home(name=charge.name, root=Path(charge.state_root))
    prepare()
    timing = Timing(pending_s=None, ending_s=None, linger_s=_LINGER_S)
    model = CloudModel(random.SystemRandom(), timing=timing, region=charge.region)
    model.set_room(charge.room)  # what the host cannot carry, EC2 does not have
    with socket.socket(fileno=charge.hello) as hello, socket.socket(fileno=charge.listener) as operator:
        inner = socket.create_server((places.API_ADDRESS, places.API_PORT), backlog=64)
        served = api.start(
            model,
            [Listener(operator, operator=True), Listener(inner)],
            (places.METADATA_ADDRESS, 80),
            clock=time.time,
            images=[charge.image],
            operator=_operator(home),
            console=lambda instance: _console(home, instance),
        )
        collector.settle()  # the model of AWS is loaded: half of its time was the collector's
        hello.sendall(b"ready\n")
        threading.Thread(target=watch, args=(hello,), daemon=True).start()
        launcher = Launcher(served.model, ground_of(charge, home), gpus=charge.gpus, room=charge.room)
        disks = Disks(served.model, home.path / "volumes", partial(leader, charge))
        serve_mounts(served, charge, home)
        _run(launcher.step, lambda: served.deliver(time.time()), disks.step)
    return 0


def prepare() -> None:
    """Hide the host's /run and make the network: both are ours alone, and end with us."""
    within.mount("tmpfs", Path("/run"), "tmpfs", "mode=755")
    Path("/run/netns").mkdir()
    network.prepare()


def ground_of(charge: Charge, home: Home) -> Ground:
    """Where this sandbox's machines stand."""
    trees = [CgroupTree(mount=Path(m), controllers=frozenset(c)) for m, c in charge.trees.items()]
    return Ground(
        name=charge.name,
        layers=tuple(map(Path, charge.layers)),
        trees=tuple(sorted(trees, key=lambda tree: not tree.controllers)),  # the v2 one last
        instances=home.instances,
        console=home.console,
        shares=charge.shares,
    )


def leader(charge: Charge, instance: str) -> int | None:
    """The PID of a machine's PID 1, in this capsule; None while it does not run."""
    trees = [CgroupTree(mount=Path(m), controllers=frozenset(c)) for m, c in charge.trees.items()]
    ordered = sorted(trees, key=lambda tree: not tree.controllers)
    group = cgroups.machine_groups(ordered, charge.name, instance)[-1]
    return leader_of(group) if group.is_dir() else None


def serve_mounts(served: api.Api, charge: Charge, home: Home) -> None:
    """Answer the machines' mount stand-ins."""
    key, secret = _operator(home)
    clients: dict[str, Any] = {}

    def client(service: str) -> Any:
        if service not in clients:
            import boto3  # noqa: PLC0415  0.3 s, and a cluster without file systems needs none of it

            session: Any = boto3.Session(key, secret, region_name=charge.region)
            clients[service] = session.client(service, endpoint_url=places.API_ENDPOINT)
        return clients[service]

    find = partial(leader, charge)
    cloud = mount_service.ApiCloud(served.model, client, time.time, find)
    mounts = mount_service.Mounts(cloud, home.path / "remote", find)
    mount_service.serve(mounts, (places.API_ADDRESS, places.MOUNT_PORT))


def _operator(home: Home) -> tuple[str, str]:
    keys = home.read_json(home.operator)
    return keys["access_key"], keys["secret"]


def _console(home: Home, instance: str) -> bytes:
    try:
        return (home.console / instance).read_bytes()[-_CONSOLE:]
    except OSError:
        return b""


def _run(*steps: Callable[[], None]) -> None:
    while True:
        for step in steps:
            try:
                step()
            except Exception:  # one bad machine must not end all others
                log.exception("a step failed")
        time.sleep(_STEP_S)


def watch(hello: socket.socket) -> None:
    """End everything if the other side closes before it says `keep`."""
    select.select([hello], [], [])
    if hello.recv(64) != b"keep\n":
        log.warning("whoever started this sandbox is gone; ending it")
        os._exit(3)  # PID 1 ends with us, and the kernel ends the rest


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    sys.exit(main(sys.argv[1]))
