"""GPU faults (NVIDIA Xid) in the kernel log since this boot.

A line may contain text of a user, for example a mount option from a user namespace. Only the beginning of a line is
certain to be the driver's. Each read of `/dev/kmsg` returns one record. A replacement file (names.KERNEL_LOG_VARIABLE)
has plain lines and grows.
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
from gpucluster.text import ascii_line

# priority, number, microseconds since the boot, flags
RECORD = re.compile(r"[0-9]{1,10},[0-9]{1,20},([0-9]{1,20}),[^;]*;")
XID = re.compile(
    rf"(?:{RECORD.pattern}|\[ *[0-9.]+\] )?"
    r"NVRM: Xid \(PCI:(?P<device>[0-9A-Fa-f:.]{1,16})\): (?P<xid>[0-9]{1,4})(?![0-9]),? ?(?P<text>.{0,120})"
)
MAX_FAULTS = 32  # limit of faults: the most severe stay, and of these the newest
DAY_S = 86_400.0  # the count starts again after a day without the fault
CHUNK, LONGEST = 65_536, 4096
LONGEST_WAIT_S = 60.0


@dataclass(slots=True)
class FaultTable:
    """Faults by (xid, device)."""

    _found: dict[tuple[int, str], GpuFault] = field(default_factory=dict[tuple[int, str], GpuFault])

    def add(self, line: str, now: float) -> bool:
        """Count the line if it is a fault. Return whether it is one."""
        found = XID.match(line)
        if found is None:
            return False
        at, key = _time_of(line, now), (int(found["xid"]), found["device"].lower())
        old = self._found.get(key)
        text = ascii_line(found["text"])
        again = old.count + 1 if old is not None and at - old.last_at < DAY_S else 1
        self._found[key] = GpuFault(xid=key[0], device=key[1], count=again, last_at=at, text=text)
        if len(self._found) > MAX_FAULTS:
            del self._found[min(self._found, key=lambda fault: _weight(self._found[fault]))]
        return True

    def sorted_faults(self) -> tuple[GpuFault, ...]:
        """Return the faults in a fixed order, so that equal faults are equal values."""
        return tuple(self._found[key] for key in sorted(self._found))


@dataclass(slots=True)
class KernelLog:
    """The lines of the log from its beginning. A missing file has no lines."""

    path: Path
    _open: int | None = None
    _rest: bytes = b""
    _ended: bool = True  # at the end of a plain file, where select cannot wait

    def read(self) -> Iterator[str]:
        """Yield the lines that are there now, without waiting."""
        while (chunk := self._chunk()) is not None:
            if not chunk:
                return
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            self._rest = self._rest[-LONGEST:]
            for line in whole:
                yield line[:LONGEST].decode(errors="replace")

    def wait(self, seconds: float) -> None:
        """Wait until there may be more lines."""
        if self._open is None or self._ended:
            time.sleep(seconds)
        else:
            select.select([self._open], [], [], LONGEST_WAIT_S)

    def _chunk(self) -> bytes | None:
        """Return some bytes; no bytes at the end; None if the log cannot be read."""
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
        except BrokenPipeError:  # the ring buffer has overwritten records; the next read continues
            return b"\n"


def _weight(fault: GpuFault) -> tuple[int, float, int, str]:
    """Return the rank of a fault. Faults of user programs must not displace a hardware fault."""
    return (tuple(Severity).index(severity_of(fault.xid, fault.text)), fault.last_at, fault.xid, fault.device)


def _time_of(line: str, now: float) -> float:
    """Return the time of a record; for a plain line it is now."""
    record = RECORD.match(line)
    if record is None:
        return now
    return round(now - max(0.0, time.monotonic() - int(record[1]) / 1e6), 3)
