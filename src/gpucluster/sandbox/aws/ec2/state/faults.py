"""Faults that a scenario injects: errors for a number of calls, and replies that are lost after the work is done (T12)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpucluster.sandbox.aws.ec2.state.values import ANY, Lag, Refusal

# HTTP status of codes that are not 400
_STATUS = {
    "InternalError": 500,
    "InsufficientInstanceCapacity": 500,
    "InsufficientAddressCapacity": 500,
    "RequestLimitExceeded": 503,
    "ServiceUnavailable": 503,
    "SlowDown": 503,
    "Unavailable": 503,
    "UnauthorizedOperation": 403,
    "AccessDenied": 403,
    "ConditionalRequestConflict": 409,
    "PreconditionFailed": 412,
}


class InjectedFaults:
    """The faults that a scenario injects; `*` stands for any action."""

    def __init__(self) -> None:
        self.switches = FaultSwitches()
        self.raised = 0  # errors so far: a scenario can wait until a call got one
        self._errors: dict[str, list[Refusal]] = {}
        self._lost: dict[str, int] = {}

    def next_error(
        self, action: str, code: str, times: int = 1, message: str = "", status: int | None = None
    ) -> None:
        """Let the next `times` calls of `action` fail with `code` before they have an effect."""
        http = status or _STATUS.get(code, 400)
        refusal = Refusal(code, message or f"{code}, as the scenario asked", status=http)
        self._errors.setdefault(action, []).extend([refusal] * times)

    def lose_reply(self, action: str, times: int = 1) -> None:
        """Execute the next `times` calls of `action` and drop their replies."""
        self._lost[action] = self._lost.get(action, 0) + times

    def clear(self) -> None:
        """Remove all pending faults."""
        self.switches = FaultSwitches()
        self._errors.clear()
        self._lost.clear()

    def raise_next(self, action: str) -> None:
        """Raise the pending error of this call, if any."""
        for name in (action, ANY):
            due = self._errors.get(name)
            if due:
                refusal = due.pop(0)
                self.raised += 1
                raise Refusal(refusal.code, refusal.message, status=refusal.status)

    def loses(self, action: str) -> bool:
        """Whether the reply of this call is dropped; counts it."""
        for name in (action, ANY):
            if self._lost.get(name, 0) > 0:
                self._lost[name] -= 1
                return True
        return False


@dataclass(slots=True)
class FaultSwitches:
    """Faults that stay on until a scenario switches them off."""

    dead_token: str = "replay"  # T03: the token of a dead instance returns that instance; `refuse`: it returns the documented code  # noqa: S105  # noqa: S105
    lag: Lag = field(default_factory=Lag)  # T20
    profile_lag_until: float = 0.0  # T36: until then EC2 does not know instance profiles
    images_gone: dict[str, str] = field(default_factory=dict[str, str])  # T18: id -> error code
    failing_zones: set[str] = field(
        default_factory=set[str]
    )  # T21: reads that name these zones, or no id, fail
    page_size: int | None = None  # T22: the longest page; an empty page is among them
    moving_latest: bool = False  # T15: `$Latest` changes at every second launch
    latest_asked: int = 0
    clocks: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # role -> seconds that the clocks of its machines are ahead
    hanging_metadata: set[str] = field(
        default_factory=set[str]
    )  # T33: instances whose metadata service never answers
