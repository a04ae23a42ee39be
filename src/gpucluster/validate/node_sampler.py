"""Sample the states of elastic nodes in a thread while validation's jobs run, and store the changes."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import json_fields
from gpucluster.checks.check import ParseError, QueryOutput
from gpucluster.checks.cloud import ENDED
from gpucluster.checks.power_saving import BUSY, OFF
from gpucluster.checks.slurmctld import parse_nodes
from gpucluster.errors import GpuclusterError
from gpucluster.slurm.states import cycle_step
from gpucluster.slurm.values import SlurmNode

SAMPLE_S = 0.5
SETTLE_S = 10.0  # a cancelled job has left its nodes after this time


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTransition:
    """The time when a step of the power-saving cycle began, and the node's address then."""

    at: float  # seconds since the sampler started
    step: str
    address: str


class NodeSampler:
    """Samples from its construction to `close`; `query` returns slurmctld's nodes as JSON."""

    def __init__(self, query: Callable[[], QueryOutput]) -> None:
        self._query = query
        self._began = time.monotonic()
        self._transitions: dict[str, list[NodeTransition]] = {}
        self._lock, self._over = threading.Lock(), threading.Event()
        self._sample()  # before the first job is submitted
        self._thread = threading.Thread(target=self._run, name="node-sampler", daemon=True)
        self._thread.start()

    def now(self) -> float:
        """Seconds since the sampler started."""
        return time.monotonic() - self._began

    def until_off(self, nodes: Sequence[str], limit_s: float) -> None:
        """Wait until each node is off or has a job of others, or until `limit_s` is over."""
        end = self.now() + limit_s
        settle = self.now() + SETTLE_S
        while self.now() < end:
            steps = {self._step(node) for node in nodes}
            if steps == {OFF} or (self.now() > settle and steps <= {OFF, BUSY}):
                return
            self.pause()

    def pause(self) -> None:
        """Wait for one sample."""
        self._over.wait(SAMPLE_S)

    def as_json(self, nodes: Sequence[str], released_s: float, listing: Mapping[str, Any]) -> str:
        """The transitions of `nodes`, and the instances that have their addresses now, for `parse_cycles`."""
        living = _by_address(listing)
        return json.dumps({"released_s": released_s, "nodes": [self._cycle(node, living) for node in nodes]})

    def addresses(self, nodes: Sequence[str]) -> frozenset[str]:
        """All addresses that the nodes had while they were up."""
        with self._lock:
            return frozenset(
                one.address
                for node in nodes
                for one in self._transitions.get(node, ())
                if one.address != node
            )

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join(timeout=15)

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        """A failed query changes nothing."""
        try:
            nodes = parse_nodes((self._query(),))
        except (ParseError, GpuclusterError):
            return
        at = round(self.now(), 2)
        with self._lock:
            for node in nodes:
                self._record(node, at)

    def _record(self, node: SlurmNode, at: float) -> None:
        step = cycle_step(node.states)
        known = self._transitions.setdefault(node.name, [])
        if not known or known[-1].step != step:
            known.append(NodeTransition(at=at, step=step, address=node.address))

    def _step(self, node: str) -> str:
        with self._lock:
            known = self._transitions.get(node)
            return known[-1].step if known else ""

    def _cycle(self, node: str, living: Mapping[str, str]) -> dict[str, Any]:
        with self._lock:
            known = tuple(self._transitions.get(node, ()))
        instance = next((living[one.address] for one in known if one.address in living), "")
        transitions = [{"at": one.at, "step": one.step} for one in known]
        return {"node": node, "transitions": transitions, "instance": instance}


def has_instance_at(listing: Mapping[str, Any], addresses: frozenset[str]) -> bool:
    """Whether the cloud lists a living instance at one of the addresses."""
    return bool(_by_address(listing).keys() & addresses)


def _by_address(listing: Mapping[str, Any]) -> dict[str, str]:
    """Private address -> id of the living instance."""
    found: dict[str, str] = {}
    for reservation in json_fields.members(listing, "Reservations"):
        for instance in json_fields.members(reservation, "Instances"):
            address = instance.get("PrivateIpAddress")
            if isinstance(address, str) and json_fields.text(instance, "State", "Name") not in ENDED:
                found[address] = json_fields.text(instance, "InstanceId")
    return found
