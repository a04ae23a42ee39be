"""The cluster's own VPC: a private subnet and a route table a zone, public subnets for gateways and login machines."""

from collections.abc import Mapping

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions

from gpucluster.aws.ground import Ground, kept_zones
from gpucluster.aws.groups import ANYWHERE
from gpucluster.plan.model import ClusterPlan, Subnet, there


def declare_vpc(plan: ClusterPlan, child: ResourceOptions) -> Ground:
    """Declare it all as children of `child`'s parent. Every name carries its zone, so a new zone moves no other."""
    return _Vpc(plan, child).ground


class _Vpc:
    def __init__(self, plan: ClusterPlan, child: ResourceOptions) -> None:
        self._name, self._child, self._kept = plan.name, child, kept_zones(plan)
        self._network = there(plan.aws).network
        self._vpc = aws.ec2.Vpc(
            plan.name,
            cidr_block=self._network.cidr,
            enable_dns_support=True,
            enable_dns_hostnames=True,  # names of endpoints and file systems resolve only with both (T32)
            tags={"Name": plan.name},
            opts=self._held(bool(self._kept)),
        )
        self._ready: list[pulumi.Resource] = []
        public = self._public()
        gateways = self._gateways(public)
        tables = {span.zone: self._table(span.zone) for span in self._network.subnets}
        private = {span.zone: self._private(span, tables[span.zone]) for span in self._network.subnets}
        self._outward(tables, gateways)
        self._s3_endpoint(there(plan.aws).region, tables)
        self.ground = Ground(
            vpc_id=self._vpc.id,
            vpc_arn=self._vpc.arn,
            private={zone: subnet.id for zone, subnet in private.items()},
            private_arns={zone: subnet.arn for zone, subnet in private.items()},
            public={zone: subnet.id for zone, subnet in public.items()},
            ready=self._ready,
        )

    def _held(self, kept: bool) -> ResourceOptions:
        return ResourceOptions.merge(self._child, ResourceOptions(protect=kept or None))

    def _public(self) -> dict[str, aws.ec2.Subnet]:
        """One table for all of them. No address is given by itself: who stands there has a fixed one."""
        spans = [span for span in self._network.subnets if span.public_cidr is not None]
        if not spans:
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
        return {span.zone: self._public_subnet(span, table) for span in spans}

    def _public_subnet(self, span: Subnet, table: aws.ec2.RouteTable) -> aws.ec2.Subnet:
        name = f"{self._name}-public-{span.zone}"
        subnet = self._subnet(name, span.zone, there(span.public_cidr), self._child)
        joined = aws.ec2.RouteTableAssociation(
            name, route_table_id=table.id, subnet_id=subnet.id, opts=self._child
        )
        self._ready.append(joined)
        return subnet

    def _private(self, span: Subnet, table: aws.ec2.RouteTable) -> aws.ec2.Subnet:
        name = f"{self._name}-{span.zone}"
        subnet = self._subnet(name, span.zone, span.cidr, self._held(span.zone in self._kept))
        joined = aws.ec2.RouteTableAssociation(
            name, route_table_id=table.id, subnet_id=subnet.id, opts=self._child
        )
        self._ready.append(joined)
        return subnet

    def _subnet(self, name: str, zone: str, cidr: str, opts: ResourceOptions) -> aws.ec2.Subnet:
        return aws.ec2.Subnet(
            name,
            vpc_id=self._vpc.id,
            cidr_block=cidr,
            availability_zone=zone,
            map_public_ip_on_launch=False,
            tags={"Name": name},
            opts=opts,
        )

    def _table(self, zone: str) -> aws.ec2.RouteTable:
        name = f"{self._name}-{zone}"
        return aws.ec2.RouteTable(name, vpc_id=self._vpc.id, tags={"Name": name}, opts=self._child)

    def _gateways(self, public: Mapping[str, aws.ec2.Subnet]) -> dict[str, aws.ec2.NatGateway]:
        return {zone: self._gateway(zone, public[zone]) for zone in self._network.nat}

    def _gateway(self, zone: str, subnet: aws.ec2.Subnet) -> aws.ec2.NatGateway:
        """A NAT gateway fails while its subnet has no way out, so the routes come first."""
        name = f"{self._name}-nat-{zone}"
        after = ResourceOptions.merge(self._child, ResourceOptions(depends_on=list(self._ready)))
        address = aws.ec2.Eip(name, domain="vpc", tags={"Name": name}, opts=after)
        return aws.ec2.NatGateway(
            name, allocation_id=address.id, subnet_id=subnet.id, tags={"Name": name}, opts=after
        )

    def _outward(
        self, tables: Mapping[str, aws.ec2.RouteTable], gateways: Mapping[str, aws.ec2.NatGateway]
    ) -> None:
        """Each zone by its own gateway; a zone that has none by the first."""
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
        """A gateway endpoint costs nothing, and keeps the bundle off the internet and off the NAT's bill."""
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
