"""Check what is left on a node of users without a job there: processes, and the private folders of ended jobs.

The jobs of the node are asked for before each of two looks, and only what both looks show counts: a job may begin or end
meanwhile. A completing job is a job of the node, too.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, listed, passed
from gpucluster.text import short

FIRST_UID = 1000  # of people
SYSTEM = range(60000, 65537)  # uids of systemd, of packages and of nobody (Debian Policy 9.2.2)
MOST = 40  # processes in a remedy
SESSION = ("systemd", "(sd-pam)")  # of a login, for some seconds after its end
SSM_USER = "ssm-user"  # of Session Manager: sudoers names it, and no group does
_MARK = "--"
_JOBS = (
    'squeue --noheader --all --nodelist="$2" --format="%A %U"'  # the host name may be that of another node
)
_LOOK = (
    "ps --no-headers -e -o uid:12,user:64,pid:12,stat:8,comm",
    'if test -d "$1"; then find "$1" -mindepth 2 -maxdepth 2 -type d -user root -name "[0-9]*"; fi',
)
_ADMINS = 'getent group sudo wheel admin || true; echo "asking:::${SUDO_USER:-}"'  # whoever asks by sudo has a session
_PARTS = (_JOBS, *_LOOK, _JOBS, *_LOOK, _ADMINS)
_SCRIPT = f"; echo {_MARK}; ".join(_PARTS)
_PROCESS = re.compile(r"\s*([0-9]{1,10})\s+(\S+)\s+([0-9]{1,10})\s+(\S+)\s+(.*)")
_JOB = re.compile(r"([0-9]{1,10}) ([0-9]{1,10})")


@dataclass(frozen=True, slots=True, kw_only=True)
class StraysWant:
    """The folder in which each node has the private folders of its jobs; empty: there is none. `admins`: besides those of sudo's groups."""

    base: str
    admins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process as ps shows it."""

    uid: int
    user: str
    pid: int
    ended: bool  # a zombie
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Strays:
    """Processes of users without a job on the node, and folders of jobs that are not on the node."""

    processes: tuple[Process, ...]
    folders: tuple[str, ...]


def query_strays(want: StraysWant) -> tuple[Query, ...]:
    return (Query(argv=("sh", "-ec", _SCRIPT, "sh", want.base, "{machine}"), limit_s=30.0),)


def parse_strays(got: tuple[QueryOutput, ...]) -> Strays:
    """What both looks show and no job of the node explains. Administrators may have processes."""
    lines = got[0].text().splitlines()
    if lines.count(_MARK) != len(_PARTS) - 1:
        raise ParseError(f"the look printed {lines.count(_MARK) + 1} parts, not {len(_PARTS)}")
    before, first, folders, after, second, folders_still, groups = _divided(lines)
    jobs = [_job(line) for line in (*before, *after)]
    numbers, users = {number for number, _ in jobs}, {uid for _, uid in jobs}
    admins = {SSM_USER, *(name for line in groups for name in line.rpartition(":")[2].split(","))}
    living = {process.pid for process in map(_process, second) if not process.ended}
    return Strays(
        processes=tuple(
            one
            for one in map(_process, first)
            if _is_person(one) and one.uid not in users and one.user not in admins and one.pid in living
        ),
        folders=tuple(sorted(f for f in folders if f in folders_still and not _is_of(f, numbers))),
    )


def evaluate_strays(seen: Strays, want: StraysWant) -> CheckResult:
    """Culprits are the users and the folders."""
    expected = "no process of a user without a job here, no folder of an ended job"
    found = replace(seen, processes=tuple(one for one in seen.processes if one.user not in want.admins))
    if not found.processes and not found.folders:
        return passed(expected)
    users = tuple(dict.fromkeys(one.user for one in found.processes))
    words = [
        *(f"process {one.pid} ({short(one.command, 30)}) of {short(one.user, 40)}, who has no job here" for one in found.processes),
        *(f"{short(path, 100)} of an ended job" for path in found.folders),
    ]  # fmt: skip
    return failed(listed(words, 4), expected, (*users, *found.folders), _remedy(found))


def _remedy(found: Strays) -> str:
    pids = [str(one.pid) for one in found.processes[:MOST]]
    commands = (
        *((f"kill -KILL {' '.join(pids)}",) if pids else ()),
        *(f"umount --quiet {path}/.ns || true; rm -rf --one-file-system {path}" for path in found.folders),
    )
    return "on {machine}: " + "; ".join(commands)


def _divided(lines: Iterable[str]) -> Iterator[list[str]]:
    """The lines between the marks."""
    part: list[str] = []
    for line in lines:
        if line == _MARK:
            yield part
            part = []
        else:
            part.append(line)
    yield part


def _job(line: str) -> tuple[int, int]:
    """Number and uid of a job."""
    match = _JOB.fullmatch(line.strip())
    if match is None:
        raise ParseError(f"squeue printed {short(line, 60)!r}")
    return int(match[1]), int(match[2])


def _process(line: str) -> Process:
    match = _PROCESS.fullmatch(line)
    if match is None:
        raise ParseError(f"ps printed {short(line, 60)!r}")
    return Process(
        uid=int(match[1]), user=match[2], pid=int(match[3]), ended=match[4].startswith("Z"), command=match[5]
    )


def _is_person(one: Process) -> bool:
    """Whether it is of a user with a name: those without one are of containers, which have uids of their own."""
    named = not one.user.isdecimal() and one.command not in SESSION
    return one.uid >= FIRST_UID and one.uid not in SYSTEM and named


def _is_of(path: str, jobs: set[int]) -> bool:
    """Whether the folder is of one of these jobs, or of none: Slurm names it by the number of the job."""
    name = PurePosixPath(path).name
    return not re.fullmatch(r"[0-9]{1,10}", name) or int(name) in jobs
