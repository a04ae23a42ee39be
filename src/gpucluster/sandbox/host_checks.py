"""Checks of this machine before a sandbox is created.

`observe` reads the machine, `check` compares it with the requirements. Every error names the command that fixes it.
The cgroup mode decides whether GPU isolation is real (`differences.py`), so it is detected.
"""

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gpucluster import shell
from gpucluster.errors import HostError
from gpucluster.sandbox import requirements
from gpucluster.sandbox.capsule.private_mounts import Overlay, within
from gpucluster.sandbox.requirements import INOTIFY_EACH, LEAST_MACHINES

DISK_GIB = 6  # images 1 GiB, .deb and wheel caches 0.3, overlays of 17 machines 0.3, and space for a build
KERNEL = (5, 14)  # cgroup.kill
_PROBE_NET = "link add br0 type bridge\nlink add v0 type veth peer name v1\n"


class CgroupMode(StrEnum):
    """How the host mounts its control groups."""

    HYBRID = "hybrid"  # controllers on v1, and an empty v2 tree beside them
    UNIFIED = "unified"  # everything on v2
    LEGACY = "legacy"  # v1 only: no cgroup.kill


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupTree:
    """The mount point of one control group hierarchy; `controllers` is empty for the v2 tree."""

    mount: Path
    controllers: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was read of this machine; `check` needs nothing else."""

    uid: int
    system: str
    kernel: tuple[int, int]
    missing: tuple[str, ...]  # Debian packages
    free_gib: float
    inotify_limit: int
    inotify_used: int
    trees: tuple[CgroupTree, ...]
    refused: str | None  # the kernel's answer to the probe of namespaces, bridge, veth and overlay


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine that can run a sandbox."""

    cgroup: CgroupMode
    trees: tuple[CgroupTree, ...]
    machines: int  # machines that fit at once, with the head


def require_root() -> None:
    """Raise HostError unless we are root on Linux: enough for `down`, `status`, `exec` and `logs`."""
    if sys.platform != "linux":
        raise HostError("the sandbox is made of Linux namespaces", next_step="run it on a Debian 12 machine")
    if os.geteuid() != 0:
        raise HostError(
            "the sandbox makes namespaces and mounts, so it needs root",
            next_step="sudo " + " ".join(sys.argv),
        )


def observe(state_root: Path) -> Facts:
    """Read the machine; the namespaces of the probe end with it."""
    packages = requirements.missing()
    major, minor = platform.release().split(".")[:2]
    return Facts(
        uid=os.geteuid(),
        system=sys.platform,
        kernel=(int(major), int("".join(c for c in minor if c.isdigit()) or 0)),
        missing=tuple(packages),
        free_gib=shutil.disk_usage(_existing(state_root)).free / 2**30,
        inotify_limit=int(Path("/proc/sys/fs/inotify/max_user_instances").read_text()),
        inotify_used=requirements.inotify_used(),
        trees=cgroup_trees(Path("/proc/self/mountinfo").read_text()),
        refused=_probe() if os.geteuid() == 0 and not packages else None,
    )


def check(facts: Facts) -> Host:
    """Return the host, or raise HostError for the first missing requirement."""
    for problem in (_system, _root, _packages, _disk, _kernel, _inotify):
        found = problem(facts)
        if found is not None:
            raise HostError(found[0], next_step=found[1])
    free = facts.inotify_limit - facts.inotify_used
    return Host(cgroup=cgroup_mode(facts.trees), trees=facts.trees, machines=free // INOTIFY_EACH)


def cgroup_trees(mountinfo: str) -> tuple[CgroupTree, ...]:
    """Return every control group hierarchy of /proc/self/mountinfo, the v2 tree last."""
    trees: dict[frozenset[str], Path] = {}
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if not dash or len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        options = frozenset(o.removeprefix("name=") for o in kind[2].split(",") if _names_one(o))
        trees[frozenset() if kind[0] == "cgroup2" else options] = Path(fields[4])
    ordered = sorted(trees.items(), key=lambda item: (not item[0], sorted(item[0])))
    return tuple(CgroupTree(mount=mount, controllers=names) for names, mount in ordered)


_OPTIONS = frozenset({"rw", "ro", "xattr", "noprefix", "clone_children"})


def _names_one(option: str) -> bool:
    """Whether the mount option is a controller or a named v1 hierarchy."""
    return option.startswith("name=") or ("=" not in option and option not in _OPTIONS)


def cgroup_mode(trees: tuple[CgroupTree, ...]) -> CgroupMode:
    """The layout of these hierarchies."""
    if all(tree.controllers for tree in trees):
        return CgroupMode.LEGACY
    named = frozenset[str]().union(*(tree.controllers for tree in trees))
    return CgroupMode.HYBRID if "devices" in named else CgroupMode.UNIFIED


Problem = tuple[str, str] | None


def _system(facts: Facts) -> Problem:
    if facts.system == "linux":
        return None
    return "the sandbox is made of Linux namespaces", "run it on a Debian 12 machine"


def _root(facts: Facts) -> Problem:
    if facts.uid == 0:
        return None
    return "the sandbox makes namespaces and mounts, so it needs root", "sudo " + " ".join(sys.argv)


def _packages(facts: Facts) -> Problem:
    if not facts.missing:
        return None
    names = " ".join(facts.missing)
    line = f"apt-get update && apt-get install --no-install-recommends -y {names}"
    return f"Debian packages are missing: {names}", line


def _disk(facts: Facts) -> Problem:
    if facts.free_gib >= DISK_GIB:
        return None
    return (
        f"/var has {facts.free_gib:.1f} GiB free, the sandbox needs {DISK_GIB}",
        "make room there; `gpucluster sandbox status` lists our own caches",
    )


def _kernel(facts: Facts) -> Problem:
    if facts.kernel < KERNEL:
        found = ".".join(map(str, facts.kernel))
        return f"the kernel is {found}; the sandbox needs 5.14 for cgroup.kill", "boot Debian 12's own kernel"
    if cgroup_mode(facts.trees) is CgroupMode.LEGACY:
        line = "mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified"
        return "no cgroup v2 tree is mounted, so a machine could not be ended whole", line
    if facts.refused is not None:
        return (
            f"the kernel refuses what the sandbox is made of: {facts.refused}",
            "run it on a virtual or real machine of its own, not inside a container",
        )
    return None


def _inotify(facts: Facts) -> Problem:
    needed = LEAST_MACHINES * INOTIFY_EACH
    if facts.inotify_limit - facts.inotify_used >= needed:
        return None
    return (
        f"fs.inotify.max_user_instances is {facts.inotify_limit} and {facts.inotify_used} are in use; "
        f"{LEAST_MACHINES} machines need {needed}",
        "sysctl -w fs.inotify.max_user_instances=512",
    )


def _existing(path: Path) -> Path:
    return next(p for p in (path, *path.parents) if p.exists())


def _probe() -> str | None:
    """Create one of each thing that a sandbox needs, in namespaces of its own."""
    tree = Overlay(lower=(Path("/usr"),), upper=Path("/run/u"), work=Path("/run/w"), at=Path("/run/m"))
    steps = (
        (["unshare", "--net", "--pid", "--fork", "--mount-proc", "ip", "-batch", "-"], _PROBE_NET),
        (within(["true"], tmpfs=(Path("/run"),), overlay=tree), None),
    )
    for argv, text in steps:
        done = shell.run(argv, stdin=text, check=False, timeout_s=20)
        if done.code != 0:
            return (done.stderr.strip().splitlines() or [f"code {done.code}"])[-1]
    return None
