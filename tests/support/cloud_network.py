"""The network of a plan in the sandbox's EC2, as the program declares it."""

from dataclasses import dataclass
from typing import Any

from gpucluster.plan.model import AwsPlan
from gpucluster.plan.model.aws import OwnNetwork
from gpucluster.plan.security_rules import ANYWHERE
from support.clouds import REGION, RunningCloud


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeNetwork:
    """Ids. `private` and `tables` are by zone of the plan."""

    vpc: str
    private: dict[str, str]
    public: dict[str, str]
    tables: dict[str, str]
    gateways: dict[str, str]  # NAT gateways
    internet: str
    internet_table: str
    s3: str


def make_network(cloud: RunningCloud, plan: AwsPlan) -> MadeNetwork:
    """Create VPC, subnets, routes, NAT gateways and the endpoint of S3, in the Region of the tests."""
    network, ec2 = plan.aws.network, cloud.client("ec2")
    assert isinstance(network, OwnNetwork)
    vpc = ec2.create_vpc(CidrBlock=network.cidr)["Vpc"]["VpcId"]
    declare_dns(cloud, vpc)
    internet = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=internet, VpcId=vpc)
    internet_table = _table(ec2, vpc)
    ec2.create_route(RouteTableId=internet_table, DestinationCidrBlock=ANYWHERE, GatewayId=internet)
    private, public, tables, gateways = ({} for _ in range(4))
    for span in network.subnets:
        zone = span.zone.replace(plan.aws.region, REGION)
        private[span.zone] = _subnet(ec2, vpc, zone, span.cidr)
        tables[span.zone] = _table(ec2, vpc, private[span.zone])
        if span.public_cidr is not None:
            public[span.zone] = _subnet(ec2, vpc, zone, span.public_cidr)
            ec2.associate_route_table(RouteTableId=internet_table, SubnetId=public[span.zone])
    for zone in network.nat:
        address = ec2.allocate_address(Domain="vpc")["AllocationId"]
        made = ec2.create_nat_gateway(SubnetId=public[zone], AllocationId=address)
        gateways[zone] = made["NatGateway"]["NatGatewayId"]
    cloud.clock.move(300)
    for zone, table in tables.items():
        if network.nat:
            gateway = gateways.get(zone, gateways[network.nat[0]])
            ec2.create_route(RouteTableId=table, DestinationCidrBlock=ANYWHERE, NatGatewayId=gateway)
    s3 = ec2.create_vpc_endpoint(
        VpcId=vpc, ServiceName=f"com.amazonaws.{REGION}.s3", VpcEndpointType="Gateway", RouteTableIds=list(tables.values())
    )["VpcEndpoint"]["VpcEndpointId"]  # fmt: skip
    return MadeNetwork(
        vpc=vpc, private=private, public=public, tables=tables, gateways=gateways, internet=internet,
        internet_table=internet_table, s3=s3,
    )  # fmt: skip


def declare_dns(cloud: RunningCloud, vpc: str) -> None:
    """EC2 takes one attribute a call."""
    ec2 = cloud.client("ec2")
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsSupport={"Value": True})
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})


def _subnet(ec2: Any, vpc: str, zone: str, cidr: str) -> str:
    return ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)["Subnet"]["SubnetId"]


def _table(ec2: Any, vpc: str, subnet: str = "") -> str:
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    if subnet:
        ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
    return table
