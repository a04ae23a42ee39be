"""The options of a launcher in a command, without those of the program that it starts.

Source: mpirun(1) of Open MPI 4.1 and 5.0; torchrun and `accelerate launch` start a file or `-m MODULE`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.k8s.lint.tree import items, text

_MPI = frozenset({"horovodrun", "mpiexec", "mpirun", "orterun", "prterun"})
_COUNT = frozenset({"-c", "-n", "-np"})
_ONE_VALUE = frozenset(  # with one dash; mpirun takes each with two as well
    {"-H", "-N", "-am", "-app", "-bind-to", "-cpu-list", "-cpu-set", "-cpus-per-proc", "-cpus-per-rank", "-default-hostfile", "-display", "-host",
     "-hostfile", "-machinefile", "-map-by", "-max-restarts", "-npernode", "-npersocket", "-output", "-output-filename", "-path", "-personality",
     "-prefix", "-rank-by", "-rankfile", "-rf", "-runtime-options", "-slot-list", "-stdin", "-timeout", "-tune", "-wd", "-wdir", "-x"}
)  # fmt: skip
_TWO_VALUES = frozenset({"-gmca", "-mca", "-pmixmca", "-prtemca"})
_NO_VALUE = frozenset(
    {"-allow-run-as-root", "-bycore", "-bynode", "-byslot", "-bysocket", "-d", "-display-allocation", "-display-map", "-display-topo",
     "-nolocal", "-nooversubscribe", "-noprefix", "-oversubscribe", "-pernode", "-q", "-quiet", "-report-bindings", "-tag-output",
     "-timestamp-output", "-use-hwthread-cpus", "-v", "-verbose"}
)  # fmt: skip
_NEXT_COMMAND = re.compile(r"[;&|\n]+")
_PROGRAM = re.compile(r"\s(?:-m\s|\S+\.py\b)")


def command(container: Mapping[str, Any]) -> str:
    """Return the words of a command; a script of a shell is one of them. A word and its value in the next are put together."""
    return " ".join(text(word) for part in ("command", "args") for word in items(container.get(part)))


def of_program(written: str, launcher: re.Pattern[str]) -> str:
    """Return the options of each start of a launcher of PyTorch."""
    starts = [found.end() for found in launcher.finditer(written)]
    parts = [written[start:end] for start, end in zip(starts, [*starts[1:], len(written)], strict=True)]
    return " ".join(_PROGRAM.split(part, maxsplit=1)[0] for part in parts)


def processes(written: str) -> Iterator[int]:
    """Yield how many processes each mpirun starts, if its options say it. After an option that is not known here nothing is read."""
    for one in _NEXT_COMMAND.split(written.replace("\\\n", " ")):
        words = [word.strip("'\"") for word in one.split()]
        starts = [number for number, word in enumerate(words) if word.rpartition("/")[2] in _MPI]
        counts = [_count(part) for part in _programs(words[starts[0] + 1 :])] if starts else []
        known = [count for count in counts if count is not None]
        if counts and len(known) == len(counts):
            yield sum(known)


def _programs(words: list[str]) -> Iterator[list[str]]:
    """Yield the words of each program of one mpirun; `:` stands between them."""
    while ":" in words:
        end = words.index(":")
        yield words[:end]
        words = words[end + 1 :]
    yield words


def _count(words: list[str]) -> int | None:
    """Return the number of processes of one program; the last one counts."""
    found: int | None = None
    while words:
        name, joined, value = words[0].replace("--", "-", 1).partition("=")
        taken = _values(name)
        if taken is None:
            break
        value = value if joined else "".join(words[1:2])
        if name in _COUNT:
            found = int(value) if re.fullmatch(r"\d{1,6}", value, re.ASCII) else None
        words = words[1 + (0 if joined else taken) :]
    return found


def _values(name: str) -> int | None:
    """Return how many words follow an option; None for a program and for an option that is not known."""
    table = ((_NO_VALUE, 0), (_COUNT | _ONE_VALUE, 1), (_TWO_VALUES, 2))
    return next((number for names, number in table if name in names), None)
