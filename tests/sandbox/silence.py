"""How long slurmctld does not answer while something happens to a cluster."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cluster import Cluster


@dataclass
class Silence:
    """Asks slurmctld until it is stopped; `longest` is the longest time between two answers."""

    cluster: Cluster
    longest: float = 0.0
    _end: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Silence":
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _ask(self) -> None:
        last = time.monotonic()
        while not self._end.is_set():
            answered = answers(self.cluster)
            now = time.monotonic()
            self.longest = max(self.longest, now - last)
            last = now if answered else last
            self._end.wait(0.3)


def answers(cluster: Cluster) -> bool:
    try:
        return "is UP" in cluster.exec("head", "timeout", "2", "scontrol", "ping", check=False)
    except Exception:  # noqa: BLE001  the machine is away
        return False


def tried(call: Callable[[], Any], otherwise: Any) -> Any:
    """Return the answer, or `otherwise` if the machine is away."""
    try:
        return call()
    except Exception:  # noqa: BLE001
        return otherwise
