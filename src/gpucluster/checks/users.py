"""Check the plan's users on a machine: their accounts and groups."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, listed, passed
from gpucluster.text import short

_CLOSED = frozenset({"nologin", "false"})  # shells that end a session at once
_ACCOUNTS = (
    'for name; do getent passwd "$name" | sed "s/^/passwd:/"; getent group "$name" | sed "s/^/group:/"; '
    'getent shadow "$name" | cut -d: -f1,3,5,8 | sed "s/^/shadow:/"; '
    'id -Gn "$name" 2>/dev/null | sed "s/^/groups:$name:/"; done; echo "today:$(($(date +%s) / 86400))"'
)
_WIDTH = {"passwd": 7, "group": 4, "shadow": 4, "groups": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user of the plan. `home`: empty is not compared."""

    name: str
    uid: int
    home: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountsWant:
    """The users of a machine. `only_own_group`: no user has another group.

    `ages`: no password may be due, because users have none: PAM refuses their commands over SSH. An existing host may have them.
    """

    users: tuple[Account, ...]
    only_own_group: bool
    ages: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UserEntry:
    """A row of passwd, the names of its groups, and of shadow(5) the days on which the account expires (empty: never) and the
    password was changed (0: it must be now; empty: it has no age), and the password's greatest age.
    """

    uid: int
    gid: int
    home: str
    shell: str
    expires: str
    changed: str
    oldest: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """Name -> entry; group -> gid; the day since 1970."""

    entries: dict[str, UserEntry]
    gids: dict[str, int]
    today: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDifference:
    """One difference of a user, with the commands that heal it."""

    user: str
    words: str
    step: str


# --- accounts and groups -----------------------------------------------------------------------------------
def query_accounts(want: AccountsWant) -> tuple[Query, ...]:
    return (Query(argv=("sh", "-c", _ACCOUNTS, "sh", *(user.name for user in want.users)), limit_s=30.0),)


def parse_accounts(got: tuple[QueryOutput, ...]) -> Accounts:
    """Rows of getent and id, each with its kind before it."""
    rows: dict[str, dict[str, list[str]]] = {kind: {} for kind in _WIDTH}
    today = 0
    for line in got[0].text().splitlines():
        kind, _, rest = line.partition(":")
        fields = rest.split(":")
        if kind == "today" and rest.isdecimal():
            today = int(rest)
        elif kind in rows and len(fields) == _WIDTH.get(kind, len(fields)):
            rows[kind][fields[0]] = fields[1:]
        else:
            raise ParseError(f"getent printed {short(line, 80)!r}")
    if not today:
        raise ParseError("the answer has no end")
    entries = {name: _entry(name, fields, rows) for name, fields in rows["passwd"].items()}
    return Accounts(
        entries=entries, gids={n: _number(fields[1]) for n, fields in rows["group"].items()}, today=today
    )


def evaluate_accounts(found: Accounts, want: AccountsWant) -> CheckResult:
    """Culprits are the users."""
    expected = f"{len(want.users)} users with uid, gid, groups and home of the plan"
    faults = [fault for user in want.users for fault in _account_faults(found, user, want)]
    return result_of(faults, expected)


def _account_faults(found: Accounts, user: Account, want: AccountsWant) -> Iterator[UserDifference]:
    name, entry, gid = user.name, found.entries.get(user.name), found.gids.get(user.name)
    if gid is None:
        step = f"groupadd --gid {user.uid} {name}"
        yield UserDifference(user=name, words=f"group {name} is missing", step=step)
    elif gid != user.uid:
        step = f"groupmod --gid {user.uid} {name}"
        yield UserDifference(user=name, words=f"group {name} has the gid {gid}, not {user.uid}", step=step)
    if entry is None:
        home = f" --home-dir {shlex.quote(user.home)}" if user.home else ""
        step = f"useradd --uid {user.uid} --gid {user.uid} --no-create-home{home} --shell /bin/bash {name}"
        yield UserDifference(user=name, words=f"user {name} is missing", step=step)
        return
    if entry.uid != user.uid:
        step = f"usermod --uid {user.uid} {name}"
        yield UserDifference(user=name, words=f"{name} has the uid {entry.uid}, not {user.uid}", step=step)
    if entry.gid != user.uid and gid in (None, user.uid):
        words = f"{name} has the primary gid {entry.gid}, not {user.uid}"
        yield UserDifference(user=name, words=words, step=f"usermod --gid {user.uid} {name}")
    others = [group for group in entry.groups if group != name and not group.isdecimal()]
    if want.only_own_group and others:
        step = f"usermod --groups '' {name}"
        yield UserDifference(user=name, words=f"{name} is also in {listed(others)}", step=step)
    yield from _login_faults(entry, user, found.today)
    if want.ages and _is_due(entry, found.today):
        step = f"chage --lastday -1 --maxdays -1 {name}"
        yield UserDifference(
            user=name, words=f"{name} must change the password before any command", step=step
        )


def _is_due(entry: UserEntry, today: int) -> bool:
    """As pam_unix decides it."""
    if not entry.changed.isdecimal():
        return False
    changed = int(entry.changed)
    return changed == 0 or (entry.oldest.isdecimal() and today > changed + int(entry.oldest))


def _login_faults(entry: UserEntry, user: Account, today: int) -> Iterator[UserDifference]:
    name = user.name
    if user.home and entry.home != user.home:
        words = f"{name} has the home {short(entry.home, 60)}, not {user.home}"
        yield UserDifference(user=name, words=words, step=f"usermod --home {shlex.quote(user.home)} {name}")
    if entry.shell.rpartition("/")[2] in _CLOSED:
        words = f"{name} has the shell {short(entry.shell, 40)}"
        yield UserDifference(user=name, words=words, step=f"usermod --shell /bin/bash {name}")
    if entry.expires.isdecimal() and int(entry.expires) <= today:
        yield UserDifference(
            user=name, words=f"the account {name} has expired", step=f"usermod --expiredate '' {name}"
        )


def result_of(faults: list[UserDifference], expected: str) -> CheckResult:
    """Culprits are the users; the remedy has the commands of all faults."""
    if not faults:
        return passed(expected)
    steps = "; ".join(dict.fromkeys(fault.step for fault in faults))
    culprits = tuple(dict.fromkeys(fault.user for fault in faults))
    return failed(listed([fault.words for fault in faults]), expected, culprits, f"on {{machine}}: {steps}")


def _entry(name: str, fields: list[str], rows: dict[str, dict[str, list[str]]]) -> UserEntry:
    changed, oldest, expires = rows["shadow"].get(name, ["", "", ""])
    return UserEntry(
        uid=_number(fields[1]),
        gid=_number(fields[2]),
        home=fields[4],
        shell=fields[5],
        expires=expires,
        changed=changed,
        oldest=oldest,
        groups=tuple(rows["groups"].get(name, [""])[0].split()),
    )


def _number(word: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", word):
        raise ParseError(f"a number was expected, not {short(word, 20)!r}")
    return int(word)
