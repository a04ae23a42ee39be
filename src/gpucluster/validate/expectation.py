"""An expectation: one check at one target. Pure."""

from dataclasses import dataclass
from typing import Any

from gpucluster.checks.check import Check
from gpucluster.checks.table import CHECKS

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
        return CHECKS[self.check]


def expect(check: str, target: str, want: Any) -> Expectation:
    """Return the expectation; TypeError for a value of another check."""
    if type(want) is not CHECKS[check].want:
        raise TypeError(f"{check} wants {CHECKS[check].want.__name__}, not {type(want).__name__}")
    return Expectation(check=check, target=target, want=want)
