"""The answers of EC2 on a network, as typed values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import json_fields
from gpucluster.checks.check import QueryOutput
from gpucluster.plan.security_rules import ANYWHERE

TARGETS = (
    *("GatewayId", "NatGatewayId", "TransitGatewayId", "VpcPeeringConnectionId", "NetworkInterfaceId"),
    *("InstanceId", "EgressOnlyInternetGatewayId", "LocalGatewayId", "CarrierGatewayId"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route of a table. `to`: a range or the id of a prefix list; `by`: the id of its target."""

    to: str
    by: str
    blackhole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTable:
    """A route table with the subnets that are associated with it by name."""

    id: str
    subnets: tuple[str, ...]
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A VPC endpoint; `service` is the last word of its service's name, `policy` a text (empty: EC2 shows none), `groups` the names of its security groups."""

    id: str
    service: str
    interface: bool
    state: str
    tables: tuple[str, ...]
    subnets: tuple[str, ...]
    private_dns: bool
    policy: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclEntry:
    """A rule of a network ACL. `what`: protocol and range."""

    number: int
    out: bool
    allow: bool
    what: str
    everything: bool  # every protocol, from or to everywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """A network ACL. `subnets`: subnet -> id of the association."""

    id: str
    default: bool
    subnets: Mapping[str, str]
    entries: tuple[AclEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network as EC2 describes it. In a VPC of the site only the cluster's endpoints are read."""

    endpoints: tuple[Endpoint, ...]
    public: Mapping[str, str]  # range of a subnet -> its id
    gives_public: frozenset[str]  # subnets whose instances get public addresses (MapPublicIpOnLaunch)
    tables: tuple[RouteTable, ...]
    gateways: Mapping[str, str]  # NAT gateway -> its state
    acls: tuple[Acl, ...]
    attributes_off: tuple[str, ...]  # DNS attributes of the VPC that are off


def parse_network(got: tuple[QueryOutput, ...]) -> Network:
    """The answer of `validate.network_reader`."""
    found = json_fields.table(got[0].text())

    def rows(name: str) -> tuple[Mapping[str, Any], ...]:
        return json_fields.members_if_any(found, name)

    return Network(
        endpoints=tuple(map(_endpoint, rows("VpcEndpoints"))),
        public={json_fields.text(one, "CidrBlock"): json_fields.text(one, "SubnetId") for one in rows("Subnets")},
        gives_public=frozenset(
            json_fields.text(one, "SubnetId") for one in rows("Subnets") if one.get("MapPublicIpOnLaunch") is True
        ),
        tables=tuple(map(_table, rows("RouteTables"))),
        gateways={
            json_fields.text(one, "NatGatewayId"): json_fields.text(one, "State") for one in rows("NatGateways")
        },
        acls=tuple(map(_acl, rows("NetworkAcls"))),
        attributes_off=tuple(
            key for one in rows("VpcAttributes") for key, value in sorted(one.items()) if value is False
        ),
    )  # fmt: skip


def _endpoint(item: Mapping[str, Any]) -> Endpoint:
    return Endpoint(
        id=json_fields.text(item, "VpcEndpointId"),
        service=json_fields.text(item, "ServiceName").rpartition(".")[2],
        interface=item.get("VpcEndpointType") == "Interface",
        state=json_fields.text(item, "State").lower(),  # botocore's enumeration has capitals, EC2 does not
        tables=_strings(item, "RouteTableIds"),
        subnets=_strings(item, "SubnetIds"),
        private_dns=item.get("PrivateDnsEnabled") is True,
        policy=json_fields.text(item, "PolicyDocument") if item.get("PolicyDocument") else "",
        groups=tuple(
            sorted(json_fields.text(one, "GroupName") for one in json_fields.members_if_any(item, "Groups"))
        ),
    )


def _strings(item: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return json_fields.strings(item, key) if key in item else ()


def _table(item: Mapping[str, Any]) -> RouteTable:
    joined = json_fields.members_if_any(item, "Associations")
    return RouteTable(
        id=json_fields.text(item, "RouteTableId"),
        subnets=tuple(json_fields.text(one, "SubnetId") for one in joined if "SubnetId" in one),
        routes=tuple(map(_route, json_fields.members_if_any(item, "Routes"))),
    )


def _route(item: Mapping[str, Any]) -> Route:
    ranges = ("DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId")
    return Route(
        to=next((json_fields.text(item, key) for key in ranges if item.get(key)), ""),
        by=next((json_fields.text(item, key) for key in TARGETS if item.get(key)), ""),
        blackhole=item.get("State") == "blackhole",
    )


def _acl(item: Mapping[str, Any]) -> Acl:
    joined = json_fields.members_if_any(item, "Associations")
    return Acl(
        id=json_fields.text(item, "NetworkAclId"),
        default=item.get("IsDefault") is True,
        subnets={
            json_fields.text(one, "SubnetId"): json_fields.text(one, "NetworkAclAssociationId") for one in joined
        },
        entries=tuple(map(_entry, json_fields.members_if_any(item, "Entries"))),
    )  # fmt: skip


def _entry(item: Mapping[str, Any]) -> AclEntry:
    protocol = json_fields.text(item, "Protocol")
    range_ = str(item.get("CidrBlock") or item.get("Ipv6CidrBlock") or "")
    return AclEntry(
        number=int(json_fields.number(item, "RuleNumber")),
        out=item.get("Egress") is True,
        allow=json_fields.text(item, "RuleAction") == "allow",
        what=f"{'every protocol' if protocol == '-1' else f'protocol {protocol}'} {'to' if item.get('Egress') else 'from'} {range_}",
        everything=protocol == "-1" and range_ == ANYWHERE,
    )
