"""What the services of storage need of the network they stand on."""

from collections.abc import Iterable
from typing import Protocol

from gpucluster.cloud.model.values import Interface, SubnetPlace, Timing


class Ground(Protocol):
    """Ids, times and interfaces in subnets; `Premises` is one."""

    timing: Timing

    def fresh_id(self, prefix: str) -> str: ...

    def occupy(
        self,
        subnet: SubnetPlace,
        service: str,
        groups: Iterable[str],
        now: float,
        *,
        wanted: str | None = None,
    ) -> Interface: ...

    def regroup(self, interface: str, groups: Iterable[str]) -> None: ...

    def vacate(self, interface: str, now: float) -> None: ...
