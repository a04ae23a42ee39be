"""Checks of every EC2 request: ids, names of filters, pages."""

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from gpucluster.sandbox.aws import protocols
from gpucluster.sandbox.aws.ec2 import filters
from gpucluster.sandbox.aws.ec2.call import Ec2Call, Result
from gpucluster.sandbox.aws.ec2.state.values import Refusal

# member of a request -> (prefix of its ids, error code of a malformed one); source: errors-overview, read 2026-11
# VPCs, subnets, gateways and addresses have no such code: a malformed id counts as not found
_IDS: Mapping[str, tuple[str, str]] = {
    "CapacityReservationId": ("cr", "InvalidCapacityReservationId.Malformed"),
    "GroupId": ("sg", "InvalidGroupId.Malformed"),
    "ImageId": ("ami", "InvalidAMIID.Malformed"),
    "InstanceId": ("i", "InvalidInstanceID.Malformed"),
    "LaunchTemplateId": ("lt", "InvalidLaunchTemplateId.Malformed"),
    "NatGatewayId": ("nat", "NatGatewayMalformed"),
    "NetworkInterfaceId": ("eni", "InvalidNetworkInterfaceId.Malformed"),
    "RouteTableId": ("rtb", "InvalidRouteTableId.Malformed"),
    "SecurityGroupId": ("sg", "InvalidGroupId.Malformed"),
    "SnapshotId": ("snap", "InvalidSnapshotID.Malformed"),
    "VolumeId": ("vol", "InvalidVolumeID.Malformed"),
    "VpcEndpointId": ("vpce", "InvalidVpcEndpointId.Malformed"),
}
# (operation, member) -> limit of one call (T17, T22, T23)
_MOST: Mapping[tuple[str, str], int] = {
    ("CreateTags", "Resources"): 1000,
    ("DescribeInstances", "InstanceIds"): 1000,
    ("DescribeInstanceStatus", "InstanceIds"): 100,
    ("TerminateInstances", "InstanceIds"): 1000,
}
_DIGITS = "[0-9a-f]{1,17}"
_LONGEST_TOKEN = 64  # ASCII characters of a client token (T01)
_OTHER_GROUPS = "PlacementGroup"  # their GroupId is no security group
_ALIAS = "resolve:ssm:"  # an image by the name of an SSM parameter
_LIST_ITEM = re.compile(r"<li>\s*<p>\s*<code>([^<]+)</code>")
_CODE = re.compile(r"<code>([^<]+)</code>")


def check(call: Ec2Call) -> None:
    """Refuse malformed ids, unknown filters and wrong page sizes."""
    for name, value in _ids(call):
        prefix, code = _IDS[name]
        if not re.fullmatch(f"{prefix}-{_DIGITS}", value) and not value.startswith(_ALIAS):
            raise Refusal(code, f'Invalid id: "{value}" (expecting "{prefix}-...")')
    for (operation, name), most in _MOST.items():
        if operation == call.operation and len(call.asked.get(name) or ()) > most:
            raise Refusal("InvalidParameterValue", f"{name} may have at most {most} values.")
    token = call.asked.get("ClientToken")
    if token is not None and not (str(token).isascii() and len(str(token)) <= _LONGEST_TOKEN):
        raise Refusal("InvalidParameterValue", "Client token is too long or is not ASCII")
    _check_filters(call)
    _check_tags(call.asked)


def wants_page(call: Ec2Call) -> bool:
    """Whether the request asks for a page."""
    return not {"MaxResults", "NextToken"}.isdisjoint(call.asked) and _listed(call.operation) is not None


def page(call: Ec2Call, whole: Result, seed: int) -> Result:
    """That page of the list, in an order that stays over all pages."""
    member = _listed(call.operation)
    items = cast(list[Any], whole.get(member or "") or [])
    shown, token = filters.page(items, _text, call.asked, seed)
    left = {k: v for k, v in whole.items() if k != "NextToken"}
    return {**left, str(member): shown, **({} if token is None else {"NextToken": token})}


def _ids(call: Ec2Call) -> Iterator[tuple[str, str]]:
    for name, value in call.asked.items():
        single = name.removesuffix("s")
        if single not in _IDS or (single == "GroupId" and _OTHER_GROUPS in call.operation):
            continue
        values: Sequence[Any] = cast(Sequence[Any], value) if isinstance(value, list) else [value]
        yield from ((single, str(one)) for one in values)


def _check_filters(call: Ec2Call) -> None:
    asked = cast(Sequence[Mapping[str, Any]], call.asked.get("Filters") or call.asked.get("Filter") or ())
    known = _filters_of(call.operation)
    for one in asked:
        name = str(one.get("Name", ""))
        if known and name not in known and not name.startswith("tag:"):
            raise Refusal("InvalidParameterValue", f"The filter '{name}' is invalid")


@functools.cache
def _filters_of(operation: str) -> frozenset[str]:
    """The filters of an operation, from the text of botocore's model; empty: unknown."""
    shape: Any = protocols.ec2_operation(operation).input_shape
    members: Mapping[str, Any] = {} if shape is None else shape.members
    text = str(getattr(members.get("Filters") or members.get("Filter"), "documentation", ""))
    return frozenset(_CODE.findall(text)) if _LIST_ITEM.search(text) else frozenset()


def _check_tags(asked: Mapping[str, Any]) -> None:
    """Refuse a repeated key and too long values, which the model does not bound (T17)."""
    specifications = cast(Sequence[Mapping[str, Any]], asked.get("TagSpecifications") or ())
    kinds = [str(part.get("ResourceType", "")) for part in specifications]
    if len(set(kinds)) < len(kinds):
        raise Refusal("InvalidParameterValue", "The same resource type may not be specified more than once.")
    lists = [part.get("Tags") for part in specifications]
    for tags in (*lists, asked.get("Tags")):
        keys = [str(tag.get("Key", "")) for tag in cast(Sequence[Mapping[str, Any]], tags or ())]
        if len(set(keys)) < len(keys):
            raise Refusal("InvalidParameterValue", "Duplicate tag key specified.")
        for tag in cast(Sequence[Mapping[str, Any]], tags or ()):
            _check_tag(str(tag.get("Key", "")), str(tag.get("Value") or ""))


def _check_tag(key: str, value: str) -> None:
    if not 1 <= len(key) <= 128:
        raise Refusal("InvalidParameterValue", "Tag key must be between 1 and 128 characters")
    if len(value) > 256:
        raise Refusal("InvalidParameterValue", "Tag value exceeds the maximum length of 256 characters")


@functools.cache
def _listed(operation: str) -> str | None:
    """The list in a paged answer."""
    model: Any = protocols.ec2_operation(operation)
    if model.input_shape is None or "MaxResults" not in model.input_shape.members:
        return None
    shape: Any = model.output_shape
    lists = [name for name, member in shape.members.items() if member.type_name == "list"]
    return lists[0] if len(lists) == 1 else None


_text: Callable[[Any], str] = functools.partial(json.dumps, sort_keys=True, default=str)
