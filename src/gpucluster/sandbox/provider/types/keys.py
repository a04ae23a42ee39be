"""Keys of KMS. A deletion takes days: until then the key is pending, which counts as deleted."""

from collections.abc import Mapping
from typing import Any

from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.cloud import Cloud
from gpucluster.sandbox.provider.schema import TAG_PROPERTIES, Call, ResourceType, computed, updates
from gpucluster.sandbox.provider.shapes import DOCUMENT, FLAG, NUMBER

Seen = Mapping[str, Value] | None
_GONE = ("PendingDeletion", "PendingReplicaDeletion")
_POLICY = "default"  # the only name of a key's policy


def _tags(call: Call) -> list[dict[str, str]]:
    return [{"TagKey": one["Key"], "TagValue": one["Value"]} for one in call.tags]


def _create(call: Call) -> str:
    tags: dict[str, Any] = {"Tags": _tags(call)} if call.tags else {}
    made = call.cloud.client("kms").create_key(**call.api("description", "policy"), **tags)
    return made["KeyMetadata"]["KeyId"]


def _complete(call: Call) -> None:
    if call.inputs.get("enableKeyRotation"):
        call.cloud.client("kms").enable_key_rotation(KeyId=call.id)


def _read(cloud: Cloud, identifier: str, _: Values) -> Seen:
    kms = cloud.client("kms")
    seen = kms.describe_key(KeyId=identifier)["KeyMetadata"]
    if seen["KeyState"] in _GONE:
        return None
    tags = kms.list_resource_tags(KeyId=identifier)["Tags"]
    return {
        **seen,
        "KeyRotationEnabled": kms.get_key_rotation_status(KeyId=identifier)["KeyRotationEnabled"],
        "Policy": kms.get_key_policy(KeyId=identifier, PolicyName=_POLICY)["Policy"],
        "Tags": [{"Key": one["TagKey"], "Value": one["TagValue"]} for one in tags],
    }


def _update(call: Call, changed: frozenset[str]) -> None:
    kms = call.cloud.client("kms")
    if "enableKeyRotation" in changed:
        on = call.inputs.get("enableKeyRotation")
        (kms.enable_key_rotation if on else kms.disable_key_rotation)(KeyId=call.id)
    if "description" in changed:
        kms.update_key_description(KeyId=call.id, Description=call.inputs.get("description") or "")
    if "policy" in changed:
        kms.put_key_policy(KeyId=call.id, PolicyName=_POLICY, Policy=call.inputs["policy"])
    gone = call.lost_tags()
    if gone:
        kms.untag_resource(KeyId=call.id, TagKeys=gone)
    if call.tags:
        kms.tag_resource(KeyId=call.id, Tags=_tags(call))


def _delete(call: Call) -> None:
    days = call.inputs.get("deletionWindowInDays")
    window: dict[str, Any] = {} if days is None else {"PendingWindowInDays": days}
    call.cloud.client("kms").schedule_key_deletion(KeyId=call.id, **window)


KEY = ResourceType(
    name="aws:kms/key:Key",
    properties={
        "description": updates("Description", from_cloud=True),
        "deletionWindowInDays": updates(None, NUMBER),
        "enableKeyRotation": updates("KeyRotationEnabled", FLAG, default=False),
        "policy": updates("Policy", DOCUMENT, from_cloud=True),
        "keyId": computed("KeyId"),
        "arn": computed("Arn"),
        **TAG_PROPERTIES,
    },
    create=_create,
    complete=_complete,
    read=_read,
    update=_update,
    delete=_delete,
)

ROWS = (KEY,)
