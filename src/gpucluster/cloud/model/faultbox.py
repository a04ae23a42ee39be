"""Errors on demand: `next_error` for a number of calls, and replies that get lost after the work is done (T12)."""

from dataclasses import dataclass, field

from gpucluster.cloud.model.values import ANY, Lag, Refusal

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


class FaultBox:
    """What a scenario has ordered; `*` stands for any action."""

    def __init__(self) -> None:
        self.switches = Switches()
        self._errors: dict[str, list[Refusal]] = {}
        self._lost: dict[str, int] = {}

    def next_error(
        self, action: str, code: str, times: int = 1, message: str = "", status: int | None = None
    ) -> None:
        """The next `times` calls of `action` fail with `code`, before they do anything."""
        http = status or _STATUS.get(code, 400)
        refusal = Refusal(code, message or f"{code}, as the scenario asked", status=http)
        self._errors.setdefault(action, []).extend([refusal] * times)

    def lose_reply(self, action: str, times: int = 1) -> None:
        """The next `times` calls of `action` are executed, and their replies lost."""
        self._lost[action] = self._lost.get(action, 0) + times

    def clear(self) -> None:
        """Drop all that is still ordered."""
        self.switches = Switches()
        self._errors.clear()
        self._lost.clear()

    def raise_next(self, action: str) -> None:
        """Raise the error that is due for this call, if any."""
        for name in (action, ANY):
            due = self._errors.get(name)
            if due:
                refusal = due.pop(0)
                raise Refusal(refusal.code, refusal.message, status=refusal.status)

    def loses(self, action: str) -> bool:
        """Whether this call's reply is to be lost; counts it."""
        for name in (action, ANY):
            if self._lost.get(name, 0) > 0:
                self._lost[name] -= 1
                return True
        return False


@dataclass(slots=True)
class Switches:
    """Faults that stay on until they are switched off; the name of each is its field."""

    dead_token: str = (
        "replay"  # T03: a token of the dead gives the dead instance; `refuse`: the documented code  # noqa: S105
    )
    lag: Lag = field(default_factory=Lag)  # T20
    profile_lag_until: float = 0.0  # T36: until then EC2 knows no instance profile
    images_gone: dict[str, str] = field(default_factory=dict[str, str])  # T18: id -> the code of its refusal
    dark_zones: set[str] = field(default_factory=set[str])  # T21: reads that touch them, or name no id, fail
    page_size: int | None = None  # T22: pages no longer than this, an empty one among them
    moving_latest: bool = False  # T15: `$Latest` is another version at every second launch
    latest_asked: int = 0
    hanging_metadata: set[str] = field(default_factory=set[str])  # T33: instances whose service never answers
