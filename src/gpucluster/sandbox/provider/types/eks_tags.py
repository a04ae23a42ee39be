"""Tags of EKS: a map in its API, where most APIs have a list."""

from collections.abc import Mapping
from typing import Any

from gpucluster.engine.values import Value
from gpucluster.sandbox.provider.schema import Call

Seen = Mapping[str, Value] | None


def tagged(seen: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer with its map of tags as a list, as most APIs answer."""
    tags: Mapping[str, str] = seen.get("tags") or {}
    return {**seen, "Tags": [{"Key": k, "Value": v} for k, v in sorted(tags.items())]}


def tags_of(call: Call) -> dict[str, Any]:
    return {"tags": call.inputs["tagsAll"]} if call.inputs.get("tagsAll") else {}


def retag(call: Call, arn: str) -> None:
    gone = call.lost_tags()
    if gone:
        call.cloud.client("eks").untag_resource(resourceArn=arn, tagKeys=gone)
    if call.tags:
        call.cloud.client("eks").tag_resource(resourceArn=arn, **tags_of(call))
