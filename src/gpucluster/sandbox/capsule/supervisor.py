"""The main process of a capsule: the API, the metadata service and the machines of one sandbox.

`capsule.process.start` starts it as the child of PID 1. When it ends, the capsule ends.
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
from typing import TYPE_CHECKING, Any

from gpucluster import gc_control
from gpucluster.plan import codec, plan_json
from gpucluster.sandbox import cloud as api
from gpucluster.sandbox import paths
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Timing
from gpucluster.sandbox.aws.ssm.state import Outcome, Shell, run_script
from gpucluster.sandbox.capsule import cgroups, network, private_mounts
from gpucluster.sandbox.capsule.process import SupervisorInput
from gpucluster.sandbox.cloud import Listener
from gpucluster.sandbox.host_checks import CgroupTree
from gpucluster.sandbox.machines import mount_service
from gpucluster.sandbox.machines.inside import enter_argv, leader_of
from gpucluster.sandbox.machines.launcher import Launcher
from gpucluster.sandbox.machines.machine import MachineHost
from gpucluster.sandbox.machines.volumes import AttachedVolumes
from gpucluster.sandbox.state_dir import SandboxDir

if TYPE_CHECKING:
    from gpucluster.sandbox.capsule.kubernetes_part import KubernetesPart

log = logging.getLogger("gpucluster.sandbox")

_STEP_S = 0.05  # from RunInstances to the first instruction of the machine
_LINGER_S = 8.0  # interfaces of a terminated instance; minutes on AWS (T42), see differences.toml
_CONSOLE = 64 * 1024  # the length of a console output that EC2 returns


def main(text: str) -> int:
    """Serve until killed, or until the starting process ends without `keep`."""
    settings = codec.loads(SupervisorInput, text)
    home = SandboxDir(name=settings.name, root=Path(settings.state_root))
    prepare()
    timing = Timing(pending_s=None, ending_s=None, linger_s=_LINGER_S)
    model = CloudModel(random.SystemRandom(), timing=timing, region=settings.region)
    model.set_host_limit(settings.room + settings.nodes)  # EC2 refuses more machines than the host can run
    with (
        socket.socket(fileno=settings.keep_alive) as hello,
        socket.socket(fileno=settings.listener) as operator,
    ):
        inner = socket.create_server((paths.API_ADDRESS, paths.API_PORT), backlog=64)
        served = api.start(
            model,
            [Listener(operator, operator=True), Listener(inner)],
            (paths.METADATA_ADDRESS, 80),
            clock=time.time,
            images=[settings.image],
            operator=_operator(home),
            console=lambda instance: _console(home, instance),
            agents=partial(agent, settings),
        )
        gc_control.freeze_loaded()  # the garbage collector took half of the loading time
        hello.sendall(b"ready\n")
        threading.Thread(target=watch, args=(hello,), daemon=True).start()
        kubernetes = _kubernetes(served, settings, home)
        launcher = Launcher(
            served.model,
            host_of(settings, home),
            gpus=settings.gpus,
            room=settings.room,
            ours=(lambda _: True) if kubernetes is None else kubernetes.is_machine,
        )
        disks = AttachedVolumes(served.model, home.path / "volumes", partial(leader, settings))
        serve_mounts(served, settings, home)
        _run(launcher.step, lambda: served.deliver(time.time()), disks.step)
    return 0


def _kubernetes(served: api.Api, settings: SupervisorInput, home: SandboxDir) -> "KubernetesPart | None":
    """The part of EKS, if the plan has it."""
    if settings.kubernetes_listener < 0:
        return None
    from gpucluster.sandbox.capsule.kubernetes_part import KubernetesPart  # noqa: PLC0415  half a second

    plan = plan_json.load(home.plan.read_text())
    if plan.aws is None:
        return None
    return KubernetesPart(served, plan, home, socket.socket(fileno=settings.kubernetes_listener))


def prepare() -> None:
    """Hide the host's /run and create the network; both end with this process."""
    private_mounts.mount("tmpfs", Path("/run"), "tmpfs", "mode=755")
    Path("/run/netns").mkdir()
    network.prepare()


def host_of(settings: SupervisorInput, home: SandboxDir) -> MachineHost:
    """Where the machines of this sandbox run."""
    trees = [CgroupTree(mount=Path(m), controllers=frozenset(c)) for m, c in settings.trees.items()]
    return MachineHost(
        name=settings.name,
        layers=tuple(map(Path, settings.layers)),
        trees=tuple(sorted(trees, key=lambda tree: not tree.controllers)),  # the v2 one last
        instances=home.instances,
        console=home.console,
        shares=settings.shares,
    )


def leader(settings: SupervisorInput, instance: str) -> int | None:
    """The PID of a machine's PID 1 in this capsule; None while it does not run."""
    trees = [CgroupTree(mount=Path(m), controllers=frozenset(c)) for m, c in settings.trees.items()]
    ordered = sorted(trees, key=lambda tree: not tree.controllers)
    group = cgroups.machine_groups(ordered, settings.name, instance)[-1]
    return leader_of(group) if group.is_dir() else None


def agent(settings: SupervisorInput, instance: str) -> Shell | None:
    """The stand-in of a machine's SSM agent: it runs a script as root; None while the machine does not run."""
    pid = leader(settings, instance)
    return None if pid is None else partial(_run_script, pid)


def _run_script(pid: int, script: str, limit_s: float) -> Outcome:
    return run_script(enter_argv(pid, ["sh", "-c", script], user=None, term="dumb"), limit_s)


def serve_mounts(served: api.Api, settings: SupervisorInput, home: SandboxDir) -> None:
    """Serve the mount stand-ins of the machines."""
    key, secret = _operator(home)
    clients: dict[str, Any] = {}

    def client(service: str) -> Any:
        if service not in clients:
            import boto3  # noqa: PLC0415  0.3 s, and a cluster without file systems needs none of it

            session: Any = boto3.Session(key, secret, region_name=settings.region)
            clients[service] = session.client(service, endpoint_url=paths.API_ENDPOINT)
        return clients[service]

    find = partial(leader, settings)
    cloud = mount_service.ApiCloud(served.model, client, time.time, find)
    mounts = mount_service.Mounts(cloud, home.path / "remote", find)
    mount_service.serve(mounts, (paths.API_ADDRESS, paths.MOUNT_PORT))


def _operator(home: SandboxDir) -> tuple[str, str]:
    keys = home.read_json(home.operator)
    return keys["access_key"], keys["secret"]


def _console(home: SandboxDir, instance: str) -> bytes:
    try:
        return (home.console / instance).read_bytes()[-_CONSOLE:]
    except OSError:
        return b""


def _run(*steps: Callable[[], None]) -> None:
    while True:
        for step in steps:
            try:
                step()
            except Exception:  # a failure of one machine must not end the others
                log.exception("a step failed")
        time.sleep(_STEP_S)


def watch(hello: socket.socket) -> None:
    """End everything if the other side closes without `keep`."""
    select.select([hello], [], [])
    if hello.recv(64) != b"keep\n":
        log.warning("whoever started this sandbox is gone; ending it")
        os._exit(3)  # PID 1 ends with this process, and the kernel ends the rest


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    sys.exit(main(sys.argv[1]))
