"""API token buckets on a virtual clock (T11): one for requests and, for some actions, one for instances."""

from dataclasses import dataclass

from gpucluster.cloud.limits import INSTANCES, OWN, READ, UNFILTERED_READ, WRITE, left
from gpucluster.sandbox.aws.ec2.state.values import Refusal

_READS = ("Describe", "Get", "List", "Search")


@dataclass(slots=True)
class _Bucket:
    level: float
    at: float


class Buckets:
    """All token buckets of one account and Region. A test may set `enabled` to false, with a reason."""

    def __init__(self) -> None:
        self._levels: dict[str, _Bucket] = {}
        self.enabled = True

    def charge(self, action: str, now: float, *, unfiltered: bool = False) -> None:
        """Take a token for one request of `action`, or refuse with RequestLimitExceeded (503)."""
        self._take(f"{action}/{unfiltered}", _request_rate(action, unfiltered), 1.0, now)

    def charge_instances(self, action: str, count: int, now: float) -> None:
        """Take a token for each instance that `action` launches or terminates."""
        rate = INSTANCES.get(action)
        if rate is not None and count:
            self._take(f"{action}#instances", rate, float(count), now)

    def _take(self, name: str, rate: tuple[float, float], tokens: float, now: float) -> None:
        bucket = self._levels.setdefault(name, _Bucket(rate[0], now))
        bucket.level = left(rate, bucket.level, now - bucket.at)
        bucket.at = max(now, bucket.at)
        if not self.enabled:
            return
        if bucket.level < tokens - 1e-6:  # floats near 1e9 s have a resolution of 1e-7 s
            raise Refusal("RequestLimitExceeded", "Request limit exceeded.", status=503)
        bucket.level -= tokens


def _request_rate(action: str, unfiltered: bool) -> tuple[float, float]:
    own = OWN.get(action)
    if own is not None:
        return own
    if not action.startswith(_READS):
        return WRITE
    return UNFILTERED_READ if unfiltered else READ
