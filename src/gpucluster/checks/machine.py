"""Check the system of a machine: units, disks, clock."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from gpucluster.checks import remedies
from gpucluster.checks.check import (
    CheckResult,
    Location,
    ParseError,
    Query,
    QueryOutput,
    failed,
    listed,
    passed,
    unknown,
    warned,
)
from gpucluster.checks.each_path import parse_each, query_each
from gpucluster.text import short

RESTARTS = 3  # automatic restarts; a unit that restarted so often is faulty
DISK_WARN, DISK_FAIL = 80, 90  # percent of space or of inodes
# a storage is large and meant to be used: it is full when neither a percent nor some GiB are left
STORAGE_WARN, STORAGE_FAIL, LEFT_MIB = 95, 99, 10 * 1024
# munge refuses credentials at 300 s, but smaller differences already make logs hard to compare
SKEW_WARN_S, SKEW_FAIL_S = 0.1, 5.0
SYSTEM_PATHS = ("/", "/run", "/tmp", "/var/tmp", "/var/lib", "/var/log")  # noqa: S108  where services write; asked about
_TEMPORARY = ("/run", "/tmp", "/var/tmp")  # noqa: S108  of what lies here, a person may delete a file that nobody needs
# Then the file system of each path and, of each that is full, its largest file with the number of its blocks of 512 bytes. Names may
# have any character but NUL.
_OF_PATHS = """\
df --output=pcent,ipcent,file -- "$@" || exit
echo --
seen=
for path; do
  at=$(df --output=target -- "$path" | tail -n 1)
  printf 'target\\t%s\\t%s\\n' "$path" "$at"
  case "$seen" in *"<$at>"*) continue ;; esac
  seen="$seen<$at>"
  case $(df --output=pcent -- "$path") in *100%*) ;; *) continue ;; esac
  largest=$(timeout 4 find "$at" -xdev -type f -printf '%b %p\\0' 2>/dev/null | sort -z -n -r | head -z -n 1 | tr '\\n\\0' '??')
  printf 'largest\\t%s\\t%s\\n' "$path" "${largest%?}"
done
"""
_DF = "df --block-size=1M --output=pcent,ipcent,avail"


class UnitFault(StrEnum):
    """What is wrong with a unit of systemd; the worst of several."""

    ABSENT = "absent"  # systemd has no file of it
    BAD_FILE = "bad file"  # systemd refuses its file
    MASKED = "masked"
    INACTIVE = "inactive"
    FOREIGN = "foreign"  # it runs, and must not
    NOT_AT_BOOT = "not at boot"
    RESTLESS = "restless"


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """systemd units that must be active, units that must not, and those of `units` that must start at boot."""

    units: tuple[str, ...]
    off: tuple[str, ...] = ()
    at_boot: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit as systemd shows it."""

    load: str
    active: str
    restarts: int
    file: str = ""  # systemd's UnitFileState


@dataclass(frozen=True, slots=True, kw_only=True)
class Disks:
    """Paths with file systems that must have free space and inodes. `storage`: those of data, which may be nearly full."""

    paths: tuple[str, ...]
    storage: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """Percent of space and of inodes that are used; None where the file system does not count. `left_mib`: of storage.

    `target`: the mount point. `largest`: a full file system's largest file with its MiB, at its first path.
    """

    space: int
    inodes: int | None
    left_mib: int = 0
    target: str = ""
    largest: tuple[str, int] | None = None

    @property
    def used(self) -> int:
        """The greater percent."""
        return max(self.space, self.inodes or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineClock:
    """The machine's clock agrees with the head's."""


def query_units(want: Units) -> tuple[Query, ...]:
    shown = "--property=Id,LoadState,ActiveState,NRestarts,UnitFileState"
    return (Query(argv=("systemctl", "show", shown, "--", *want.units, *want.off)),)


def parse_units(got: tuple[QueryOutput, ...]) -> dict[str, Unit]:
    """Unit -> its state. systemd lists unknown units, too, with LoadState=not-found."""
    found: dict[str, Unit] = {}
    for block in got[0].text().split("\n\n"):
        pairs = {key: value for key, _, value in (line.partition("=") for line in block.splitlines())}
        if not block.strip():
            continue
        if "Id" not in pairs or "ActiveState" not in pairs:
            raise ParseError(f"systemctl printed {short(block, 80)}")
        restarts = pairs.get("NRestarts", "0")
        found[pairs["Id"]] = Unit(
            load=pairs.get("LoadState", ""),
            active=pairs["ActiveState"],
            restarts=int(restarts) if re.fullmatch(r"[0-9]{1,9}", restarts) else 0,
            file=pairs.get("UnitFileState", ""),
        )
    return found


def evaluate_units(found: dict[str, Unit], want: Units) -> CheckResult:
    expected = f"active: {listed([_unit(u) for u in want.units], 9)}"
    if want.at_boot:
        expected += f"; started at boot: {listed([_unit(u) for u in want.at_boot], 9)}"
    if want.off:
        expected += f"; not active: {listed([_unit(u) for u in want.off], 9)}"
    bad = [unit for unit in want.units if unit not in found or found[unit].active != "active"]
    if bad:
        words = [f"{_unit(u)} {_words(found[u]) if u in found else 'is not in the answer'}" for u in bad]
        family = _why_off(bad, found)
        return failed(
            listed(words), expected, tuple(map(_unit, bad)), _start(bad, found, want), family=family
        )
    wrong = [_unit(unit) for unit in want.off if unit in found and found[unit].active == "active"]
    if wrong:
        words = [f"{unit} is active and must not run here" for unit in wrong]
        stop = f"on {{machine}}: systemctl disable --now {' '.join(wrong)}"
        return failed(listed(words), expected, tuple(wrong), stop, family=UnitFault.FOREIGN)
    late = [unit for unit in want.at_boot if found[unit].file != "enabled"]
    if late:  # they run now, so no other check depends on it
        words = [f"{_unit(unit)} is active, but {found[unit].file or 'without a unit file'}" for unit in late]
        enable = f"on {{machine}}: systemctl enable {' '.join(map(_unit, late))}"
        words = [f"{listed(words)}: it does not start at boot"]
        family = UnitFault.NOT_AT_BOOT
        result = failed(words[0], expected, tuple(map(_unit, late)), enable, family=family)
        return replace(result, blocks=False)
    restless = [unit for unit in want.units if found[unit].restarts >= RESTARTS]
    if restless:
        words = [f"{_unit(unit)} restarted {found[unit].restarts} times" for unit in restless]
        return warned(listed(words), expected, _calmed(restless), family=UnitFault.RESTLESS)
    return passed(expected)


def query_disks(want: Disks) -> tuple[Query, ...]:
    disks = Query(argv=("sh", "-c", _OF_PATHS, "sh", *want.paths), limit_s=25.0)
    return (disks, query_each(_DF, want.storage)) if want.storage else (disks,)


def parse_disks(got: tuple[QueryOutput, ...]) -> dict[str, Disk]:
    """Path as in the query -> percent in use."""
    found: dict[str, Disk] = {}
    shown, _, about = got[0].text().partition("--\n")
    for line in shown.splitlines()[1:]:
        match = re.fullmatch(r"\s*([0-9]{1,3})%\s+(?:([0-9]{1,3})%|-)\s+(.+)", line)
        if match is None:
            raise ParseError(f"df printed {short(line, 80)}")
        found[match[3]] = Disk(space=int(match[1]), inodes=int(match[2]) if match[2] else None)
    for line in about.splitlines():
        what, path, words = (*line.split("\t", 2), "", "")[:3]
        if path not in found:
            raise ParseError(f"df printed {short(line, 80)}")
        found[path] = (
            _with_target(found[path], words) if what == "target" else _with_largest(found[path], words)
        )
    return found | {path: disk for answer in got[1:] for path, disk in _storage(answer)}


def _with_target(disk: Disk, path: str) -> Disk:
    return replace(disk, target=path)


def _with_largest(disk: Disk, words: str) -> Disk:
    """A file system may have none: inodes are used up by folders, or deleted files are open."""
    blocks, _, path = words.partition(" ")
    return replace(disk, largest=(path, -(-int(blocks) // 2048))) if blocks.isdecimal() else disk


def _storage(got: QueryOutput) -> Iterator[tuple[str, Disk]]:
    """A path without an answer is left out: `fs.mount` finds it."""
    for answer in parse_each(got):
        match = re.fullmatch(r"\s*(?:([0-9]{1,3})%|-)\s+(?:([0-9]{1,3})%|-)\s+([0-9]+)\s*", answer.line)
        if answer.code == 0 and match is None:
            raise ParseError(f"df printed {short(answer.line, 80)}")
        if answer.code == 0 and match is not None:
            space, inodes, left = match.groups()
            yield (
                answer.path,
                Disk(space=int(space or 0), inodes=int(inodes) if inodes else None, left_mib=int(left)),
            )


def evaluate_disks(found: dict[str, Disk], want: Disks) -> CheckResult:
    expected = f"below {DISK_WARN} % of space and inodes at {listed(want.paths)}"
    if want.storage:
        expected += f", below {STORAGE_WARN} % at {listed(want.storage)}"
    absent = [path for path in want.paths if path not in found]
    if absent:
        return unknown(f"df does not list {listed(absent)}", expected)
    storage = [p for p in want.storage if p in found]
    words = ", ".join(f"{p} {_disk(found[p])}" for p in (*want.paths, *storage))
    worst = max(found[p].used for p in want.paths)
    if worst >= DISK_FAIL or any(_is_full(found[p]) for p in storage):
        return _failed_disks(found, want.paths, storage, expected)
    used = max((found[p].used for p in storage), default=0)
    return warned(words, expected) if worst >= DISK_WARN or used >= STORAGE_WARN else passed(words, expected)


def _failed_disks(
    found: dict[str, Disk], paths: tuple[str, ...], storage: list[str], expected: str
) -> CheckResult:
    """Culprits are the paths without any space. Only they stop what writes there."""
    bad = [path for path in paths if found[path].used >= DISK_WARN]
    first = {found[path].target or path: path for path in reversed(bad)}  # a file system is told once
    bad_storage = [path for path in storage if found[path].used >= STORAGE_WARN]
    words = ", ".join(
        f"{p} {_disk(found[p])}" for p in (*(b for b in bad if b in first.values()), *bad_storage)
    )
    full = tuple(path for path in paths if found[path].used >= 100)
    largest = [found[path].largest for path in full]
    named = [f"the largest file is {short(file, 120)}, of {mib} MiB" for file, mib in filter(None, largest)]
    steps = [step for file, _ in filter(None, largest) for step in _deletion(file)]
    remedy = f"on {{machine}}: {'; '.join(steps)}  # if nobody needs it" if steps else ""
    result = failed("; ".join((words, *named)), expected, full, remedy)
    return replace(result, blocks=bool(full))


def _deletion(file: str) -> Iterator[str]:
    """Name only a file right in a folder of root's: a user may replace a folder of his own by a link before the remedy is typed."""
    if file.rpartition("/")[0] in _TEMPORARY and file.isprintable() and "?" not in file:
        yield f"ls -l {shlex.quote(file)}"
        yield f"rm {shlex.quote(file)}"


def _is_full(disk: Disk) -> bool:
    return (disk.inodes or 0) >= STORAGE_FAIL or (disk.space >= STORAGE_FAIL and disk.left_mib < LEFT_MIB)


def query_clock(_want: MachineClock) -> tuple[Query, ...]:
    now = ("date", "--utc", "+%s.%N")
    return (Query(argv=now, at=Location.HEAD), Query(argv=now), Query(argv=now, at=Location.HEAD))


def parse_clock(got: tuple[QueryOutput, ...]) -> tuple[float, float]:
    """The least skew between the machine's clock and the head's, and the time between the head's two readings, in seconds."""
    before, here, after = (_seconds(answer) for answer in got)
    if after < before:
        raise ParseError("the head's clock went backwards")
    return max(before - here, here - after, 0.0), after - before


def evaluate_clock(found: tuple[float, float], _want: MachineClock) -> CheckResult:
    off, blur = found
    expected = f"within {SKEW_WARN_S:g} s of the head's clock"
    words = f"off by {off:.1f} s or more" if off else f"no skew beyond the {blur:.2f} s of the measurement"
    if off > SKEW_FAIL_S:
        return failed(words, expected)
    if blur > SKEW_FAIL_S:
        return unknown(words, expected)
    return warned(words, expected) if off > SKEW_WARN_S else passed(words, expected)


_LOADS = {"not-found": UnitFault.ABSENT, "bad-setting": UnitFault.BAD_FILE, "error": UnitFault.BAD_FILE}


def _why_off(bad: list[str], found: dict[str, Unit]) -> UnitFault:
    """The first in the order of UnitFault."""
    loads = {found[unit].load if unit in found else "not-found" for unit in bad}
    why = [fault for load, fault in (*_LOADS.items(), ("masked", UnitFault.MASKED)) if load in loads]
    return why[0] if why else UnitFault.INACTIVE


def _calmed(units: list[str]) -> str:
    """The log has the cause. `reset-failed` also sets the count of restarts to 0, so a unit that goes on restarting is told again."""
    return f"on {{machine}}: {_logs(units)}; systemctl reset-failed {' '.join(map(_unit, units))}"


def _start(bad: list[str], found: dict[str, Unit], want: Units) -> str:
    """Make each unit startable, then start it. One whose file systemd does not take starts only with another file."""
    loads = {unit: found[unit].load if unit in found else "not-found" for unit in bad}
    masked = [_unit(unit) for unit in bad if loads[unit] == "masked"]
    broken = [unit for unit in bad if loads[unit] in _LOADS]
    names = " ".join(masked)
    steps = (
        *((f"systemctl unmask {names}; systemctl unmask --runtime {names}",) if masked else ()),
        *(("systemctl daemon-reload",) if broken else ()),
        *(_restart(unit, want, verify=unit in broken) for unit in bad),
        _logs(bad)
        + ("  # its package, or the remedy of files.ours, brings a missing file again" if broken else ""),
    )
    return "on {machine}: " + "; ".join(steps)


def _restart(unit: str, want: Units, *, verify: bool) -> str:
    again = remedies.restart(_unit(unit), with_database="mariadb.service" in want.units)
    return f"systemd-analyze verify --man=no --recursive-errors=no {unit} && {again}" if verify else again


def _logs(units: list[str]) -> str:
    first, *others = map(_unit, units)
    return " -u ".join((f"{remedies.LOG} {first}", *others))


def _unit(unit: str) -> str:
    return unit.removesuffix(".service")


def _words(unit: Unit) -> str:
    return unit.active if unit.load == "loaded" else f"{unit.active} ({unit.load})"


def _disk(disk: Disk) -> str:
    inodes = disk.inodes if disk.inodes is not None and disk.inodes > disk.space else None
    return f"{disk.space} %" if inodes is None else f"{inodes} % of inodes"


def _seconds(answer: QueryOutput) -> float:
    found = answer.text().strip()
    if not re.fullmatch(r"[0-9]{1,12}\.[0-9]{1,9}", found):
        raise ParseError(f"date printed {short(found, 40)}")
    return float(found)
