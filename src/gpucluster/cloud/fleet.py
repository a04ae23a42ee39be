"""Evaluate the errors of one CreateFleet together. Each machine type has one, and one can cause another (T13, T14).

If one error is a throttle, the other machine types were not tried. ParallelCluster read that as "no capacity" and disabled
2,000 of 3,000 nodes (aws-parallelcluster-node#734).
"""

from collections.abc import Sequence

from gpucluster.cloud.faults import ECHO, classify
from gpucluster.cloud.port import CloudError, Fault, FleetError

# The first class with an error decides: errors that are not about capacity come first.
# A missing permission fails all of them. A machine type without capacity outweighs one that is not offered.
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


def fleet_error(errors: Sequence[FleetError]) -> CloudError:
    """Return the fault of a fleet that launched nothing; without errors its outcome is unknown."""
    if not errors:
        return CloudError(Fault.LOST, "EmptyFleet", "the fleet launched nothing and gave no reason")
    classified = [(fault_of(error), error) for error in without_echoes(errors)]
    fault, worst = min(classified, key=lambda pair: _ORDER.index(pair[0]))
    alike = [error.machine for found, error in classified if found is fault and error.code == worst.code]
    return CloudError(fault, worst.code, f"{', '.join(dict.fromkeys(alike))}: {worst.message}")


def fault_of(error: FleetError) -> Fault:
    """Return the fault of one error."""
    return classify(error.code, error.message)


def without_echoes(errors: Sequence[FleetError]) -> tuple[FleetError, ...]:
    """Return the errors of machine types that were tried. An untried type repeats the error of another type.

    `UnfulfillableCapacity` is such a repetition only if its text refers to the other errors. Otherwise it is a refusal.
    """
    real = tuple(error for error in errors if not _echoes(error))
    return real or tuple(errors)


def _echoes(error: FleetError) -> bool:
    return error.code == ECHO and "reservationcapacityexceeded" not in error.message.lower()
