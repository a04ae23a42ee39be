"""Check what the plan's users have on machines: SSH keys and homes, and that a job of a user writes in the home."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.checks.check import (
    CheckResult,
    Location,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
)
from gpucluster.checks.users import Account, UserDifference, result_of
from gpucluster.text import short

_KEYS = (
    'cd "$1" 2>/dev/null || { echo --; exit 0; }; folder=$1; '
    'while stat -L --format="%a %U %n" "$folder" && [ "$folder" != / ]; do folder=$(dirname "$folder"); done; '
    'find . -mindepth 1 -maxdepth 1 -printf "%m %u %P\\n"; echo --; '
    'for file in *; do [ -f "$file" ] && sed "s/^/$file:/" "$file"; done; true'
)
_HOMES = "for home; do stat --format='%u %a %F:%n' \"$home\" || true; done; echo --"
_IN_JOB = r"""
home=$(getent passwd "$(id -u)" | cut -d: -f6)
works() {
  cd "${home:?is not known}" && file=$(mktemp .gpucluster-validate.XXXXXX) || return
  printf '#!/bin/sh\n' >"$file" && chmod 700 "$file" && "./$file"
  code=$?
  rm -f "$file"
  return "$code"
}
if error=$(works 2>&1); then echo "$SLURMD_NODENAME ok"; else echo "$SLURMD_NODENAME $home: $(echo "$error" | tail -n 1)"; fi
"""


# --- keys --------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class KeysWant:
    """User -> the lines of the user's file in `folder`. A file of another name opens another account."""

    folder: str
    keys: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFile:
    """A file of keys. `kept`: root owns it, only root writes it, and sshd reads it as its user."""

    lines: tuple[str, ...]
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFiles:
    """User -> file, and the folder with those above it -> whether root owns it, only root writes it, and all users pass."""

    files: dict[str, KeyFile]
    folders: dict[str, bool]


def query_keys(want: KeysWant) -> tuple[Query, ...]:
    return (Query(argv=("sh", "-c", _KEYS, "sh", want.folder)),)


def parse_keys(got: tuple[QueryOutput, ...]) -> KeyFiles:
    """Mode, owner and path of the folders, then those of each file by its name, `--`, then `NAME:LINE` of all."""
    listing, mark, content = got[0].text().partition("--\n")
    if not mark:
        raise ParseError("the list of files has no end")
    lines: dict[str, tuple[str, ...]] = {}
    for line in content.splitlines():
        name, _, text = line.partition(":")
        lines[name] = (*lines.get(name, ()), text)
    files: dict[str, KeyFile] = {}
    folders: dict[str, bool] = {}
    for line in listing.splitlines():
        row = re.fullmatch(r"([0-7]{1,4}) (\S+) (.+)", line)
        if row is None:
            raise ParseError(f"find printed {short(line, 80)!r}")
        mode = int(row[1], 8)
        own = row[2] == "root" and not mode & 0o022
        if row[3].startswith("/"):
            folders[row[3]] = own and bool(mode & 0o001)
        else:
            files[row[3]] = KeyFile(lines=lines.get(row[3], ()), kept=own and bool(mode & 0o004))
    return KeyFiles(files=files, folders=folders)


def evaluate_keys(found: KeyFiles, want: KeysWant) -> CheckResult:
    """Culprits are the users, and folders. sshd reads a file as its user, and trusts no folder that others may write (StrictModes)."""
    expected = f"keys of {len(want.keys)} users in {want.folder}, and no others"
    users = sorted({*want.keys, *found.files})
    faults = [fault for user in users for fault in _key_faults(user, found.files, want)]
    return result_of(
        [*map(_folder_fault, (f for f, kept in found.folders.items() if not kept)), *faults], expected
    )


def _folder_fault(folder: str) -> UserDifference:
    path = shlex.quote(folder)
    words = f"{short(folder, 60)} is not root's, or sshd cannot trust or pass it"
    return UserDifference(user=folder, words=words, step=f"chown root:root {path}; chmod 0755 {path}")


def _key_faults(user: str, found: dict[str, KeyFile], want: KeysWant) -> Iterator[UserDifference]:
    here, wanted = found.get(user), want.keys.get(user)
    shown, path = short(user, 40), shlex.quote(f"{want.folder}/{user}")
    if wanted is None:
        words = f"{want.folder}/{shown} is a key file of no user with keys"
        yield UserDifference(user=user, words=words, step=f"rm {path}")
        return
    write = f"rm -f {path}; printf '%s\\n' {shlex.join(wanted)} >{path}; chmod 0644 {path}"
    if here is None:
        step = f"mkdir -p {want.folder}; {write}"
        yield UserDifference(user=user, words=f"the key of {shown} is missing", step=step)
    elif here.lines != wanted:
        yield UserDifference(user=user, words=f"the keys of {shown} are others", step=write)
    elif not here.kept:
        words = f"{want.folder}/{shown} is not root's, or sshd cannot trust or read it"
        yield UserDifference(user=user, words=words, step=f"chown root:root {path}; chmod 0644 {path}")


# --- homes -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class HomesWant:
    """The users with their homes. `makes`: whether root on this machine makes missing homes."""

    users: tuple[Account, ...]
    makes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """A home as stat shows it."""

    uid: int
    mode: int
    kind: str


def query_homes(want: HomesWant) -> tuple[Query, ...]:
    homes = (user.home for user in want.users)
    return (Query(argv=("sh", "-c", _HOMES, "sh", *homes), limit_s=30.0),)


def parse_homes(got: tuple[QueryOutput, ...]) -> dict[str, Home]:
    """Path -> home; a missing one has no line."""
    found: dict[str, Home] = {}
    shown, mark, _ = got[0].text().partition("--\n")
    if not mark:
        raise ParseError("the answer has no end")
    for line in shown.splitlines():
        row = re.fullmatch(r"([0-9]{1,10}) ([0-7]{1,4}) ([^:]+):(/.*)", line)
        if row is None:
            raise ParseError(f"stat printed {short(line, 80)!r}")
        found[row[4]] = Home(uid=int(row[1]), mode=int(row[2], 8), kind=row[3])
    return found


def evaluate_homes(found: dict[str, Home], want: HomesWant) -> CheckResult:
    """Culprits are the users. A user may open the home to others for reading, not for writing."""
    expected = f"homes of {len(want.users)} users, each the user's own"
    faults = [f for user in want.users for f in _home_faults(found.get(user.home), user, makes=want.makes)]
    return result_of(faults, expected)


def _home_faults(home: Home | None, user: Account, *, makes: bool) -> Iterator[UserDifference]:
    path, shown = shlex.quote(user.home), user.home
    if home is None:
        if makes:
            yield UserDifference(
                user=user.name, words=f"{shown} is missing", step=f"mkhomedir_helper {user.name} 0077"
            )
        return
    if home.kind != "directory":
        step = f"mv {path} {path}.other; mkhomedir_helper {user.name} 0077"
        yield UserDifference(user=user.name, words=f"{shown} is a {short(home.kind, 30)}", step=step)
        return
    if home.uid != user.uid:
        words = f"{shown} belongs to the uid {home.uid}, not {user.uid}"
        yield UserDifference(user=user.name, words=words, step=f"chown {user.uid}:{user.uid} {path}")
    if home.mode & 0o002:
        yield UserDifference(
            user=user.name, words=f"others may write in {shown} ({home.mode:04o})", step=f"chmod o-w {path}"
        )
    if home.mode & 0o700 != 0o700:
        words = f"{user.name} may not use {shown} ({home.mode:04o})"
        yield UserDifference(user=user.name, words=words, step=f"chmod u+rwx {path}")


# --- a job of the user -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class JobHomeWant:
    """A job on this number of nodes writes a program in its user's home, and runs it."""

    nodes: int


def query_job(_want: JobHomeWant) -> tuple[Query, ...]:
    return (Query(at=Location.STEP, argv=("--", "sh", "-c", _IN_JOB), limit_s=30),)


def parse_job(got: tuple[QueryOutput, ...]) -> dict[str, str]:
    """Node -> error, or empty."""
    found: dict[str, str] = {}
    for line in got[0].text().splitlines():
        node, _, words = line.partition(" ")
        found[node] = "" if words == "ok" else short(words, 300) or "no answer"
    return found


def evaluate_job(found: dict[str, str], want: JobHomeWant) -> CheckResult:
    """Culprits are the nodes."""
    expected = f"the user's job writes a program in the user's home and runs it, on {want.nodes} nodes"
    bad = {node: words for node, words in found.items() if words}
    if bad:
        return failed(listed([f"{node}: {words}" for node, words in bad.items()], 3), expected, tuple(bad))
    if len(found) != want.nodes:
        return failed(f"{len(found)} nodes answered", expected)
    return passed(expected)
