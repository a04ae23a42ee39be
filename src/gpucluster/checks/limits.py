"""Check the limits of jobs: locked memory, open files and /dev/shm, on a node and as a job sees them.

RDMA needs locked memory without a limit, and NCCL and data loaders need open files and /dev/shm. A job has the limits of
slurmd, because slurm.conf does not propagate MEMLOCK, and a hard limit of open files is never propagated.
"""

import re
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
from gpucluster.text import short

OPEN_FILES = 131072  # of slurmd's unit, as SchedMD's own
SHM_PERCENT = 5  # of the memory; the kernel gives 50. A container often has 64 MiB
SHM = "/dev/shm"  # noqa: S108  asked about, not written to
_LIMIT = re.compile(
    r"^Max (locked memory|open files) +(unlimited|[0-9]{1,20}) +(unlimited|[0-9]{1,20}) ", re.MULTILINE
)
_MEMORY = re.compile(r"^MemTotal: +([0-9]{1,15}) kB$", re.MULTILINE)
_SHM_KIB = ("df", "--block-size=1024", "--output=size", "--", SHM)
_OF_JOB = (
    f"cat /proc/self/limits; echo; cat /proc/1/limits; echo; {' '.join(_SHM_KIB)}; echo; cat /proc/meminfo"
)
DROP_IN = "/etc/systemd/system/slurmd.service.d/zz-gpucluster-limits.conf"  # the last name counts
_UNIT = (
    f"mkdir -p {DROP_IN.rpartition('/')[0]}; "
    rf"printf '[Service]\nLimitMEMLOCK=infinity\nLimitNOFILE={OPEN_FILES}\n' >{DROP_IN}; "
    "systemctl daemon-reload; systemctl restart slurmd"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsWant:
    """The least open files. `as_machine`: in a rehearsal no limit can be above that of the machine's first process."""

    open_files: int
    as_machine: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Soft limit of locked memory and hard limit of open files; None is no limit. Those of the machine's first process. KiB."""

    locked: int | None
    files: int | None
    locked_of_machine: int | None
    files_of_machine: int | None
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
    return _evaluate(found, want, heals=True)


def evaluate_job(found: Limits, want: LimitsWant) -> CheckResult:
    return _evaluate(found, want, heals=False)


def _evaluate(found: Limits, want: LimitsWant, *, heals: bool) -> CheckResult:
    locked = found.locked_of_machine if want.as_machine else None
    files = _least(want.open_files, found.files_of_machine if want.as_machine else None)
    shm_kib = found.memory_kib * SHM_PERCENT // 100
    wrong = (
        ("memlock", _below(found.locked, locked), f"locked memory is limited to {_kib(found.locked)}"),
        ("nofile", _below(found.files, files), f"open files are limited to {found.files}"),
        (SHM, found.shm_kib < shm_kib, f"{SHM} has {found.shm_kib // 1024} MiB"),
    )
    bad = {name: words for name, is_wrong, words in wrong if is_wrong}
    expected = f"locked memory {_kib(locked)}, {files} open files, {SHM} of {shm_kib // 1024} MiB or more"
    if not bad:
        return passed(
            f"locked memory {_kib(found.locked)}, {found.files or 'unlimited'} open files, {SHM} of {found.shm_kib // 1024} MiB",
            expected,
        )
    commands = (
        *((_UNIT,) if bad.keys() & {"memlock", "nofile"} else ()),
        *((f"mount -o remount,size=50% {SHM}",) if SHM in bad else ()),
    )
    remedy = "on {machine}: " + "; ".join(commands) if heals else ""
    return failed(listed(list(bad.values())), expected, tuple(bad), remedy)


def _limits(own: str, first: str, shm: str, memory: str) -> Limits:
    mine, machine = _of_process(own), _of_process(first)
    size, total = re.fullmatch(r"\s*1K-blocks\s+([0-9]{1,15})\s*", shm), _MEMORY.search(memory)
    if size is None or total is None:
        raise ParseError(f"df printed {short(shm, 60)!r}, /proc/meminfo {short(memory, 60)!r}")
    return Limits(
        locked=mine["locked memory"][0],
        files=mine["open files"][1],
        locked_of_machine=machine["locked memory"][1],
        files_of_machine=machine["open files"][1],
        shm_kib=int(size[1]),
        memory_kib=int(total[1]),
    )


def _of_process(text: str) -> dict[str, tuple[int | None, int | None]]:
    """Name -> soft and hard limit, of /proc/PID/limits; ParseError if one is missing."""
    found = {name: (_number(soft), _number(hard)) for name, soft, hard in _LIMIT.findall(text)}
    if found.keys() != {"locked memory", "open files"}:
        raise ParseError(f"the limits of a process are {short(text, 60)!r}")
    return found


def _number(word: str) -> int | None:
    return None if word == "unlimited" else int(word)


def _below(value: int | None, least: int | None) -> bool:
    """Whether a limit is lower than another; None is no limit."""
    return value is not None and (least is None or value < least)


def _least(one: int, other: int | None) -> int:
    return one if other is None else min(one, other)


def _kib(limit: int | None) -> str:
    return "unlimited" if limit is None else f"{limit // 1024} KiB"
