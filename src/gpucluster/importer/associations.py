"""The accounts, QOS and users of a site, from the file that `sacctmgr dump CLUSTER file=assoc.dump` writes.

The file has the tree of accounts with shares and limits, and since 26.05 the QOS; before, only their names. It has no uids
of users: `getent passwd > passwd` has them. A line that a spec cannot model is reported. Pure.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pydantic_core import PydanticCustomError

from gpucluster.importer.effects import NO_CHANGE
from gpucluster.importer.lines import Effect, FileLine
from gpucluster.importer.made import FIRST_MADE_UP
from gpucluster.importer.site import Site
from gpucluster.importer.write_yaml import Value
from gpucluster.plan.model.values import NORMAL_QOS, ROOT_ACCOUNT
from gpucluster.spec.accounting import MOST_GPUS, MOST_PRIORITY, MOST_SHARE, parse_account, parse_qos
from gpucluster.spec.host_fields import LAST_UID, parse_uid, parse_user_name

_VALUE = r"(?:[0-9]+-)?[0-9]+(?::[0-9]{2}){1,2}|[^:']*"  # a time, or a word
_QUOTED = r"'((?:[^']|'(?!:\w+=|$))*)'"  # sacctmgr escapes no quote: one within a value is before no key
_OPTION = re.compile(rf":(\w+)=(?:{_QUOTED}|({_VALUE}))")
_KIND = "(Cluster|QOS|Parent|Account|User) - "
_LINE = re.compile(rf"{_KIND}{_QUOTED}((?:{_OPTION.pattern})*)")
_START = re.compile(rf"{_KIND}'([^':]*)")  # of a line that is not read
_GPUS = re.compile(r"gres/gpu=([0-9]{1,9})")
_GRES = re.compile(r"gres/([^:=]+)", re.IGNORECASE)
_CPUS = re.compile(r"cpu=([0-9]{1,9})")
_READ = (  # in their places; a description and an organization change nothing for jobs, and are left out silently
    "description", "organization", "defaultaccount", "fairshare", "qos", "defaultqos",
)  # fmt: skip
_MOST = ("grp", "max")  # how the key of a limit begins, beside `min`
_LIMITS = {"grptres": {"gpus": _GPUS}}  # key -> the limits of a spec for its words
_LIMITS_OF_QOS = {
    **_LIMITS,
    "maxtresperuser": {"gpus_per_user": _GPUS, "cpus_per_user": _CPUS},
    "maxtrespu": {"gpus_per_user": _GPUS, "cpus_per_user": _CPUS},
}
_EXEMPTIONS = ("preemptmode", "preemptexempttime", "gracetime")
_PERCENT = "relative"  # the flag with which the limits of a QOS are percents
_FLAGS: dict[str, tuple[Effect | None, str]] = {  # sacctmgr(1): what is so without the flag
    "partitiontimelimit": (Effect.REFUSED, "its jobs have the longest time of the partition"),
    "partitionmaxnodes": (Effect.REFUSED, "its jobs have the most nodes of the partition"),
    "partitionminnodes": (Effect.REFUSED, "its jobs have the fewest nodes of the partition"),
    "overpartqos": (Effect.REFUSED, "its jobs have the limits of the partition's QOS"),
    "requiresreservation": (Effect.WIDER, "its jobs need no reservation"),
    "enforceusagethreshold": (Effect.WIDER, "its jobs are not held below UsageThreshold"),
    "denyonlimit": (None, "a job above a limit waits instead of being refused"),
}
_OF_ROOT = "root of a spec has only the account root"
_NO_FIELD = "the spec has no field for it"
_WHY = {  # what an association of a spec is instead
    "adminlevel": "a spec has no operators or administrators of the database",
    "coordinator": "a spec has no coordinators of accounts",
    "partition": "a user of a spec has every partition of the account",
}
_UID = re.compile(r"[0-9]{1,10}")
_SHARE = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class _Option:
    """A key of a line with its value, and the key as written."""

    key: str
    value: str


_Options = Mapping[str, _Option]  # by the key in lower case


@dataclass(frozen=True, slots=True)
class _Account:
    name: str
    parent: str
    place: FileLine
    share: int = 1
    qos: tuple[str, ...] = ()  # the first is that of a job without --qos
    default: str = ""  # the QOS that the file names as the default
    limits: Mapping[str, Value] = field(default_factory=dict[str, Value])
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _User:
    default: str  # account
    place: FileLine


@dataclass(frozen=True, slots=True)
class _Qos:
    priority: int = 0
    preempts: tuple[str, ...] = ()
    limits: Mapping[str, Value] = field(default_factory=dict[str, Value])


_CLUSTER = _Account(ROOT_ACCOUNT, "", FileLine("", 0), qos=(NORMAL_QOS,))


@dataclass(slots=True)
class Associations:
    """Accounts by name, parents first, and the users with their default accounts, in the order of the file."""

    accounts: dict[str, _Account] = field(default_factory=dict[str, _Account])
    users: dict[str, _User] = field(default_factory=dict[str, _User])
    cluster: _Account = _CLUSTER  # accounts without QOS have its QOS
    defined: dict[str, _Qos] = field(default_factory=dict[str, _Qos])
    exemptions: tuple[str, ...] = ()  # keys of QOS that keep jobs from being preempted; a spec has none
    left_out: tuple[tuple[str, str], ...] = ()  # kind and name of what is not imported


def read_associations(site: Site, file: str, text: str) -> Associations:
    """Return what a spec can have of the file."""
    found, parent = Associations(), ROOT_ACCOUNT
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        place, match = FileLine(file, number), _LINE.fullmatch(line.strip())
        if match is None:
            kind, name = _unread(site, found, place, line.strip())
            parent = name.lower() if kind == "Parent" else parent
            continue
        kind, name = match[1], match[2]
        options = {
            key.lower(): _Option(key, quoted or plain) for key, quoted, plain in _OPTION.findall(match[3])
        }
        if kind == "Cluster":
            found.cluster = _with_qos(site, replace(_CLUSTER, place=place), "the cluster", options, _CLUSTER)
            _report(site, place, "the cluster", options)
        elif kind == "QOS":
            _define(site, found, name, place, options)
        elif kind == "Parent":
            parent = name.lower()
        elif kind == "Account":  # the database has the names of accounts in lower case
            _account(site, found, _Account(name.lower(), parent, place), options)
        elif name != ROOT_ACCOUNT or parent != ROOT_ACCOUNT:
            _user(site, found, _Account(name, parent, place), options)
    return found


def _unread(site: Site, found: Associations, place: FileLine, line: str) -> tuple[str, str]:
    """Report a line of another form; return its kind and name."""
    match = _START.match(line)
    if match is None:
        site.complain(place, "the line is none of `sacctmgr dump`")
        return "", ""
    kind, name = match.groups()
    who = f"the {kind if kind == 'QOS' else kind.lower()} {name}"
    _leave_out(site, found, place, (kind, name), f"{who} is not imported: its line cannot be read")
    if kind == "QOS":  # it may have kept jobs from being preempted
        found.exemptions = (*found.exemptions, "a QOS")
    return kind, name


def _leave_out(site: Site, found: Associations, place: FileLine, what: tuple[str, str], message: str) -> None:
    found.left_out = (*found.left_out, what)
    site.complain(place, message, Effect.REFUSED)


def fields_of(
    site: Site, found: Associations, uids: Mapping[str, int]
) -> tuple[dict[str, Value], tuple[str, ...]]:
    """Return the parts `users`, `qos` and `accounts` of the spec, and a sentence for each thing that was made up."""
    numbers = _uids(site, found.users, uids)
    names = dict.fromkeys(name for one in found.accounts.values() for name in one.qos)
    names |= dict.fromkeys(found.defined)
    others = [name for name in names if name != NORMAL_QOS or found.defined.get(NORMAL_QOS, _Qos()) != _Qos()]
    unknown = [name for name in others if name not in found.defined]
    parts: dict[str, Value] = {
        "users": [{"name": user, "uid": numbers[user]} for user in found.users],
        "qos": [_qos_value(name, found.defined.get(name, _Qos()), others) for name in others],
        "accounts": [_value(one, found.accounts.get(one.parent, _CLUSTER)) for one in _in_order(site, found)],
    }
    sentences = list[str]()
    if unknown:
        sentences.append(
            f"the dump has only the names of QOS: write priorities and limits of {', '.join(unknown)} (sacctmgr show qos)."
        )
    return {key: value for key, value in parts.items() if value}, tuple(sentences)


def read_uids(text: str) -> dict[str, int]:
    """Return the uids of a passwd file; broken lines are left out."""
    rows = (line.split(":") for line in text.splitlines())
    return {row[0]: int(row[2]) for row in rows if len(row) > 2 and _UID.fullmatch(row[2])}


def _define(site: Site, found: Associations, name: str, place: FileLine, options: _Options) -> None:
    """A QOS as 26.05 dumps it."""
    if why := _why_not(parse_qos, name):
        _leave_out(site, found, place, ("QOS", name), f"the QOS {name} is not imported: {why}")
        return
    who = f"the QOS {name}"
    found.exemptions += tuple(one.key for key, one in options.items() if key in _EXEMPTIONS)
    flags = [word for word in _value_of(options, "flags").split(",") if word]
    known = {} if _PERCENT in map(str.lower, flags) else _LIMITS_OF_QOS
    limits = _limits(site, place, who, options, known)
    _report(site, place, who, options, taken=(*known, "priority", "preempt", "flags", "limitfactor"))
    if factor := options.get("limitfactor"):
        _lost(site, place, who, factor, *_of_factor(factor.value))
    for flag in flags:
        effect, why = _FLAGS.get(flag.lower(), (None, ""))
        _lost(site, place, who, _Option(options["flags"].key, flag), why, effect)
    priority = _value_of(options, "priority") or "0"
    if not (_SHARE.fullmatch(priority) and int(priority) <= MOST_PRIORITY):
        site.complain(place, f"{who}: Priority={priority} is not imported: it is 0 to {MOST_PRIORITY}")
        priority = "0"
    preempts = tuple(one for one in _value_of(options, "preempt").split(",") if one)
    found.defined[name] = _Qos(int(priority), preempts, limits)


def _of_factor(value: str) -> tuple[str, Effect | None]:
    """Without LimitFactor a job of the QOS has the limits of its accounts as they are."""
    try:
        factor = float(value)
    except ValueError:
        factor = 1.0
    start = "its jobs have the limits of their accounts, which are"
    if factor > 1:
        return f"{start} lower", Effect.REFUSED
    return (f"{start} higher", Effect.WIDER) if 0 < factor < 1 else ("", None)


def _value_of(options: _Options, key: str) -> str:
    return options[key].value if key in options else ""


def _limits(
    site: Site,
    place: FileLine,
    who: str,
    options: _Options,
    known: Mapping[str, Mapping[str, re.Pattern[str]]],
) -> dict[str, Value]:
    """The limits that a spec has. Each other word of them is reported alone."""
    made: dict[str, Value] = {}
    for key, forms in known.items():
        for word in _value_of(options, key).split(",") if key in options else ():
            field_, number = next(
                ((name, int(m[1])) for name, form in forms.items() if (m := form.fullmatch(word))), ("", 0)
            )
            if field_ and number <= MOST_GPUS:
                made[field_] = number
            else:
                _lost(site, place, who, _Option(options[key].key, word))
    return made


def _qos_value(name: str, one: _Qos, known: list[str]) -> dict[str, Value]:
    made: dict[str, Value] = {"name": name}
    if one.priority:
        made["priority"] = one.priority
    if preempts := [other for other in one.preempts if other in (*known, NORMAL_QOS)]:
        made["preempts"] = preempts
    if one.limits:
        made["limits"] = one.limits
    return made


def _account(site: Site, found: Associations, one: _Account, options: _Options) -> None:
    if one.name == ROOT_ACCOUNT:
        return
    who, why = f"the account {one.name}", _why_not(parse_account, one.name)
    if one.parent != ROOT_ACCOUNT and one.parent not in found.accounts:
        why = f"{one.parent} above it is not"
    if why:
        _leave_out(site, found, one.place, ("Account", one.name), f"{who} is not imported: {why}")
        return
    above = found.cluster if one.parent == ROOT_ACCOUNT else found.accounts[one.parent]
    found.accounts[one.name] = replace(
        _with_qos(site, one, who, options, above),
        share=_share(site, one, _value_of(options, "fairshare") or "1"),
        limits=_limits(site, one.place, who, options, _LIMITS),
    )
    _report(site, one.place, who, options, taken=tuple(_LIMITS))


def _with_qos(site: Site, one: _Account, who: str, options: _Options, above: _Account) -> _Account:
    """The account with its QOS and its default one, or those of the account above."""
    names, default = _qos(options, above.qos), options.get("defaultqos")
    if default is not None and default.value and default.value not in names:
        _lost(site, one.place, who, default, "it is none of the QOS of the account")
        default = None
    known = _known_qos(site, one.place, who, names)
    if not known:
        why = f"an account of a spec has a QOS, and without one it is {NORMAL_QOS}"
        _lost(site, one.place, who, options["qos"], why, Effect.WIDER)
        known = (NORMAL_QOS,)
    first = (default.value if default is not None else "") or above.default
    order = sorted(known, key=lambda name: name != (first if first in known else NORMAL_QOS))
    if {"qos", "defaultqos"} & options.keys() and not _has_default(first, names, order[0]):
        site.complain(one.place, f"{who}: a job without --qos has {order[0]}, and Slurm refuses it")
    return replace(one, qos=tuple(order), default=first)


def _has_default(default: str, names: tuple[str, ...], first: str) -> bool:
    """Whether Slurm has a QOS for a job without --qos: the default, also an inherited one, the only one, or `normal`."""
    return default in names if default else len(names) < 2 or first == NORMAL_QOS


def _known_qos(site: Site, place: FileLine, who: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The QOS whose names a spec takes; the others are reported."""
    strange = {name: why for name in names if (why := _why_not(parse_qos, name))}
    for name, why in strange.items():
        site.complain(place, f"{who}: the QOS {name} is not imported: {why}", Effect.REFUSED)
    return tuple(name for name in names if name not in strange)


def _user(site: Site, found: Associations, who: _Account, options: _Options) -> None:
    """A user in the account above; `who` is no account."""
    name, account = who.name, found.accounts.get(who.parent)
    why = _OF_ROOT if name == ROOT_ACCOUNT else _why_not(parse_user_name, name)
    if account is None or why:
        why = f"its account {who.parent} is not" if account is None else why
        site.complain(who.place, f"the user {name} is not imported: {why}", Effect.REFUSED)
        return
    found.accounts[who.parent] = replace(account, users=(*dict.fromkeys((*account.users, name)),))
    default = _value_of(options, "defaultaccount").lower()
    before = found.users.get(name, _User(who.parent, who.place))
    found.users[name] = replace(before, default=default or before.default)
    shown = f"the user {name} in {who.parent}"
    _qos_of_user(site, who.place, shown, options, account.qos)
    if (share := options.get("fairshare")) is not None and share.value != "1":
        _lost(site, who.place, shown, share)
    _report(site, who.place, shown, options)


def _qos_of_user(site: Site, place: FileLine, who: str, options: _Options, account: tuple[str, ...]) -> None:
    """A user of a spec has the QOS of the account, and its default one."""
    own = _qos(options, account)
    if more := [name for name in account if name not in own]:
        why = f"users of a spec have every QOS of their account, also {', '.join(more)}"
        _lost(site, place, who, options["qos"], why, Effect.WIDER)
    if more := [name for name in own if name not in account]:
        why = f"users of a spec have only the QOS of their account, not {', '.join(more)}"
        _lost(site, place, who, options["qos"], why, Effect.REFUSED)
    default = options.get("defaultqos")
    if default is not None and default.value not in ("", account[0]):
        why = f"a job without --qos has {account[0]}, the first QOS of the account"
        _lost(site, place, who, default, why)


def _report(site: Site, place: FileLine, who: str, options: _Options, taken: tuple[str, ...] = ()) -> None:
    """Report what no other function has taken."""
    for key, one in options.items():
        if key not in (*_READ, *taken) and (key, one.value.lower()) != ("adminlevel", "none"):
            _lost(site, place, who, one)


def _lost(  # noqa: PLR0917 -- a line, what of it is lost, and why
    site: Site, place: FileLine, who: str, one: _Option, why: str = "", effect: Effect | None = None
) -> None:
    low = one.key.lower()
    if low.startswith(_MOST) and not any(_limits_jobs(site, word) for word in one.value.split(",")):
        why = why or f"no node of the site has such a GRES: {NO_CHANGE}"
    elif low == "partition" or low.startswith((*_MOST, "min")):
        effect = Effect.WIDER
    site.complain(
        place, f"{who}: {one.key}={one.value} is not imported: {why or _WHY.get(low, _NO_FIELD)}", effect
    )


def _limits_jobs(site: Site, word: str) -> bool:
    """Whether a word of a limit, such as `gres/gpu:a100=4`, is not of a GRES that no node has."""
    gres = _GRES.match(word)
    return gres is None or gres[1].lower() in site.gres_names


def _in_order(site: Site, found: Associations) -> list[_Account]:
    """Parents before their children; of a user's accounts the default one first, as a spec says it."""
    ordered = list(found.accounts.values())
    for user, who in found.users.items():
        first = next(one for one in ordered if user in one.users)
        if first.name != who.default:
            known = who.default in found.accounts
            site.complain(
                first.place if known else who.place,
                f"{user}: the default account is {who.default}{'' if known else ', which is not imported'}; "
                f"a spec takes the first account of a user, {first.name}",
            )
    return ordered


def _value(one: _Account, above: _Account) -> dict[str, Value]:
    """An account of a spec without `qos` has those of its parent, and `normal` without a parent."""
    made: dict[str, Value] = {"name": one.name}
    if one.parent != ROOT_ACCOUNT:
        made["parent"] = one.parent
    if one.share != 1:
        made["share"] = one.share
    if one.qos != above.qos:
        made["qos"] = list(one.qos)
    if one.users:
        made["users"] = list(one.users)
    if one.limits:
        made["limits"] = one.limits
    return made


def _uids(site: Site, users: Mapping[str, _User], known: Mapping[str, int]) -> dict[str, int]:
    """A uid for each user. One that a spec does not take is reported, and another made up."""
    refused = {user: why for user in users if user in known and (why := _why_not(parse_uid, known[user]))}
    found = {user: known[user] for user in users if user in known and user not in refused}
    taken = set(known.values())
    free = (uid for uid in range(FIRST_MADE_UP, LAST_UID) if uid not in taken)
    found |= dict(zip((user for user in users if user not in found), free, strict=False))
    for user, why in refused.items():
        site.complain(
            users[user].place,
            f"the user {user}: the uid {known[user]} of `passwd` is not imported: {why}; files of {known[user]} are not those of {found[user]}",
            Effect.REFUSED,
        )
    return found


def _qos(options: _Options, above: tuple[str, ...]) -> tuple[str, ...]:
    """The names of QOS. With a sign a name is added to those above, or taken away."""
    words = [word for word in _value_of(options, "qos").split(",") if word]
    plain = [word for word in words if word[0] not in "+-"]
    names = dict.fromkeys(plain or above)
    for word in words:
        if word[0] == "+":
            names[word[1:]] = None
        elif word[0] == "-":
            names.pop(word[1:], None)
    return tuple(names)


def _share(site: Site, one: _Account, text: str) -> int:
    if _SHARE.fullmatch(text) and 1 <= int(text) <= MOST_SHARE:
        return int(text)
    site.complain(
        one.place, f"the account {one.name}: Fairshare={text} is not imported: a share is 1 to {MOST_SHARE}"
    )
    return 1


def _why_not(parse: Callable[[object], object], value: object) -> str:
    """Why a spec does not take the value; empty if it does."""
    try:
        parse(value)
    except PydanticCustomError as error:
        return error.message()
    return ""
