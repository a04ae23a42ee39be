"""Terminate every node of a cluster and wait until none is left. `gpucluster down` uses it after scaling stopped."""

from collections.abc import Callable
from dataclasses import dataclass

from gpucluster.cloud.port import CloudError, CloudPort, Fault, Instance, InstanceState
from gpucluster.errors import GpuclusterError

PAUSE_S = 2.0
REPEAT_S = 30.0  # a wait without progress is reported again after this time
SETTLE_S = 3.0  # a launch that began before scaling stopped is visible after this time
DEADLINE_S = 20 * 60.0  # GPU machines terminate slowly; the Terraform provider waits as long for one


class NotEndedError(GpuclusterError):
    """Nodes still run after the deadline."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of the caller."""

    now: Callable[[], float]
    pause: Callable[[float], None]


def end_nodes(
    cloud: CloudPort,
    cluster: str,
    clock: Clock,
    *,
    report: Callable[[str], None],
    deadline_s: float = DEADLINE_S,
) -> tuple[str, ...]:
    """Return the ids that were terminated, after two empty lists. It can be repeated after an interruption."""
    deadline, ended, empty = clock.now() + deadline_s, set[str](), 0
    wait = _Wait(clock, deadline, report)
    while empty < 2:
        left = _list(cloud, cluster)
        if not isinstance(left, CloudError):
            ended |= _end(cloud, left)
            empty = 0 if left else empty + 1
        wait.say(left)
        if empty < 2:
            if clock.now() > deadline:
                raise _too_late(left, deadline_s)
            clock.pause(SETTLE_S if empty else PAUSE_S)
    return tuple(sorted(ended))


Listed = tuple[Instance, ...] | CloudError  # the instances that are left, or why EC2 did not answer


class _Wait:
    """Report what is waited for: each change once, and the same state again after `REPEAT_S` with the time that is left."""

    def __init__(self, clock: Clock, deadline: float, report: Callable[[str], None]) -> None:
        self._clock, self._deadline, self._report = clock, deadline, report
        self._words, self._at = "", clock.now()

    def say(self, left: Listed) -> None:
        """Report `left` if it is due."""
        words, now = _words(left), self._clock.now()
        if words and words != self._words:
            self._report(words)
        elif words and now - self._at >= REPEAT_S:
            minutes = max(0.0, self._deadline - now) / 60
            self._report(f"{words}; {_names(left)}this command gives up in {minutes:.0f} minutes")
        else:
            return
        self._words, self._at = words, now


def _list(cloud: CloudPort, cluster: str) -> Listed:
    """Return the instances that are not terminated, or the error if EC2 does not answer."""
    try:
        found = cloud.instances(cluster)
    except CloudError as error:
        if error.fault in (Fault.THROTTLED, Fault.LOST):
            return error
        raise
    return tuple(i for i in found if i.state is not InstanceState.TERMINATED)


def _end(cloud: CloudPort, left: tuple[Instance, ...]) -> set[str]:
    living = [i.id for i in left if i.living]
    try:
        if living:
            cloud.terminate(living)
    except CloudError as error:
        if error.fault not in (Fault.THROTTLED, Fault.LOST, Fault.GONE):
            raise
    return set(living)


def _words(left: Listed) -> str:
    if isinstance(left, CloudError):
        return f"EC2 does not list instances: {left.code}"
    ending = sum(not i.living for i in left)
    return f"nodes left: {len(left)}, {ending} of them shutting down" if left else ""


def _names(left: Listed) -> str:
    """Return which instances are waited for; empty for an error."""
    return "" if isinstance(left, CloudError) else f"waiting for {_ids(left)}; "


def _ids(left: tuple[Instance, ...]) -> str:
    ids = sorted(i.id for i in left)
    return ", ".join(ids[:10]) + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")


def _too_late(left: Listed, deadline_s: float) -> NotEndedError:
    after = f"after {deadline_s / 60:.0f} minutes"
    return NotEndedError(
        f"EC2 does not list instances {after}: {left}"
        if isinstance(left, CloudError)
        else f"not gone {after}: {_ids(left)}",
        next_step="run the same command again; it goes on where it stopped",
    )
