"""The rights of EventBridge calls: the action on the rule, with the tags of the request."""

from collections.abc import Iterable
from dataclasses import replace

from gpucluster.sandbox.aws.iam.policies import Need
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.rights import ApiRequest, json_body, need, request_tags


def rights(request: ApiRequest, _moto: Moto) -> Iterable[Need]:
    """The action on the rule; a new rule with tags also needs TagResource."""
    asked = json_body(request.body)
    rule = str(asked.get("Rule") or asked.get("Name") or "")
    arn = str(asked.get("ResourceARN") or f"arn:aws:events:{request.region}:{ACCOUNT}:rule/{rule}")
    tags = {str(t["Key"]): str(t.get("Value", "")) for t in asked.get("Tags", ())}
    yield need(request, arn if rule or "ResourceARN" in asked else "*", request_tags(tags))
    if request.operation == "PutRule" and tags:
        yield need(replace(request, operation="TagResource"), arn, request_tags(tags))
