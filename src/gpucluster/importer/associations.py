"""The accounts, QOS and users of a site, from the file that `sacctmgr dump CLUSTER file=assoc.dump` writes.

The file has the tree of accounts with shares and limits, and since 26.05 the QOS; before, only their names. It has no uids
of users: `getent passwd > passwd` has them. A line that a spec cannot model is reported. Pure.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pydantic_core import PydanticCustomError

from gpucluster.importer.lines import FileLine
from gpucluster.importer.site import Site
from gpucluster.importer.write_yaml import Value
from gpucluster.plan.model.values import NORMAL_QOS, ROOT_ACCOUNT
from gpucluster.spec.accounting import MOST_GPUS, MOST_PRIORITY, MOST_SHARE, parse_account
from gpucluster.spec.fields import parse_name
from gpucluster.spec.host_fields import LAST_UID, parse_uid, parse_user_name

FIRST_MADE_UP = 100_001  # a uid for a user without one in `passwd`
_VALUE = r"(?:[0-9]+-)?[0-9]+(?::[0-9]{2}){1,2}|[^:']*"  # a time, or a word
_LINE = re.compile(rf"(Cluster|QOS|Parent|Account|User) - '([^']*)'((?::\w+=(?:'[^']*'|{_VALUE}))*)")
_OPTION = re.compile(rf":(\w+)=(?:'([^']*)'|({_VALUE}))")
_GPUS = re.compile(r"gres/gpu=([0-9]{1,9})")
_SILENT = frozenset(
    {"description", "organization", "defaultaccount", "adminlevel", "defaultqos", "qos", "fairshare"}
)
_LIMITS_OF_QOS = {"grptres": "gpus", "maxtresperuser": "gpus_per_user", "maxtrespu": "gpus_per_user"}
_EXEMPTIONS = ("preemptmode", "preemptexempttime", "gracetime")
_SHARE = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class _Account:
    name: str
    parent: str
    place: FileLine
    share: int = 1
    qos: tuple[str, ...] = ()
    gpus: int | None = None
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Qos:
    priority: int = 0
    preempts: tuple[str, ...] = ()
    limits: Mapping[str, Value] = field(default_factory=dict[str, Value])


@dataclass(slots=True)
class Associations:
    """Accounts by name, parents first, and the users with their default accounts, in the order of the file."""

    accounts: dict[str, _Account] = field(default_factory=dict[str, _Account])
    users: dict[str, str] = field(default_factory=dict[str, str])
    qos: tuple[str, ...] = ()  # of the cluster: accounts without QOS have them
    defined: dict[str, _Qos] = field(default_factory=dict[str, _Qos])
    exemptions: tuple[str, ...] = ()  # keys of QOS that keep jobs from being preempted; a spec has none of them


def read_associations(site: Site, file: str, text: str) -> Associations:
    """Return what a spec can have of the file."""
    found, parent = Associations(), ROOT_ACCOUNT
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        place, match = FileLine(file, number), _LINE.fullmatch(line.strip())
        if match is None:
            site.complain(place, "the line is none of `sacctmgr dump`")
            if line.startswith("QOS"):  # it may have kept jobs from being preempted
                found.exemptions = (*found.exemptions, "a QOS")
            continue
        kind, name = match[1], match[2]
        options = {key.lower(): quoted or plain for key, quoted, plain in _OPTION.findall(match[3])}
        if kind == "Cluster":
            found.qos = _qos(options)
        elif kind == "QOS":
            _define(site, found, name, place, options)
        elif kind == "Parent":
            parent = name
        elif kind == "Account":
            _account(site, found, _Account(name, parent, place), options)
        elif name != ROOT_ACCOUNT:
            _user(site, found, _Account(name, parent, place), options)
    return found


def fields_of(
    site: Site, found: Associations, uids: Mapping[str, int]
) -> tuple[dict[str, Value], tuple[str, ...]]:
    """Return the parts `users`, `qos` and `accounts` of the spec, and a sentence for each thing that was made up."""
    numbers, made = _uids(found.users, uids)
    names = dict.fromkeys(name for one in found.accounts.values() for name in one.qos)
    names |= dict.fromkeys(found.defined)
    others = [name for name in names if name != NORMAL_QOS or found.defined.get(NORMAL_QOS, _Qos()) != _Qos()]
    unknown = [name for name in others if name not in found.defined]
    parts: dict[str, Value] = {
        "users": [{"name": user, "uid": numbers[user]} for user in found.users],
        "qos": [_qos_value(name, found.defined.get(name, _Qos()), others) for name in others],
        "accounts": [_value(one) for one in _in_order(site, found)],
    }
    sentences = list[str]()
    if made:
        sentences.append(
            f"{made} uids are made up, from {FIRST_MADE_UP}: name a file `passwd` with the users, written by `getent passwd`, or write the real ones."
        )
    if unknown:
        sentences.append(
            f"the dump has only the names of QOS: write priorities and limits of {', '.join(unknown)} (sacctmgr show qos)."
        )
    return {key: value for key, value in parts.items() if value}, tuple(sentences)


def read_uids(text: str) -> dict[str, int]:
    """Return the uids of a passwd file that a spec takes; other lines are left out."""
    rows = (line.split(":") for line in text.splitlines())
    numbers = ((row[0], int(row[2])) for row in rows if len(row) > 2 and _SHARE.fullmatch(row[2]))
    return {name: uid for name, uid in numbers if _is(parse_uid, uid)}


def _define(site: Site, found: Associations, name: str, place: FileLine, options: Mapping[str, str]) -> None:
    """A QOS as 26.05 dumps it."""
    if not _is(parse_name, name):
        site.complain(place, f"the QOS {name} is not imported: its name has a-z, 0-9 and '-', at most 24")
        return
    limits: dict[str, Value] = {}
    for key, value in options.items():
        limit, number = _LIMITS_OF_QOS.get(key, ""), _gpus(value)
        if limit and number is not None:
            limits[limit] = number
        elif key not in ("description", "priority", "preempt"):
            if key in _EXEMPTIONS:
                found.exemptions = (*found.exemptions, key)
            site.complain(
                place, f"the QOS {name}: {key}={value} is not imported: the spec has no field for it"
            )
    priority = options.get("priority", "0")
    if not (_SHARE.fullmatch(priority) and int(priority) <= MOST_PRIORITY):
        site.complain(
            place, f"the QOS {name}: Priority={priority} is not imported: it is 0 to {MOST_PRIORITY}"
        )
        priority = "0"
    preempts = tuple(one for one in options.get("preempt", "").split(",") if one)
    found.defined[name] = _Qos(int(priority), preempts, limits)


def _qos_value(name: str, one: _Qos, known: list[str]) -> dict[str, Value]:
    made: dict[str, Value] = {"name": name}
    if one.priority:
        made["priority"] = one.priority
    if preempts := [other for other in one.preempts if other in (*known, NORMAL_QOS)]:
        made["preempts"] = preempts
    if one.limits:
        made["limits"] = one.limits
    return made


def _account(site: Site, found: Associations, one: _Account, options: Mapping[str, str]) -> None:
    if one.name == ROOT_ACCOUNT:
        return
    if one.parent != ROOT_ACCOUNT and one.parent not in found.accounts:
        site.complain(one.place, f"the account {one.name} is not imported: {one.parent} above it is not")
        return
    if not _is(parse_account, one.name):
        site.complain(
            one.place,
            f"the account {one.name} is not imported: the name of an account has a-z, 0-9, '_' and '-', at most 24",
        )
        return
    qos = tuple(name for name in _qos(options) or _inherited(found, one) if _is(parse_name, name))
    found.accounts[one.name] = replace(
        one,
        share=_share(site, one, options.get("fairshare", "1")),
        qos=qos,
        gpus=_gpus(options.get("grptres", "")),
    )
    _report(site, one.place, f"the account {one.name}", options, gpus=True)


def _inherited(found: Associations, one: _Account) -> tuple[str, ...]:
    return found.qos if one.parent == ROOT_ACCOUNT else found.accounts[one.parent].qos


def _user(site: Site, found: Associations, who: _Account, options: Mapping[str, str]) -> None:
    """A user in the account above; `who` is no account."""
    name, account = who.name, found.accounts.get(who.parent)
    if account is None or not _is(parse_user_name, name):
        why = (
            f"its account {who.parent} is not"
            if account is None
            else "a user's name has a-z, 0-9, '_' and '-'"
        )
        site.complain(who.place, f"the user {name} is not imported: {why}")
        return
    found.accounts[who.parent] = replace(account, users=(*dict.fromkeys((*account.users, name)),))
    found.users[name] = options.get("defaultaccount") or found.users.get(name, who.parent)
    _report(site, who.place, f"the user {name} in {who.parent}", options, gpus=False)


def _report(site: Site, place: FileLine, who: str, options: Mapping[str, str], *, gpus: bool) -> None:
    """Report limits without a field of the spec. A user's own share is not one, because a spec has shares of accounts."""
    for key, value in options.items():
        known = key in _SILENT or (gpus and key == "grptres" and _GPUS.fullmatch(value))
        if not known or (not gpus and key == "fairshare" and value != "1"):
            site.complain(place, f"{who}: {key}={value} is not imported: the spec has no field for it")


def _in_order(site: Site, found: Associations) -> list[_Account]:
    """Parents before their children; of a user's accounts the default one first, as a spec says it."""
    ordered = list(found.accounts.values())
    for user, default in found.users.items():
        of = [one for one in ordered if user in one.users]
        if of and of[0].name != default and default in found.accounts:
            site.complain(
                of[0].place,
                f"{user}: the default account is {default}; a spec takes the first account of a user, {of[0].name}",
            )
    return ordered


def _value(one: _Account) -> dict[str, Value]:
    made: dict[str, Value] = {"name": one.name}
    if one.parent != ROOT_ACCOUNT:
        made["parent"] = one.parent
    if one.share != 1:
        made["share"] = one.share
    if one.qos and one.qos != (NORMAL_QOS,):
        made["qos"] = list(one.qos)
    if one.users:
        made["users"] = list(one.users)
    if one.gpus is not None:
        made["limits"] = {"gpus": one.gpus}
    return made


def _uids(users: Mapping[str, str], known: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return a uid for each user, and how many are made up."""
    found = {user: known[user] for user in users if user in known}
    taken = set(known.values())
    free = (uid for uid in range(FIRST_MADE_UP, LAST_UID) if uid not in taken)
    missing = [user for user in users if user not in found]
    return {**found, **dict(zip(missing, free, strict=False))}, len(missing)


def _qos(options: Mapping[str, str]) -> tuple[str, ...]:
    """The names of QOS; the default one first."""
    names = [name.lstrip("+") for name in options.get("qos", "").split(",") if name]
    default = options.get("defaultqos", "")
    return (*dict.fromkeys([*([default] if default in names else []), *names]),)


def _share(site: Site, one: _Account, text: str) -> int:
    if _SHARE.fullmatch(text) and 1 <= int(text) <= MOST_SHARE:
        return int(text)
    site.complain(
        one.place, f"the account {one.name}: Fairshare={text} is not imported: a share is 1 to {MOST_SHARE}"
    )
    return 1


def _gpus(text: str) -> int | None:
    found = _GPUS.fullmatch(text)
    return int(found[1]) if found and int(found[1]) <= MOST_GPUS else None


def _is(parse: Callable[[object], object], text: object) -> bool:
    try:
        parse(text)
    except PydanticCustomError:
        return False
    return True
