"""An expectation: one check at one target. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.checks.check import Check
from gpucluster.checks.kubernetes.table import KUBERNETES
from gpucluster.checks.table import CHECKS

EVERY_CHECK: Mapping[str, Check[Any, Any]] = {**CHECKS, **KUBERNETES}
CLOUD = "cloud"  # the target of what is looked up in the cloud


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One check at one target, with the value that it must find, of the check's `want` type."""

    check: str
    target: str
    want: Any

    @property
    def id(self) -> str:
        """`gpu.count[h200/1]`"""
        return f"{self.check}[{self.target}]"

    @property
    def of(self) -> Check[Any, Any]:
        """The row of the table."""
        return EVERY_CHECK[self.check]


def expect(check: str, target: str, want: Any) -> Expectation:
    """Return the expectation; TypeError for a value of another check."""
    if type(want) is not EVERY_CHECK[check].want:
        raise TypeError(f"{check} wants {EVERY_CHECK[check].want.__name__}, not {type(want).__name__}")
    return Expectation(check=check, target=target, want=want)
