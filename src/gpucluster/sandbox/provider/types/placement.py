"""Placement groups. Their Pulumi id is the name, because launches use the name."""

from collections.abc import Mapping
from dataclasses import replace

from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.calls import await_gone, await_state, retag_ec2
from gpucluster.sandbox.provider.cloud import Cloud, only
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Autoname,
    Call,
    ResourceType,
    computed,
    replaces,
)
from gpucluster.sandbox.provider.shapes import NUMBER

Seen = Mapping[str, Value] | None


def _create(call: Call) -> str:
    arguments = call.api("name", "strategy", "partitionCount", "spreadLevel")
    call.cloud.ec2.create_placement_group(**arguments, **call.tag_specifications("placement-group"))
    return call.inputs["name"]


def _complete(call: Call) -> None:
    await_state(
        call, lambda: (str((_read(call.cloud, call.id, {}) or {}).get("State")), ""), "available", frozenset()
    )


def _read(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = only(cloud.ec2.describe_placement_groups(GroupNames=[identifier])["PlacementGroups"])
    if seen is None or seen.get("State") in ("deleting", "deleted"):
        return None
    return seen | {"Arn": seen.get("GroupArn") or cloud.ec2_arn("placement-group", identifier)}


def _update(call: Call, _: frozenset[str]) -> None:
    """Tag the group by its EC2 id, which is not its name."""
    seen = _read(call.cloud, call.id, {}) or {}
    retag_ec2(replace(call, id=seen["GroupId"]))


def _delete(call: Call) -> None:
    """Delete the group. AWS rejects this while a member is not terminated (T27)."""
    call.cloud.ec2.delete_placement_group(GroupName=call.id)
    await_gone(call)


PLACEMENT_GROUP = ResourceType(
    name="aws:ec2/placementGroup:PlacementGroup",
    properties={
        "name": replaces("GroupName"),
        "strategy": replaces("Strategy"),
        "partitionCount": replaces("PartitionCount", NUMBER, from_cloud=True),
        "spreadLevel": replaces("SpreadLevel", from_cloud=True),
        "placementGroupId": computed("GroupId"),
        "arn": computed("Arn"),
        **TAG_PROPERTIES,
    },
    create=_create,
    complete=_complete,
    read=_read,
    update=_update,
    delete=_delete,
    autoname=Autoname("name", 255),
)

ROWS = (PLACEMENT_GROUP,)
