"""Check the hardware of a machine: its GPUs, and the CPUs and memory that slurmd finds."""

import re
from dataclasses import dataclass

from gpucluster.checks.check import CheckResult, ParseError, Query, QueryOutput, failed, listed, passed
from gpucluster.text import short


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The number of GPUs in gres.conf."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The CPUs that slurmd must find, and the least memory."""

    cpus: int
    sockets: int
    cores: int
    threads: int
    memory_mib: int


def query_gpus(_want: Gpus) -> tuple[Query, ...]:
    seen = ("find", "/dev", "-maxdepth", "1", "-name", "nvidia[0-9]*")
    # stat, because find's -type reads the directory entry, which a bind mount over the file does not change
    return (Query(argv=(*seen, "-exec", "stat", "--format=%F:%n", "{}", "+")),)


def parse_gpus(got: tuple[QueryOutput, ...]) -> frozenset[str]:
    """The names of the GPUs' character devices."""
    return frozenset(
        re.findall(r"^character special file:/dev/(nvidia[0-9]{1,3})$", got[0].text(), re.MULTILINE)
    )


def evaluate_gpus(found: frozenset[str], want: Gpus) -> CheckResult:
    expected = f"{want.count} GPUs, /dev/nvidia0 to {want.count - 1}"
    planned = [f"nvidia{n}" for n in range(want.count)]
    absent, extra = [one for one in planned if one not in found], sorted(found - set(planned))
    lacks = f", {listed(absent)} missing" if absent else ""
    more = f", {listed(extra)} not in gres.conf" if extra else ""
    if not absent and not extra:
        return passed(f"{len(found)} GPUs", expected)
    # a device file more is no GPU: the machine type has the plan's number
    remedy = f"on {{machine}}: rm {' '.join(f'/dev/{one}' for one in extra)}" if extra and not absent else ""
    return failed(f"{len(found)} GPUs{lacks}{more}", expected, (*absent, *extra), remedy)


def query_board(_want: Board) -> tuple[Query, ...]:
    return (Query(argv=("slurmd", "-C")),)


def parse_board(got: tuple[QueryOutput, ...]) -> Board:
    """`slurmd -C` of 24.11 prints one line of Key=Value, then the uptime."""
    pairs = dict(re.findall(r"\b(\w+)=([0-9]{1,12})(?:\s|$)", got[0].text()))
    keys = ("CPUs", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory")
    if any(key not in pairs for key in keys):
        raise ParseError(f"slurmd -C printed {short(got[0].stdout, 80)}")
    cpus, sockets, cores, threads, memory = (int(pairs[key]) for key in keys)
    return Board(cpus=cpus, sockets=sockets, cores=cores, threads=threads, memory_mib=memory)


def evaluate_board(found: Board, want: Board) -> CheckResult:
    """More memory than in the plan passes; any other number of CPUs, sockets, cores or threads fails."""
    same = (found.cpus, found.sockets, found.cores, found.threads) == (
        want.cpus,
        want.sockets,
        want.cores,
        want.threads,
    )
    well = same and found.memory_mib >= want.memory_mib
    return (passed if well else failed)(_board(found), f"{_board(want)} or more memory")


def _board(board: Board) -> str:
    return f"CPUs={board.cpus} {board.sockets}x{board.cores}x{board.threads} RealMemory={board.memory_mib}"
