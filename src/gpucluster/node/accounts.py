"""People on a cloud machine: accounts with the plan's uids, and their keys in a folder that only root writes.

Nobody is removed: whoever leaves the plan is locked, for files of his may be anywhere. Who we made stands in `MADE`;
an account of the same name that we did not make, or a uid that is another's, is left alone and told.
On hosts that exist the playbook does the same.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpucluster.node import bundles, state
from gpucluster.node.known import Known, of
from gpucluster.node.machine import Machine, StepError
from gpucluster.plan import mounting, names
from gpucluster.plan.model import ClusterPlan, User

PASSWD, GROUP = "/etc/passwd", "/etc/group"
MADE = f"{names.STATE_DIR}/accounts.json"  # name -> whether the account is open
HOMES, LOOK_S = "/home", 10.0
LOCKED = "1"  # expired in 1970: no key opens it, and no password


def settled(machine: Machine, known: Known) -> Known:
    """The plan's people are on this machine, those who left are locked."""
    plan = of(known.bundle).plan
    _shut_out(machine, plan)
    _check(machine, plan.users)
    for user in plan.users:
        _account(machine, user)
    _keys(machine, plan)
    if makes_homes(plan, of(known.identity).role):
        _homes(machine, plan.users)
    return known


def followed(machine: Machine, known: Known) -> Known:
    """A living node's: the people of the bucket's bundle; all else of it is for machines that boot after it."""
    kept = state.load(machine)
    if machine.now() - kept.looked_at < of(known.bundle).plan.times.reconcile_s:
        return known
    state.change(machine, looked_at=machine.now())
    fresh = bundles.fetch(machine, known)
    newest = of(fresh.offered)
    settled(machine, replace(known, bundle=newest))
    bundles.prune(machine, (of(known.bundle).digest, newest.digest))
    return replace(known, offered=newest)


def makes_homes(plan: ClusterPlan, role: str) -> bool:
    """Whether a machine of this role may write where the homes stand: an NFS server takes its root for nobody."""
    shared = mounting.shares_homes(plan)
    if shared is None or shared.nfs is None:
        return True
    return shared.nfs.from_head and role == names.ROLE_HEAD


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    number: int


def _shut_out(machine: Machine, plan: ClusterPlan) -> None:
    """First of all: what is wrong with those who come keeps no door open to those who left."""
    folder = machine.place(names.KEY_FOLDER)
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not _in(plan, file.name):
            file.unlink()
    for name in sorted(name for name, is_open in _made(machine).items() if is_open and not _in(plan, name)):
        _lock(machine, name)


def _check(machine: Machine, users: tuple[User, ...]) -> None:
    """Before anybody is made: nobody else has a name or a number of ours."""
    for file, what in ((PASSWD, "user"), (GROUP, "group")):
        rows = _rows(machine, file)
        for user in users:
            for row in rows:
                if (row.name == user.name) != (row.number == user.uid):
                    raise StepError(
                        f"this image has the {what} {row.name}:{row.number}, and the plan says {user.name}:{user.uid}"
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
        _keep(machine, {**made, user.name: True})


def _lock(machine: Machine, name: str) -> None:
    machine.run(["usermod", "--lock", "--expiredate", LOCKED, name])
    _keep(machine, {**_made(machine), name: False})


def _keys(machine: Machine, plan: ClusterPlan) -> None:
    """A file for each who has keys; every other of the folder goes."""
    wanted = {user.name: "".join(f"{key}\n" for key in user.keys) for user in plan.users if user.keys}
    for name, text in wanted.items():
        machine.write(f"{names.KEY_FOLDER}/{name}", text)
    folder = machine.place(names.KEY_FOLDER)
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if file.name not in wanted:
            file.unlink()


def _homes(machine: Machine, users: tuple[User, ...]) -> None:
    """From /etc/skel, where there is none. A program of its own looks: a file server that hangs ends it, not us."""
    found = (
        machine.run(["ls", "-1A", HOMES], timeout_s=LOOK_S, check=False).stdout.splitlines() if users else ()
    )
    for user in users:
        if user.name not in found:
            machine.run(["mkhomedir_helper", user.name, "0077"])


def _in(plan: ClusterPlan, name: str) -> bool:
    return any(user.name == name for user in plan.users)


def _rows(machine: Machine, file: str) -> tuple[_Row, ...]:
    fields = (line.split(":") for line in machine.read(file).splitlines())
    return tuple(_Row(f[0], int(f[2])) for f in fields if len(f) > 2 and f[2].isdecimal())


def _made(machine: Machine) -> dict[str, bool]:
    try:
        found: Any = json.loads(machine.read(MADE) or "{}")
        return {str(name): value is True for name, value in found.items()}
    except (ValueError, AttributeError):
        return {}  # our own file, half written by nobody: one rename makes it


def _keep(machine: Machine, made: Mapping[str, bool]) -> None:
    machine.write(MADE, json.dumps(made, sort_keys=True) + "\n")
