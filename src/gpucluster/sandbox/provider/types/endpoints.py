"""VPC endpoints: gateway endpoint for S3, interface endpoints for other services."""

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.calls import await_gone, await_state, retag_ec2
from gpucluster.sandbox.provider.cloud import Cloud, only
from gpucluster.sandbox.provider.schema import TAG_PROPERTIES, Call, ResourceType, computed, replaces, updates
from gpucluster.sandbox.provider.shapes import DOCUMENT, FLAG, TEXTS

Seen = Mapping[str, Value] | None


# --- endpoint --------------------------------------------------------------------------------
_AT_CREATION = (
    "vpcId",
    "serviceName",
    "vpcEndpointType",
    "routeTableIds",
    "subnetIds",
    "securityGroupIds",
    "privateDnsEnabled",
    "policy",
)
_SETS = (
    ("routeTableIds", "RouteTableIds"),
    ("subnetIds", "SubnetIds"),
    ("securityGroupIds", "SecurityGroupIds"),
)


def _create_endpoint(call: Call) -> str:
    arguments = call.api(*_AT_CREATION) | call.tag_specifications("vpc-endpoint")
    return call.cloud.ec2.create_vpc_endpoint(**arguments)["VpcEndpoint"]["VpcEndpointId"]


def _complete_endpoint(call: Call) -> None:
    await_state(call, lambda: _state(call), "available", frozenset({"failed", "rejected", "expired"}))


def _state(call: Call) -> tuple[str, str]:
    seen = _read_endpoint(call.cloud, call.id, {}) or {}
    return str(seen.get("State", "gone")).lower(), seen.get("LastError", {}).get("Message", "")


def _read_endpoint(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = only(cloud.ec2.describe_vpc_endpoints(VpcEndpointIds=[identifier])["VpcEndpoints"])
    if seen is None or str(seen.get("State")).lower() in ("deleted", "deleting"):
        return None
    groups = [group["GroupId"] for group in seen.get("Groups", [])]
    return seen | {"SecurityGroupIds": groups, "Arn": cloud.ec2_arn("vpc-endpoint", identifier)}


def _update_endpoint(call: Call, changed: frozenset[str]) -> None:
    arguments: dict[str, Any] = {}
    for name, api in _SETS:
        if name in changed:
            want, had = set(call.inputs.get(name) or ()), set(call.olds.get(name) or ())
            arguments |= {f"Add{api}": sorted(want - had), f"Remove{api}": sorted(had - want)}
    if "privateDnsEnabled" in changed:
        arguments["PrivateDnsEnabled"] = bool(call.inputs.get("privateDnsEnabled"))
    if "policy" in changed:
        text = call.inputs.get("policy")
        arguments |= {"PolicyDocument": text} if text else {"ResetPolicy": True}
    if arguments:
        call.cloud.ec2.modify_vpc_endpoint(VpcEndpointId=call.id, **arguments)
        _complete_endpoint(call)
    retag_ec2(call)


def _delete_endpoint(call: Call) -> None:
    answer = call.cloud.ec2.delete_vpc_endpoints(VpcEndpointIds=[call.id])
    refused = [u for u in answer.get("Unsuccessful", []) if not u["Error"]["Code"].endswith("NotFound")]
    if refused:  # this API returns failures with status 200
        raise ClientError({"Error": refused[0]["Error"]}, "DeleteVpcEndpoints")
    await_gone(call)


def _not_an_interface(_: Values, news: Values) -> bool:
    """Return whether private DNS can change in place: only for interface endpoints."""
    return news.get("vpcEndpointType") != "Interface"


VPC_ENDPOINT = ResourceType(
    name="aws:ec2/vpcEndpoint:VpcEndpoint",
    properties={
        "vpcId": replaces("VpcId"),
        "serviceName": replaces("ServiceName"),
        "vpcEndpointType": replaces("VpcEndpointType", default="Gateway"),
        "routeTableIds": updates("RouteTableIds", TEXTS),
        "subnetIds": updates("SubnetIds", TEXTS),
        "securityGroupIds": updates(
            "SecurityGroupIds", TEXTS, from_cloud=True
        ),  # none: the VPC's default group
        "privateDnsEnabled": updates("PrivateDnsEnabled", FLAG, from_cloud=True, anew_when=_not_an_interface),
        "policy": updates("PolicyDocument", DOCUMENT, from_cloud=True),
        "arn": computed("Arn"),
        **TAG_PROPERTIES,
    },
    create=_create_endpoint,
    complete=_complete_endpoint,
    read=_read_endpoint,
    update=_update_endpoint,
    delete=_delete_endpoint,
    delete_minutes=10,
)

ROWS = (VPC_ENDPOINT,)
