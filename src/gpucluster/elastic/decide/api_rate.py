"""Our model of the EC2 API's token buckets (T11). Calls are decided only when tokens are available.

The model is computed from the calls that we made (`memory.levels`). The account's real buckets may be fuller. If other
programs call too, they may be emptier: then EC2 throttles a call, and the model is set to empty.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpucluster.cloud.limits import left
from gpucluster.elastic.memory import BucketLevel, Memory
from gpucluster.elastic.memory.launches import RATES
from gpucluster.elastic.model import Action, Terminate

LAUNCHES, ENDS = "RunInstances", "TerminateInstances"
SLACK_S = 1.0  # the model charges a call when the journal stores it, shortly before the call is made; the margin covers this time
ENDS_AT_ONCE = 1000  # instance ids in one call


class Pace:
    """The buckets. A pass takes tokens from them as it decides to call."""

    def __init__(self, memory: Memory, now: float) -> None:
        self._left = {name: _level(memory.levels.get(name), rate, now) for name, rate in RATES.items()}

    def instances(self, action: str) -> int:
        """Return how many instances one call may name now."""
        return int(self._left[f"{action}#instances"])

    def calls(self, action: str) -> int:
        return int(self._left[action])

    def take(self, action: str, instances: int, calls: int = 1) -> None:
        self._left[action] -= calls
        self._left[f"{action}#instances"] -= instances

    def wait_s(self, action: str, instances: int) -> float:
        """Return the seconds until one call for so many instances may be made."""
        waits = (
            (1.0 - self._left[action]) / RATES[action][1],
            (min(instances, self.size(action)) - self._left[f"{action}#instances"])
            / RATES[f"{action}#instances"][1],
        )
        return max(0.0, *waits)

    @staticmethod
    def size(action: str) -> int:
        """Return the largest number of instances that one call can ever name."""
        return int(RATES[f"{action}#instances"][0])


def ends(pace: Pace, actions: Iterable[Action]) -> Iterator[Action]:
    """Return the terminations for which there are tokens. A later pass decides on the others."""
    for action in actions:
        if not isinstance(action, Terminate):
            yield action
            continue
        rest = action.instances
        while rest and pace.calls(ENDS) and (count := min(pace.instances(ENDS), ENDS_AT_ONCE, len(rest))) > 0:
            pace.take(ENDS, count)
            yield replace(action, instances=rest[:count])
            rest = rest[count:]


def _level(level: BucketLevel | None, rate: tuple[float, float], now: float) -> float:
    """Return the level. If its time is in the future, the clock was set back, and the bucket counts as full."""
    if level is None or level.at > now:
        return rate[0]
    return left(rate, level.tokens, now - level.at - SLACK_S)
