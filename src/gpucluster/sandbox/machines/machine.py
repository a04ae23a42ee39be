"""One machine: systemd-nspawn on an overlay of the image, in its own network namespace and control groups.

It boots the real systemd, cloud-init and units. Its GPUs are device files without a device (opening
one returns ENXIO). Root in a machine is root on the host: the sandbox is no security boundary.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpucluster.sandbox import paths
from gpucluster.sandbox.capsule import cgroups, enter, network
from gpucluster.sandbox.capsule.private_mounts import Overlay, overlay_mount, unmount
from gpucluster.sandbox.host_checks import CgroupTree
from gpucluster.sandbox.machines import gpu_facts

REBOOT = 133  # the exit code of nspawn when the machine asked for a reboot
_GONE_S = 5.0  # a killed group is empty within 0.1 s


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """The properties of one machine."""

    id: str
    address: str
    mac: str
    gpus: int
    number: int  # unique while the capsule lives; it names the link
    called: str = ""  # the name of a plain machine
    gpu_facts: str = ""  # for the stand-in of nvidia-smi; empty without GPUs

    @property
    def hostname(self) -> str:
        return self.called or f"ip-{self.address.replace('.', '-')}"  # names of EC2


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineHost:
    """Where machines run: the same for all machines of a sandbox."""

    name: str
    layers: tuple[Path, ...]
    trees: tuple[CgroupTree, ...]
    instances: Path  # the upper files of the overlays, on the host's disk
    console: Path
    shares: tuple[str, ...] = ()  # bind mounts of this host's folders


class Machine:
    """A machine from its first boot to its end; reboots keep its disk."""

    def __init__(self, spec: MachineSpec, host: MachineHost) -> None:
        self.spec = spec
        self._host = host
        self._root = paths.MACHINES / spec.id
        self._groups = cgroups.machine_groups(host.trees, host.name, spec.id)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Create its disk and network, and boot it."""
        disk = self._host.instances / self.spec.id
        overlay_mount(Overlay(lower=self._host.layers, upper=disk / "u", work=disk / "w", at=self._root))
        spec = self.spec
        gpu_facts.install(self._root, spec.gpu_facts)
        network.connect(spec.id, link=f"v{spec.number}", address=spec.address, mac=spec.mac)
        self.boot()

    def boot(self) -> None:
        """Start its systemd: the first time, and after each reboot."""
        procs = cgroups.make(self._groups)
        devices = gpu_nodes(self.spec.gpus)
        argv = nspawn_argv(self.spec, root=self._root, devices=devices, shares=self._host.shares)
        self._host.console.mkdir(parents=True, exist_ok=True)
        with (self._host.console / self.spec.id).open("ab") as console:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(enter.__file__), *map(str, procs), "--", *argv],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={"PATH": os.environ["PATH"], "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            )

    def ended(self) -> int | None:
        """The exit code after it stopped by itself; None while it runs."""
        return None if self._process is None else self._process.poll()

    def end(self, *, keep_disk: bool = False) -> None:
        """Kill it and remove everything of it."""
        group = self._groups[-1]
        cgroups.end(group)
        deadline = time.monotonic() + _GONE_S
        while not cgroups.empty(group) and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._process is not None:
            self._process.wait(timeout=_GONE_S)
        network.disconnect(self.spec.id, address=self.spec.address)
        if self._root.is_mount():
            unmount(self._root)
        cgroups.remove(self._groups)
        if not keep_disk:
            shutil.rmtree(self._host.instances / self.spec.id, ignore_errors=True)


def nspawn_argv(
    spec: MachineSpec, *, root: Path, devices: Sequence[Path], shares: Sequence[str] = ()
) -> list[str]:
    """Boot the tree at `root`, in the machine's own network namespace.

    Joined by nsenter, not by --network-namespace-path: nspawn 252 mounts /sys before it joins, and the
    machine would see the capsule's links.
    """
    return [
        "nsenter",
        f"--net=/run/netns/{spec.id}",
        "systemd-nspawn",
        "--quiet",
        "--register=no",
        "--keep-unit",
        "--capability=CAP_NET_ADMIN",
        f"--directory={root}",
        f"--machine={spec.id}",
        f"--hostname={spec.hostname}",
        "--resolv-conf=off",
        "--timezone=off",
        *(f"--bind={node}:/dev/{node.name}" for node in devices),
        *shares,
        "--boot",
        "systemd.unit=multi-user.target",
    ]


def gpu_nodes(count: int) -> tuple[Path, ...]:
    """Create nvidia0 to nvidia(count-1) in the capsule's own tmpfs; never a bind mount of a host's device."""
    paths.DEVICES.mkdir(parents=True, exist_ok=True)
    nodes = tuple(paths.DEVICES / f"nvidia{minor}" for minor in range(count))
    for minor, node in enumerate(nodes):
        if not node.exists():
            os.mknod(node, 0o020666, os.makedev(paths.GPU_MAJOR, minor))
            node.chmod(0o666)  # the umask changed the mode
    return nodes
