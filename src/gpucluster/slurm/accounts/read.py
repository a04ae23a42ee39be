"""Answers of `sacctmgr --json` to records. Pure. Names and texts in them are those of other people: nothing is assumed of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from gpucluster.errors import GpuclusterError
from gpucluster.json_text import parse_json
from gpucluster.plan.model.values import ROOT_ACCOUNT
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
        "accounts": ("sacctmgr", "--json", "show", "account"),
        "associations": ("sacctmgr", "--json", "show", "assoc", f"cluster={cluster}"),
        "users": ("sacctmgr", "--json", "show", "user"),
    }


def records(answers: Mapping[str, str], cluster: str) -> Records:
    """Return the records of `cluster`; AccountsAnswerError for an answer that is not sacctmgr's."""
    organizations = {
        _text(one, "name"): _text(one, "organization") for one in _items(answers["accounts"], "accounts")
    }
    every = [one for one in _items(answers["associations"], "associations") if one.get("cluster") == cluster]
    places = [one for one in every if not one.get("partition")]
    accounts = [_account(one, organizations) for one in places if not one.get("user")]
    members = [_member(one) for one in places if one.get("user")]
    items = tuple(_items(answers["qos"], "qos"))
    qos = [_qos(one) for one in items]
    users = tuple(_items(answers["users"], "users"))
    defaults = ((_text(one, "name"), _text(one, "default", "account")) for one in users)
    levels = ((_text(one, "name"), _level(one)) for one in users)
    return Records(
        qos={one.name: one for one in qos},
        accounts={one.name: one for one in accounts},
        members={one.key: one for one in members},
        default_accounts={user: account for user, account in defaults if account},
        in_partitions=tuple(_member(one) for one in every if one.get("partition")),
        admins={user: level for user, level in levels if level},
        other_limits=(*_others_of_places(every), *_others_of_qos(items)),
    )


def qos_names(answer: str) -> frozenset[str]:
    """Return the names of an answer about QOS."""
    return frozenset(_text(one, "name") for one in _items(answer, "qos"))


def _account(one: Mapping[str, Any], organizations: Mapping[str, str]) -> AccountRecord:
    name = _text(one, "account")
    return AccountRecord(
        name=name,
        parent=_text(one, "parent_account"),
        organization=organizations.get(name, ""),
        share=_number(one.get("shares_raw")) or 0,
        qos=frozenset(_words(one.get("qos"))),
        default_qos=_text(one, "default", "qos"),
        group=_ours(_tres(one, "max", "tres", "total")),
        closed=_closed(one),
    )


def _member(one: Mapping[str, Any]) -> Member:
    return Member(
        account=_text(one, "account"),
        user=_text(one, "user"),
        partition=_text(one, "partition"),
        comment=_text(one, "comment"),
        share=_number(one.get("shares_raw")) or 0,
        qos=frozenset(_words(one.get("qos"))),
        default_qos=_text(one, "default", "qos"),
        group=_ours(_tres(one, "max", "tres", "total")),
        closed=_closed(one),
    )


def _qos(one: Mapping[str, Any]) -> QosRecord:
    return QosRecord(
        name=_text(one, "name"),
        description=_text(one, "description"),
        priority=_number(one.get("priority")) or 0,
        preempts=frozenset(_words(_at(one, "preempt", "list"))),
        no_decay=NO_DECAY in _words(one.get("flags")),
        group=_ours(_tres(one, *_LIMITS_OF_QOS["GrpTRES"])),
        group_minutes=_ours(_tres(one, *_LIMITS_OF_QOS["GrpTRESMins"])),
        per_user=_ours(_tres(one, *_LIMITS_OF_QOS["MaxTRESPerUser"])),
    )


def _level(one: Mapping[str, Any]) -> str:
    """The administrator level of a user; empty for none."""
    return next((word for word in _words(one.get("administrator_level")) if word in _LEVELS), "")


def _others_of_places(places: Sequence[Mapping[str, Any]]) -> Iterator[OtherLimit]:
    for one in places:
        parts = [_text(one, key) for key in ("account", "user", "partition")]
        name, kind = "/".join(part for part in parts if part), "user" if parts[1] else "account"
        none_ours = bool(parts[2]) or name == ROOT_ACCOUNT
        limits = _tres(one, "max", "tres", "total")
        if words := _shown(limits if none_ours else _foreign(limits)):
            yield OtherLimit(kind=kind, name=name, limit="GrpTRES", value=words)
        if name == ROOT_ACCOUNT and _closed(one):
            yield OtherLimit(kind=kind, name=name, limit="GrpSubmitJobs", value="0")


def _others_of_qos(items: Sequence[Mapping[str, Any]]) -> Iterator[OtherLimit]:
    for one in items:
        for limit, keys in _LIMITS_OF_QOS.items():
            if words := _shown(_foreign(_tres(one, *keys))):
                yield OtherLimit(kind="qos", name=_text(one, "name"), limit=limit, value=words)


def _closed(one: Mapping[str, Any]) -> bool:
    return _number(_at(one, "max", "jobs", "per", "submitted")) == 0


def _ours(limits: Tres) -> dict[str, int]:
    return {name: count for name, count in limits.items() if name in _TRES}


def _foreign(limits: Tres) -> dict[str, int]:
    return {name: count for name, count in limits.items() if name not in _TRES}


def _shown(limits: Tres) -> str:
    return ",".join(f"{name}={count}" for name, count in limits.items())


def _items(text: str, key: str) -> Iterator[Mapping[str, Any]]:
    try:
        found: Any = parse_json(text)
    except ValueError as error:
        raise AccountsAnswerError(f"sacctmgr's answer about {key} is not JSON: {error}") from error
    listed = cast("dict[str, Any]", found).get(key) if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise AccountsAnswerError(f"sacctmgr's answer has no list `{key}`")
    for one in cast("list[Any]", listed):
        if isinstance(one, dict):
            yield cast("dict[str, Any]", one)


def _at(one: Mapping[str, Any], *keys: str) -> Any:
    found: Any = one
    for key in keys:
        found = cast("dict[str, Any]", found).get(key) if isinstance(found, dict) else None
    return found


def _text(one: Mapping[str, Any], *keys: str) -> str:
    found = _at(one, *keys)
    return found if isinstance(found, str) else ""


def _words(value: Any) -> Sequence[str]:
    return (
        [word for word in cast("list[Any]", value) if isinstance(word, str)]
        if isinstance(value, list)
        else []
    )


def _number(value: Any) -> int | None:
    """A number, or Slurm's `{"set": true, "number": 3}`; None if it is not set."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        value = fields.get("number") if fields.get("set") and not fields.get("infinite") else None
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _tres(one: Mapping[str, Any], *keys: str) -> dict[str, int]:
    """The limits on TRES, by sacctmgr's names: `gres/gpu`."""
    listed = _at(one, *keys)
    found = dict[str, int]()
    for item in cast("list[Any]", listed) if isinstance(listed, list) else []:
        if isinstance(item, dict):
            fields = cast("dict[str, Any]", item)
            name = "/".join(part for part in (_text(fields, "type"), _text(fields, "name")) if part)
            count = _number(fields.get("count"))
            if name and count is not None and count >= 0:
                found[name] = count
    return found
