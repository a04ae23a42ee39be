"""Route tables, routes, and associations of subnets."""

from collections.abc import Mapping
from typing import Any

from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.calls import retag_ec2
from gpucluster.sandbox.provider.cloud import Cloud, only
from gpucluster.sandbox.provider.schema import TAG_PROPERTIES, Call, ResourceType, computed, replaces, updates

Seen = Mapping[str, Value] | None


# --- route table, route, association ---------------------------------------------------------
def _create_route_table(call: Call) -> str:
    answer = call.cloud.ec2.create_route_table(**call.api("vpcId"), **call.tag_specifications("route-table"))
    return answer["RouteTable"]["RouteTableId"]


def _table_of(cloud: Cloud, identifier: str) -> dict[str, Any] | None:
    return only(cloud.ec2.describe_route_tables(RouteTableIds=[identifier])["RouteTables"])


def _read_route_table(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = _table_of(cloud, identifier)
    return seen and seen | {"Arn": cloud.ec2_arn("route-table", identifier)}


ROUTE_TABLE = ResourceType(
    name="aws:ec2/routeTable:RouteTable",
    properties={"vpcId": replaces("VpcId"), "arn": computed("Arn"), **TAG_PROPERTIES},
    create=_create_route_table,
    read=_read_route_table,
    update=lambda call, _: retag_ec2(call),
    delete=lambda call: call.cloud.ec2.delete_route_table(RouteTableId=call.id),
    delete_minutes=5,
)


_ROUTE = ("routeTableId", "destinationCidrBlock", "gatewayId", "natGatewayId")


def _create_route(call: Call) -> str:
    call.cloud.ec2.create_route(**call.api(*_ROUTE))
    return f"r-{call.inputs['routeTableId']}-{call.inputs['destinationCidrBlock']}"


def _read_route(cloud: Cloud, _: str, inputs: Values) -> Seen:
    table = _table_of(cloud, inputs["routeTableId"])
    routes: list[dict[str, Any]] = table["Routes"] if table else []
    target = inputs["destinationCidrBlock"]
    found = only([r for r in routes if r.get("DestinationCidrBlock") == target])
    return found and found | {"RouteTableId": inputs["routeTableId"]}


def _update_route(call: Call, _: frozenset[str]) -> None:
    call.cloud.ec2.replace_route(**call.api(*_ROUTE))


def _delete_route(call: Call) -> None:
    call.cloud.ec2.delete_route(**call.api("routeTableId", "destinationCidrBlock"))


ROUTE = ResourceType(
    name="aws:ec2/route:Route",
    properties={
        "routeTableId": replaces("RouteTableId"),
        "destinationCidrBlock": replaces("DestinationCidrBlock"),
        "gatewayId": updates("GatewayId"),
        "natGatewayId": updates("NatGatewayId"),
    },
    create=_create_route,
    read=_read_route,
    update=_update_route,
    delete=_delete_route,
    delete_minutes=5,
)


def _associate(call: Call) -> str:
    return call.cloud.ec2.associate_route_table(**call.api("routeTableId", "subnetId"))["AssociationId"]


def _read_association(cloud: Cloud, identifier: str, inputs: Values) -> Seen:
    table = _table_of(cloud, inputs["routeTableId"])
    every: list[dict[str, Any]] = table["Associations"] if table else []
    return only([a for a in every if a["RouteTableAssociationId"] == identifier])


ROUTE_TABLE_ASSOCIATION = ResourceType(
    name="aws:ec2/routeTableAssociation:RouteTableAssociation",
    properties={"routeTableId": replaces("RouteTableId"), "subnetId": replaces("SubnetId")},
    create=_associate,
    read=_read_association,
    delete=lambda call: call.cloud.ec2.disassociate_route_table(AssociationId=call.id),
    delete_first=True,  # a subnet has one association
    delete_minutes=5,
)

ROWS = (ROUTE_TABLE, ROUTE, ROUTE_TABLE_ASSOCIATION)
