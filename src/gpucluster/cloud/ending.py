"""End every node of a cluster and see that none is left; for `gpucluster down`, after the daemon was told to stop."""

from collections.abc import Callable
from dataclasses import dataclass

from gpucluster.cloud.port import CloudError, CloudPort, Fault, Instance, InstanceState
from gpucluster.errors import GpuclusterError

PAUSE_S = 2.0
SETTLE_S = 3.0  # a launch that was under way when scaling stopped shows itself within this
DEADLINE_S = 20 * 60.0  # GPU machines end slowly; the upstream provider waits as long for one


class NotEndedError(GpuclusterError):
    """Nodes are left after the deadline."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as the edge has it."""

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
    """Return the ids that were ended, once a listing was empty twice; a repeated call goes on where one stopped."""
    deadline, ended, empty, told = clock.now() + deadline_s, set[str](), 0, ""
    while empty < 2:
        left = _look(cloud, cluster)
        if left is not None:
            ended |= _end(cloud, left)
            empty = 0 if left else empty + 1
            told = _tell(left, told, report)
        if empty < 2:
            if clock.now() > deadline:
                raise _too_late(left or (), deadline_s)
            clock.pause(SETTLE_S if empty else PAUSE_S)
    return tuple(sorted(ended))


def _look(cloud: CloudPort, cluster: str) -> tuple[Instance, ...] | None:
    """What is not yet terminated; None when the cloud gave no answer this time."""
    try:
        found = cloud.instances(cluster)
    except CloudError as error:
        if error.fault in (Fault.THROTTLED, Fault.LOST):
            return None
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


def _tell(left: tuple[Instance, ...], told: str, report: Callable[[str], None]) -> str:
    ending = sum(not i.living for i in left)
    text = f"nodes left: {len(left)}, {ending} of them on their way out" if left else told
    if text != told:
        report(text)
    return text


def _too_late(left: tuple[Instance, ...], deadline_s: float) -> NotEndedError:
    ids = ", ".join(sorted(i.id for i in left)[:10])
    return NotEndedError(
        f"not gone after {deadline_s / 60:.0f} minutes: {ids}",
        next_step="run the same command again; it goes on where it stopped",
    )
