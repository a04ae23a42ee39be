"""What each machine must have of the plan's users: accounts, keys, homes, and sshd. Pure.

The agent makes them on cloud machines, the playbook on existing hosts.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpucluster.checks.sshd import Admission, SshdWant
from gpucluster.checks.user_files import HomesWant, KeysWant
from gpucluster.checks.users import Account, AccountsWant
from gpucluster.plan import mounts, names, node_ssh
from gpucluster.plan.model import Nfs, NfsFromHead, Pool, SlurmPlan

KEYS_OF_USERS = f"{names.KEY_FOLDER}/%u"
_LISTS = (
    "allowusers",
    "denyusers",
    "allowgroups",
    "denygroups",
)  # `sshd -T` prints them only if they are set


def of_machine(
    plan: SlurmPlan, *, on_head: bool = False, pool: Pool | None = None
) -> Iterator[tuple[str, Any]]:
    """The checks with their values; those of sshd for the head and nodes. `pool`: of a node. A script at boot may give a user another group."""
    on_aws = plan.aws is not None
    users = tuple(_account(user.name, user.uid, on_aws=on_aws) for user in plan.users)
    if users:
        scripts = pool is not None and bool(pool.on_boot)
        own = on_aws and plan.directory is None and not scripts
        yield "users.acct", AccountsWant(users=users, only_own_group=own, ages=on_aws)
    if on_aws or users:
        keys = {user.name: user.keys for user in plan.users if user.keys}
        yield "users.keys", KeysWant(folder=names.KEY_FOLDER, keys=keys)
    if users and (on_head or mounts.shares_homes(plan) is None):
        homes = tuple(Account(name=u.name, uid=u.uid, home=f"/home/{u.name}") for u in plan.users)
        yield "users.home", HomesWant(users=homes, makes=on_aws and makes_homes(plan))
    own_sshd = _sshd(plan, on_node=pool is not None) if on_head or pool is not None else None
    if own_sshd is not None:
        yield "sshd.conf", own_sshd


def makes_homes(plan: SlurmPlan) -> bool:
    """Whether a machine of the cluster makes the homes: on an NFS client root cannot."""
    shared = mounts.shares_homes(plan)
    return shared is None or not isinstance(shared.source, Nfs) or isinstance(shared.source, NfsFromHead)


def of_login(plan: SlurmPlan) -> SshdWant:
    """sshd of a login machine: the settings of the agent."""
    ldap = plan.directory is not None
    values = {
        "permitrootlogin": "no",
        "passwordauthentication": "no",
        "kbdinteractiveauthentication": "no",
        "authenticationmethods": "publickey",
        "usepam": "yes",
        "authorizedkeysfile": KEYS_OF_USERS,
        "authorizedkeyscommand": "/usr/bin/sss_ssh_authorizedkeys" if ldap else "none",
        "trustedusercakeys": "none",
        "pubkeyauthentication": "yes",
        "forcecommand": "none",
        "chrootdirectory": "none",
    }
    return SshdWant(values=values, among={}, users=_asked(plan), methods=("publickey",), unset=_LISTS)


def _sshd(plan: SlurmPlan, *, on_node: bool) -> SshdWant | None:
    """sshd of the head or of a node; None where the plan says nothing about it. An existing host has the site's settings."""
    access = plan.slurm.node_ssh if on_node else None
    admission = None if access is None else Admission(operators=node_ssh.operators(access))
    if plan.aws is not None:
        return None if admission is None else replace(of_login(plan), admission=admission)
    usepam = {} if admission is None else {"usepam": "yes"}
    among = _folder(plan)
    if not usepam and not among:
        return None
    return SshdWant(values=usepam, among=among, users=_asked(plan), admission=admission)


def _folder(plan: SlurmPlan) -> dict[str, str]:
    return {"authorizedkeysfile": KEYS_OF_USERS} if any(user.keys for user in plan.users) else {}


def _asked(plan: SlurmPlan) -> tuple[str, ...]:
    return ("root", *(user.name for user in plan.users))


def _account(name: str, uid: int, *, on_aws: bool) -> Account:
    """An existing host may have had the user before, with another home."""
    return Account(name=name, uid=uid, home=f"/home/{name}" if on_aws else "")
