"""Check the limits of jobs: those of setrlimit(2) and /dev/shm, on a node and as a job sees them.

RDMA needs locked memory without a limit, and NCCL and data loaders need open files and /dev/shm. A job has the limits of
slurmd: a hard limit is never propagated from who submits, and slurm.conf propagates no soft one of MEMLOCK and NPROC.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

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
)
from gpucluster.text import short

OPEN_FILES, PROCESSES = 131072, 65536  # of slurmd's unit
SHM_PERCENT = 5  # of the memory; the kernel gives 50. A container often has 64 MiB
SHM = "/dev/shm"  # noqa: S108  asked about, not written to
_LIMIT = re.compile(
    r"^Max ([a-z]+(?: [a-z]+)*) +(unlimited|[0-9]{1,20}) +(unlimited|[0-9]{1,20}) ", re.MULTILINE
)
_MEMORY = re.compile(r"^MemTotal: +([0-9]{1,15}) kB$", re.MULTILINE)
_SHM_KIB = ("df", "--block-size=1024", "--output=size", "--", SHM)
_OF_JOB = (
    f"cat /proc/self/limits; echo; cat /proc/1/limits; echo; {' '.join(_SHM_KIB)}; echo; cat /proc/meminfo"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A limit of setrlimit(2). `least`: None is unlimited. `soft`: where its soft limit counts, too, beside the hard one.

    `unit`: of the number, as /proc shows it. `value`: of slurmd's unit.
    """

    title: str  # in /proc/PID/limits
    least: int | None = None
    unit: str = "bytes"
    soft: tuple[str, ...] = ("slurmd",)
    value: str = "infinity"


# setrlimit's name -> limit. slurm.conf propagates soft limits to jobs but those of MEMLOCK and NPROC. A program raises the soft
# limits of its stack and its open files itself. Core files, signals, queues and priorities are the machine's own. RSS has no
# effect on Linux (setrlimit(2)), and slurmstepd sets it to the memory of the job.
_KINDS = {
    "cpu": _Kind(title="cpu time", unit="seconds"),
    "fsize": _Kind(title="file size"),
    "data": _Kind(title="data size"),
    "stack": _Kind(title="stack size", soft=(), value="8M:infinity"),
    "nproc": _Kind(title="processes", least=PROCESSES, unit="", soft=("slurmd", "job"), value=str(PROCESSES)),
    "nofile": _Kind(title="open files", least=OPEN_FILES, unit="", soft=(), value=str(OPEN_FILES)),
    "memlock": _Kind(title="locked memory", soft=("slurmd", "job")),
    "as": _Kind(title="address space"),
    "locks": _Kind(title="file locks", unit=""),
}
DROP_IN = "/etc/systemd/system/slurmd.service.d/zz-gpucluster-limits.conf"  # the last name counts
_LINES = "".join(rf"Limit{name.upper()}={kind.value}\n" for name, kind in _KINDS.items())
_UNIT = (
    f"mkdir -p {DROP_IN.rpartition('/')[0]}; "
    rf"printf '[Service]\n{_LINES}' >{DROP_IN}; "
    f"systemctl daemon-reload; {remedies.restart('slurmd')}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsWant:
    """The least open files. `as_machine`: in a rehearsal no limit can be above that of the machine's first process."""

    open_files: int
    as_machine: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Name as in /proc -> soft and hard limit, of the process and of the machine's first one; None is no limit."""

    own: dict[str, tuple[int | None, int | None]]
    machine: dict[str, tuple[int | None, int | None]]
    shm_kib: int
    memory_kib: int


def query_slurmd(_want: LimitsWant) -> tuple[Query, ...]:
    return (
        Query(argv=("systemctl", "show", "--property=MainPID", "--value", "slurmd.service")),
        Query(argv=("cat", "/proc/{fed}/limits")),
        Query(argv=("cat", "/proc/1/limits")),
        Query(argv=_SHM_KIB),
        Query(argv=("cat", "/proc/meminfo")),
    )


def parse_slurmd(got: tuple[QueryOutput, ...]) -> Limits:
    """The limits of slurmd, and of the machine."""
    _, slurmd, first, shm, memory = got
    return _limits(slurmd.text(), first.text(), shm.text(), memory.text())


def query_job(_want: LimitsWant) -> tuple[Query, ...]:
    argv = ("--nodes=1", "--ntasks=1", "--", "sh", "-c", _OF_JOB)
    return (Query(argv=argv, at=Location.STEP, limit_s=30),)


def parse_job(got: tuple[QueryOutput, ...]) -> Limits:
    """The four parts that a step printed."""
    parts = got[0].text().split("\n\n")
    if len(parts) != 4:
        raise ParseError(f"the step printed {short(got[0].stdout, 60)!r}")
    return _limits(*parts)


def evaluate_slurmd(found: Limits, want: LimitsWant) -> CheckResult:
    result = _evaluate(found, want, "slurmd")
    commands = (
        *((_UNIT,) if set(result.culprits) - {SHM} else ()),
        *((f"mount -o remount,size=50% {SHM}",) if SHM in result.culprits else ()),
    )
    return replace(result, remedy="on {machine}: " + "; ".join(commands)) if commands else result


def evaluate_job(found: Limits, want: LimitsWant) -> CheckResult:
    return _evaluate(found, want, "job")


def _evaluate(found: Limits, want: LimitsWant, whose: str) -> CheckResult:
    """Culprits are setrlimit's names, and /dev/shm."""
    least = {name: _least_of(name, found, want) for name in _KINDS}
    shm_kib = found.memory_kib * SHM_PERCENT // 100
    bad: dict[str, str] = {}
    for name, kind in _KINDS.items():
        soft, hard = found.own[kind.title]
        for limit in (hard, soft) if whose in kind.soft else (hard,):
            if _below(limit, least[name]):
                verb = "are" if kind.title.endswith("s") else "is"
                bad[name] = f"{kind.title} {verb} limited to {_shown(limit, kind)}"
    if found.shm_kib < shm_kib:
        bad[SHM] = f"{SHM} has {found.shm_kib // 1024} MiB"
    expected = f"{_limits_shown(least)}, {SHM} of {shm_kib // 1024} MiB or more"
    return failed(listed(list(bad.values())), expected, tuple(bad)) if bad else passed(expected)


def _least_of(name: str, found: Limits, want: LimitsWant) -> int | None:
    kind = _KINDS[name]
    least = want.open_files if name == "nofile" else kind.least
    most = found.machine[kind.title][1] if want.as_machine else None
    return most if least is None else _least(least, most)


def _limits_shown(least: Mapping[str, int | None]) -> str:
    free = [_KINDS[name].title for name, limit in least.items() if limit is None]
    some = [f"{_KINDS[name].title} {_shown(limit, _KINDS[name])}" for name, limit in least.items() if limit]
    return ", ".join((*some, f"no limit of {', '.join(free)}")) if free else ", ".join(some)


def _limits(own: str, first: str, shm: str, memory: str) -> Limits:
    mine, machine = _of_process(own), _of_process(first)
    size, total = re.fullmatch(r"\s*1K-blocks\s+([0-9]{1,15})\s*", shm), _MEMORY.search(memory)
    if size is None or total is None:
        raise ParseError(f"df printed {short(shm, 60)!r}, /proc/meminfo {short(memory, 60)!r}")
    return Limits(own=mine, machine=machine, shm_kib=int(size[1]), memory_kib=int(total[1]))


def _of_process(text: str) -> dict[str, tuple[int | None, int | None]]:
    """Name -> soft and hard limit, of /proc/PID/limits; ParseError if one is missing."""
    found = {name: (_number(soft), _number(hard)) for name, soft, hard in _LIMIT.findall(text)}
    if lost := [kind.title for kind in _KINDS.values() if kind.title not in found]:
        raise ParseError(f"the limits of a process lack {listed(lost)}: {short(text, 60)!r}")
    return found


def _number(word: str) -> int | None:
    return None if word == "unlimited" else int(word)


def _below(value: int | None, least: int | None) -> bool:
    """Whether a limit is lower than another; None is no limit."""
    return value is not None and (least is None or value < least)


def _least(one: int, other: int | None) -> int:
    return one if other is None else min(one, other)


def _shown(limit: int | None, kind: _Kind) -> str:
    if limit is None:
        return "unlimited"
    return f"{limit // 1024} KiB" if kind.unit == "bytes" else f"{limit}{' s' if kind.unit else ''}"
