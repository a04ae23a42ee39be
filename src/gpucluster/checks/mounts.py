"""Check the mounts of a machine: each is there, is what the plan says, and is writable."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, listed, passed
from gpucluster.text import short

SHM = "/dev/shm"  # noqa: S108  named, not written to
MOUNTED_S = 120  # for the agent to mount a file system


@dataclass(frozen=True, slots=True, kw_only=True)
class MountWant:
    """A mount; an empty `source` or `types` is not compared. `bound`: the folder that is bound there."""

    path: str
    types: tuple[str, ...]
    source: str
    bound: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    """The mounts of a machine; each must be writable."""

    mounts: tuple[MountWant, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """The last mount on a path, which hides those below it."""

    type: str
    source: str
    writable: bool


def query_mounts(_want: Mounts) -> tuple[Query, ...]:
    return (Query(argv=("cat", "/proc/self/mountinfo")),)


def parse_mounts(got: tuple[QueryOutput, ...]) -> dict[str, Mounted]:
    """Path -> the last mount on it. proc(5) has the fields."""
    found: dict[str, Mounted] = {}
    for line in got[0].text().splitlines():
        left, dash, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if not dash or len(before) < 6 or len(after) < 3:
            raise ParseError(f"mountinfo: {short(line, 80)}")
        options = (*before[5].split(","), *after[2].split(","))
        found[_unescaped(before[4])] = Mounted(
            type=after[0], source=_unescaped(after[1]), writable="ro" not in options
        )
    if not found:
        raise ParseError("mountinfo is empty")
    return found


def evaluate_mounts(found: dict[str, Mounted], want: Mounts) -> CheckResult:
    """Culprits are the paths."""
    wrong = {mount.path: tuple(_mount_problems(found.get(mount.path), mount)) for mount in want.mounts}
    bad = tuple(path for path, words in wrong.items() if words)
    expected = "mounted and writable: " + ", ".join(_mount(mount) for mount in want.mounts)
    words = [one for path in bad for one in wrong[path]]
    return failed(listed(words), expected, bad, _mounted(bad, found, want)) if bad else passed(expected)


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _mounted(bad: tuple[str, ...], found: Mapping[str, Mounted], want: Mounts) -> str:
    """Remount what is read-only, unmount what is another, and let the agent mount what is missing then: fstab has no line for it."""
    wants = {mount.path: mount for mount in want.mounts}
    others = [path for path in bad if path in found and _is_other(found[path], wants[path])]
    missing = [path for path in bad if path not in found or path in others]
    bound = {path: wants[path].bound for path in missing if wants[path].bound}
    of_agent = [path for path in missing if path != SHM and path not in bound]
    commands = (
        *(f"umount {path}" for path in others),
        *(f"mount -o remount,rw {path}" for path in bad if path not in missing),
        *((f"mount -t tmpfs -o nosuid,nodev tmpfs {SHM}",) if SHM in missing else ()),
        *(("systemctl restart gpucluster-agent",) if of_agent else ()),
        *(_bound_again(bound, of_agent) if bound else ()),
    )
    return "on {machine}: " + "; ".join(commands)


def _bound_again(bound: Mapping[str, str], first: list[str]) -> Iterator[str]:
    """Bring what the daemons wrote meanwhile to the storage, then bind it. `first`: what the agent mounts before."""
    for path in first:
        yield f"timeout {MOUNTED_S} sh -c 'until mountpoint -q {path}; do sleep 1; done'"
    yield "systemctl stop gpucluster-elastic slurmctld"
    for path, folder in bound.items():
        yield f"cp -au {path}/. {folder}/"
        yield f"mount --bind {folder} {path}"
    yield "systemctl start slurmctld gpucluster-elastic"


def _is_other(found: Mounted, want: MountWant) -> bool:
    return bool(
        (want.types and found.type not in want.types) or (want.source and found.source != want.source)
    )


def _mount_problems(found: Mounted | None, want: MountWant) -> Iterator[str]:
    if found is None:
        yield f"{want.path} is not mounted"
        return
    if want.types and found.type not in want.types:
        yield f"{want.path} is {short(found.type, 30)}, not {' or '.join(want.types)}"
    if want.source and found.source != want.source:
        yield f"{want.path} comes from {short(found.source, 80)}, not {want.source}"
    if not found.writable:
        yield f"{want.path} is read-only"


def _mount(mount: MountWant) -> str:
    return f"{mount.path} from {mount.source}" if mount.source else mount.path
