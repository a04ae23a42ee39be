"""Watch the health of a machine: interruption notices of the metadata service, and GPU faults in the kernel log.

Each source has its own thread, so that a service that hangs delays no heartbeat. A new notice or fault causes a heartbeat
at once.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from gpucluster.agent.boot.runner import one_line
from gpucluster.agent.machine import HealthReport
from gpucluster.agent.monitors import interruptions
from gpucluster.agent.monitors.kernel_log import FaultTable, KernelLog
from gpucluster.errors import GpuclusterError
from gpucluster.plan.messages import Notice

POLL_S = 5.0  # AWS recommends it (T34)
READ_S = 1.0  # for a plain file, where select cannot wait

log = logging.getLogger(__name__)


@dataclass(slots=True)
class HealthWatcher:
    """Call it for the current report. `start` starts the threads. `now` returns Unix time."""

    query: Callable[[str], str | None]
    kernel_log: KernelLog
    wake: Callable[[], object]
    now: Callable[[], float] = time.time
    _report: HealthReport = field(default_factory=HealthReport)
    _faults: FaultTable = field(default_factory=FaultTable)
    _notices: dict[str, tuple[Notice, ...]] = field(default_factory=dict[str, tuple[Notice, ...]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self) -> HealthReport:
        return self._report

    def start(self) -> None:
        """Watch until the process ends."""
        for name, run in (("notices", self._poll_forever), ("kernel-log", self._follow_kernel_log)):
            threading.Thread(target=run, name=name, daemon=True).start()

    def poll_metadata(self) -> None:
        """Query each path once. If a query fails, its last answer stays, and the other paths are queried."""
        for path, parse in interruptions.PARSERS.items():
            try:
                self._notices[path] = tuple(parse(self.query(path)))
            except (GpuclusterError, OSError) as error:
                log.debug("the metadata service: %s", error)
        notices = sorted((n for found in self._notices.values() for n in found), key=_order)
        self._update(notices=tuple(notices), watched=len(self._notices) == len(interruptions.PARSERS))

    def read_kernel_log(self) -> None:
        """Read the lines that are there now. Each fault is reported at once, because the log may grow without end."""
        for line in self.kernel_log.read():
            if self._faults.add(line, self.now()):
                self._update(faults=self._faults.sorted_faults())

    def run_safely(self, source: str, run: Callable[[], object]) -> bool:
        """Run one round and log any error, which would otherwise end the thread without a message."""
        try:
            run()
        except Exception as error:  # noqa: BLE001
            log.warning("%s: %s", source, one_line(error))
            return False
        return True

    def _update(self, **changes: Any) -> None:
        with self._lock:
            before = self._report
            self._report = replace(before, **changes)
        if _changes(before) != _changes(self._report):
            self.wake()

    def _poll_forever(self) -> None:
        while True:
            self.run_safely("the metadata service", self.poll_metadata)
            time.sleep(POLL_S)

    def _follow_kernel_log(self) -> None:
        while True:
            if not self.run_safely("the kernel log", self._read_and_wait):
                time.sleep(POLL_S)

    def _read_and_wait(self) -> None:
        self.read_kernel_log()
        self.kernel_log.wait(READ_S)


def _order(notice: Notice) -> tuple[str, float, str]:
    """Return the notices in a fixed order, so that equal notices are equal values."""
    return (notice.kind.value, notice.at or 0.0, notice.words)


def _changes(report: HealthReport) -> object:
    """Return the parts of a report. A change of them causes a heartbeat at once; a repeated fault is no change."""
    return report.notices, tuple((fault.xid, fault.device) for fault in report.faults)
