"""Where EC2 has placed the machines that stay: the daemon asks, and writes the answer for the head's agent.

The agent divides topology.conf by it. The call is slow and has a bucket of one a second (T28), so it is made only when a
machine is new, and each hour. A slot keeps its place while its machine is off: each change costs a reconfigure.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from gpucluster.cloud.port import TopologyPort
from gpucluster.plan.model import SlurmPlan
from gpucluster.slurm import observed_switches

AGAIN_S = 3600.0
PAUSE_S = 60.0  # between two calls, also after a failed one


class TopologyObserver:
    """One per daemon. `look` runs in the lane of the cloud's calls."""

    def __init__(self, plan: SlurmPlan, port: TopologyPort, file: Path, clock: Callable[[], float]) -> None:
        self._slots = frozenset(observed_switches.observed_slots(plan) if plan.aws is not None else ())
        self._port, self._file, self._clock = port, file, clock
        self._asked: Mapping[str, str] = {}
        self._asked_at = self._tried_at = float("-inf")

    def look(self, running: Mapping[str, str]) -> None:
        """Ask for the places of these running instances, by slot, if it is due. CloudError, OSError: the file stays."""
        now = self._clock()
        wanted = {slot: instance for slot, instance in running.items() if slot in self._slots}
        is_new = any(self._asked.get(slot) != instance for slot, instance in wanted.items())
        if not wanted or now - self._tried_at < PAUSE_S or not (is_new or now - self._asked_at >= AGAIN_S):
            return
        self._tried_at = now
        found = self._port.network_nodes(sorted(wanted.values()))
        places = {slot: found[instance] for slot, instance in wanted.items() if found.get(instance)}
        self._write({**self._known(), **places})
        self._asked, self._asked_at = wanted, now

    def _known(self) -> observed_switches.Places:
        """The places of the file, for slots of the plan. A file that cannot be read is empty."""
        try:
            known = observed_switches.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        return {slot: path for slot, path in known.items() if slot in self._slots}

    def _write(self, places: observed_switches.Places) -> None:
        text = observed_switches.dumps(places)
        if self._file.exists() and self._file.read_text() == text:
            return
        new = self._file.with_suffix(".new")
        new.write_text(text)
        new.replace(self._file)
