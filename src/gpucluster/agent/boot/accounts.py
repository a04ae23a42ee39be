"""User accounts on a cloud machine: the plan's users with their uids, and their SSH keys in a folder that only root writes.

A user who leaves the plan is locked and not removed, because the user's files may be anywhere. `MADE` lists the accounts
that the agent created. If an account or a uid of the plan already belongs to another account, the step fails and changes
nothing. On existing hosts the playbook does the same.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpucluster.agent.boot import boot_state, bundles
from gpucluster.agent.boot.boot_state import BootState, require
from gpucluster.agent.machine import Machine, StepError
from gpucluster.json_text import parse_json
from gpucluster.plan import mounts, names
from gpucluster.plan.model import Nfs, NfsFromHead, SlurmPlan, User

PASSWD, GROUP = "/etc/passwd", "/etc/group"
MADE = f"{names.STATE_DIR}/accounts.json"  # name -> whether the account is unlocked
HOMES, CHECK_S = "/home", 10.0
LOCKED = "1"  # expiry date in 1970: neither a key nor a password opens the account


def apply(machine: Machine, state: BootState) -> BootState:
    """Create the accounts of the plan, and lock those of users who left it."""
    plan = require(state.bundle).plan
    _lock_removed(machine, plan)
    _check(machine, plan.users)
    for user in plan.users:
        _account(machine, user)
    _keys(machine, plan)
    if makes_homes(plan, require(state.identity).role):
        _homes(machine, plan.users)
    return state


def follow_bundle(machine: Machine, state: BootState) -> BootState:
    """Apply the users of the newest bundle on a running node. All other parts of that bundle are for machines that boot later."""
    saved = boot_state.load(machine)
    if machine.now() - saved.users_checked_at < require(state.bundle).plan.times.reconcile_s:
        return state
    boot_state.update(machine, users_checked_at=machine.now())
    newest = require(bundles.fetch(machine, state).offered)
    apply(machine, replace(state, bundle=newest))
    bundles.prune(machine, (require(state.bundle).digest, newest.digest))
    return replace(state, offered=newest)


def makes_homes(plan: SlurmPlan, role: str) -> bool:
    """Return whether root on this machine can create homes. On an NFS client it cannot: the server maps root to nobody."""
    shared = mounts.shares_homes(plan)
    if shared is None or not isinstance(shared.source, Nfs):
        return True
    return isinstance(shared.source, NfsFromHead) and role == names.ROLE_HEAD


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    number: int


def _lock_removed(machine: Machine, plan: SlurmPlan) -> None:
    """Lock removed users first, so that a fault in a new user's entry does not keep their access open."""
    folder = machine.path(names.KEY_FOLDER)
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not _in(plan, file.name):
            file.unlink()
    for name in sorted(name for name, is_open in _made(machine).items() if is_open and not _in(plan, name)):
        _lock(machine, name)


def _check(machine: Machine, users: tuple[User, ...]) -> None:
    """Check before any account is created that no other account has a name or a uid of the plan."""
    for file, what in ((PASSWD, "user"), (GROUP, "group")):
        rows = _rows(machine, file)
        for user in users:
            for row in rows:
                if (row.name == user.name) != (row.number == user.uid):
                    raise StepError(
                        f"this machine has the {what} {row.name}:{row.number}, but the plan has {user.name}:{user.uid}"
                    )


def _account(machine: Machine, user: User) -> None:
    if all(row.name != user.name for row in _rows(machine, GROUP)):
        machine.run(["groupadd", "--gid", str(user.uid), user.name])
    if all(row.name != user.name for row in _rows(machine, PASSWD)):
        machine.run(
            ["useradd", "--uid", str(user.uid), "--gid", str(user.uid), "--no-create-home", "--home-dir",
             f"/home/{user.name}", "--shell", "/bin/bash", user.name]
        )  # fmt: skip
    made = _made(machine)
    if made.get(user.name) is False:
        machine.run(["usermod", "--expiredate", "", user.name])
    if made.get(user.name) is not True:
        _save_made(machine, {**made, user.name: True})


def _lock(machine: Machine, name: str) -> None:
    machine.run(["usermod", "--lock", "--expiredate", LOCKED, name])
    _save_made(machine, {**_made(machine), name: False})


def _keys(machine: Machine, plan: SlurmPlan) -> None:
    """Write one file for each user with keys, and remove all other files of the folder."""
    wanted = {user.name: "".join(f"{key}\n" for key in user.keys) for user in plan.users if user.keys}
    for name, text in wanted.items():
        machine.write(f"{names.KEY_FOLDER}/{name}", text)
    folder = machine.path(names.KEY_FOLDER)
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if file.name not in wanted:
            file.unlink()


def _homes(machine: Machine, users: tuple[User, ...]) -> None:
    """Create missing homes from /etc/skel. A separate `ls` looks first: if the file server hangs, only `ls` times out."""
    found = (
        machine.run(["ls", "-1A", HOMES], timeout_s=CHECK_S, check=False).stdout.splitlines() if users else ()
    )
    for user in users:
        if user.name not in found:
            machine.run(["mkhomedir_helper", user.name, "0077"])


def _in(plan: SlurmPlan, name: str) -> bool:
    return any(user.name == name for user in plan.users)


def _rows(machine: Machine, file: str) -> tuple[_Row, ...]:
    fields = (line.split(":") for line in machine.read(file).splitlines())
    return tuple(_Row(f[0], int(f[2])) for f in fields if len(f) > 2 and f[2].isdecimal())


def _made(machine: Machine) -> dict[str, bool]:
    try:
        found: Any = parse_json(machine.read(MADE) or "{}")
        return {str(name): value is True for name, value in found.items()}
    except (ValueError, AttributeError):
        return {}  # not readable: the next write replaces the file


def _save_made(machine: Machine, made: Mapping[str, bool]) -> None:
    machine.write(MADE, json.dumps(made, sort_keys=True) + "\n")
