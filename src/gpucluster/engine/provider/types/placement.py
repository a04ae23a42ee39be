"""Placement groups. The id is the name: launches say it so."""

from collections.abc import Mapping
from dataclasses import replace

from gpucluster.engine.provider.calls import Call, Cloud, await_gone, await_state, only, retag_ec2
from gpucluster.engine.provider.schema import (
    TAG_PROPERTIES,
    Autoname,
    ResourceType,
    computed,
    replaces,
)
from gpucluster.engine.provider.shapes import NUMBER
from gpucluster.engine.provider.values import Value, Values

Seen = Mapping[str, Value] | None


def _create(call: Call) -> str:
    arguments = call.api("name", "strategy", "partitionCount", "spreadLevel")
    call.cloud.ec2.create_placement_group(**arguments, **call.tag_specifications("placement-group"))
    return call.inputs["name"]


def _settle(call: Call) -> None:
    await_state(
        call, lambda: (str((_read(call.cloud, call.id, {}) or {}).get("State")), ""), "available", frozenset()
    )


def _read(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = only(cloud.ec2.describe_placement_groups(GroupNames=[identifier])["PlacementGroups"])
    if seen is None or seen.get("State") in ("deleting", "deleted"):
        return None
    return seen | {"Arn": seen.get("GroupArn") or cloud.ec2_arn("placement-group", identifier)}


def _update(call: Call, _: frozenset[str]) -> None:
    """Tags hang on the group's id, which is not its name."""
    seen = _read(call.cloud, call.id, {}) or {}
    retag_ec2(replace(call, id=seen["GroupId"]))


def _delete(call: Call) -> None:
    """Refused while a member is not yet terminated (T27)."""
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
    settle=_settle,
    read=_read,
    update=_update,
    delete=_delete,
    autoname=Autoname("name", 255),
)

ROWS = (PLACEMENT_GROUP,)
