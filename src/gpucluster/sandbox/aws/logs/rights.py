"""The rights of CloudWatch Logs, on the log group."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast

from gpucluster.sandbox.aws.iam.policies import Need
from gpucluster.sandbox.aws.moto_state import ACCOUNT
from gpucluster.sandbox.aws.rights import ApiRequest, json_body, need, request_tags

# These name the group without `:*` at its end, all others with it (CloudWatch Logs user guide, "Resources and operations").
_OF_TAGS = frozenset({"ListTagsForResource", "TagResource", "UntagResource"})
_LISTS = frozenset({"DescribeLogGroups"})


def rights(request: ApiRequest, _moto: object) -> Iterable[Need]:
    """The action on its group; tags at creation need TagResource, too."""
    asked = json_body(request.body)
    named = str(asked.get("resourceArn") or asked.get("logGroupIdentifier") or "")
    group = named.removesuffix(":*")
    if not group and asked.get("logGroupName"):
        group = f"arn:aws:logs:{request.region}:{ACCOUNT}:log-group:{asked['logGroupName']}"
    tags = request_tags(cast("Mapping[str, str]", asked.get("tags") or {}))
    if request.operation in _LISTS or not group:
        yield need(request, "*", {})
        return
    yield need(request, group if request.operation in _OF_TAGS else f"{group}:*", tags)
    if request.operation == "CreateLogGroup" and tags:
        yield need(replace(request, operation="TagResource"), group, tags)
