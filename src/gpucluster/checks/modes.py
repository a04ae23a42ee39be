"""Check owners and modes of files that keep secrets, or that Slurm and the daemon run, read and write."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, listed, passed
from gpucluster.text import short

_LINE = re.compile(r"([0-7]{1,4}) (\S+) (/.*)")
# A node takes jobs before its agent has written the files of sshd, which is its last step.
APPEARS_S = 8
_STAT = f"""\
tries=0
until ls -d -- "$@" >/dev/null 2>&1 || [ $tries -ge {APPEARS_S} ]; do sleep 1; tries=$((tries + 1)); done
exec stat --dereference --format='%a %U %n' -- "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWant:
    """A file or folder. `modes`: octal; the first is what the remedy sets. `packaged`: `files.ours` finds it missing."""

    path: str
    owner: str
    modes: tuple[str, ...]
    packaged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesWant:
    """The files of a machine. `heals_missing`: the commands that make missing ones."""

    files: tuple[FileWant, ...]
    heals_missing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """A file as stat shows it."""

    owner: str
    mode: str


def query_modes(want: FilesWant) -> tuple[Query, ...]:
    """Wait a few seconds for what is missing: the machine may have just booted."""
    paths = (one.path for one in want.files)
    return (Query(argv=("sh", "-c", _STAT, "sh", *paths), limit_s=APPEARS_S + 10.0),)


def parse_modes(got: tuple[QueryOutput, ...]) -> dict[str, Mode]:
    """Path -> owner and mode. With exit code 1 a file is missing, and the others are printed."""
    answer = got[0]
    if answer.code != 1 or "stat: " not in answer.stderr:  # sudo and runuser also end with 1
        answer.text()
    found: dict[str, Mode] = {}
    for line in answer.stdout.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            raise ParseError(f"stat printed {short(line, 80)!r}")
        found[match[3]] = Mode(mode=match[1], owner=match[2])
    return found


def evaluate_modes(found: dict[str, Mode], want: FilesWant) -> CheckResult:
    """Culprits are the paths."""
    expected = f"{len(want.files)} files and folders with the owner and mode of their makers"
    bad = [one for one in want.files if not _is_right(found.get(one.path), one)]
    if not bad:
        return passed(expected)
    words = [_words(found.get(one.path), one) for one in bad]
    missing = any(one.path not in found for one in bad)
    commands = (
        *((want.heals_missing,) if missing else ()),
        *(word for one in bad if one.path in found for word in _commands(found[one.path], one)),
    )
    remedy = "on {machine}: " + "; ".join(commands)
    return failed(listed(words, 4), expected, tuple(one.path for one in bad), remedy)


def _is_right(found: Mode | None, want: FileWant) -> bool:
    if found is None:
        return want.packaged
    return found.owner == want.owner and found.mode in want.modes


def _words(found: Mode | None, want: FileWant) -> str:
    if found is None:
        return f"{want.path} is missing"
    return f"{want.path} is {found.mode.zfill(4)} of {short(found.owner, 30)}, not {want.modes[0].zfill(4)} of {want.owner}"


def _commands(found: Mode, want: FileWant) -> Iterator[str]:
    path = shlex.quote(want.path)
    if found.owner != want.owner:
        yield f"chown {want.owner} {path}"
    if found.mode not in want.modes:
        yield f"chmod {want.modes[0].zfill(4)} {path}"
