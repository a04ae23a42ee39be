"""Answers of `sacctmgr --json` to records. Pure. Names and texts in them are those of other people: nothing is assumed of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from gpucluster.errors import GpuclusterError
from gpucluster.json_text import parse_json
from gpucluster.plan.model.values import ROOT_ACCOUNT
from gpucluster.slurm.accounts import by_hand
from gpucluster.slurm.accounts.json_values import at, number, objects, shown, text, tres, words
from gpucluster.slurm.accounts.records import (
    CPU,
    GPU,
    NO_DECAY,
    AccountRecord,
    Member,
    OtherLimit,
    QosRecord,
    Records,
    Tres,
)

_TRES = (CPU, GPU)  # what gpucluster limits
_LIMITS_OF_QOS = {
    "GrpTRES": ("limits", "max", "tres", "total"),
    "GrpTRESMins": ("limits", "max", "tres", "minutes", "total"),
    "MaxTRESPerUser": ("limits", "max", "tres", "per", "user"),
}
_LEVELS = ("Operator", "Administrator")


class AccountsAnswerError(GpuclusterError):
    """An answer of sacctmgr that cannot be read. Nothing may be concluded from it."""


def commands(cluster: str) -> Mapping[str, tuple[str, ...]]:
    """The commands whose answers `records` reads, by name."""
    return {
        "qos": ("sacctmgr", "--json", "show", "qos"),
        "accounts": ("sacctmgr", "--json", "show", "account", "withcoordinators"),
        "associations": ("sacctmgr", "--json", "show", "assoc", f"cluster={cluster}"),
        "users": ("sacctmgr", "--json", "show", "user"),
    }


def records(answers: Mapping[str, str], cluster: str) -> Records:
    """Return the records of `cluster`; AccountsAnswerError for an answer that is not sacctmgr's."""
    named = tuple(_items(answers["accounts"], "accounts"))
    organizations = {text(one, "name"): text(one, "organization") for one in named}
    every = [one for one in _items(answers["associations"], "associations") if one.get("cluster") == cluster]
    places = [one for one in every if not one.get("partition")]
    accounts = [_account(one, organizations) for one in places if not one.get("user")]
    members = [_member(one) for one in places if one.get("user")]
    items = tuple(_items(answers["qos"], "qos"))
    qos = [_qos(one) for one in items]
    users = tuple(_items(answers["users"], "users"))
    defaults = ((text(one, "name"), text(one, "default", "account")) for one in users)
    levels = ((text(one, "name"), _level(one)) for one in users)
    return Records(
        qos={one.name: one for one in qos},
        accounts={one.name: one for one in accounts},
        members={one.key: one for one in members},
        default_accounts={user: account for user, account in defaults if account},
        in_partitions=tuple(_member(one) for one in every if one.get("partition")),
        admins={user: level for user, level in levels if level},
        coordinators=tuple(_coordinators(named)),
        other_limits=(*_others_of_places(every), *_others_of_qos(items)),
    )


def qos_names(answer: str) -> frozenset[str]:
    """Return the names of an answer about QOS."""
    return frozenset(text(one, "name") for one in _items(answer, "qos"))


def _account(one: Mapping[str, Any], organizations: Mapping[str, str]) -> AccountRecord:
    name = text(one, "account")
    return AccountRecord(
        name=name,
        parent=text(one, "parent_account"),
        organization=organizations.get(name, ""),
        share=number(one.get("shares_raw")) or 0,
        qos=frozenset(words(one.get("qos"))),
        default_qos=text(one, "default", "qos"),
        group=_ours(tres(one, "max", "tres", "total")),
        closed=_closed(one),
    )


def _member(one: Mapping[str, Any]) -> Member:
    return Member(
        account=text(one, "account"),
        user=text(one, "user"),
        partition=text(one, "partition"),
        comment=text(one, "comment"),
        share=number(one.get("shares_raw")) or 0,
        qos=frozenset(words(one.get("qos"))),
        default_qos=text(one, "default", "qos"),
        group=_ours(tres(one, "max", "tres", "total")),
        closed=_closed(one),
    )


def _qos(one: Mapping[str, Any]) -> QosRecord:
    return QosRecord(
        name=text(one, "name"),
        description=text(one, "description"),
        priority=number(one.get("priority")) or 0,
        preempts=frozenset(words(at(one, "preempt", "list"))),
        no_decay=NO_DECAY in words(one.get("flags")),
        group=_ours(tres(one, *_LIMITS_OF_QOS["GrpTRES"])),
        group_minutes=_ours(tres(one, *_LIMITS_OF_QOS["GrpTRESMins"])),
        per_user=_ours(tres(one, *_LIMITS_OF_QOS["MaxTRESPerUser"])),
    )


def _level(one: Mapping[str, Any]) -> str:
    """The administrator level of a user; empty for none."""
    return next((word for word in words(one.get("administrator_level")) if word in _LEVELS), "")


def _others_of_places(places: Sequence[Mapping[str, Any]]) -> Iterator[OtherLimit]:
    for one in places:
        parts = [text(one, key) for key in ("account", "user", "partition")]
        name, kind = "/".join(part for part in parts if part), "user" if parts[1] else "account"
        none_ours = bool(parts[2]) or name == ROOT_ACCOUNT
        limits = tres(one, "max", "tres", "total")
        if found := shown(limits if none_ours else _foreign(limits)):
            yield OtherLimit(kind=kind, name=name, limit="GrpTRES", value=found)
        yield from by_hand.of_place(one, kind, name, closed=_closed(one) and name != ROOT_ACCOUNT)


def _others_of_qos(items: Sequence[Mapping[str, Any]]) -> Iterator[OtherLimit]:
    for one in items:
        for limit, keys in _LIMITS_OF_QOS.items():
            if found := shown(_foreign(tres(one, *keys))):
                yield OtherLimit(kind="qos", name=text(one, "name"), limit=limit, value=found)
        yield from by_hand.of_qos(one, text(one, "name"))


def _coordinators(accounts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Those of an account itself: Slurm lists them for its children, too."""
    for one in accounts:
        for person in objects(one.get("coordinators")):
            if person.get("direct") is True:
                yield text(one, "name"), text(person, "name")


def _closed(one: Mapping[str, Any]) -> bool:
    return number(at(one, "max", "jobs", "per", "submitted")) == 0


def _ours(limits: Tres) -> dict[str, int]:
    return {name: count for name, count in limits.items() if name in _TRES}


def _foreign(limits: Tres) -> dict[str, int]:
    return {name: count for name, count in limits.items() if name not in _TRES}


def _items(text: str, key: str) -> Iterator[Mapping[str, Any]]:
    try:
        found: Any = parse_json(text)
    except ValueError as error:
        raise AccountsAnswerError(f"sacctmgr's answer about {key} is not JSON: {error}") from error
    listed = at(found, key)
    if not isinstance(listed, list):
        raise AccountsAnswerError(f"sacctmgr's answer has no list `{key}`")
    yield from objects(cast("object", listed))
