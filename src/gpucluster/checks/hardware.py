"""What a machine is: its GPUs, and the board that slurmd finds."""

import re
from dataclasses import dataclass

from gpucluster.checks.model import Answer, Ask, Judgement, ParseError, failed, listed, passed, short


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """How many GPUs Slurm is told of."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """What slurmd must find: at least so much."""

    cpus: int
    sockets: int
    cores: int
    threads: int
    memory_mib: int


def ask_gpus(_want: Gpus) -> tuple[Ask, ...]:
    seen = ("find", "/dev", "-maxdepth", "1", "-name", "nvidia[0-9]*")
    # stat, not find's -type: that trusts the folder's entry, which a mount over it may hide
    return (Ask(argv=(*seen, "-exec", "stat", "--format=%F:%n", "{}", "+")),)


def parse_gpus(got: tuple[Answer, ...]) -> frozenset[str]:
    """Names of character devices."""
    return frozenset(
        re.findall(r"^character special file:/dev/(nvidia[0-9]{1,3})$", got[0].text(), re.MULTILINE)
    )


def judge_gpus(found: frozenset[str], want: Gpus) -> Judgement:
    expected = f"{want.count} GPUs, /dev/nvidia0 to {want.count - 1}"
    absent = [f"nvidia{n}" for n in range(want.count) if f"nvidia{n}" not in found]
    if absent or len(found) != want.count:
        lacks = f", {listed(absent)} missing" if absent else ""
        return failed(f"{len(found)} GPUs{lacks}", expected)
    return passed(f"{len(found)} GPUs", expected)


def ask_board(_want: Board) -> tuple[Ask, ...]:
    return (Ask(argv=("slurmd", "-C")),)


def parse_board(got: tuple[Answer, ...]) -> Board:
    """`slurmd -C` in 24.11: one line of Key=Value, then the uptime."""
    pairs = dict(re.findall(r"(\w+)=([0-9]{1,12})(?:\s|$)", got[0].text()))
    keys = ("CPUs", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory")
    if any(key not in pairs for key in keys):
        raise ParseError(f"slurmd -C said {short(got[0].stdout, 80)}")
    cpus, sockets, cores, threads, memory = (int(pairs[key]) for key in keys)
    return Board(cpus=cpus, sockets=sockets, cores=cores, threads=threads, memory_mib=memory)


def judge_board(found: Board, want: Board) -> Judgement:
    """More memory than planned is well; another count of cores is another machine."""
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
