"""The cluster's own VPC: a private subnet and a route table in each zone, public subnets for NAT gateways and login machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.plan.model import AwsPlan, FsxLustre, OwnNetwork, Subnet, eks_of
from gpucluster.plan.names import ROLE_KUBERNETES, TAG_ROLE
from gpucluster.plan.security_rules import ANYWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class VpcContext:
    """VPC and subnets. `ready`: resources that must exist before a machine reaches the internet."""

    vpc_id: Output[str]
    account: Output[str]  # of the cluster's own resources
    private: Mapping[str, Output[str]]  # zone -> subnet id
    private_arns: Mapping[str, Output[str]]
    public: Mapping[str, Output[str]]
    spare: Output[str] | None = None  # subnet in a second zone, for the control plane of EKS
    ready: list[pulumi.Resource] = field(default_factory=list[pulumi.Resource])


def retained_zones(plan: AwsPlan) -> frozenset[str]:
    """Return the zones whose subnet a protected Lustre file system uses. An EFS can remain without mount targets."""
    return frozenset(m.source.zone for m in plan.storage if isinstance(m.source, FsxLustre))


def _account_of(arn: str) -> str:
    return arn.split(":")[4]


def fixed_addresses(plan: AwsPlan, zone: str) -> list[str]:
    """Return the addresses of head and standby in a zone."""
    if plan.head is None:
        return []
    machines = [plan.head, *([] if plan.head.standby is None else [plan.head.standby])]
    return [one.address for one in machines if one.zone == zone]


def declare_vpc(plan: AwsPlan, network: OwnNetwork, child: ResourceOptions) -> VpcContext:
    """Declare the VPC as children of `child`'s parent. Every name has its zone, so a new zone changes no other resource."""
    return _Vpc(plan, network, child).vpc_context


class _Vpc:
    def __init__(self, plan: AwsPlan, network: OwnNetwork, child: ResourceOptions) -> None:
        self._name, self._child, self._retained = plan.name, child, retained_zones(plan)
        self._network, self._eks = network, eks_of(plan)
        self._vpc = aws.ec2.Vpc(
            plan.name,
            cidr_block=self._network.cidr,
            enable_dns_support=True,
            enable_dns_hostnames=True,  # endpoints and file systems resolve only with both (T32)
            tags={"Name": plan.name},
            opts=self._protected(bool(self._retained)),
        )
        self._ready: list[pulumi.Resource] = []
        public = self._public()
        gateways = self._gateways(public)
        spare = None if self._eks is None else self._eks.spare
        spans = [*self._network.subnets, *([] if spare is None else [spare])]
        tables = {span.zone: self._table(span.zone) for span in spans}
        private = {span.zone: self._private(span, tables[span.zone]) for span in self._network.subnets}
        second = None if spare is None else self._spare(spare, tables[spare.zone])
        reserved = {
            zone: self._reserve(fixed_addresses(plan, zone), subnet) for zone, subnet in private.items()
        }
        self._nat_routes(tables, gateways)
        self._s3_endpoint(plan.aws.region, tables)
        self.vpc_context = VpcContext(
            vpc_id=self._vpc.id,
            account=self._vpc.arn.apply(_account_of),  # who makes a VPC owns it
            private={zone: self._after(subnet, reserved[zone]) for zone, subnet in private.items()},
            private_arns={zone: subnet.arn for zone, subnet in private.items()},
            public={zone: subnet.id for zone, subnet in public.items()},
            spare=second,
            ready=self._ready,
        )

    def _protected(self, retained: bool) -> ResourceOptions:
        return ResourceOptions.merge(self._child, ResourceOptions(protect=retained or None))

    def _public(self) -> dict[str, aws.ec2.Subnet]:
        """Declare the public subnets with one route table. They assign no addresses, because their machines have fixed ones."""
        ranges = {span.zone: span.public_cidr for span in self._network.subnets if span.public_cidr}
        if not ranges:
            return {}
        name = self._name
        gateway = aws.ec2.InternetGateway(name, vpc_id=self._vpc.id, tags={"Name": name}, opts=self._child)
        table = aws.ec2.RouteTable(name, vpc_id=self._vpc.id, tags={"Name": name}, opts=self._child)
        route = aws.ec2.Route(
            f"{name}-internet",
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            gateway_id=gateway.id,
            opts=self._child,
        )
        self._ready.append(route)
        return {zone: self._public_subnet(zone, cidr, table) for zone, cidr in ranges.items()}

    def _public_subnet(self, zone: str, cidr: str, table: aws.ec2.RouteTable) -> aws.ec2.Subnet:
        name = f"{self._name}-public-{zone}"
        subnet = self._subnet(name, zone, cidr, self._child)
        self._join(name, subnet, table)
        return subnet

    def _private(self, span: Subnet, table: aws.ec2.RouteTable) -> aws.ec2.Subnet:
        name = f"{self._name}-{span.zone}"
        retained = self._protected(span.zone in self._retained)
        subnet = self._subnet(name, span.zone, span.cidr, retained, self._discovered())
        self._join(name, subnet, table)
        return subnet

    def _spare(self, span: Subnet, table: aws.ec2.RouteTable) -> Output[str]:
        """Declare the subnet with the name that it keeps if its zone joins the network.

        The control plane needs no route. But the zone may have left the network: the nodes of the add-ons stay in it, and
        nodes of Karpenter until they are empty. Without a way out they pull no image and reach no service of AWS.
        """
        name = f"{self._name}-{span.zone}"
        subnet = self._subnet(name, span.zone, span.cidr, self._child)
        self._join(name, subnet, table)
        return subnet.id

    def _join(self, name: str, subnet: aws.ec2.Subnet, table: aws.ec2.RouteTable) -> None:
        joined = aws.ec2.RouteTableAssociation(
            name, route_table_id=table.id, subnet_id=subnet.id, opts=self._child
        )
        self._ready.append(joined)

    def _reserve(
        self, addresses: Sequence[str], subnet: aws.ec2.Subnet
    ) -> list[aws.ec2.SubnetCidrReservation]:
        """Reserve the fixed addresses. A file system or an endpoint could draw them before the head exists (T10)."""
        return [
            aws.ec2.SubnetCidrReservation(
                f"{self._name}-{address}",
                subnet_id=subnet.id,
                cidr_block=f"{address}/32",
                reservation_type="explicit",
                opts=self._child,
            )
            for address in addresses
        ]

    @staticmethod
    def _after(subnet: aws.ec2.Subnet, reserved: Sequence[aws.ec2.SubnetCidrReservation]) -> Output[str]:
        """Return the subnet's id, known after its reservations: so nothing draws from the subnet before them."""
        if not reserved:
            return subnet.id
        return Output.all(subnet.id, *(one.id for one in reserved)).apply(lambda ids: str(ids[0]))

    def _discovered(self) -> Mapping[str, str]:
        """Return the tag by which Karpenter finds private subnets. The cluster's own tag is on public ones, too."""
        return {} if self._eks is None else {TAG_ROLE: ROLE_KUBERNETES}

    def _subnet(
        self, name: str, zone: str, cidr: str, opts: ResourceOptions, more: Mapping[str, str] | None = None
    ) -> aws.ec2.Subnet:
        return aws.ec2.Subnet(
            name,
            vpc_id=self._vpc.id,
            cidr_block=cidr,
            availability_zone=zone,
            map_public_ip_on_launch=False,
            tags={"Name": name, **(more or {})},
            opts=opts,
        )

    def _table(self, zone: str) -> aws.ec2.RouteTable:
        name = f"{self._name}-{zone}"
        return aws.ec2.RouteTable(name, vpc_id=self._vpc.id, tags={"Name": name}, opts=self._child)

    def _gateways(self, public: Mapping[str, aws.ec2.Subnet]) -> dict[str, aws.ec2.NatGateway]:
        return {zone: self._gateway(zone, public[zone]) for zone in self._network.nat}

    def _gateway(self, zone: str, subnet: aws.ec2.Subnet) -> aws.ec2.NatGateway:
        """Declare a NAT gateway after the routes: it fails while its subnet has no route to the internet."""
        name = f"{self._name}-nat-{zone}"
        after = ResourceOptions.merge(self._child, ResourceOptions(depends_on=list(self._ready)))
        address = aws.ec2.Eip(name, domain="vpc", tags={"Name": name}, opts=after)
        alone = ResourceOptions.merge(after, ResourceOptions(delete_before_replace=True))
        return aws.ec2.NatGateway(  # an address serves only one gateway, so the old one is deleted first
            name, allocation_id=address.id, subnet_id=subnet.id, tags={"Name": name}, opts=alone
        )

    def _nat_routes(
        self, tables: Mapping[str, aws.ec2.RouteTable], gateways: Mapping[str, aws.ec2.NatGateway]
    ) -> None:
        """Route each zone through its own NAT gateway, or through the first one."""
        if not gateways:
            return
        first = gateways[self._network.nat[0]]
        for zone, table in tables.items():
            route = aws.ec2.Route(
                f"{self._name}-nat-{zone}",
                route_table_id=table.id,
                destination_cidr_block=ANYWHERE,
                nat_gateway_id=gateways.get(zone, first).id,
                opts=self._child,
            )
            self._ready.append(route)

    def _s3_endpoint(self, region: str, tables: Mapping[str, aws.ec2.RouteTable]) -> None:
        """Declare the gateway endpoint of S3: it is free, and S3 traffic causes no NAT costs."""
        endpoint = aws.ec2.VpcEndpoint(
            f"{self._name}-s3",
            vpc_id=self._vpc.id,
            service_name=f"com.amazonaws.{region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[table.id for table in tables.values()],
            tags={"Name": f"{self._name}-s3"},
            opts=self._child,
        )
        self._ready.append(endpoint)
