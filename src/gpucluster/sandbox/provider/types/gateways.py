"""Elastic IP addresses and NAT gateways."""

from collections.abc import Mapping
from typing import Any

from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.calls import await_gone, await_state, retag_ec2
from gpucluster.sandbox.provider.cloud import Cloud, absent_is_fine, only
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Call,
    ResourceType,
    computed,
    moving,
    replaces,
    updates,
)

Seen = Mapping[str, Value] | None


# --- address ---------------------------------------------------------------------------------
_TARGET = frozenset({"instance", "networkInterface", "associateWithPrivateIp"})


def _allocate(call: Call) -> str:
    arguments = call.api("domain", "address", "publicIpv4Pool", "networkBorderGroup")
    return call.cloud.ec2.allocate_address(**arguments, **call.tag_specifications("elastic-ip"))[
        "AllocationId"
    ]


def _associate(call: Call) -> None:
    target = call.api(*_TARGET)
    if target:
        call.cloud.ec2.associate_address(AllocationId=call.id, AllowReassociation=True, **target)


def _read_address(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = only(cloud.ec2.describe_addresses(AllocationIds=[identifier])["Addresses"])
    return seen and seen | {"Arn": cloud.ec2_arn("elastic-ip", identifier)}


def _update_address(call: Call, changed: frozenset[str]) -> None:
    if changed & _TARGET:
        _disassociate(call)
        _associate(call)
    retag_ec2(call)


def _disassociate(call: Call) -> None:
    """Remove associations that our program made. A gateway's association ends with the gateway (T43)."""
    seen = _read_address(call.cloud, call.id, {}) or {}
    bound = any(call.olds.get(name) or call.inputs.get(name) for name in _TARGET)
    if bound and seen.get("AssociationId"):
        with absent_is_fine():
            call.cloud.ec2.disassociate_address(AssociationId=seen["AssociationId"])


def _release(call: Call) -> None:
    _disassociate(call)
    call.cloud.ec2.release_address(AllocationId=call.id)


EIP = ResourceType(
    name="aws:ec2/eip:Eip",
    properties={
        "domain": replaces("Domain", from_cloud=True),
        "address": replaces("Address"),
        "publicIpv4Pool": replaces("PublicIpv4Pool", from_cloud=True),
        "networkBorderGroup": replaces("NetworkBorderGroup", from_cloud=True),
        "instance": updates("InstanceId", from_cloud=True),
        "networkInterface": updates("NetworkInterfaceId", from_cloud=True),
        "associateWithPrivateIp": updates("PrivateIpAddress", from_cloud=True),
        "allocationId": computed("AllocationId"),
        "associationId": moving("AssociationId"),
        "arn": computed("Arn"),
        "publicIp": computed("PublicIp"),
        **TAG_PROPERTIES,
    },
    create=_allocate,
    complete=_associate,
    read=_read_address,
    update=_update_address,
    delete=_release,
    update_minutes=5,
    delete_minutes=30,  # deleting a gateway takes long
)


# --- NAT gateway -----------------------------------------------------------------------------
_NAT = ("allocationId", "subnetId", "connectivityType", "privateIp")


def _create_nat(call: Call) -> str:
    arguments = call.api(*_NAT) | call.tag_specifications("natgateway")
    return call.cloud.ec2.create_nat_gateway(**arguments)["NatGateway"]["NatGatewayId"]


def _complete_nat(call: Call) -> None:
    await_state(call, lambda: _nat_state(call), "available", frozenset({"failed", "deleted"}))


def _nat_state(call: Call) -> tuple[str, str]:
    seen = _describe_nat(call.cloud, call.id) or {}
    return seen.get("State", "unknown"), seen.get("FailureMessage", "")


def _describe_nat(cloud: Cloud, identifier: str) -> dict[str, Any] | None:
    return only(cloud.ec2.describe_nat_gateways(NatGatewayIds=[identifier])["NatGateways"])


def _read_nat(cloud: Cloud, identifier: str, _: Values) -> Seen:
    """Wait for the deletion: a gateway keeps its interface and address until it is `deleted` (T43)."""
    seen = _describe_nat(cloud, identifier)
    if seen is None or seen.get("State") in ("deleted", "failed"):
        return None
    mine: list[dict[str, Any]] = seen.get("NatGatewayAddresses", [])
    primary = only([a for a in mine if a.get("IsPrimary", True)]) or {}
    fields = {key: primary.get(key) for key in ("AllocationId", "PublicIp", "NetworkInterfaceId")}
    return seen | fields | {"PrivateIpAddress": primary.get("PrivateIp")}


def _delete_nat(call: Call) -> None:
    call.cloud.ec2.delete_nat_gateway(NatGatewayId=call.id)
    await_gone(call)


NAT_GATEWAY = ResourceType(
    name="aws:ec2/natGateway:NatGateway",
    properties={
        "allocationId": replaces("AllocationId"),
        "subnetId": replaces("SubnetId"),
        "connectivityType": replaces("ConnectivityType", default="public"),
        "privateIp": replaces("PrivateIpAddress", from_cloud=True),
        "publicIp": computed("PublicIp"),
        "networkInterfaceId": computed("NetworkInterfaceId"),
        **TAG_PROPERTIES,
    },
    create=_create_nat,
    complete=_complete_nat,
    read=_read_nat,
    update=lambda call, _: retag_ec2(call),
    delete=_delete_nat,
    delete_minutes=30,
)

ROWS = (EIP, NAT_GATEWAY)
