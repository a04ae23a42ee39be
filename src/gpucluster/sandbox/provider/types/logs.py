"""Log groups of CloudWatch. Their Pulumi id is the name."""

from collections.abc import Mapping
from typing import Any

from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.cloud import Cloud
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Autoname,
    Call,
    ResourceType,
    computed,
    replaces,
    updates,
)
from gpucluster.sandbox.provider.shapes import NUMBER

Seen = Mapping[str, Value] | None


def _arn(cloud: Cloud, name: str) -> str:
    return f"arn:aws:logs:{cloud.region}:{cloud.account}:log-group:{name}"


def _create(call: Call) -> str:
    tags: dict[str, Any] = {"tags": call.inputs["tagsAll"]} if call.inputs.get("tagsAll") else {}
    call.cloud.client("logs").create_log_group(logGroupName=call.inputs["name"], **tags)
    return call.inputs["name"]


def _retain(call: Call) -> None:
    days, logs = call.inputs.get("retentionInDays"), call.cloud.client("logs")
    if days:
        logs.put_retention_policy(logGroupName=call.id, retentionInDays=days)


def _read(cloud: Cloud, identifier: str, _: Values) -> Seen:
    logs = cloud.client("logs")
    found = logs.describe_log_groups(logGroupNamePrefix=identifier)["logGroups"]
    seen = next((one for one in found if one["logGroupName"] == identifier), None)
    if seen is None:
        return None
    tags = logs.list_tags_for_resource(resourceArn=_arn(cloud, identifier)).get("tags", {})
    named = [{"Key": k, "Value": v} for k, v in sorted(tags.items())]
    return {**seen, "arn": _arn(cloud, identifier), "Tags": named}


def _update(call: Call, changed: frozenset[str]) -> None:
    logs, arn = call.cloud.client("logs"), _arn(call.cloud, call.id)
    if "retentionInDays" in changed and not call.inputs.get("retentionInDays"):
        logs.delete_retention_policy(logGroupName=call.id)
    elif "retentionInDays" in changed:
        _retain(call)
    gone = call.lost_tags()
    if gone:
        logs.untag_resource(resourceArn=arn, tagKeys=gone)
    if call.tags:
        logs.tag_resource(resourceArn=arn, tags=call.inputs["tagsAll"])


def _delete(call: Call) -> None:
    call.cloud.client("logs").delete_log_group(logGroupName=call.id)


LOG_GROUP = ResourceType(
    name="aws:cloudwatch/logGroup:LogGroup",
    properties={
        "name": replaces("logGroupName"),
        "retentionInDays": updates("retentionInDays", NUMBER, default=0),
        "arn": computed("arn"),
        **TAG_PROPERTIES,
    },
    create=_create,
    complete=_retain,
    read=_read,
    update=_update,
    delete=_delete,
    autoname=Autoname("name", 512),
)

ROWS = (LOG_GROUP,)
