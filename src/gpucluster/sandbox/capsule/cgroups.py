"""One control group for a sandbox and one for each machine, in every hierarchy of the host. It is how a machine is killed whole.

systemd-nspawn with --keep-unit creates `payload` and `supervisor` beside the caller's group, so each machine needs groups
of its own. The remains of a dead sandbox are found by the names of its groups.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from gpucluster.sandbox.host_checks import CgroupTree
from gpucluster.sandbox.paths import cgroup_name

_INHERITED = ("cpuset.cpus", "cpuset.mems")  # v1: empty in a new group; until it is set, no process may enter
_WANTED = "+cpu +memory +pids +cpuset"  # v2: what a machine's own systemd may delegate


def machine_groups(trees: Iterable[CgroupTree], name: str, machine: str) -> tuple[Path, ...]:
    """Return a machine's group in each hierarchy, the v2 one last."""
    return tuple(tree.mount / cgroup_name(name) / machine for tree in trees)


def make(groups: Iterable[Path]) -> tuple[Path, ...]:
    """Create the groups and their parents; return the `cgroup.procs` files to enter them."""
    entered: list[Path] = []
    for group in groups:
        for folder in (group.parent, group):
            folder.mkdir(exist_ok=True)
            _inherit(folder)
        entered.append(group / "cgroup.procs")
    return tuple(entered)


def end(group: Path) -> None:
    """Kill every process in the v2 group and below it, at once."""
    kill = group / "cgroup.kill"
    if kill.exists():
        kill.write_text("1")


def empty(group: Path) -> bool:
    """Whether no process is left in the v2 group or below it."""
    return not group.is_dir() or "populated 0" in (group / "cgroup.events").read_text()


def remove(groups: Iterable[Path]) -> None:
    """Remove the groups and those below them; a group in use stays."""
    for group in groups:
        for folder, _, _ in os.walk(group, topdown=False):
            try:
                Path(folder).rmdir()
            except OSError:
                continue  # not empty: the next `up` or `down` removes it


def sandbox_groups(trees: Iterable[CgroupTree], name: str) -> tuple[Path, ...]:
    """Return the sandbox's own group in each hierarchy, the v2 one last."""
    return tuple(tree.mount / cgroup_name(name) for tree in trees)


def _inherit(folder: Path) -> None:
    for name in _INHERITED:
        ours, above = folder / name, folder.parent / name
        if (
            ours.exists()
            and above.exists()
            and not ours.read_text().strip()
            and "unified" not in folder.parts
        ):
            try:
                ours.write_text(above.read_text())
            except OSError:
                continue  # v2's cpuset files may be empty: that means "as in the parent"
    control = folder.parent / "cgroup.subtree_control"
    if control.exists():
        for word in _WANTED.split():
            try:
                control.write_text(word)
            except OSError:
                continue  # this hierarchy lacks the controller
