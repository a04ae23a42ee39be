"""The errors of one CreateFleet judged together: one a machine comes back, and they must not be taken apart (T13, T14).

A throttle in one of them says that the others were not tried either: ParallelCluster read it as "no capacity" and
disabled 2,000 of 3,000 nodes (aws-parallelcluster-node#734).
"""

from collections.abc import Sequence

from gpucluster.cloud.faults import ECHO, classify
from gpucluster.cloud.port import CloudError, Fault, FleetError

# What counts when errors disagree, the weightiest first: what says nothing about capacity stands above what does.
# A permission that lacks fails all of them; below, a machine that has no room outweighs one that is not sold there.
_ORDER = (
    Fault.CONFIGURATION,
    Fault.THROTTLED,
    Fault.LOST,
    Fault.TOKEN,
    Fault.QUOTA,
    Fault.NO_CAPACITY,
    Fault.UNSUPPORTED,
    Fault.GONE,
)


def judge(errors: Sequence[FleetError]) -> CloudError:
    """Return what a fleet that launched nothing was refused for; without errors its outcome is unknown."""
    if not errors:
        return CloudError(Fault.LOST, "EmptyFleet", "the fleet launched nothing and gave no reason")
    judged = [(fault_of(error), error) for error in without_echoes(errors)]
    fault, worst = min(judged, key=lambda pair: _ORDER.index(pair[0]))
    alike = [error.machine for found, error in judged if found is fault and error.code == worst.code]
    return CloudError(fault, worst.code, f"{', '.join(dict.fromkeys(alike))}: {worst.message}")


def fault_of(error: FleetError) -> Fault:
    """What one error says of its own machine."""
    return classify(error.code, error.message)


def without_echoes(errors: Sequence[FleetError]) -> tuple[FleetError, ...]:
    """The errors that speak for themselves: an untried machine is refused by an echo of what another met.

    Only a text that points at the others makes an echo of `UnfulfillableCapacity`; alone it is the refusal.
    """
    real = tuple(error for error in errors if not _echoes(error))
    return real or tuple(errors)


def _echoes(error: FleetError) -> bool:
    return error.code == ECHO and "reservationcapacityexceeded" not in error.message.lower()
