"""One EC2 call in hand."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.sandbox.policies import Need
from gpucluster.sandbox.wire import Answer

Result = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is asked. `allow` raises if the caller may not; `forward` asks moto instead of us."""

    operation: str
    fields: Mapping[str, str]
    asked: Mapping[str, Any]
    now: float
    allow: Callable[[Iterable[Need]], None]
    forward: Callable[[Mapping[str, str]], Answer]


Calls = Mapping[str, Callable[[Call], Result]]
