"""What the storage services need of the network: subnets, interfaces and times."""

from collections.abc import Iterable
from typing import Protocol

from gpucluster.sandbox.aws.ec2.state.values import Interface, SubnetRef, Timing


class VpcContext(Protocol):
    """Ids, times and interfaces in subnets; `AccountNetwork` implements it."""

    timing: Timing

    def fresh_id(self, prefix: str) -> str: ...

    def occupy(
        self,
        subnet: SubnetRef,
        service: str,
        groups: Iterable[str],
        now: float,
        *,
        wanted: str | None = None,
    ) -> Interface: ...

    def regroup(self, interface: str, groups: Iterable[str]) -> None: ...

    def vacate(self, interface: str, now: float) -> None: ...
