"""One EC2 call: its parameters, its time, and the functions that check rights and forward to moto."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.iam.policies import Need
from gpucluster.sandbox.aws.protocols import Answer

Result = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Call:
    """One call. `allow` raises if the caller lacks a right; `forward` calls moto."""

    operation: str
    fields: Mapping[str, str]
    asked: Mapping[str, Any]
    now: float
    allow: Callable[[Iterable[Need]], None]
    forward: Callable[[Mapping[str, str]], Answer]

    @property
    def dry(self) -> bool:
        """Whether the call is a dry run."""
        return str(self.asked.get("DryRun", "")).lower() == "true"


def dry_run() -> Refusal:
    """The answer of a dry run that would have succeeded."""
    return Refusal("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", status=412)


def creation_tags(call: Ec2Call, kind: str) -> dict[str, str]:
    """The tags that the request sets on what it creates; another resource type is refused (T17)."""
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
    """Refuse too many tags, and keys with Amazon's prefix."""
    if len(tags) > 50:
        raise Refusal("TagLimitExceeded", "The maximum number of tags for a resource has been reached.")
    if any(key.lower().startswith("aws:") for key in tags):
        raise Refusal("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")


Calls = Mapping[str, Callable[[Ec2Call], Result]]
