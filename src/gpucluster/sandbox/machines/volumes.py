"""EBS volumes as loop devices: one sparse file each, visible under the device name that Nitro gives.

Their file systems are real: the machine creates and checks ext4. The file lives as long as the volume. A device is created once
and kept while the capsule lives: after a move to another machine it must be the same device, so that the kernel sees one file
system. LO_FLAGS_AUTOCLEAR frees it when the capsule ends.
"""

import contextlib
import fcntl
import logging
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.volumes import Volume

log = logging.getLogger(__name__)

BY_ID = "dev/disk/by-id"
SERIAL = "nvme-Amazon_Elastic_Block_Store_"
_EVERY_S = 0.5
_GIB = 1024**3
_GET_FREE, _CONFIGURE, _AUTOCLEAR = 0x4C82, 0x4C0A, 4
_TRIES, _LOOP_MAJOR = 20, 7
# struct loop_config: descriptor, block size, loop_info64 (flags at byte 52 of 232), 64 reserved bytes
_CONFIG = struct.Struct("=II52xI176x64x")


class AttachedVolumes:
    """Attaches volumes to machines. `leader` is the PID of a machine's PID 1, if it runs."""

    def __init__(self, model: CloudModel, folder: Path, leader: Callable[[str], int | None]) -> None:
        self._model, self._folder, self._leader = model, folder, leader
        self._loops: dict[str, tuple[int, int]] = {}  # volume -> descriptor, minor number
        self._due = 0.0

    def step(self) -> None:
        """Compare volumes and machines; called twice a second."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _EVERY_S
        volumes = self._model.volumes.all()
        self._forget({volume.id for volume in volumes})
        for volume in volumes:
            if volume.instance is not None and (leader := self._leader(volume.instance)) is not None:
                self._plug(volume, Path(f"/proc/{leader}/root"))

    def _forget(self, living: set[str]) -> None:
        for gone in self._loops.keys() - living:
            os.close(self._loops.pop(gone)[0])
        for file in self._folder.glob("vol-*") if self._folder.is_dir() else ():
            if file.name not in living:
                file.unlink()

    def _plug(self, volume: Volume, root: Path) -> None:
        """Create the node in the machine's /dev with udev's name, also after a reboot."""
        link = root / BY_ID / f"{SERIAL}{volume.id.replace('-', '')}"
        if (
            link.is_symlink() or not (root / "run/systemd").is_dir()
        ):  # before that, /dev is not the machine's own
            return
        minor = self._loop(volume)
        name = f"nvme{minor + 1}n1"
        with contextlib.suppress(FileExistsError):
            os.mknod(root / "dev" / name, 0o060660, os.makedev(_LOOP_MAJOR, minor))
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../{name}")
        log.info("%s is /dev/%s of %s", volume.id, name, volume.instance)

    def _loop(self, volume: Volume) -> int:
        file = self._folder / volume.id
        self._folder.mkdir(exist_ok=True)
        with file.open("ab"):
            os.truncate(file, max(volume.size_gib * _GIB, file.stat().st_size))
        if volume.id not in self._loops:
            self._loops[volume.id] = _attached(file)
        return self._loops[volume.id][1]


def _attached(file: Path) -> tuple[int, int]:
    """A free loop device for the file; another process of this host may take it first."""
    backing = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_TRIES):
            with open("/dev/loop-control", "rb") as control:  # noqa: PTH123
                minor = fcntl.ioctl(control, _GET_FREE)
            device = os.open(f"/dev/loop{minor}", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, _CONFIGURE, _CONFIG.pack(backing, 0, _AUTOCLEAR))
            except OSError:
                os.close(device)
                continue
            return device, minor
    finally:
        os.close(backing)
    raise OSError(f"no free loop device for {file}")
