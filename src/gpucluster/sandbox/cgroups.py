"""One control group a sandbox and one a machine, in every hierarchy of the host: what ends a machine whole.

systemd-nspawn with --keep-unit makes its `payload` and `supervisor` beside the caller's group, so machines
without groups of their own would mix. A group's name is also how left-overs of a dead sandbox are found.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from gpucluster.sandbox.host import CgroupTree
from gpucluster.sandbox.places import cgroup_name

_INHERITED = ("cpuset.cpus", "cpuset.mems")  # v1: empty in a new group, and then nobody may enter
_WANTED = "+cpu +memory +pids +cpuset"  # v2: what a machine's own systemd may hand on


def machine_groups(trees: Iterable[CgroupTree], name: str, machine: str) -> tuple[Path, ...]:
    """Return a machine's group in each hierarchy, the v2 one last."""
    return tuple(tree.mount / cgroup_name(name) / machine for tree in trees)


def make(groups: Iterable[Path]) -> tuple[Path, ...]:
    """Make the groups and their parents; return the `cgroup.procs` to enter them by."""
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
    """Remove the groups with what is below them; one that is still in use stays."""
    for group in groups:
        for folder, _, _ in os.walk(group, topdown=False):
            try:
                Path(folder).rmdir()
            except OSError:
                continue  # not empty: the next `up` or `down` comes by again


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
                continue  # v2's cpuset files may be empty: there it means "as above"
    control = folder.parent / "cgroup.subtree_control"
    if control.exists():
        for word in _WANTED.split():
            try:
                control.write_text(word)
            except OSError:
                continue  # this hierarchy has no such controller
