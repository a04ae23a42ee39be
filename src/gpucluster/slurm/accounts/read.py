"""Answers of `sacctmgr --json` to records. Pure. Names and texts in them are those of other people: nothing is assumed of them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from gpucluster.errors import GpuclusterError
from gpucluster.slurm.accounts.records import CPU, GPU, NO_DECAY, AccountRecord, Member, QosRecord, Records

_TRES = {("cpu", ""): CPU, ("gres", "gpu"): GPU}


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
    places = [one for one in _items(answers["associations"], "associations") if _plain(one, cluster)]
    accounts = [_account(one, organizations) for one in places if not one.get("user")]
    members = [_member(one) for one in places if one.get("user")]
    qos = [_qos(one) for one in _items(answers["qos"], "qos")]
    defaults = (
        (_text(one, "name"), _text(one, "default", "account")) for one in _items(answers["users"], "users")
    )
    return Records(
        qos={one.name: one for one in qos},
        accounts={one.name: one for one in accounts},
        members={one.key: one for one in members},
        default_accounts={user: account for user, account in defaults if account},
    )


def qos_names(answer: str) -> frozenset[str]:
    """Return the names of an answer about QOS."""
    return frozenset(_text(one, "name") for one in _items(answer, "qos"))


def _plain(one: Mapping[str, Any], cluster: str) -> bool:
    """Whether it is a place in the tree of this cluster. A place for one partition is another person's: we make none."""
    return one.get("cluster") == cluster and not one.get("partition")


def _account(one: Mapping[str, Any], organizations: Mapping[str, str]) -> AccountRecord:
    name = _text(one, "account")
    return AccountRecord(
        name=name,
        parent=_text(one, "parent_account"),
        organization=organizations.get(name, ""),
        share=_number(one.get("shares_raw")) or 0,
        qos=frozenset(_words(one.get("qos"))),
        default_qos=_text(one, "default", "qos"),
        group=_tres(one, "max", "tres", "total"),
        closed=_number(_at(one, "max", "jobs", "per", "submitted")) == 0,
    )


def _member(one: Mapping[str, Any]) -> Member:
    return Member(
        account=_text(one, "account"),
        user=_text(one, "user"),
        comment=_text(one, "comment"),
        group=_tres(one, "max", "tres", "total"),
        closed=_number(_at(one, "max", "jobs", "per", "submitted")) == 0,
    )


def _qos(one: Mapping[str, Any]) -> QosRecord:
    return QosRecord(
        name=_text(one, "name"),
        description=_text(one, "description"),
        priority=_number(one.get("priority")) or 0,
        preempts=frozenset(_words(_at(one, "preempt", "list"))),
        no_decay=NO_DECAY in _words(one.get("flags")),
        group=_tres(one, "limits", "max", "tres", "total"),
        group_minutes=_tres(one, "limits", "max", "tres", "minutes", "total"),
        per_user=_tres(one, "limits", "max", "tres", "per", "user"),
    )


def _items(text: str, key: str) -> Iterator[Mapping[str, Any]]:
    try:
        found: Any = json.loads(text)
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
    listed = _at(one, *keys)
    found = dict[str, int]()
    for item in cast("list[Any]", listed) if isinstance(listed, list) else []:
        if isinstance(item, dict):
            fields = cast("dict[str, Any]", item)
            name = _TRES.get((_text(fields, "type"), _text(fields, "name")))
            count = _number(fields.get("count"))
            if name is not None and count is not None and count >= 0:
                found[name] = count
    return found
