"""A real kill at a failpoint, for rehearsals: `GPUCLUSTER_FAILPOINT=after-intent:2` kills the daemon when it reaches this point a second time.

It works only with the sandbox's own file and endpoint, so never on AWS. Each value kills once: a file beside the journal
marks it as used, so the daemon that systemd starts again continues. A value with another count is a new value.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from gpucluster.elastic.act import Failpoint
from gpucluster.errors import StateError

VARIABLE = "GPUCLUSTER_FAILPOINT"
MARKER = "tripped"


def failpoint_hits(
    environ: Mapping[str, str], rehearsal: Path, folder: Path, kill: Callable[[], object] | None = None
) -> Callable[[Failpoint], None]:
    """Return the function for each failpoint. Outside a rehearsal, or without the variable, it does nothing."""
    setting = environ.get(VARIABLE, "")
    marker = folder / MARKER
    if (
        not setting
        or not environ.get("AWS_ENDPOINT_URL")
        or not rehearsal.exists()
        or _read(marker) == setting
    ):
        return lambda _: None
    point, number = _parsed(setting)
    seen: Counter[Failpoint] = Counter()

    def hit(at: Failpoint) -> None:
        seen[at] += 1
        if at is point and seen[at] == number:
            _write(marker, setting)
            (kill or _kill)()

    return hit


def _parsed(setting: str) -> tuple[Failpoint, int]:
    name, _, number = setting.partition(":")
    if name not in set(Failpoint) or not (number or "1").isdecimal():
        raise StateError(
            f"{VARIABLE}={setting!r} names no failpoint",
            next_step=f"NAME[:COUNT], NAME one of {', '.join(Failpoint)}",
        )
    return Failpoint(name), int(number or "1")


def _read(marker: Path) -> str:
    try:
        return marker.read_text()
    except OSError:
        return ""


def _write(marker: Path, setting: str) -> None:
    marker.parent.mkdir(parents=True, exist_ok=True)
    with marker.open("w") as stream:
        stream.write(setting)
        stream.flush()
        os.fsync(stream.fileno())


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
