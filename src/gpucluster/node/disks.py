"""Disks of a cloud machine: its own (striped, empty at each boot), and the head's volumes, which outlive it.

A volume is formatted only if both blkid and wipefs read it and find nothing on it. What the head must not lose stands on
them, or with a standby on a mount that both heads have: slurmctld's state and the daemon's journal, by bind mounts.
"""

from pathlib import Path

from gpucluster.node import mounts
from gpucluster.node.known import Known, of
from gpucluster.node.machine import Machine, NotYetError, StepError
from gpucluster.plan import names
from gpucluster.plan.model import ClusterPlan, Volume, there
from gpucluster.shell import CommandError

BY_ID = "/dev/disk/by-id"
OWN_DISKS = "nvme-Amazon_EC2_NVMe_Instance_Storage_*"
VOLUME = "nvme-Amazon_Elastic_Block_Store_"  # and the volume's id without its dash, as the disk's serial number has it
STRIPE = "/dev/md/gpucluster"
ATTACH_S = 600.0  # Pulumi attaches after the instance runs
BUSY_S = 60.0
MAKE_S = 600.0
NOTHING = 2  # blkid's code for a disk without a signature
OWNER = "slurm"
KEPT = {"slurmctld": "/var/spool/slurmctld", "elastic": str(Path(names.JOURNAL).parent)}
SHARED_STATE = ".gpucluster"  # the folder on a mount that head and standby share


def scratch(machine: Machine, known: Known) -> Known:
    """The machine's own disks as one file system; a folder where there are none."""
    for mount in of(known.bundle).plan.storage:
        if mount.nvme is None or mount.path in mounts.points(machine):
            continue
        machine.place(mount.path).mkdir(parents=True, exist_ok=True)
        if found := own_disks(machine):
            device = found[0] if len(found) == 1 else _striped(machine, found)
            machine.run(["mkfs.xfs", "-q", "-f", device], timeout_s=MAKE_S)
            machine.run(["mount", "-o", "noatime,nosuid,nodev", device, mount.path])
        machine.place(mount.path).chmod(0o1777)
    return known


def own_disks(machine: Machine) -> tuple[str, ...]:
    """Devices of the machine's own; udev gives a disk several names."""
    links = [p for p in machine.place(BY_ID).glob(OWN_DISKS) if "-part" not in p.name]
    return tuple(sorted({_device(machine, link) for link in links}))


def volumes(machine: Machine, known: Known) -> Known:
    """Every volume of the head is mounted, and its file system as large as it is."""
    bundle = of(known.bundle)
    for volume in there(bundle.plan.head).volumes:
        bound = of(bundle.bindings).volumes.get(volume.key)
        if not bound:
            raise StepError(f"the bindings do not know the volume {volume.key!r}")
        device = f"{BY_ID}/{VOLUME}{bound.replace('-', '')}"
        if not machine.place(device).exists():
            raise NotYetError(f"the volume {bound} ({volume.key}) is not attached yet", limit_s=ATTACH_S)
        if volume.path not in mounts.points(machine):
            _mount(machine, volume, device)
        _grow(machine, volume, device)
    return known


def state(machine: Machine, known: Known) -> Known:
    """Bind what must outlive the head to where slurmctld and the daemon look for it."""
    root = state_root(of(known.bundle).plan)
    if root is None:
        return known
    if _outer(root) not in mounts.points(machine):
        raise NotYetError(f"{_outer(root)} is not mounted")
    for name, path in KEPT.items():
        if path in mounts.points(machine):
            continue
        source = f"{root}/{name}"
        fresh = not machine.place(source).is_dir()
        for place in (machine.place(source), machine.place(path)):
            place.mkdir(parents=True, exist_ok=True)
        if fresh:
            machine.place(source).chmod(0o700)
        machine.run(["chown", "--recursive", f"{OWNER}:{OWNER}", source], timeout_s=MAKE_S)
        machine.run(["mount", "--bind", source, path])
    return known


def state_root(plan: ClusterPlan) -> str | None:
    """The folder that outlives the head; None: nothing does."""
    head = there(plan.head)
    if head.standby is not None:
        return f"{head.standby.state}/{SHARED_STATE}"
    return next((volume.path for volume in head.volumes if volume.key == names.STATE_VOLUME), None)


def _outer(root: str) -> str:
    return root.removesuffix(f"/{SHARED_STATE}")


def _striped(machine: Machine, devices: tuple[str, ...]) -> str:
    machine.run(["mdadm", "--stop", STRIPE], check=False)
    argv = ["mdadm", "--create", STRIPE, "--run", "--force", "--level=0", f"--raid-devices={len(devices)}"]
    machine.run([*argv, *devices])
    return STRIPE


def _mount(machine: Machine, volume: Volume, device: str) -> None:
    kind = machine.run(["blkid", "--probe", "--match-tag", "TYPE", "--output", "value", device], check=False)
    if kind.code == NOTHING:
        _format(machine, volume, device)
    elif kind.code != 0 or kind.stdout.strip() != "ext4":
        raise StepError(
            f"the volume {volume.key!r} holds {kind.stdout.strip() or 'something'}, expected ext4 or nothing: it is left alone"
        )
    checked = machine.run(["e2fsck", "-p", device], check=False, timeout_s=MAKE_S)
    if checked.code & 4:  # 1 and 2: it was mended; 8: it could not look, and the kernel will say why
        raise StepError(f"the volume {volume.key!r} is damaged, a person must look: {checked.stdout}")
    machine.place(volume.path).mkdir(parents=True, exist_ok=True)
    try:
        machine.run(["mount", "-t", "ext4", "-o", "noatime", device, volume.path])
    except CommandError as error:
        raise NotYetError(f"{volume.path}: {error.result.stderr}", limit_s=BUSY_S) from error


def _format(machine: Machine, volume: Volume, device: str) -> None:
    found = machine.run(["wipefs", "--no-act", "--noheadings", device])
    if found.stdout.strip():
        raise StepError(f"the volume {volume.key!r} is not empty, and blkid does not know what it holds")
    machine.run(["mkfs.ext4", "-q", "-L", volume.key[:16], device], timeout_s=MAKE_S)


def _grow(machine: Machine, volume: Volume, device: str) -> None:
    """Once for each size that the volume has had in this boot."""
    name = _device(machine, machine.place(device)).rpartition("/")[2]
    size = machine.read(f"/sys/class/block/{name}/size")
    if machine.write(f"{names.AGENT_RUN}/volume-{volume.key}", size):
        machine.run(["resize2fs", device], timeout_s=MAKE_S)


def _device(machine: Machine, link: Path) -> str:
    """What a name of udev's stands for."""
    return f"/dev/{link.readlink().name}" if link.is_symlink() else f"/{link.relative_to(machine.root)}"
