"""The difference between wanted records and those of slurmdbd, as changes with their sacctmgr commands. Pure.

Nothing is deleted: slurmdbd forgets the use of a deleted account. What leaves the spec is closed, and opens again if the
spec names it again. Records without our mark that the spec does not name are not touched.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpucluster.slurm.accounts.records import (
    AccountRecord,
    Member,
    QosRecord,
    Records,
    Tres,
    is_ours,
    mark,
    other_cluster,
)
from gpucluster.text import Form

Command = tuple[str, ...]
USERS_PER_CALL = 100
_SAFE = Form(r"[a-z0-9_.-]{1,100}")  # names from slurmdbd go into commands only in this form
_SACCTMGR = ("sacctmgr", "--immediate")


class Kind(StrEnum):
    """What a change does."""

    ADD = "add"
    CHANGE = "change"
    CLOSE = "close"  # no new jobs; nothing is deleted
    RESET = "reset"  # the count of a monthly limit starts at zero


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """A field of a record that changes, in sacctmgr's words."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change, and the commands that make it, in their order."""

    kind: Kind
    subject: str  # `account research`
    details: tuple[Detail, ...] = ()
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The changes in the order in which they are made, and why some records cannot be changed."""

    changes: tuple[Change, ...] = ()
    conflicts: tuple[str, ...] = ()


def difference(wanted: Records, found: Records, cluster: str) -> Difference:
    """Return what to change so that `found` has everything of `wanted`."""
    conflicts = tuple(_conflicts(wanted, found, cluster))
    return Difference(
        changes=(
            *_new_qos(wanted, found),
            *_changed_qos(wanted, found, cluster),
            *_accounts(wanted, found, cluster),
            *_new_members(wanted, found, cluster),
            *_changed_members(wanted, found, cluster),
            *_defaults(wanted, found, cluster),
            *_closed(wanted, found, cluster),
        ),
        conflicts=conflicts,
    )


def new_qos(names: Sequence[str], cluster: str) -> tuple[Change, ...]:
    """Return the changes that add QOS with our mark, and nothing else."""
    word = f"description={mark(cluster)}"
    return tuple(
        Change(kind=Kind.ADD, subject=f"QOS {name}", commands=((*_SACCTMGR, "add", "qos", name, word),))
        for name in names
    )


# --- QOS ----------------------------------------------------------------------------------------------
def _new_qos(wanted: Records, found: Records) -> Iterator[Change]:
    """New QOS without what they preempt: a QOS can preempt only one that exists."""
    for name, one in wanted.qos.items():
        if name not in found.qos:
            words = _qos_words(QosRecord(name=name), one, preempts=False)
            command = (*_SACCTMGR, "add", "qos", name, *words)
            yield Change(kind=Kind.ADD, subject=f"QOS {name}", details=_details(words), commands=(command,))


def _changed_qos(wanted: Records, found: Records, cluster: str) -> Iterator[Change]:
    for name, one in wanted.qos.items():
        old = found.qos.get(name)
        if old is not None and other_cluster(old.description, cluster):
            continue
        before = old or QosRecord(name=name)
        if old is not None and _month_over(old, one, cluster):
            yield Change(
                kind=Kind.RESET,
                subject=f"QOS {name}",
                commands=(
                    (*_SACCTMGR, "modify", "qos", "where", f"name={name}", "set", "RawUsage=0"),
                    (
                        *_SACCTMGR,
                        "modify",
                        "qos",
                        "where",
                        f"name={name}",
                        "set",
                        f"description={one.description}",
                    ),
                ),
            )
            before = _described(old, one.description)
        words = _preempt_words(before, one) if old is None else _qos_words(before, one, preempts=True)
        if words:
            command = (*_SACCTMGR, "modify", "qos", "where", f"name={name}", "set", *words)
            details = _details(words, _qos_words(one, before, preempts=True))
            yield Change(kind=Kind.CHANGE, subject=f"QOS {name}", details=details, commands=(command,))


def _month_over(old: QosRecord, one: QosRecord, cluster: str) -> bool:
    """Whether the QOS counts another month than the current one, or begins to count months."""
    if not one.group_minutes:
        return False
    return not old.no_decay or (is_ours(old.description, cluster) and old.description != one.description)


def _described(one: QosRecord, description: str) -> QosRecord:
    return QosRecord(
        name=one.name,
        description=description,
        priority=one.priority,
        preempts=one.preempts,
        no_decay=one.no_decay,
        group=one.group,
        group_minutes=one.group_minutes,
        per_user=one.per_user,
    )


def _qos_words(old: QosRecord, new: QosRecord, *, preempts: bool) -> tuple[str, ...]:
    flags = ("Flags+=NoDecay",) if new.no_decay else ("Flags-=NoDecay",)
    return (
        *_word("priority", old.priority, new.priority),
        *_limit("GrpTRES", old.group, new.group),
        *_limit("GrpTRESMins", old.group_minutes, new.group_minutes),
        *_limit("MaxTRESPerUser", old.per_user, new.per_user),
        *(flags if old.no_decay != new.no_decay else ()),
        *(_preempt_words(old, new) if preempts else ()),
        *_word("description", old.description, new.description),
    )


def _preempt_words(old: QosRecord, new: QosRecord) -> tuple[str, ...]:
    return () if old.preempts == new.preempts else (f"preempt={','.join(sorted(new.preempts))}",)


# --- accounts -----------------------------------------------------------------------------------------
def _accounts(wanted: Records, found: Records, cluster: str) -> Iterator[Change]:
    """Parents first: `wanted` has them in that order."""
    for name, one in wanted.accounts.items():
        old = found.accounts.get(name)
        if old is None:
            words = (f"parent={one.parent}", *_account_words(AccountRecord(name=name, parent=""), one))
            command = (*_SACCTMGR, "add", "account", name, f"cluster={cluster}", *words, *_names(one))
            yield Change(
                kind=Kind.ADD, subject=f"account {name}", details=_details(words), commands=(command,)
            )
        else:
            yield from _changed_account(old, one, cluster)


def _changed_account(old: AccountRecord, new: AccountRecord, cluster: str) -> Iterator[Change]:
    where = (*_SACCTMGR, "modify", "account", "where", f"name={new.name}")
    words = (*_word("parent", old.parent, new.parent), *_account_words(old, new))
    taken = old.organization != new.organization and not other_cluster(old.organization, cluster)
    commands: list[Command] = []
    if words:
        commands.append((*where, f"cluster={cluster}", "set", *words))
    if taken:
        commands.append((*where, "set", *_names(new)))
    if commands:
        details = _details(words, (*_word("parent", new.parent, old.parent), *_account_words(new, old)))
        organization = Detail(field="organization", before=old.organization, after=new.organization)
        yield Change(
            kind=Kind.CHANGE,
            subject=f"account {new.name}",
            details=(*details, *((organization,) if taken else ())),
            commands=tuple(commands),
        )


def _names(one: AccountRecord) -> tuple[str, ...]:
    return f"organization={one.organization}", f"description={one.organization}"


def _account_words(old: AccountRecord, new: AccountRecord) -> tuple[str, ...]:
    return (
        *_word("fairshare", old.share, new.share),
        *((f"qos={','.join(sorted(new.qos))}",) if old.qos != new.qos else ()),
        *_word("defaultqos", old.default_qos, new.default_qos),
        *_limit("GrpTRES", old.group, new.group),
        *_closing(old.closed, new.closed),
    )


# --- users in accounts --------------------------------------------------------------------------------
def _new_members(wanted: Records, found: Records, cluster: str) -> Iterator[Change]:
    """Users of one account with equal limits in one command: slurmdbd takes about 50 ms for each command."""
    groups = dict[tuple[str, tuple[str, ...]], list[str]]()
    for key, one in wanted.members.items():
        if key not in found.members:
            words = (*_limit("GrpTRES", {}, one.group), f"comment={one.comment}")
            groups.setdefault((one.account, words), []).append(one.user)
    for (account, words), users in groups.items():
        for at in range(0, len(users), USERS_PER_CALL):
            batch = users[at : at + USERS_PER_CALL]
            yield Change(
                kind=Kind.ADD,
                subject=f"{'user' if len(batch) == 1 else 'users'} {', '.join(batch)} of account {account}",
                details=_details(words[:-1]),
                commands=(
                    (*_SACCTMGR, "add", "user", f"name={','.join(batch)}", f"account={account}", f"cluster={cluster}", *words),
                ),
            )  # fmt: skip


def _changed_members(wanted: Records, found: Records, cluster: str) -> Iterator[Change]:
    for key, one in wanted.members.items():
        old = found.members.get(key)
        if old is None:
            continue
        words = _member_words(old, one)
        if words:
            yield Change(
                kind=Kind.CHANGE,
                subject=f"user {one.user} of account {one.account}",
                details=_details(words, _member_words(one, old)),
                commands=((*_where(one, cluster), "set", *words),),
            )


def _member_words(old: Member, new: Member) -> tuple[str, ...]:
    return (
        *_limit("GrpTRES", old.group, new.group),
        *_closing(old.closed, new.closed),
        *_word("comment", old.comment, new.comment),
    )


def _defaults(wanted: Records, found: Records, cluster: str) -> Iterator[Change]:
    """The default account of each user. sacctmgr sets it itself for a new user, who gets the first account first."""
    for user, account in wanted.default_accounts.items():
        old = found.default_accounts.get(user)
        if old is not None and old != account:
            yield Change(
                kind=Kind.CHANGE,
                subject=f"user {user}",
                details=(Detail(field="defaultaccount", before=old, after=account),),
                commands=(
                    (*_SACCTMGR, "modify", "user", "where", f"name={user}", f"cluster={cluster}", "set", f"defaultaccount={account}"),
                ),
            )  # fmt: skip


# --- what leaves the spec -----------------------------------------------------------------------------
def _closed(wanted: Records, found: Records, cluster: str) -> Iterator[Change]:
    """Close members and accounts of ours that the spec no longer names."""
    shut = ("set", "GrpSubmitJobs=0")
    for key, one in found.members.items():
        ours = is_ours(one.comment, cluster) and key not in wanted.members and not one.closed
        if ours and _SAFE.fullmatch(one.account) and _SAFE.fullmatch(one.user):
            subject = f"user {one.user} of account {one.account}"
            yield Change(kind=Kind.CLOSE, subject=subject, commands=((*_where(one, cluster), *shut),))
    for name, account in found.accounts.items():
        ours = is_ours(account.organization, cluster) and name not in wanted.accounts and not account.closed
        if ours and _SAFE.fullmatch(name):
            command = (*_SACCTMGR, "modify", "account", "where", f"name={name}", f"cluster={cluster}", *shut)
            yield Change(kind=Kind.CLOSE, subject=f"account {name}", commands=(command,))


def _conflicts(wanted: Records, found: Records, cluster: str) -> Iterator[str]:
    """QOS are common to all clusters of a database: two clusters cannot both decide one."""
    for name, one in wanted.qos.items():
        old = found.qos.get(name)
        other = "" if old is None else other_cluster(old.description, cluster)
        if old is not None and other and _qos_words(_described(old, one.description), one, preempts=True):
            yield f"the QOS {name} belongs to the cluster {other} of the same database, and has other values there: take another name"


# --- words of sacctmgr --------------------------------------------------------------------------------
def _where(one: Member, cluster: str) -> Command:
    return (*_SACCTMGR, "modify", "user", "where", f"name={one.user}", f"account={one.account}", f"cluster={cluster}")  # fmt: skip


def _word(key: str, old: object, new: object) -> tuple[str, ...]:
    return () if old == new else (f"{key}={new}",)


def _limit(key: str, old: Tres, new: Tres) -> tuple[str, ...]:
    """`GrpTRES=gres/gpu=24`; -1 clears a limit."""
    changed = {name: new.get(name, -1) for name in sorted({*old, *new}) if old.get(name) != new.get(name)}
    return (f"{key}={','.join(f'{name}={count}' for name, count in changed.items())}",) if changed else ()


def _closing(old: bool, new: bool) -> tuple[str, ...]:
    return () if old == new else (f"GrpSubmitJobs={0 if new else -1}",)


def _details(words: Sequence[str], before: Sequence[str] = ()) -> tuple[Detail, ...]:
    old = _pairs(before)
    return tuple(
        Detail(field=key, before=old.get(key, ""), after=value) for key, value in _pairs(words).items()
    )


def _pairs(words: Iterable[str]) -> Mapping[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in words)}
