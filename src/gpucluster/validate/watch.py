"""What slurmctld shows of elastic nodes while validation's jobs run: sampled in a thread, changes kept."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import answers, lives, slurm
from gpucluster.checks.cloud import ENDED
from gpucluster.checks.model import Answer, ParseError
from gpucluster.errors import GpuclusterError

LOOK_S = 0.5
SETTLE_S = 10.0  # a job that is cancelled has left its nodes by then

# state word -> phase; the first that a node has
_PHASES = (
    ("POWERING_UP", lives.UP),
    ("POWERING_DOWN", lives.LEAVING),
    ("POWERED_DOWN", lives.OFF),
    ("DOWN", "DOWN"),
    ("ALLOCATED", lives.BUSY),
    ("MIXED", lives.BUSY),
    ("COMPLETING", lives.ENDING),
    ("IDLE", lives.IDLE),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A node's phase began."""

    at: float  # seconds since the watch began
    phase: str
    address: str


class Watch:
    """From `Watch(...)` to `close`; `ask` gives slurmctld's nodes as JSON."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self._ask = ask
        self._began = time.monotonic()
        self._moments: dict[str, list[Moment]] = {}
        self._lock, self._over = threading.Lock(), threading.Event()
        self._look()  # before anything is submitted
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def now(self) -> float:
        """Seconds since the watch began."""
        return time.monotonic() - self._began

    def until_off(self, nodes: Sequence[str], limit_s: float) -> None:
        """Wait until each of `nodes` is off or has another job, or `limit_s` is over. Ours has left them."""
        end = self.now() + limit_s
        settle = self.now() + SETTLE_S
        while self.now() < end:
            phases = {self._phase(node) for node in nodes}
            if phases == {lives.OFF} or (self.now() > settle and phases <= {lives.OFF, lives.BUSY}):
                return
            self.pause()

    def pause(self) -> None:
        """As long as between two looks."""
        self._over.wait(LOOK_S)

    def story(self, nodes: Sequence[str], left_s: float, listing: Mapping[str, Any]) -> str:
        """What was seen of `nodes`, with what the cloud has at their addresses now."""
        living = _by_address(listing)
        return json.dumps({"left_s": left_s, "lives": [self._life(node, living) for node in nodes]})

    def addresses(self, nodes: Sequence[str]) -> frozenset[str]:
        """Where the nodes were while they were up."""
        with self._lock:
            return frozenset(
                m.address for node in nodes for m in self._moments.get(node, ()) if m.address != node
            )

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join(timeout=15)

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        """A look that fails says nothing, and changes nothing."""
        try:
            nodes = slurm.parse_nodes((self._ask(),))
        except (ParseError, GpuclusterError):
            return
        at = round(self.now(), 2)
        with self._lock:
            for node in nodes:
                self._note(node, at)

    def _note(self, node: slurm.Node, at: float) -> None:
        phase = next((phase for word, phase in _PHASES if word in node.states), "UNKNOWN")
        told = self._moments.setdefault(node.name, [])
        if not told or told[-1].phase != phase:
            told.append(Moment(at=at, phase=phase, address=node.address))

    def _phase(self, node: str) -> str:
        with self._lock:
            told = self._moments.get(node)
            return told[-1].phase if told else ""

    def _life(self, node: str, living: Mapping[str, str]) -> dict[str, Any]:
        with self._lock:
            told = tuple(self._moments.get(node, ()))
        instance = next((living[m.address] for m in told if m.address in living), "")
        moments = [{"at": m.at, "phase": m.phase} for m in told]
        return {"node": node, "moments": moments, "instance": instance}


def living_at(listing: Mapping[str, Any], addresses: frozenset[str]) -> bool:
    """Has the cloud a living instance at one of these?"""
    return bool(_by_address(listing).keys() & addresses)


def _by_address(listing: Mapping[str, Any]) -> dict[str, str]:
    """Private address -> instance, of the living."""
    found: dict[str, str] = {}
    for reservation in answers.members(listing, "Reservations"):
        for instance in answers.members(reservation, "Instances"):
            address = instance.get("PrivateIpAddress")
            if isinstance(address, str) and answers.text(instance, "State", "Name") not in ENDED:
                found[address] = answers.text(instance, "InstanceId")
    return found
