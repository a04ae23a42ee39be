"""The capsule: one process tree in its own mount, PID and network namespaces. Its end removes everything.

`start` returns when the API answers. Until `keep()` is called the capsule ends with the process that started it: the supervisor
watches the socket between them. So an interrupted `up` leaves nothing running.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gpucluster.errors import GpuclusterError
from gpucluster.plan import codec
from gpucluster.sandbox import state_dir
from gpucluster.sandbox.capsule import init
from gpucluster.sandbox.host_checks import CgroupTree
from gpucluster.sandbox.state_dir import CapsuleRecord, SandboxDir

_START_S = 60.0  # the API needs 1 to 2 s; a loaded machine more
SUPERVISOR = "gpucluster.sandbox.capsule.supervisor"
PLAIN_SUPERVISOR = "gpucluster.sandbox.capsule.hosts_supervisor"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainMachine:
    """A machine that no cloud launches."""

    name: str
    address: str
    gpus: int
    gpu_facts: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorInput:
    """The supervisor's input as JSON in its argv; nothing in it is secret."""

    name: str
    region: str
    image: str  # the name of the AMI
    layers: tuple[str, ...]
    trees: dict[str, tuple[str, ...]]  # mount point of each control group hierarchy, and its controllers
    gpus: dict[str, int]  # by machine type
    room: int
    listener: int  # descriptors, inherited
    keep_alive: int
    lock: int
    state_root: str
    nodes: int = 0  # room for nodes of Kubernetes, for which no machine starts
    kubernetes_listener: int = (
        -1
    )  # descriptor of a listener of this host for the API server of Kubernetes; -1: there is none
    plain: tuple[PlainMachine, ...] = ()  # machines of a plan on existing hosts
    shares: tuple[str, ...] = ()  # folders of this host that they share


@dataclass(slots=True)
class RunningCapsule:
    """A capsule that this process started."""

    home: SandboxDir
    port: int
    process: subprocess.Popen[bytes]
    keep_alive: socket.socket = field(repr=False)

    def keep(self) -> None:
        """Let it run on when this process ends."""
        self.keep_alive.sendall(b"keep\n")
        self.keep_alive.close()

    def kill(self) -> None:
        """End it and everything in it, and return when nothing is left."""
        self.keep_alive.close()
        capsule = self.home.read_capsule()
        with contextlib.suppress(ProcessLookupError):
            # PID 1 is reaped after all others; until its PID is known, --kill-child must end it
            os.kill(self.process.pid if capsule is None else capsule.init, signal.SIGKILL)
        self.process.wait()


def start(
    home: SandboxDir,
    lock: int,
    *,
    region: str,
    image: str,
    layers: tuple[Path, ...],
    trees: tuple[CgroupTree, ...],
    gpus: Mapping[str, int],
    room: int,
    module: str = SUPERVISOR,
    plain: tuple[PlainMachine, ...] = (),
    shares: tuple[str, ...] = (),
    nodes: int = 0,
) -> RunningCapsule:
    """Start the capsule, wait for its API, and write its record. With `nodes` it has EKS."""
    with ExitStack() as held:
        listener = held.enter_context(_listener())
        kubernetes_listener = held.enter_context(_listener()) if nodes else None
        ours, theirs = socket.socketpair()
        with theirs:
            settings = SupervisorInput(
                name=home.name,
                region=region,
                image=image,
                layers=tuple(map(str, layers)),
                trees={str(t.mount): tuple(sorted(t.controllers)) for t in trees},
                gpus=dict(gpus),
                room=room,
                listener=listener.fileno(),
                keep_alive=theirs.fileno(),
                lock=lock,
                state_root=str(home.root),
                nodes=nodes,
                kubernetes_listener=-1 if kubernetes_listener is None else kubernetes_listener.fileno(),
                plain=plain,
                shares=shares,
            )
            process = _spawn(settings, home, module)
        running = RunningCapsule(home=home, port=listener.getsockname()[1], process=process, keep_alive=ours)
    try:
        _record(running, layers)
        _await_ready(running)
    except BaseException:
        running.kill()
        raise
    return running


def _listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0), backlog=64)


def argv(settings: SupervisorInput, module: str) -> list[str]:
    """The outer process of the capsule; killing it kills PID 1 and so everything."""
    text = json.dumps(asdict(settings), sort_keys=True)
    return [
        "unshare",
        "--mount",
        "--pid",
        "--net",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--",
        *(sys.executable, "-I", "-S", str(init.__file__)),
        *(sys.executable, "-P", "-m", module, text),
    ]


def _spawn(settings: SupervisorInput, home: SandboxDir, module: str) -> subprocess.Popen[bytes]:
    with home.log.open("ab") as log:
        return subprocess.Popen(
            argv(settings, module),
            pass_fds=(
                settings.listener,
                settings.keep_alive,
                settings.lock,
                *([settings.kubernetes_listener] if settings.kubernetes_listener >= 0 else []),
            ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )


def _record(running: RunningCapsule, layers: tuple[Path, ...]) -> None:
    pid = None
    while pid is None and running.process.poll() is None:
        pid = state_dir.child_of(running.process.pid)
    started = None if pid is None else state_dir.started_at(pid)
    if pid is None or started is None:
        raise _failed(running.home)
    record = CapsuleRecord(init=pid, started=started, port=running.port, layers=tuple(map(str, layers)))
    running.home.capsule.write_text(codec.dumps(record))


def _await_ready(running: RunningCapsule) -> None:
    running.keep_alive.settimeout(_START_S)
    try:
        word = running.keep_alive.recv(64)
    except TimeoutError as error:
        raise _failed(running.home) from error
    if word != b"ready\n":
        raise _failed(running.home)


def _failed(home: SandboxDir) -> GpuclusterError:
    tail = home.log.read_text(errors="replace").strip().splitlines()[-12:]
    return GpuclusterError("the sandbox's supervisor did not start:\n" + "\n".join(tail))
