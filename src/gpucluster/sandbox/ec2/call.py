"""One EC2 call in hand."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.cloud.model import Refusal
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

    @property
    def dry(self) -> bool:
        """Only to be judged, not to be done."""
        return str(self.asked.get("DryRun", "")).lower() == "true"


def dry_run() -> Refusal:
    """What a dry run is answered that would have passed."""
    return Refusal("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", status=412)


def birth_tags(call: Call, kind: str) -> dict[str, str]:
    """Tags that the request gives to what it makes; another kind is refused (T17)."""
    found: dict[str, str] = {}
    for part in call.asked.get("TagSpecifications") or ():
        if part.get("ResourceType") != kind:
            raise Refusal(
                "InvalidParameterValue",
                f"'{part.get('ResourceType')}' is not a valid taggable resource type for this operation.",
            )
        found |= {str(t["Key"]): str(t.get("Value") or "") for t in part.get("Tags") or ()}
    check_tags(found)
    return found


def check_tags(tags: Mapping[str, str]) -> None:
    """Refuse too many tags, and Amazon's own prefix."""
    if len(tags) > 50:
        raise Refusal("TagLimitExceeded", "The maximum number of tags for a resource has been reached.")
    if any(key.lower().startswith("aws:") for key in tags):
        raise Refusal("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")


Calls = Mapping[str, Callable[[Call], Result]]
