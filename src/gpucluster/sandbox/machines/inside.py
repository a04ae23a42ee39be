"""Running machines of a sandbox as the host sees them, and how to enter one. They are found by control group, never by process name."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gpucluster.errors import StateError
from gpucluster.plan import names
from gpucluster.sandbox.capsule import cgroups
from gpucluster.sandbox.host_checks import CgroupTree
from gpucluster.sandbox.state_dir import SandboxDir

_BY_ROLE = (names.ROLE_HEAD, names.ROLE_LOGIN, names.ROLE_STANDBY)
MACHINE_STOPPED = 255  # the code of ssh for a connection that ends
STOPPED_WORDS = "the machine stopped or restarted during the command"
_OTHER_NAMESPACES = (("mount", "mnt"), ("uts", "uts"), ("ipc", "ipc"), ("net", "net"))
# systemd-shutdown sends SIGSTOP to every process of a machine. A plain `nsenter --pid` then stops itself, and nothing
# continues it: it hangs, and the machine cannot end. So the parent is a shell of the host, which waits for the end only.
# - Descriptor 9 stays with this PID 1, even if its number is used again. Descriptor 8 is the standard error of the
#   command; what the shell itself prints (`Killed`) is dropped.
# - Field 9 of stat has bit 4 (PF_EXITING) while PID 1 ends. The kernel cuts the name systemd-shutdown after 15 characters.
_WAIT = f"""
running() {{
    read -r stat <&9 || return 1
    case $stat in *"(systemd-shutdow)"*) return 1 ;; esac
    set -- ${{stat##*) }}
    [ $(($7 & 4)) -eq 0 ]
}}
exec 8>&2 2>/dev/null
trap '[ $? -eq 0 ] || running || {{ echo "{STOPPED_WORDS}" >&8; exit {MACHINE_STOPPED}; }}' EXIT
exec 9<"/proc/$1/stat"
shift
(exec nsenter "$@" 2>&8 8>&- 9<&-)
exit $?
"""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMachine:
    """A running machine: `leader` is the host's PID of its PID 1; `node` is empty until it has a name.

    `name`: of a head, standby or login machine, as its Name tag and `validate` have it; else empty.
    """

    instance: str
    leader: int
    role: str
    node: str
    name: str = ""

    def answers_to(self, word: str) -> bool:
        """Whether the word names this machine: instance id, node name, machine name, or `head`, `login`, `standby`."""
        by_role = self.role if self.role in _BY_ROLE else None
        return word in (self.instance, self.node or None, self.name or None, by_role)


def running_machines(home: SandboxDir, trees: Iterable[CgroupTree]) -> tuple[RunningMachine, ...]:
    """Every running machine of the sandbox, the head first, then by name."""
    group = cgroups.sandbox_groups(trees, home.name)[-1]
    folders = sorted(p for p in group.iterdir() if p.is_dir()) if group.is_dir() else []
    found = [
        _running_machine(folder.name, leader)
        for folder in folders
        if (leader := leader_of(folder)) is not None
    ]
    return tuple(sorted(found, key=lambda r: (r.role != names.ROLE_HEAD, r.node, r.instance)))


def find(home: SandboxDir, trees: Iterable[CgroupTree], word: str) -> RunningMachine:
    """The machine that `word` names; a StateError lists the machines. `head` is also the head of existing hosts."""
    there = running_machines(home, trees)
    of_hosts = word == names.ROLE_HEAD and home.site.is_dir()
    wanted = home.read_plan_on_hosts().head.name if of_hosts else word
    for machine in there:
        if machine.answers_to(wanted):
            return machine
    known = ", ".join(r.node or r.role or r.instance for r in there) or "none"
    raise StateError(
        f"no running machine of '{home.name}' is called {word!r}; running: {known}",
        next_step=f"gpucluster sandbox status {home.name}",
    )


def enter_argv(leader: int, command: Iterable[str], *, user: str | None, term: str) -> list[str]:
    """Run `command` in the machine as root, or as `user` in a login session; return its exit code.

    A command that fails while the machine stops or restarts returns MACHINE_STOPPED and prints STOPPED_WORDS.
    """
    inside = list(command)
    if user is not None:
        # not --command: it starts a new session and loses the terminal
        inside = ["runuser", "--login", user, "--session-command", 'exec "$@"', "--", "sh", *inside]
    namespaces = f"/proc/{leader}/ns"
    return [
        *("nsenter", f"--pid={namespaces}/pid", "--no-fork", "--"),
        *("sh", "-c", _WAIT, "sh", str(leader)),
        *(f"--{option}={namespaces}/{file}" for option, file in _OTHER_NAMESPACES),
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
            continue  # the process ended
        numbers = next((line for line in status.splitlines() if line.startswith("NSpid:")), "").split()[1:]
        if len(numbers) > 1 and numbers[-1] == "1":
            return pid
    return None


def _running_machine(instance: str, leader: int) -> RunningMachine:
    user_data = _json(leader, names.USER_DATA_FILE)
    role = str(user_data.get("role") or "")
    node = str(_json(leader, names.AGENT_STATE).get("node") or "")
    of_role = f"{user_data.get('cluster')}-{role}" if role in names.HEAD_ROLES else ""
    name = str(user_data.get("name") or of_role)
    return RunningMachine(instance=instance, leader=leader, role=role, node=node, name=name)


def _pids(group: Path) -> Iterator[int]:
    for folder, _, _ in os.walk(group):
        try:
            text = (Path(folder) / "cgroup.procs").read_text()
        except OSError:
            continue
        yield from (int(word) for word in text.split())


def _json(leader: int, path: str) -> dict[str, Any]:
    """A JSON object from a file of the machine; {} if it is missing or incomplete."""
    try:
        found = json.loads(Path(f"/proc/{leader}/root{path}").read_text())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
