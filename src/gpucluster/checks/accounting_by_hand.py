"""What people change in slurmdbd beside the records of gpucluster, and the commands of sacctmgr that undo it.

`gpucluster accounts apply` touches none of it.
"""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gpucluster.plan.model.values import ROOT_ACCOUNT
from gpucluster.slurm.accounts.diff import difference
from gpucluster.slurm.accounts.records import Member, OtherLimit, Records, is_ours, other_cluster
from gpucluster.text import Form, short

_SAFE = Form(r"[a-z0-9_.-]{1,100}")  # names from slurmdbd go into commands only in this form
_KEYS = {"qos": ("name",), "account": ("name",), "user": ("account", "name", "partition")}
_CLOSED = "GrpSubmitJobs=0"  # no new jobs; a deleted place forgets its use


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """A change in words, and the command that undoes it."""

    words: str
    command: str


def limit(cluster: str) -> Callable[[OtherLimit], ByHand]:
    """Return the function that words a limit, and clears it."""

    def worded(row: OtherLimit) -> ByHand:
        names = [f"{word.partition('=')[0]}=-1" for word in row.value.split(",") if "=" in word]
        value = row.undo or f"{row.limit}={','.join(names) or '-1'}"
        words = f"{row.kind} {short(row.name, 60)} has {row.limit} {short(row.value, 40)}, which no plan sets"
        return ByHand(words=words, command=_modify(row.kind, row.name.split("/"), cluster, value))

    return worded


def other_marks(wished: Records, found: Records, cluster: str) -> Iterator[ByHand]:
    """QOS of the plan with other values and the mark of another cluster. They are taken back if slurmdbd has no such cluster."""
    for words in difference(wished, found, cluster).conflicts:
        name = next(name for name in wished.qos if words.startswith(f"the QOS {name} belongs"))
        old = found.qos[name]
        alone = replace(found, qos={**found.qos, name: replace(old, description="")})
        ours = [
            shlex.join(command)
            for change in difference(wished, alone, cluster).changes
            if change.subject == f"QOS {name}"
            for command in change.commands
        ]
        yield ByHand(words=words, command=_unless(other_cluster(old.description, cluster), ours))


def _unless(other: str, commands: list[str]) -> str:
    """The commands, which run only if slurmdbd does not know the other cluster."""
    if not _SAFE.fullmatch(other):
        return "sacctmgr show qos format=name,description"
    known = f"sacctmgr --noheader show cluster name={other} format=cluster"
    return f"{known} | grep -q . || {{ {'; '.join(commands)}; }}"


def privileges(wished: Records, found: Records, cluster: str) -> Iterator[ByHand]:
    """What users have more than the plan gives them. A coordinator admits users to the account and sets their limits."""
    for account, user in found.coordinators:
        if account in wished.accounts:
            words = f"user {short(user, 40)} is a coordinator of account {account}, which no plan sets"
            yield ByHand(words=words, command=_without_coordinator(account, user))
    for key, one in found.members.items():
        account = found.accounts.get(one.account)
        if key not in wished.members or account is None:
            continue
        rows = (
            ("qos", ",".join(sorted(one.qos)), ",".join(sorted(account.qos)), "qos="),
            ("defaultqos", one.default_qos, account.default_qos, "defaultqos=-1"),
            ("fairshare", str(one.share), "1", "fairshare=1"),
        )
        for field, has, should, value in rows:
            if has != should:
                words = f"user {_name(one)}: {field} is {short(has, 40) or 'unset'}, not {short(should, 40) or 'unset'}"
                yield ByHand(words=words, command=_modify("user", list(key), cluster, value))
    for user in sorted({user for _, user in wished.members} & found.admins.keys()):
        words = f"user {short(user, 40)} has AdminLevel {found.admins[user]}, which no plan sets"
        yield ByHand(words=words, command=_without_level(user))


def made_by_hand(wished: Records, found: Records, cluster: str) -> Iterator[ByHand]:
    """Accounts, users and administrators that are not in the plan. Closed ones take no job."""
    for name, account in found.accounts.items():
        if name not in wished.accounts and name != ROOT_ACCOUNT and not account.closed:
            yield ByHand(
                words=f"account {short(name, 60)}", command=_modify("account", [name], cluster, _CLOSED)
            )
    for key, one in found.members.items():
        known = one.account not in wished.accounts or key in wished.members or is_ours(one.comment, cluster)
        if not known and not one.closed:
            yield _place(one, cluster)
    for one in found.in_partitions:
        if one.account in wished.accounts and not one.closed:
            yield _place(one, cluster)
    for user in sorted(found.admins.keys() - {ROOT_ACCOUNT} - {user for _, user in wished.members}):
        words = f"AdminLevel {found.admins[user]} of user {short(user, 40)}"
        yield ByHand(words=words, command=_without_level(user))


def _place(one: Member, cluster: str) -> ByHand:
    where = f" in partition {short(one.partition, 40)}" if one.partition else ""
    parts = [part for part in (one.account, one.user, one.partition) if part]
    return ByHand(
        words=f"user {short(one.user, 40)} of account {short(one.account, 40)}{where}",
        command=_modify("user", parts, cluster, _CLOSED),
    )


def _name(one: Member) -> str:
    return f"{short(one.user, 40)} of account {short(one.account, 40)}"


def _without_level(user: str) -> str:
    if not _SAFE.fullmatch(user):
        return "sacctmgr show user format=user,adminlevel"
    return shlex.join(
        ("sacctmgr", "--immediate", "modify", "user", "where", f"name={user}", "set", "adminlevel=None")
    )


def _without_coordinator(account: str, user: str) -> str:
    if not _SAFE.fullmatch(user):
        return "sacctmgr show account withcoordinators format=account,coordinators"
    return shlex.join(
        ("sacctmgr", "--immediate", "delete", "coordinator", f"account={account}", f"names={user}")
    )


def _modify(kind: str, parts: list[str], cluster: str, value: str) -> str:
    """The command that sets `value`. A name that cannot be typed safely is shown instead."""
    if not all(_SAFE.fullmatch(part) for part in parts):
        return f"sacctmgr show {'qos' if kind == 'qos' else f'assoc cluster={cluster} tree'}"
    where = [f"{key}={part}" for key, part in zip(_KEYS[kind], parts, strict=False)]
    if kind != "qos":
        where.append(f"cluster={cluster}")
    return shlex.join(("sacctmgr", "--immediate", "modify", kind, "where", *where, "set", value))
