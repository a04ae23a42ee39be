"""What a machine hears of itself beside its boot: notices of the metadata service, and faults in the kernel's log.

Each has a thread of its own, so that a service that hangs never holds a heartbeat up; what is new rings at once.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from gpucluster.errors import GpuclusterError
from gpucluster.node import interruptions
from gpucluster.node.kernel_log import Faults, Lines
from gpucluster.node.machine import Heard
from gpucluster.node.walk import one_line
from gpucluster.plan.messages import Notice

ASK_S = 5.0  # AWS advises it (T34)
READ_S = 1.0  # a stand-in of the kernel's log cannot be waited for

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Senses:
    """`now` is the wall clock. Call it for what was heard so far; `start` begins to listen."""

    ask: Callable[[str], str | None]
    lines: Lines
    ring: Callable[[], object]
    now: Callable[[], float] = time.time
    _heard: Heard = field(default_factory=Heard)
    _faults: Faults = field(default_factory=Faults)
    _places: dict[str, tuple[Notice, ...]] = field(default_factory=dict[str, tuple[Notice, ...]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self) -> Heard:
        return self._heard

    def start(self) -> None:
        """Listen until the process ends."""
        for name, listen in (("notices", self._listen), ("kernel-log", self._follow)):
            threading.Thread(target=listen, name=name, daemon=True).start()

    def ask_once(self) -> None:
        """One round of questions; one that is not answered leaves what was known, and hides no other's answer."""
        for place, read in interruptions.PLACES.items():
            try:
                self._places[place] = tuple(read(self.ask(place)))
            except (GpuclusterError, OSError) as error:
                log.debug("the metadata service: %s", error)
        notices = sorted((n for found in self._places.values() for n in found), key=_order)
        self._take(notices=tuple(notices), watched=len(self._places) == len(interruptions.PLACES))

    def read_once(self) -> None:
        """The lines that are there now; each fault is told at once, for a flood may have no end."""
        for line in self.lines.read():
            if self._faults.take(line, self.now()):
                self._take(faults=self._faults.all())

    def outlive(self, whose: str, listen: Callable[[], object]) -> bool:
        """Listen once, whatever goes wrong: a thread that ends would never hear again, and nobody would know."""
        try:
            listen()
        except Exception as error:  # noqa: BLE001
            log.warning("%s: %s", whose, one_line(error))
            return False
        return True

    def _take(self, **changes: Any) -> None:
        with self._lock:
            before = self._heard
            self._heard = replace(before, **changes)
        if _news(before) != _news(self._heard):
            self.ring()

    def _listen(self) -> None:
        while True:
            self.outlive("the metadata service", self.ask_once)
            time.sleep(ASK_S)

    def _follow(self) -> None:
        while True:
            if not self.outlive("the kernel's log", self._read_and_wait):
                time.sleep(ASK_S)

    def _read_and_wait(self) -> None:
        self.read_once()
        self.lines.wait(READ_S)


def _order(notice: Notice) -> tuple[str, float, str]:
    """The same notices are the same value."""
    return (notice.kind.value, notice.at or 0.0, notice.words)


def _news(heard: Heard) -> object:
    """What is worth a ring: a fault that only comes again is told with the next beat."""
    return heard.notices, tuple((fault.xid, fault.device) for fault in heard.faults)
