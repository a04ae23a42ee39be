"""SQS queues, and EventBridge rules and targets."""

from collections.abc import Mapping
from typing import Any

from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.cloud import Cloud, absent_is_fine, only
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Autoname,
    Call,
    ResourceType,
    computed,
    replaces,
    updates,
)
from gpucluster.sandbox.provider.shapes import DOCUMENT, FLAG, NUMBER

Seen = Mapping[str, Value] | None

_NUMBERS = {
    "messageRetentionSeconds": "MessageRetentionPeriod",
    "visibilityTimeoutSeconds": "VisibilityTimeout",
    "receiveWaitTimeSeconds": "ReceiveMessageWaitTimeSeconds",
}
_NUMBER_DEFAULTS = {
    "messageRetentionSeconds": 345600,
    "visibilityTimeoutSeconds": 30,
    "receiveWaitTimeSeconds": 0,
}
_SSE = "SqsManagedSseEnabled"


# --- queue -----------------------------------------------------------------------------------
def _attributes(call: Call) -> dict[str, str]:
    """Return the attributes as text, as SQS requires."""
    found = {api: str(call.inputs[name]) for name, api in _NUMBERS.items()}
    return {**found, _SSE: "true" if call.inputs["sqsManagedSseEnabled"] else "false"}


def _create_queue(call: Call) -> str:
    answer = call.cloud.sqs.create_queue(
        QueueName=call.inputs["name"], Attributes=_attributes(call), tags=call.inputs.get("tagsAll") or {}
    )
    return answer["QueueUrl"]


def _read_queue(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = cloud.sqs.get_queue_attributes(QueueUrl=identifier, AttributeNames=["All"])["Attributes"]
    tags: dict[str, str] = cloud.sqs.list_queue_tags(QueueUrl=identifier).get("Tags", {})
    return {
        **{api: int(seen[api]) for api in _NUMBERS.values() if api in seen},
        _SSE: seen.get(_SSE, "false") == "true",
        "QueueName": seen["QueueArn"].rpartition(":")[2],
        "QueueArn": seen["QueueArn"],
        "QueueUrl": identifier,
        "Tags": [{"Key": k, "Value": v} for k, v in sorted(tags.items())],
    }


def _update_queue(call: Call, changed: frozenset[str]) -> None:
    if changed - TAG_PROPERTIES.keys():
        call.cloud.sqs.set_queue_attributes(QueueUrl=call.id, Attributes=_attributes(call))
    gone = call.lost_tags()
    if gone:
        call.cloud.sqs.untag_queue(QueueUrl=call.id, TagKeys=gone)
    if call.tags:
        call.cloud.sqs.tag_queue(QueueUrl=call.id, Tags=call.inputs["tagsAll"])


QUEUE = ResourceType(
    name="aws:sqs/queue:Queue",
    properties={
        "name": replaces("QueueName"),
        **{name: updates(api, NUMBER, default=_NUMBER_DEFAULTS[name]) for name, api in _NUMBERS.items()},
        "sqsManagedSseEnabled": updates(_SSE, FLAG, default=True),
        "arn": computed("QueueArn"),
        "url": computed("QueueUrl"),
        **TAG_PROPERTIES,
    },
    create=_create_queue,
    read=_read_queue,
    update=_update_queue,
    delete=lambda call: call.cloud.sqs.delete_queue(QueueUrl=call.id),
    autoname=Autoname("name", 80),
    delete_minutes=3,
)


# --- queue policy ----------------------------------------------------------------------------
def _put_policy(call: Call) -> str:
    url = call.inputs["queueUrl"]
    call.cloud.sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": call.inputs["policy"]})
    return url


def _read_policy(cloud: Cloud, identifier: str, _: Values) -> Seen:
    answer = cloud.sqs.get_queue_attributes(QueueUrl=identifier, AttributeNames=["Policy"])
    policy = answer.get("Attributes", {}).get("Policy")
    return {"QueueUrl": identifier, "Policy": policy} if policy else None


def _update_policy(call: Call, _: frozenset[str]) -> None:
    _put_policy(call)


def _delete_policy(call: Call) -> None:
    with absent_is_fine():
        call.cloud.sqs.set_queue_attributes(QueueUrl=call.id, Attributes={"Policy": ""})


QUEUE_POLICY = ResourceType(
    name="aws:sqs/queuePolicy:QueuePolicy",
    properties={"queueUrl": replaces("QueueUrl"), "policy": updates("Policy", DOCUMENT)},
    create=_put_policy,
    read=_read_policy,
    update=_update_policy,
    delete=_delete_policy,
)


# --- rule ------------------------------------------------------------------------------------
def _put_rule(call: Call) -> str:
    """Put the complete rule, because PutRule replaces it (T41)."""
    call.cloud.events.put_rule(**call.api("name", "eventPattern", "description", "state"), Tags=call.tags)
    return call.inputs["name"]


def _read_rule(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = cloud.events.describe_rule(Name=identifier)
    tags = cloud.events.list_tags_for_resource(ResourceARN=seen["Arn"]).get("Tags", [])
    return {**seen, "Tags": tags}


def _update_rule(call: Call, changed: frozenset[str]) -> None:
    if changed - TAG_PROPERTIES.keys():
        call.cloud.events.put_rule(**call.api("name", "eventPattern", "description", "state"))
    arn = call.cloud.events.describe_rule(Name=call.id)["Arn"]
    gone = call.lost_tags()
    if gone:
        call.cloud.events.untag_resource(ResourceARN=arn, TagKeys=gone)
    if call.tags:
        call.cloud.events.tag_resource(ResourceARN=arn, Tags=call.tags)


RULE = ResourceType(
    name="aws:cloudwatch/eventRule:EventRule",
    properties={
        "name": replaces("Name"),
        "eventPattern": updates("EventPattern", DOCUMENT),
        "description": updates("Description"),
        "state": updates("State", default="ENABLED"),
        "forceDestroy": updates(None, FLAG, default=False),
        "arn": computed("Arn"),
        **TAG_PROPERTIES,
    },
    create=_put_rule,
    read=_read_rule,
    update=_update_rule,
    delete=lambda call: call.cloud.events.delete_rule(Name=call.id),
    autoname=Autoname("name", 64),
)


# --- target ----------------------------------------------------------------------------------
def _put_target(call: Call) -> str:
    target = {"Id": call.inputs["targetId"], "Arn": call.inputs["arn"]}
    _all_done(call.cloud.events.put_targets(Rule=call.inputs["rule"], Targets=[target]))
    return f"{call.inputs['rule']}-{call.inputs['targetId']}"


def _read_target(cloud: Cloud, identifier: str, state: Values) -> Seen:
    rule, wanted = _target_names(identifier, state)
    found = cloud.events.list_targets_by_rule(Rule=rule)["Targets"]
    seen = only([target for target in found if target["Id"] == wanted])
    return seen and {"Rule": rule, "Id": seen["Id"], "Arn": seen["Arn"]}


def _target_names(identifier: str, state: Values) -> tuple[str, str]:
    if state.get("rule") and state.get("targetId"):
        return state["rule"], state["targetId"]
    rule, _, target = identifier.rpartition("-")
    return rule, target


def _update_target(call: Call, _: frozenset[str]) -> None:
    _put_target(call)


def _delete_target(call: Call) -> None:
    rule, target = _target_names(call.id, call.inputs)
    with absent_is_fine():
        _all_done(call.cloud.events.remove_targets(Rule=rule, Ids=[target]))


def _all_done(answer: Mapping[str, Any]) -> None:
    """Raise an error for failed entries: the API returns them with status 200 (T41)."""
    for failed in answer.get("FailedEntries", ()):
        raise RuntimeError(f"{failed.get('ErrorCode')}: {failed.get('ErrorMessage')}")


TARGET = ResourceType(
    name="aws:cloudwatch/eventTarget:EventTarget",
    properties={
        "rule": replaces("Rule"),
        "targetId": replaces("Id"),
        "arn": updates("Arn"),
    },
    create=_put_target,
    read=_read_target,
    update=_update_target,
    delete=_delete_target,
    autoname=Autoname("targetId", 64),
)

ROWS = (QUEUE, QUEUE_POLICY, RULE, TARGET)
