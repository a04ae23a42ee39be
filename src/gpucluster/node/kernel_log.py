"""NVIDIA's faults in the kernel's log, since this boot. Its lines are others' text: whoever writes to it may lie.

`/dev/kmsg` gives one record a read; a stand-in (names.KERNEL_LOG_VARIABLE) is a file of plain lines that grows.
"""

import os
import re
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpucluster.plan.messages import GpuFault

XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]{1,16})\): ([0-9]{1,4})(?![0-9]),? ?(.{0,120})")
RECORD = re.compile(r"[0-9]+,[0-9]+,([0-9]+),[^;]*;")  # priority, number, microseconds since the boot, flags
MOST = 32  # kinds of fault that are kept; a machine with more is told of by these
DAY_S = 86_400.0  # what lies farther apart than this is counted anew
CHUNK, LONGEST = 65_536, 4096
LONGEST_WAIT_S = 60.0


@dataclass(slots=True)
class Faults:
    """By (xid, device)."""

    _found: dict[tuple[int, str], GpuFault] = field(default_factory=dict[tuple[int, str], GpuFault])

    def take(self, line: str, now: float) -> None:
        """Count the line if it is a fault."""
        found = XID.search(line)
        if found is None:
            return
        at, key = _time_of(line, now), (int(found[2]), found[1].lower())
        old = self._found.get(key)
        text = "".join(c for c in found[3] if c.isprintable() and c.isascii())
        if old is not None:
            again = old.count + 1 if at - old.last_at < DAY_S else 1
            self._found[key] = replace(old, count=again, last_at=at, text=text)
        elif len(self._found) < MOST:
            self._found[key] = GpuFault(xid=key[0], device=key[1], count=1, last_at=at, text=text)

    def all(self) -> tuple[GpuFault, ...]:
        """Sorted, so that the same faults are the same value."""
        return tuple(self._found[key] for key in sorted(self._found))


@dataclass(slots=True)
class Lines:
    """The log's lines, from its beginning on; a file that is not there yet has none."""

    path: Path
    _open: int | None = None
    _rest: bytes = b""
    _ended: bool = True  # at an end that nothing announces the end of; else the kernel wakes us

    def read(self) -> Iterator[str]:
        """Those that are there now; never waits."""
        while (chunk := self._chunk()) is not None:
            if not chunk:
                return
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            self._rest = self._rest[-LONGEST:]
            for line in whole:
                yield line[:LONGEST].decode(errors="replace")

    def wait(self, seconds: float) -> None:
        """Until there may be more."""
        if self._open is None or self._ended:
            time.sleep(seconds)
        else:
            select.select([self._open], [], [], LONGEST_WAIT_S)

    def _chunk(self) -> bytes | None:
        """Some bytes; none at the end; None where nothing can be read at all."""
        try:
            if self._open is None:
                self._open = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            chunk = os.read(self._open, CHUNK)
            self._ended = not chunk
            return chunk
        except (FileNotFoundError, PermissionError):
            return None
        except BlockingIOError:
            return b""
        except BrokenPipeError:  # the kernel's ring overtook us: the next record is there
            return b"\n"


def _time_of(line: str, now: float) -> float:
    """A record's own moment; a plain line's is now."""
    record = RECORD.match(line)
    if record is None:
        return now
    return round(now - max(0.0, time.monotonic() - int(record[1]) / 1e6), 3)
