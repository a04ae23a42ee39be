"""Errors on demand: `next_error` for a number of calls, and replies that get lost after the work is done (T12)."""

from gpucluster.cloud.model.values import ANY, Refusal

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
