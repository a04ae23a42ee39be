"""vCPU quotas by bucket of families and by market (T08, T09): none is set until a scenario does."""

import itertools
from collections.abc import Callable, Iterable

from gpucluster.cloud.model.values import Refusal
from gpucluster.plan.model import Market

_BUCKETS = {"p": "P", "g": "G and VT", "vt": "G and VT"}
# vCPU by the longest prefix of the type's name, where nobody has said it; source: EC2's instance type pages.
_VCPUS = (("p4d.", 96), ("p4de.", 96), ("p5.4xlarge", 16), ("p", 192), ("g6e.48xlarge", 192), ("", 8))


def bucket_of(machine: str) -> str:
    """`P`, `G and VT`, or `Standard` for all others."""
    letters = itertools.takewhile(str.isalpha, machine)
    return _BUCKETS.get("".join(letters), "Standard")


class Quotas:
    """Limits; `vcpus` tells a machine's, by default from its name."""

    def __init__(self, vcpus: Callable[[str], int] | None = None) -> None:
        self.vcpus = vcpus or named_vcpus
        self._limits: dict[tuple[str, bool], int] = {}

    def set(self, bucket: str, market: Market, limit: int | None) -> None:
        """Bound the vCPU of a bucket; None is no bound. Spot has its own, all other markets share one."""
        key = (bucket, market is Market.SPOT)
        self._limits.pop(key, None)
        if limit is not None:
            self._limits[key] = limit

    def clear(self) -> None:
        """No bounds."""
        self._limits.clear()

    def room(self, machine: str, market: Market, used: Iterable[tuple[str, int]]) -> int | None:
        """How many more of `machine` fit beside `used` (machine, count); None is any number."""
        limit = self._limit(machine, market)
        if limit is None:
            return None
        bucket = bucket_of(machine)
        taken = sum(self.vcpus(other) * count for other, count in used if bucket_of(other) == bucket)
        return max(0, limit - taken) // max(1, self.vcpus(machine))

    def refusal(self, machine: str, market: Market) -> Refusal:
        """In EC2's words."""
        if market is Market.SPOT:
            return Refusal("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        return Refusal(
            "VcpuLimitExceeded",
            f"You have requested more vCPU capacity than your current vCPU limit of {self._limit(machine, market)} "
            "allows for the instance bucket that the specified instance type belongs to.",
        )

    def limit(self, bucket: str, market: Market) -> int | None:
        """The bound of a bucket; None: there is none."""
        return self._limits.get((bucket, market is Market.SPOT))

    def _limit(self, machine: str, market: Market) -> int | None:
        if market is Market.CAPACITY_BLOCK:
            return None
        return self._limits.get((bucket_of(machine), market is Market.SPOT))


def named_vcpus(machine: str) -> int:
    """vCPU by the type's name."""
    return next(count for prefix, count in _VCPUS if machine.startswith(prefix))
