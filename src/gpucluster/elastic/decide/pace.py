"""What the API's token buckets hold now by our own model of them (T11): calls are decided as tokens come.

The model is the fold of the calls that were made (`memory.levels`); the account's real buckets may be fuller, and
emptier if others call too: then a throttle says so, and the model is emptied.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpucluster.cloud.limits import left
from gpucluster.elastic.memory import Level, Memory
from gpucluster.elastic.memory.launches import RATES
from gpucluster.elastic.model import Action, Terminate

LAUNCHES, ENDS = "RunInstances", "TerminateInstances"
SLACK_S = (
    1.0  # a call is charged when it is written down, and made a moment later: its tokens are so much younger
)
ENDS_AT_ONCE = 1000  # ids a call


class Pace:
    """The buckets; counts down as a pass decides to call."""

    def __init__(self, memory: Memory, now: float) -> None:
        self._left = {name: _level(memory.levels.get(name), rate, now) for name, rate in RATES.items()}

    def instances(self, action: str) -> int:
        """How many instances may be named now."""
        return int(self._left[f"{action}#instances"])

    def calls(self, action: str) -> int:
        return int(self._left[action])

    def take(self, action: str, instances: int, calls: int = 1) -> None:
        self._left[action] -= calls
        self._left[f"{action}#instances"] -= instances

    def wait_s(self, action: str, instances: int) -> float:
        """How long until one call for so many may be made."""
        waits = (
            (1.0 - self._left[action]) / RATES[action][1],
            (min(instances, self.size(action)) - self._left[f"{action}#instances"])
            / RATES[f"{action}#instances"][1],
        )
        return max(0.0, *waits)

    @staticmethod
    def size(action: str) -> int:
        """The most instances that can ever be named at once."""
        return int(RATES[f"{action}#instances"][0])


def ends(pace: Pace, actions: Iterable[Action]) -> Iterator[Action]:
    """Terminations as far as the tokens go; what is left over is asked for at a later look."""
    for action in actions:
        if not isinstance(action, Terminate):
            yield action
            continue
        rest = action.instances
        while rest and pace.calls(ENDS) and (count := min(pace.instances(ENDS), ENDS_AT_ONCE, len(rest))) > 0:
            pace.take(ENDS, count)
            yield replace(action, instances=rest[:count])
            rest = rest[count:]


def _level(level: Level | None, rate: tuple[float, float], now: float) -> float:
    """Of a moment that is still to come, the clock went back: then it is a new one, and full."""
    if level is None or level.at > now:
        return rate[0]
    return left(rate, level.tokens, now - level.at - SLACK_S)
