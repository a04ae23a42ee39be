"""Machines of a living sandbox, as the host sees them, and the way in: by control groups, never by a process's name."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gpucluster.errors import StateError
from gpucluster.plan import names
from gpucluster.sandbox import cgroups
from gpucluster.sandbox.host import CgroupTree
from gpucluster.sandbox.ledger import Home

_BY_ROLE = (names.ROLE_HEAD, names.ROLE_LOGIN, names.ROLE_STANDBY)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A running machine: `leader` is the host's PID of its PID 1; `node` is empty until it has a name."""

    instance: str
    leader: int
    role: str
    node: str

    def answers_to(self, word: str) -> bool:
        """Whether a person means this one: by instance id, its own name, or `head`, `login`, `standby`."""
        return word in (self.instance, self.node or None, self.role if self.role in _BY_ROLE else None)


def residents(home: Home, trees: Iterable[CgroupTree]) -> tuple[Resident, ...]:
    """Every running machine of the sandbox, the head first, then by name."""
    group = cgroups.sandbox_groups(trees, home.name)[-1]
    folders = sorted(p for p in group.iterdir() if p.is_dir()) if group.is_dir() else []
    found = [
        _resident(folder.name, leader) for folder in folders if (leader := leader_of(folder)) is not None
    ]
    return tuple(sorted(found, key=lambda r: (r.role != names.ROLE_HEAD, r.node, r.instance)))


def find(home: Home, trees: Iterable[CgroupTree], word: str) -> Resident:
    """The machine that `word` means, or a StateError that says which there are."""
    there = residents(home, trees)
    for resident in there:
        if resident.answers_to(word):
            return resident
    known = ", ".join(r.node or r.role or r.instance for r in there) or "none"
    raise StateError(
        f"no running machine of '{home.name}' is called {word!r}; running: {known}",
        next_step=f"gpucluster sandbox status {home.name}",
    )


def enter_argv(leader: int, command: Iterable[str], *, user: str | None, term: str) -> list[str]:
    """Run `command` in the machine as root, or as `user` in a login of his; the exit code is the command's."""
    inside = list(command)
    if user is not None:
        # not --command: that starts a new session, and a terminal would be lost
        inside = ["runuser", "--login", user, "--session-command", 'exec "$@"', "--", "sh", *inside]
    return [
        "nsenter",
        f"--target={leader}",
        *("--mount", "--uts", "--ipc", "--net", "--pid"),
        "--",
        *("env", "-i", f"PATH={_PATH}", "HOME=/root", "LANG=C.UTF-8", f"TERM={term}"),
        *inside,
    ]


def leader_of(group: Path) -> int | None:
    """The process of the group that is PID 1 in its own namespace."""
    for pid in _pids(group):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue  # it ended while we looked
        numbers = next((line for line in status.splitlines() if line.startswith("NSpid:")), "").split()[1:]
        if len(numbers) > 1 and numbers[-1] == "1":
            return pid
    return None


def _resident(instance: str, leader: int) -> Resident:
    told = _json(leader, names.USER_DATA_FILE)
    role = str(told.get("role") or "")
    node = str(_json(leader, names.AGENT_STATE).get("node") or "")
    return Resident(instance=instance, leader=leader, role=role, node=node)


def _pids(group: Path) -> Iterator[int]:
    for folder, _, _ in os.walk(group):
        try:
            text = (Path(folder) / "cgroup.procs").read_text()
        except OSError:
            continue
        yield from (int(word) for word in text.split())


def _json(leader: int, path: str) -> dict[str, Any]:
    """A JSON object among the machine's own files; {} if it is not there or not whole."""
    try:
        found = json.loads(Path(f"/proc/{leader}/root{path}").read_text())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
