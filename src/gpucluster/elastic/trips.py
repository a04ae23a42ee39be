"""A real kill at a failpoint, for rehearsals: `GPUCLUSTER_TRIP=after-intent:2` ends the daemon at its second pass there.

Only where the sandbox's own file and endpoint are, so never on AWS. Each value kills once: a marker beside the journal
remembers it, so the daemon that systemd starts again goes on; another count is another value.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from gpucluster.elastic.act import Failpoint
from gpucluster.errors import StateError

VARIABLE = "GPUCLUSTER_TRIP"
MARKER = "tripped"


def trip_of(
    environ: Mapping[str, str], rehearsal: Path, folder: Path, kill: Callable[[], object] | None = None
) -> Callable[[Failpoint], None]:
    """What to call at each failpoint; nothing happens there outside a rehearsal, or without the variable."""
    wish = environ.get(VARIABLE, "")
    marker = folder / MARKER
    if not wish or not environ.get("AWS_ENDPOINT_URL") or not rehearsal.exists() or _read(marker) == wish:
        return lambda _: None
    point, number = _parsed(wish)
    seen: Counter[Failpoint] = Counter()

    def trip(at: Failpoint) -> None:
        seen[at] += 1
        if at is point and seen[at] == number:
            _write(marker, wish)
            (kill or _kill)()

    return trip


def _parsed(wish: str) -> tuple[Failpoint, int]:
    name, _, number = wish.partition(":")
    if name not in set(Failpoint) or not (number or "1").isdecimal():
        raise StateError(
            f"{VARIABLE}={wish!r} names no failpoint",
            next_step=f"NAME[:COUNT], NAME one of {', '.join(Failpoint)}",
        )
    return Failpoint(name), int(number or "1")


def _read(marker: Path) -> str:
    try:
        return marker.read_text()
    except OSError:
        return ""


def _write(marker: Path, wish: str) -> None:
    marker.parent.mkdir(parents=True, exist_ok=True)
    with marker.open("w") as stream:
        stream.write(wish)
        stream.flush()
        os.fsync(stream.fileno())


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
