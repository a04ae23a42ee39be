"""One decision of the plan's, as `--explain` shows it."""

from dataclasses import dataclass

from gpucluster.plan.defaults import Default
from gpucluster.spec.units import write_duration


@dataclass(frozen=True, slots=True)
class Note:
    """What was decided, and why."""

    path: str
    value: str
    reason: str


def of_default(path: str, seconds: float, rule: Default) -> Note:
    """A waiting time that nobody wished."""
    return Note(path, write_duration(seconds), rule.reason)
