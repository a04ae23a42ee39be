"""Check the mounts of a machine: each is there, is what the plan says, has its options, and answers. The head exports its folders.

A dead file server leaves its mount in the table as it was, so the file system itself is asked.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gpucluster.checks import remedies
from gpucluster.checks.check import (
    CheckResult,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
    unknown,
)
from gpucluster.checks.each_path import ANSWER_S, PathAnswer, parse_each, query_each
from gpucluster.text import short

SHM = "/dev/shm"  # noqa: S108  named, not written to
OPPOSITE = {
    "ro": "rw",
    "noexec": "exec",
    "nosuid": "suid",
    "nodev": "dev",
}  # what users notice of a mount's options
MOUNTED_S = 120  # for the agent to mount a file system
_EXPORTS = "exports:"
_ASK_EXPORTS = (  # exportfs(8) and the NFS server read this file
    "sh",
    "-c",
    f"test -e /var/lib/nfs/etab || exit 0; cut -f 1 /var/lib/nfs/etab | sort -u | sed 's/^/{_EXPORTS}/'",
)
_REFUSES = ("Permission denied", "Operation not permitted")  # the words of a server that answers root


@dataclass(frozen=True, slots=True, kw_only=True)
class MountWant:
    """A mount; an empty `source` or `types` is not compared. `bound`: the folder that is bound there.

    `has` and `lacks`: options among ro, noexec, nosuid and nodev; the others are not compared.
    """

    path: str
    types: tuple[str, ...]
    source: str
    bound: str = ""
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ("ro",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    """The mounts of a machine. `asked`: paths that must answer. `exports`: folders that NFS must export.

    `written`: paths of services, which must be on a writable file system.
    """

    mounts: tuple[MountWant, ...]
    asked: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()
    written: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """The last mount on a path, which hides those below it. `answer`: of the file system; None: it was not asked."""

    type: str
    source: str
    options: frozenset[str]  # those of MountWant
    answer: PathAnswer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MountTable:
    """Path -> the mount there; the folders that NFS exports now."""

    mounts: dict[str, Mounted]
    exports: frozenset[str]


def query_mounts(want: Mounts) -> tuple[Query, ...]:
    table = Query(argv=("cat", "/proc/self/mountinfo"))
    asked = (query_each("stat -f --format=%T", want.asked),) if want.asked else ()
    return (table, *asked, *((Query(argv=_ASK_EXPORTS),) if want.exports else ()))


def parse_mounts(got: tuple[QueryOutput, ...]) -> MountTable:
    """mountinfo, then the answers of file systems and the exports, if they were asked."""
    table, *others = got
    found = mount_table(table.text())
    exports: set[str] = set()
    for other in others:
        lines = other.text().splitlines()
        of_exports = {line.removeprefix(_EXPORTS) for line in lines if line.startswith(_EXPORTS)}
        exports |= of_exports
        for answer in () if of_exports else parse_each(other):
            if answer.path in found:
                found[answer.path] = replace(found[answer.path], answer=answer)
    return MountTable(mounts=found, exports=frozenset(exports))


def mount_table(text: str) -> dict[str, Mounted]:
    """Path -> the last mount on it, of mountinfo. proc(5) has the fields."""
    found: dict[str, Mounted] = {}
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if not dash or len(before) < 6 or len(after) < 3:
            raise ParseError(f"mountinfo: {short(line, 80)}")
        options = (*before[5].split(","), *after[2].split(","))
        found[_unescaped(before[4])] = Mounted(
            type=after[0], source=_unescaped(after[1]), options=frozenset(options) & OPPOSITE.keys()
        )
    if not found:
        raise ParseError("mountinfo is empty")
    return found


def evaluate_mounts(table: MountTable, want: Mounts) -> CheckResult:
    """Culprits are the paths, and folders that are not exported."""
    found = table.mounts
    wrong = {mount.path: tuple(mount_problems(found.get(mount.path), mount)) for mount in want.mounts}
    bad = tuple(path for path, words in wrong.items() if words)
    expected = "mounted with the plan's options: " + ", ".join(_mount(mount) for mount in want.mounts)
    if want.exports:
        expected += f"; exported: {listed(want.exports)}"
    inside = tuple(path for path in want.exports if path not in table.exports)
    closed = _read_only(found, want)
    words = [
        *(one for path in bad for one in wrong[path]),
        *(f"{path} is on {point}, which is read-only" for path, point in closed.items()),
        *(f"{path} is not exported" for path in inside),
    ]
    steps = [
        *(f"mount -o remount,rw {shlex.quote(point)}" for point in dict.fromkeys(closed.values())),
        *_mounted(bad, found, want),
        *((f"{remedies.restart('nfs-server')}; exportfs -r -a",) if inside else ()),
    ]
    if words:
        return failed(
            listed(words),
            expected,
            (*bad, *closed, *inside),
            f"on {{machine}}: {'; '.join(steps)}" if steps else "",
        )
    silent = [path for path in want.asked if path in found and found[path].answer is None]
    return unknown(f"nothing was said of {listed(silent)}", expected) if silent else passed(expected)


def _read_only(found: Mapping[str, Mounted], want: Mounts) -> dict[str, str]:
    """Path -> the read-only mount point that it is on, unless that is one of the wanted mounts."""
    known = {mount.path for mount in want.mounts}
    below = {path: _mount_point(found, path) for path in want.written}
    return {
        path: point
        for path, point in below.items()
        if point not in known and point in found and "ro" in found[point].options
    }


def _mount_point(found: Mapping[str, Mounted], path: str) -> str:
    above = [point for point in found if point == path or path.startswith(f"{point.rstrip('/')}/")]
    return max(above, key=len, default="")


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _mounted(bad: tuple[str, ...], found: Mapping[str, Mounted], want: Mounts) -> tuple[str, ...]:
    """Remount what has other options, unmount what is another or does not answer, and let the agent mount what is missing then.

    fstab has no line for it. A bound folder answers again with what it is bound from.
    """
    wants = {mount.path: mount for mount in want.mounts}
    others = [path for path in bad if path in found and _is_other(found[path], wants[path])]
    silent = [path for path in bad if path in found and path not in others and _fault(found[path].answer)]
    dead = [path for path in silent if not wants[path].bound]
    missing = [path for path in bad if path not in found or path in others]
    bound = {path: wants[path].bound for path in missing if wants[path].bound}
    of_agent = [path for path in missing if path != SHM and path not in bound]
    ends = (*(f"umount {path}" for path in others), *(f"umount --lazy {path}" for path in dead))
    again = (remedies.restart_after(ends, "gpucluster-agent"),) if of_agent or dead else ends
    return (
        *again,
        *(_remount(found[path], wants[path]) for path in bad if path not in (*missing, *silent)),
        *((f"mount -t tmpfs -o nosuid,nodev tmpfs {SHM}",) if SHM in missing else ()),
        *(_bound_again(bound, of_agent) if bound else ()),
    )


def _remount(found: Mounted, want: MountWant) -> str:
    """mount(8) keeps the other options of the mount."""
    words = [OPPOSITE[word] for word in want.lacks if word in found.options]
    words += [word for word in want.has if word not in found.options]
    return f"mount -o remount,{','.join(words)} {want.path}"


def _fault(answer: PathAnswer | None) -> str:
    """Say why the file system does not answer; empty if it does."""
    if answer is None or answer.code == 0 or answer.line.endswith(_REFUSES):
        return ""
    return f"within {ANSWER_S} s" if answer.late else f"({short(answer.line, 100) or f'exit {answer.code}'})"


def _bound_again(bound: Mapping[str, str], first: list[str]) -> Iterator[str]:
    """Bring what the daemons wrote meanwhile to the storage, then bind it. `first`: what the agent mounts before."""
    for path in first:
        yield f"timeout {MOUNTED_S} sh -c 'until mountpoint -q {path}; do sleep 1; done'"
    bind = (f"cp -au {path}/. {folder}/ && mount --bind {folder} {path}" for path, folder in bound.items())
    proof, start = remedies.proof_of("slurmctld"), "systemctl start slurmctld gpucluster-elastic"
    yield " && ".join((proof, "systemctl stop gpucluster-elastic slurmctld", *bind, start))


def _is_other(found: Mounted, want: MountWant) -> bool:
    return bool(
        (want.types and found.type not in want.types) or (want.source and found.source != want.source)
    )


def mount_problems(found: Mounted | None, want: MountWant) -> Iterator[str]:
    """Say what is wrong with a mount, in short sentences."""
    if found is None:
        yield f"{want.path} is not mounted"
        return
    if want.types and found.type not in want.types:
        yield f"{want.path} is {short(found.type, 30)}, not {' or '.join(want.types)}"
    if want.source and found.source != want.source:
        yield f"{want.path} comes from {short(found.source, 80)}, not {want.source}"
    for word in want.lacks:
        if word in found.options:
            yield f"{want.path} is {'read-only' if word == 'ro' else f'mounted {word}'}"
    for word in want.has:
        if word not in found.options:
            yield f"{want.path} is mounted without {word}"
    if fault := _fault(found.answer):
        yield f"{want.path} does not answer {fault}"


def _mount(mount: MountWant) -> str:
    return f"{mount.path} from {mount.source}" if mount.source else mount.path
