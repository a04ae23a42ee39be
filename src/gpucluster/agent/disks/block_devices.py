"""Disks of a cloud machine: instance store (striped, empty at each boot) and the EBS volumes of the head.

A volume is formatted only if both blkid and wipefs find nothing on it. slurmctld's state and the daemon's journal are
bind mounts from a volume, or with a standby from a file system that both heads mount.
"""

from collections.abc import Mapping
from pathlib import Path

from gpucluster.agent.boot import boot_state, systemd
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.disks import mounts, state_move
from gpucluster.agent.machine import Machine, NotYetError, StepError
from gpucluster.plan import names
from gpucluster.plan.model import Nvme, Volume
from gpucluster.plan.state_storage import BOUND_FOLDERS, state_mount, state_root
from gpucluster.shell import CommandError

BY_ID = "/dev/disk/by-id"
INSTANCE_STORE = "nvme-Amazon_EC2_NVMe_Instance_Storage_*"
VOLUME = "nvme-Amazon_Elastic_Block_Store_"  # followed by the volume id without its dash
STRIPE = "/dev/md/gpucluster"
ATTACH_S = 600.0  # Pulumi attaches volumes after the instance has started
BUSY_S = 60.0
MAKE_S = 600.0
STOP_S = 120.0  # slurmctld saves its state before it ends
MOVE_AGAIN_S = 600.0  # after a failed move: each try stops slurmctld
NO_SIGNATURE = 2  # exit code of blkid for a disk without a signature
SLURM_USER = "slurm"


def mount_instance_store(machine: Machine, state: BootState) -> BootState:
    """Mount the instance store as one file system. On a machine without instance store the mount point is a plain folder."""
    for mount in require(state.bundle).plan.storage:
        if not isinstance(mount.source, Nvme) or mount.path in mounts.mount_points(machine):
            continue
        machine.path(mount.path).mkdir(parents=True, exist_ok=True)
        if found := instance_store(machine):
            device = found[0] if len(found) == 1 else _striped(machine, found)
            machine.run(["mkfs.xfs", "-q", "-f", device], timeout_s=MAKE_S)
            machine.run(["mount", "-o", "noatime,nosuid,nodev", device, mount.path])
        machine.path(mount.path).chmod(0o1777)
    return state


def mount_all(machine: Machine, state: BootState) -> BootState:
    """Mount the instance store, then the file systems of the plan."""
    return mounts.mount_planned(machine, mount_instance_store(machine, state))


def instance_store(machine: Machine) -> tuple[str, ...]:
    """Return the devices of the instance store. udev gives several names to one disk."""
    links = [p for p in machine.path(BY_ID).glob(INSTANCE_STORE) if "-part" not in p.name]
    return tuple(sorted({_device(machine, link) for link in links}))


def mount_volumes(machine: Machine, state: BootState) -> BootState:
    """Mount every volume of the head, and grow its file system to the volume's size."""
    bundle = require(state.bundle)
    for volume in bundle.plan.head.volumes:
        bound = require(bundle.bindings).volumes.get(volume.key)
        if not bound:
            raise StepError(f"the bindings have no volume {volume.key!r}")
        device = f"{BY_ID}/{VOLUME}{bound.replace('-', '')}"
        if not machine.path(device).exists():
            raise NotYetError(f"the volume {bound} ({volume.key}) is not attached yet", limit_s=ATTACH_S)
        if volume.path not in mounts.mount_points(machine):
            _mount(machine, volume, device)
        _grow(machine, volume, device)
    return state


def bind_state(machine: Machine, state: BootState, at: state_move.Checkpoint = lambda _: None) -> BootState:
    """Bind-mount slurmctld's state and the daemon's journal from storage that survives the head.

    State on the root disk of a living head is moved there first, while both daemons are stopped. Later steps start them.
    """
    plan = require(state.bundle).plan
    root, mount = state_root(plan), state_mount(plan)
    if root is None:
        return state
    if mount not in mounts.mount_points(machine):
        raise NotYetError(f"{mount} is not mounted")
    open_folders = {n: p for n, p in BOUND_FOLDERS.items() if p not in mounts.mount_points(machine)}
    if not open_folders:
        return state
    _bring_state(machine, state, root, open_folders, at)
    for name, path in open_folders.items():
        source = f"{root}/{name}"
        fresh = not machine.path(source).is_dir()
        for place in (machine.path(source), machine.path(path)):
            place.mkdir(parents=True, exist_ok=True)
        if fresh:
            machine.path(source).chmod(0o700)
        machine.run(["chown", "--recursive", f"{SLURM_USER}:{SLURM_USER}", source], timeout_s=MAKE_S)
        machine.run(["mount", "--bind", source, path])
        at("bound")
    return state


def _bring_state(
    machine: Machine, state: BootState, root: str, paths: Mapping[str, str], at: state_move.Checkpoint
) -> None:
    plan = require(state.bundle).plan
    folders = state_move.Folders(
        cluster=plan.name,
        root=machine.path(root),
        local={name: machine.path(path) for name, path in paths.items()},
    )
    if require(state.identity).role == names.ROLE_STANDBY:
        if not state_move.in_use(folders):
            raise NotYetError(f"the head has not put its state on {state_mount(plan)} yet")
        return
    failed_at = boot_state.load(machine).state_move_failed_at
    if failed_at is not None and machine.now() - failed_at < MOVE_AGAIN_S:
        raise StepError(
            f"Slurm's state could not be moved to {root}, and runs from the root disk; see the agent's log"
        )
    try:
        state_move.prepare(folders, _daemons(machine), at)
    except OSError as error:
        boot_state.update(machine, state_move_failed_at=machine.now())
        _start_again(machine)
        raise StepError(
            f"Slurm's state was not moved to {root}, and stays in use on the root disk: {error}; the agent tries again "
            f"after {MOVE_AGAIN_S:g} s"
        ) from error


def _daemons(machine: Machine) -> state_move.Daemons:
    units = ("gpucluster-elastic", "slurmctld")  # the daemon first: it writes to slurmctld

    def stop() -> None:
        for unit in units:
            machine.run(["systemctl", "stop", f"{unit}.service"], timeout_s=STOP_S)

    return state_move.Daemons(running=lambda: any(systemd.active(machine, unit) for unit in units), stop=stop)


def _start_again(machine: Machine) -> None:
    """Start both daemons with the state on the root disk, if a bundle was applied before."""
    if machine.path(names.BUNDLE_DIR).is_symlink():
        for unit in ("slurmctld", "gpucluster-elastic"):
            systemd.ensure(machine, unit)


def _striped(machine: Machine, devices: tuple[str, ...]) -> str:
    machine.run(["mdadm", "--stop", STRIPE], check=False)
    argv = ["mdadm", "--create", STRIPE, "--run", "--force", "--level=0", f"--raid-devices={len(devices)}"]
    machine.run([*argv, *devices])
    return STRIPE


def _mount(machine: Machine, volume: Volume, device: str) -> None:
    kind = machine.run(["blkid", "--probe", "--match-tag", "TYPE", "--output", "value", device], check=False)
    if kind.code == NO_SIGNATURE:
        _format(machine, volume, device)
    elif kind.code != 0 or kind.stdout.strip() != "ext4":
        raise StepError(
            f"the volume {volume.key!r} contains {kind.stdout.strip() or 'unknown data'}, expected ext4 or nothing; it is not changed"
        )
    checked = machine.run(["e2fsck", "-p", device], check=False, timeout_s=MAKE_S)
    if checked.code & 4:  # 1 and 2: e2fsck has repaired it; 8: e2fsck failed, and mount reports the reason
        raise StepError(f"the volume {volume.key!r} is damaged; run e2fsck by hand: {checked.stdout}")
    machine.path(volume.path).mkdir(parents=True, exist_ok=True)
    try:
        machine.run(["mount", "-t", "ext4", "-o", "noatime", device, volume.path])
    except CommandError as error:
        raise NotYetError(f"{volume.path}: {error.result.stderr}", limit_s=BUSY_S) from error


def _format(machine: Machine, volume: Volume, device: str) -> None:
    found = machine.run(["wipefs", "--no-act", "--noheadings", device])
    if found.stdout.strip():
        raise StepError(f"the volume {volume.key!r} is not empty, and blkid does not recognize its content")
    machine.run(["mkfs.ext4", "-q", "-L", volume.key[:16], device], timeout_s=MAKE_S)


def _grow(machine: Machine, volume: Volume, device: str) -> None:
    """Run resize2fs once for each size of the volume in this boot."""
    name = _device(machine, machine.path(device)).rpartition("/")[2]
    size = machine.read(f"/sys/class/block/{name}/size")
    if machine.write(f"{names.AGENT_RUN}/volume-{volume.key}", size):
        machine.run(["resize2fs", device], timeout_s=MAKE_S)


def _device(machine: Machine, link: Path) -> str:
    """Return the device of a udev name."""
    return f"/dev/{link.readlink().name}" if link.is_symlink() else f"/{link.relative_to(machine.root)}"
