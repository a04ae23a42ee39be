"""NVIDIA's faults in the kernel's log, since this boot.

Others' text stands in its lines (any user's mount option, in a namespace of its own): only how a line begins is the
driver's word. `/dev/kmsg` gives one record a read; a stand-in (names.KERNEL_LOG_VARIABLE) is a file of plain lines that grows.
"""

import os
import re
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gpucluster.catalog.xids import Severity, severity_of
from gpucluster.plan.messages import GpuFault

RECORD = re.compile(
    r"[0-9]{1,10},[0-9]{1,20},([0-9]{1,20}),[^;]*;"
)  # priority, number, microseconds since the boot, flags
XID = re.compile(
    rf"(?:{RECORD.pattern}|\[ *[0-9.]+\] )?"
    r"NVRM: Xid \(PCI:(?P<device>[0-9A-Fa-f:.]{1,16})\): (?P<xid>[0-9]{1,4})(?![0-9]),? ?(?P<text>.{0,120})"
)
MOST = 32  # kinds of fault that are kept: the worst, and of these the newest
DAY_S = 86_400.0  # what lies farther apart than this is counted anew
CHUNK, LONGEST = 65_536, 4096
LONGEST_WAIT_S = 60.0


@dataclass(slots=True)
class Faults:
    """By (xid, device)."""

    _found: dict[tuple[int, str], GpuFault] = field(default_factory=dict[tuple[int, str], GpuFault])

    def take(self, line: str, now: float) -> bool:
        """Count the line if it is a fault; whether it is one."""
        found = XID.match(line)
        if found is None:
            return False
        at, key = _time_of(line, now), (int(found["xid"]), found["device"].lower())
        old = self._found.get(key)
        text = "".join(c for c in found["text"] if c.isprintable() and c.isascii())
        again = old.count + 1 if old is not None and at - old.last_at < DAY_S else 1
        self._found[key] = GpuFault(xid=key[0], device=key[1], count=again, last_at=at, text=text)
        if len(self._found) > MOST:
            del self._found[min(self._found, key=lambda known: _weight(self._found[known]))]
        return True

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


def _weight(fault: GpuFault) -> tuple[int, float, int, str]:
    """A user's own bugs on every GPU must not hide the one that is broken."""
    return (tuple(Severity).index(severity_of(fault.xid, fault.text)), fault.last_at, fault.xid, fault.device)


def _time_of(line: str, now: float) -> float:
    """A record's own moment; a plain line's is now."""
    record = RECORD.match(line)
    if record is None:
        return now
    return round(now - max(0.0, time.monotonic() - int(record[1]) / 1e6), 3)
