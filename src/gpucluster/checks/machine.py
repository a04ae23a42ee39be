"""What a machine is asked about its system: units, metadata guard, mounts, disks, clock."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.checks.model import (
    Answer,
    Ask,
    Judgement,
    ParseError,
    Place,
    failed,
    listed,
    passed,
    short,
    unknown,
    warned,
)
from gpucluster.plan import names

RESTARTS = 3  # a unit that systemd brought back so often does not stay up by itself
DISK_WARN, DISK_FAIL = 80, 90  # percent of space or of inodes
SKEW_WARN_S, SKEW_FAIL_S = 0.1, 5.0  # munge refuses at 300 s; jobs' logs and file times mislead long before
_TOKEN = (
    *("curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "--max-time", "8"),
    *("--request", "PUT", "--header", "X-aws-ec2-metadata-token-ttl-seconds: 60"),
    f"{names.METADATA}/latest/api/token",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """systemd units that must be active."""

    units: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit as systemd shows it."""

    load: str
    active: str
    restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The metadata service: root reaches it, an ordinary user does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountWant:
    """A mount; an empty `source` or `types` is not looked at."""

    path: str
    types: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    """All of a machine, each writable."""

    mounts: tuple[MountWant, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """The mount that is on top at a path."""

    type: str
    source: str
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Disks:
    """Paths whose file systems must have room."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """Percent of space and of inodes that are used; None where the file system does not count."""

    space: int
    inodes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The machine's clock agrees with the head's."""


def ask_units(want: Units) -> tuple[Ask, ...]:
    shown = "--property=Id,LoadState,ActiveState,NRestarts"
    return (Ask(argv=("systemctl", "show", shown, "--", *want.units)),)


def parse_units(got: tuple[Answer, ...]) -> dict[str, Unit]:
    """Unit -> its state. systemd answers for unknown units, too: LoadState=not-found."""
    found: dict[str, Unit] = {}
    for block in got[0].text().split("\n\n"):
        pairs = {key: value for key, _, value in (line.partition("=") for line in block.splitlines())}
        if not block.strip():
            continue
        if "Id" not in pairs or "ActiveState" not in pairs:
            raise ParseError(f"systemctl said {short(block, 80)}")
        restarts = pairs.get("NRestarts", "0")
        found[pairs["Id"]] = Unit(
            load=pairs.get("LoadState", ""),
            active=pairs["ActiveState"],
            restarts=int(restarts) if re.fullmatch(r"[0-9]{1,9}", restarts) else 0,
        )
    return found


def judge_units(found: dict[str, Unit], want: Units) -> Judgement:
    expected = f"active: {listed([_unit(u) for u in want.units], 9)}"
    bad = [unit for unit in want.units if unit not in found or found[unit].active != "active"]
    if bad:
        said = [f"{_unit(u)} {_words(found[u]) if u in found else 'is not known'}" for u in bad]
        return failed(listed(said), expected, tuple(map(_unit, bad)))
    restless = [
        f"{_unit(u)} restarted {found[u].restarts} times" for u in want.units if found[u].restarts >= RESTARTS
    ]
    return warned(listed(restless), expected) if restless else passed(expected)


def ask_guard(_want: Guard) -> tuple[Ask, ...]:
    return (Ask(argv=_TOKEN), Ask(argv=_TOKEN, as_user=True))


def parse_guard(got: tuple[Answer, ...]) -> tuple[str, str]:
    """What root and a user got: an HTTP status, or 000 for no answer at all."""
    return (_status(got[0]), _status(got[1]))


def judge_guard(found: tuple[str, str], _want: Guard) -> Judgement:
    root, user = found
    expected = "root is answered 200, an ordinary user not at all"
    said = f"root is answered {_http(root)}, an ordinary user {_http(user)}"
    if user != "000":
        return failed(said, expected)
    if root != "200":  # then it proves nothing that a user gets no answer
        return unknown(said, expected)
    return passed(said, expected)


def ask_mounts(_want: Mounts) -> tuple[Ask, ...]:
    return (Ask(argv=("cat", "/proc/self/mountinfo")),)


def parse_mounts(got: tuple[Answer, ...]) -> dict[str, Mounted]:
    """Path -> the last mount on it, which hides the others. See proc(5) for the fields."""
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


def judge_mounts(found: dict[str, Mounted], want: Mounts) -> Judgement:
    wrong = [words for mount in want.mounts for words in _mount_problems(found.get(mount.path), mount)]
    expected = "mounted and writable: " + ", ".join(_mount(mount) for mount in want.mounts)
    return failed(listed(wrong), expected) if wrong else passed(expected)


def ask_disks(want: Disks) -> tuple[Ask, ...]:
    return (Ask(argv=("df", "--output=pcent,ipcent,file", "--", *want.paths)),)


def parse_disks(got: tuple[Answer, ...]) -> dict[str, Disk]:
    """Path as asked -> use."""
    found: dict[str, Disk] = {}
    for line in got[0].text().splitlines()[1:]:
        match = re.fullmatch(r"\s*([0-9]{1,3})%\s+(?:([0-9]{1,3})%|-)\s+(.+)", line)
        if match is None:
            raise ParseError(f"df said {short(line, 80)}")
        found[match[3]] = Disk(space=int(match[1]), inodes=int(match[2]) if match[2] else None)
    return found


def judge_disks(found: dict[str, Disk], want: Disks) -> Judgement:
    expected = f"below {DISK_WARN} % of space and inodes at {listed(want.paths)}"
    absent = [path for path in want.paths if path not in found]
    if absent:
        return unknown(f"df did not say anything of {listed(absent)}", expected)
    worst = max(max(found[p].space, found[p].inodes or 0) for p in want.paths)
    said = ", ".join(f"{p} {_disk(found[p])}" for p in want.paths)
    if worst >= DISK_FAIL:
        return failed(said, expected)
    return warned(said, expected) if worst >= DISK_WARN else passed(said, expected)


def ask_clock(_want: Clock) -> tuple[Ask, ...]:
    now = ("date", "--utc", "+%s.%N")
    return (Ask(argv=now, at=Place.HEAD), Ask(argv=now), Ask(argv=now, at=Place.HEAD))


def parse_clock(got: tuple[Answer, ...]) -> tuple[float, float]:
    """How far the machine's clock lies outside of the head's two readings around it, and how far those are apart."""
    before, here, after = (_seconds(answer) for answer in got)
    if after < before:
        raise ParseError("the head's clock ran backwards")
    return max(before - here, here - after, 0.0), after - before


def judge_clock(found: tuple[float, float], _want: Clock) -> Judgement:
    off, blur = found
    expected = f"within {SKEW_WARN_S:g} s of the head's clock"
    said = (
        f"off by {off:.1f} s or more"
        if off
        else f"the same, as far as {blur:.2f} s between two readings tell"
    )
    if off > SKEW_FAIL_S:
        return failed(said, expected)
    if blur > SKEW_FAIL_S:
        return unknown(said, expected)
    return warned(said, expected) if off > SKEW_WARN_S else passed(said, expected)


def _unit(unit: str) -> str:
    return unit.removesuffix(".service")


def _words(unit: Unit) -> str:
    return unit.active if unit.load == "loaded" else f"{unit.active} ({unit.load})"


def _status(answer: Answer) -> str:
    """curl's own words: 7 could not connect, 28 timed out. Another end of curl is no signal."""
    if answer.code not in (0, 7, 28) or not re.fullmatch(r"[0-9]{3}", answer.stdout.strip()):
        raise ParseError(f"curl: exit {answer.code}: {short(answer.stderr or answer.stdout)}")
    return answer.stdout.strip()


def _http(status: str) -> str:
    return "not at all" if status == "000" else status


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


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


def _disk(disk: Disk) -> str:
    inodes = disk.inodes if disk.inodes is not None and disk.inodes > disk.space else None
    return f"{disk.space} %" if inodes is None else f"{inodes} % of inodes"


def _seconds(answer: Answer) -> float:
    found = answer.text().strip()
    if not re.fullmatch(r"[0-9]{1,12}\.[0-9]{1,9}", found):
        raise ParseError(f"date said {short(found, 40)}")
    return float(found)
