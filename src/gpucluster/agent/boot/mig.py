"""MIG: slice the GPUs of a node as the plan says, and make the device files that gres.conf names.

The driver chooses the ids of GPU instances, so the minors of their capabilities are known only now. gres.conf needs fixed
paths: names.MIG_FOLDER has a device file for the GPU instance and for the compute instance of each slice (S31).
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import NoReturn

from gpucluster.agent.boot.boot_state import BOOT_ID, BootState, require
from gpucluster.agent.boot.slurmd import NVIDIA_SMI
from gpucluster.agent.machine import Machine, NotYetError, StepError
from gpucluster.plan import gres, names
from gpucluster.plan.gres import SliceDevice

MINORS = "/proc/driver/nvidia-caps/mig-minors"  # `gpu0/gi1/ci0/access 13`
DEVICES = "/proc/devices"  # `  234 nvidia-caps`
ROW = re.compile(r"^\|\s+(\d+)\s+MIG (\S+)\s+\d+\s+(\d+)\s+\d+:\d+\s*\|", re.MULTILINE)
LIMIT_S = 120.0
CSV = ("--format=csv,noheader,nounits",)
REBOOTED = f"{names.STATE_DIR}/mig-rebooted"  # the boot in which this machine rebooted for a pending MIG mode
WORDS = 200


def slice_gpus(machine: Machine, state: BootState) -> BootState:
    """Create the slices, unless each GPU already has exactly those. A GPU that jobs use is never sliced again."""
    pool = require(state.bundle).plan.pool_of(require(state.answer).node)
    wanted = tuple(gres.slices(pool.shape)) if pool else ()
    if not wanted:
        return state
    of_gpu = {gpu: [one for one in wanted if one.gpu == gpu] for gpu in sorted({one.gpu for one in wanted})}
    other = [gpu for gpu, mine in of_gpu.items() if not _has(machine, gpu, mine)]
    if other:
        _enable(machine, other, may_reboot=require(state.bundle).plan.aws is not None)
    for gpu in other:
        _create(machine, gpu, of_gpu[gpu])
    for gpu, mine in of_gpu.items():
        _link(machine, mine, _instances(machine, gpu))
    return state


def _has(machine: Machine, gpu: int, wanted: Sequence[SliceDevice]) -> bool:
    return sorted(_listed(machine, gpu)) == sorted(one.profile for one in wanted)


def _enable(machine: Machine, gpus: Sequence[int], *, may_reboot: bool) -> None:
    """Enable MIG mode. An A100 needs a reset for it, which a virtual machine or another client of the GPU prevents: the mode
    is pending until a reboot, and nvidia-smi ends with code 0 (S31)."""
    said = {
        gpu: machine.run([NVIDIA_SMI, "-i", str(gpu), "-mig", "1"], timeout_s=LIMIT_S, check=False)
        for gpu in gpus
    }
    modes = machine.run([NVIDIA_SMI, "--query-gpu=index,mig.mode.current", *CSV], timeout_s=LIMIT_S).stdout
    enabled = {line.partition(",")[0].strip() for line in modes.splitlines() if line.endswith(" Enabled")}
    left = [gpu for gpu in gpus if str(gpu) not in enabled]
    if not left:
        machine.path(REBOOTED).unlink(missing_ok=True)
        return
    answer = said[left[0]]
    words = " ".join((answer.stdout + answer.stderr).split())[:WORDS] or f"code {answer.code}"
    which = f"MIG mode of GPU {', '.join(map(str, left))} is not enabled: {words}"
    if answer.code or not may_reboot:
        raise StepError(which if answer.code else f"{which}; end what uses the GPUs, or reboot this host")
    _reboot_once(machine, which)


def _reboot_once(machine: Machine, why: str) -> NoReturn:
    boot_id = machine.read(BOOT_ID).strip()
    before = machine.read(REBOOTED).strip()
    if before and before != boot_id:
        raise StepError(f"{why}; this machine has rebooted for it once")
    if not before:
        machine.write(REBOOTED, boot_id)
        machine.run(["systemctl", "reboot"])
    raise NotYetError(f"{why}; this machine reboots")


def _create(machine: Machine, gpu: int, wanted: Sequence[SliceDevice]) -> None:
    answers = [  # they fail if there is nothing to destroy
        machine.run([NVIDIA_SMI, "mig", "-i", str(gpu), verb], timeout_s=LIMIT_S, check=False)
        for verb in ("-dci", "-dgi")
    ]
    if _listed(machine, gpu):
        words = " ".join("".join(one.stdout + one.stderr for one in answers).split())[:WORDS]
        raise StepError(f"GPU {gpu} keeps its MIG slices: {words}")
    profiles = ",".join(one.profile for one in wanted)
    machine.run([NVIDIA_SMI, "mig", "-i", str(gpu), "-cgi", profiles, "-C"], timeout_s=LIMIT_S)
    if not _has(machine, gpu, wanted):
        found = ", ".join(sorted(_listed(machine, gpu))) or "none"
        raise StepError(f"GPU {gpu} has the MIG slices {found}, expected {profiles}")


def _instances(machine: Machine, gpu: int) -> list[tuple[str, int]]:
    """Return (profile, id) of each GPU instance, by id."""
    listed = machine.run([NVIDIA_SMI, "mig", "-i", str(gpu), "-lgi"], timeout_s=LIMIT_S, check=False).stdout
    rows = [(row[1], int(row[2])) for row in ROW.findall(listed) if int(row[0]) == gpu]
    return sorted(rows, key=lambda row: row[1])


def _listed(machine: Machine, gpu: int) -> list[str]:
    return [profile for profile, _ in _instances(machine, gpu)]


def _link(machine: Machine, wanted: Sequence[SliceDevice], instances: Sequence[tuple[str, int]]) -> None:
    """Make the two device files of each slice. Slices of one profile are taken in the order of their ids."""
    left, minors, major = list(instances), _minors(machine), _major(machine)
    for one in wanted:
        found = next(row for row in left if row[0] == one.profile)
        left.remove(found)
        key = f"gpu{one.gpu}/gi{found[1]}"
        for path, name in zip(one.files[1:], (f"{key}/access", f"{key}/ci0/access"), strict=True):
            if name not in minors:
                raise StepError(f"{MINORS} has no line {name}")
            _node(machine, path, os.makedev(major, minors[name]))


def _minors(machine: Machine) -> Mapping[str, int]:
    rows = (line.split() for line in machine.read(os.environ.get(names.MIG_VARIABLE, MINORS)).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}


def _major(machine: Machine) -> int:
    found = re.search(r"^ *(\d+) nvidia-caps$", machine.read(DEVICES), re.MULTILINE)
    if found is not None:
        return int(found[1])
    if names.MIG_VARIABLE in os.environ:
        return names.MIG_MAJOR_STAND_IN
    raise StepError(f"{DEVICES} has no nvidia-caps: the driver has no MIG")


def _node(machine: Machine, path: str, device: int) -> None:
    target = machine.path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if target.stat().st_rdev == device:
            return
        target.unlink()
    except FileNotFoundError:
        pass
    os.mknod(target, stat.S_IFCHR | 0o666, device)
    target.chmod(0o666)  # the umask changed the mode; control groups decide which job opens it
