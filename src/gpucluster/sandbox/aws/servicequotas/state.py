"""vCPU quotas by family bucket and market (T08, T09). None is set until a scenario sets it."""

import itertools
from collections.abc import Callable, Iterable

from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.values import Refusal

_BUCKETS = {"p": "P", "g": "G and VT", "vt": "G and VT"}
# vCPUs by the longest matching prefix of the type's name; source: EC2's instance type pages
_VCPUS = (("p4d.", 96), ("p4de.", 96), ("p5.4xlarge", 16), ("p", 192), ("g6e.48xlarge", 192), ("", 8))


def bucket_of(machine: str) -> str:
    """`P`, `G and VT`, or `Standard` for all others."""
    letters = itertools.takewhile(str.isalpha, machine)
    return _BUCKETS.get("".join(letters), "Standard")


class Quotas:
    """Quotas; `vcpus` gives the vCPUs of a machine type, by default from its name."""

    def __init__(self, vcpus: Callable[[str], int] | None = None) -> None:
        self.vcpus = vcpus or named_vcpus
        self._limits: dict[tuple[str, bool], int] = {}

    def set(self, bucket: str, market: Market, limit: int | None) -> None:
        """Limit the vCPUs of a bucket; None removes the limit. Spot has its own; all other markets share one."""
        key = (bucket, market is Market.SPOT)
        self._limits.pop(key, None)
        if limit is not None:
            self._limits[key] = limit

    def clear(self) -> None:
        """Remove all limits."""
        self._limits.clear()

    def room(self, machine: str, market: Market, used: Iterable[tuple[str, int]]) -> int | None:
        """How many more of `machine` fit in addition to `used` (machine, count); None is any number."""
        limit = self._limit(machine, market)
        if limit is None:
            return None
        bucket = bucket_of(machine)
        taken = sum(self.vcpus(other) * count for other, count in used if bucket_of(other) == bucket)
        return max(0, limit - taken) // max(1, self.vcpus(machine))

    def refusal(self, machine: str, market: Market) -> Refusal:
        """The refusal of EC2."""
        if market is Market.SPOT:
            return Refusal("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        return Refusal(
            "VcpuLimitExceeded",
            f"You have requested more vCPU capacity than your current vCPU limit of {self._limit(machine, market)} "
            "allows for the instance bucket that the specified instance type belongs to.",
        )

    def limit(self, bucket: str, market: Market) -> int | None:
        """The limit of a bucket; None: there is none."""
        return self._limits.get((bucket, market is Market.SPOT))

    def _limit(self, machine: str, market: Market) -> int | None:
        if market is Market.CAPACITY_BLOCK:
            return None
        return self._limits.get((bucket_of(machine), market is Market.SPOT))


def named_vcpus(machine: str) -> int:
    """vCPUs by the type's name."""
    return next(count for prefix, count in _VCPUS if machine.startswith(prefix))
