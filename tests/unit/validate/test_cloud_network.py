"""The check of the network over the sandbox's EC2: each sabotage is found. The steps for the AWS CLI are typed, those of Pulumi are not."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from support import builders
from support.aws_cli import AwsCli, aws_cli
from support.cloud_network import MadeNetwork, declare_dns, make_network
from support.clouds import REGION, RunningCloud, running_cloud

from gpucluster.checks.check import CheckResult, QueryOutput
from gpucluster.checks.cloud_network import NetworkWant
from gpucluster.checks.table import CHECKS
from gpucluster.plan import names
from gpucluster.plan.model.aws import OwnNetwork
from gpucluster.plan.security_rules import ANYWHERE
from gpucluster.validate.cloud_reader import CloudReader

pytestmark = pytest.mark.loopback
UP = "pulumi up --refresh --stack burst"
CHECK = CHECKS["cloud.network"]
ENDPOINTS = ("ec2", "secretsmanager")


@dataclass
class Deployed:
    """The network of `burst` with two interface endpoints."""

    cloud: RunningCloud
    made: MadeNetwork
    want: NetworkWant
    group: str
    endpoints: dict[str, str]

    @property
    def ec2(self) -> Any:
        return self.cloud.client("ec2")

    def subnet(self) -> str:
        return self.want.private[0]

    def table(self) -> str:
        return next(self.made.tables[zone] for zone, one in self.made.private.items() if one == self.subnet())

    def checked(self, want: NetworkWant | None = None) -> CheckResult:
        want = want or self.want
        reader = CloudReader("burst", self.cloud.client)
        answers = (json.dumps(reader.read(query.argv), default=str) for query in CHECK.query(want))
        return CHECK.evaluate(CHECK.parse(tuple(QueryOutput(code=0, stdout=one) for one in answers)), want)


@pytest.fixture(scope="module")
def cloud() -> Iterator[RunningCloud]:
    with running_cloud() as found:
        yield found


@pytest.fixture(scope="module")
def aws(cloud: RunningCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsCli]:
    """The real AWS CLI with the operator's key."""
    with aws_cli(cloud, tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.fixture
def burst(cloud: RunningCloud) -> Deployed:
    plan = builders.a_plan()
    made = make_network(cloud.fresh(), plan)
    network = plan.aws.network
    assert isinstance(network, OwnNetwork)
    public = tuple(span.public_cidr for span in network.subnets if span.public_cidr is not None)
    want = NetworkWant(
        cluster="burst", own=True, private=tuple(sorted(made.private.values())), public=public, nat=True, endpoints=ENDPOINTS
    )  # fmt: skip
    group = cloud.client("ec2").create_security_group(
        GroupName="burst-endpoints-1234567", Description="e", VpcId=made.vpc
    )
    found = Deployed(cloud, made, want, group["GroupId"], {})
    found.endpoints.update({service: endpoint(found, service) for service in ENDPOINTS})
    return found


def endpoint(b: Deployed, service: str, **more: Any) -> str:
    asked: dict[str, Any] = {
        "VpcId": b.made.vpc,
        "ServiceName": f"com.amazonaws.{REGION}.{service}",
        "VpcEndpointType": "Interface",
        "SubnetIds": list(b.want.private),
        "SecurityGroupIds": [b.group],
        "PrivateDnsEnabled": True,
        "TagSpecifications": [{"ResourceType": "vpc-endpoint", "Tags": [{"Key": names.TAG_CLUSTER, "Value": "burst"}]}],
    }  # fmt: skip
    return b.ec2.create_vpc_endpoint(**{**asked, **more})["VpcEndpoint"]["VpcEndpointId"]


def test_declared_network_passes(burst: Deployed) -> None:
    result = burst.checked()
    assert (result.is_healthy, result.found) == (True, "as declared")
    assert result.expected == "routes of 4 subnets, 2 interface endpoints, as the plan has them"


Do = Callable[[Deployed], object]


def with_route(b: Deployed, table: str, route: dict[str, str]) -> CheckResult:
    """The result for the answer of EC2 with one more route in that table, of a kind that the sandbox's EC2 has not."""
    (query,) = CHECK.query(b.want)
    answer: Any = json.loads(json.dumps(CloudReader("burst", b.cloud.client).read(query.argv), default=str))
    (found,) = (one for one in answer["RouteTables"] if one["RouteTableId"] == table)
    found["Routes"].append(route)
    return CHECK.evaluate(CHECK.parse((QueryOutput(code=0, stdout=json.dumps(answer)),)), b.want)


def no_gateway(b: Deployed) -> None:
    for one in b.made.gateways.values():
        b.ec2.delete_nat_gateway(NatGatewayId=one)


def gone_gateway(b: Deployed) -> None:
    no_gateway(b)
    b.cloud.clock.move(300)


def forgotten_gateway(b: Deployed) -> None:
    """EC2 lists a deleted gateway for an hour."""
    no_gateway(b)
    b.cloud.clock.move(300)
    b.ec2.describe_nat_gateways()
    b.cloud.clock.move(7200)


def no_default_route(b: Deployed) -> None:
    b.ec2.delete_route(RouteTableId=b.table(), DestinationCidrBlock=ANYWHERE)


def straight_to_the_internet(b: Deployed) -> None:
    b.ec2.replace_route(RouteTableId=b.table(), DestinationCidrBlock=ANYWHERE, GatewayId=b.made.internet)


def on_the_main_table(b: Deployed) -> None:
    (table,) = b.ec2.describe_route_tables(RouteTableIds=[b.table()])["RouteTables"]
    for one in table["Associations"]:
        b.ec2.disassociate_route_table(AssociationId=one["RouteTableAssociationId"])


def no_way_out(b: Deployed) -> None:
    b.ec2.delete_route(RouteTableId=b.made.internet_table, DestinationCidrBlock=ANYWHERE)


def without_s3(b: Deployed) -> None:
    b.ec2.modify_vpc_endpoint(VpcEndpointId=b.made.s3, RemoveRouteTableIds=[b.table()])


def one_zone(b: Deployed) -> None:
    b.ec2.delete_vpc_endpoints(VpcEndpointIds=[b.endpoints["ec2"]])
    endpoint(b, "ec2", SubnetIds=[b.want.private[1]])


def public_name(b: Deployed) -> None:
    b.ec2.delete_vpc_endpoints(VpcEndpointIds=[b.endpoints["ec2"]])
    endpoint(b, "ec2", PrivateDnsEnabled=False)


def default_group(b: Deployed) -> str:
    here = [{"Name": "vpc-id", "Values": [b.made.vpc]}, {"Name": "group-name", "Values": ["default"]}]
    return b.ec2.describe_security_groups(Filters=here)["SecurityGroups"][0]["GroupId"]


def other_group(b: Deployed) -> None:
    b.ec2.modify_vpc_endpoint(
        VpcEndpointId=b.endpoints["ec2"], AddSecurityGroupIds=[default_group(b)], RemoveSecurityGroupIds=[b.group]
    )  # fmt: skip


OF_PULUMI: dict[str, tuple[Do, str]] = {
    "the NAT gateway is deleting": (no_gateway, r"nat-[0-9a-f]+, the NAT gateway of SUBNET, is deleting"),
    "the NAT gateway is deleted": (gone_gateway, r"nat-[0-9a-f]+, the NAT gateway of SUBNET, is deleted"),
    "EC2 has forgotten the NAT gateway": (forgotten_gateway, r"nat-[0-9a-f]+, the NAT gateway of SUBNET, does not exist"),
    "no default route": (no_default_route, "SUBNET has no route to a NAT gateway"),
    "nodes go straight to the internet": (straight_to_the_internet, "the route of SUBNET leads to igw-[0-9a-f]+, not to a NAT gateway"),
    "a subnet is on the main table": (on_the_main_table, "SUBNET has no route table of its own"),
    "public subnets have no way out": (no_way_out, "subnet-[0-9a-f]+ has no route to the internet gateway, subnet-[0-9a-f]+ has no route"),
    "the endpoint of S3 is gone": (lambda b: b.ec2.delete_vpc_endpoints(VpcEndpointIds=[b.made.s3]), "rtb-[0-9a-f]+ of SUBNET has no endpoint of S3, rtb-"),
    "a table is not with the endpoint of S3": (without_s3, "rtb-[0-9a-f]+ of SUBNET has no endpoint of S3"),
    "an endpoint is gone": (lambda b: b.ec2.delete_vpc_endpoints(VpcEndpointIds=[b.endpoints["ec2"]]), "the endpoint of ec2 does not exist"),
    "an endpoint is in one zone only": (one_zone, r"the endpoint of ec2 \(vpce-[0-9a-f]+\) has no address in SUBNET"),
    "an endpoint without private DNS": (public_name, r"the endpoint of ec2 \(vpce-[0-9a-f]+\) has no private DNS"),
    "an endpoint with another group": (other_group, r"the endpoint of ec2 \(vpce-[0-9a-f]+\) has the groups default"),
    "an endpoint in two groups": (lambda b: b.ec2.modify_vpc_endpoint(VpcEndpointId=b.endpoints["ec2"], AddSecurityGroupIds=[default_group(b)]), r"the endpoint of ec2 \(vpce-[0-9a-f]+\) has the groups burst-endpoints-1234567, default"),
    "a subnet gives public addresses": (lambda b: b.ec2.modify_subnet_attribute(SubnetId=b.subnet(), MapPublicIpOnLaunch={"Value": True}), r"SUBNET gives its machines public addresses \(MapPublicIpOnLaunch\)"),
    "no names of hosts": (lambda b: b.ec2.modify_vpc_attribute(VpcId=b.made.vpc, EnableDnsHostnames={"Value": False}), "EnableDnsHostnames of the VPC is off"),
}  # fmt: skip


@pytest.mark.parametrize(("do", "words"), OF_PULUMI.values(), ids=OF_PULUMI)
def test_drift_is_named_with_the_step_of_pulumi(burst: Deployed, do: Do, words: str) -> None:
    do(burst)
    result = burst.checked()
    assert not result.is_healthy
    assert re.match(words.replace("SUBNET", burst.subnet()), result.found), result.found
    assert result.remedy == UP


def acl(b: Deployed) -> str:
    found = b.ec2.describe_network_acls(Filters=[{"Name": "vpc-id", "Values": [b.made.vpc]}])["NetworkAcls"]
    return next(one["NetworkAclId"] for one in found if one["IsDefault"])


def entry(number: int, action: str, *, out: bool = False, protocol: str = "-1", cidr: str = ANYWHERE) -> Do:
    return lambda b: b.ec2.create_network_acl_entry(
        NetworkAclId=acl(b), RuleNumber=number, RuleAction=action, Egress=out, Protocol=protocol, CidrBlock=cidr
    )  # fmt: skip


def no_rule(*, out: bool) -> Do:
    return lambda b: b.ec2.delete_network_acl_entry(NetworkAclId=acl(b), RuleNumber=100, Egress=out)


def other_acl(b: Deployed) -> None:
    other = b.ec2.create_network_acl(VpcId=b.made.vpc)["NetworkAcl"]["NetworkAclId"]
    (found,) = b.ec2.describe_network_acls(
        Filters=[{"Name": "association.subnet-id", "Values": [b.subnet()]}]
    )["NetworkAcls"]
    one = next(one for one in found["Associations"] if one["SubnetId"] == b.subnet())
    b.ec2.replace_network_acl_association(AssociationId=one["NetworkAclAssociationId"], NetworkAclId=other)


DENY = '{"Statement": [{"Effect": "Deny", "Principal": "*", "Action": "*", "Resource": "*"}]}'


def denies(of: Callable[[Deployed], str]) -> Do:
    return lambda b: b.ec2.modify_vpc_endpoint(VpcEndpointId=of(b), PolicyDocument=DENY)


def by_one_machine(of: Callable[[Deployed], str]) -> Do:
    def do(b: Deployed) -> None:
        made = b.ec2.create_network_interface(SubnetId=b.subnet())["NetworkInterface"]
        b.ec2.create_route(
            RouteTableId=of(b), DestinationCidrBlock="192.0.2.0/24", NetworkInterfaceId=made["NetworkInterfaceId"]
        )  # fmt: skip

    return do


def past_the_gateway(b: Deployed) -> None:
    b.ec2.create_route(RouteTableId=b.table(), DestinationCidrBlock="192.0.2.0/24", GatewayId=b.made.internet)


def by_a_peering(*ranges: str) -> Do:
    def do(b: Deployed) -> None:
        other = b.ec2.create_vpc(CidrBlock="172.20.0.0/16")["Vpc"]["VpcId"]
        made = b.ec2.create_vpc_peering_connection(VpcId=b.made.vpc, PeerVpcId=other)["VpcPeeringConnection"]
        peering = made["VpcPeeringConnectionId"]
        b.ec2.accept_vpc_peering_connection(VpcPeeringConnectionId=peering)
        for one in ranges:
            b.ec2.create_route(
                RouteTableId=b.table(), DestinationCidrBlock=one, VpcPeeringConnectionId=peering
            )

    return do


OF_THE_CLI: dict[str, tuple[Do, str]] = {
    "the internet in two halves by a peering": (by_a_peering("0.0.0.0/1", "128.0.0.0/1"), r"the route to 0.0.0.0/1 by pcx-[0-9a-f]+ leads a part of the internet there \(rtb-[0-9a-f]+\), the route to 128.0.0.0/1 by pcx-.*"),
    "a rule denies ssh": (entry(50, "deny", protocol="6"), r"acl-[0-9a-f]+ denies protocol 6 from 0.0.0.0/0 \(rule 50\)"),
    "a rule denies a range on the way out": (entry(60, "deny", out=True, cidr="10.42.0.0/19"), r"acl-[0-9a-f]+ denies every protocol to 10.42.0.0/19 \(rule 60\)"),
    "the rule that admits is gone": (no_rule(out=False), r"acl-[0-9a-f]+ has no rule that admits everything \(ingress\)"),
    "the rule that lets out is gone": (no_rule(out=True), r"acl-[0-9a-f]+ has no rule that admits everything \(egress\)"),
    "an endpoint denies everything": (denies(lambda b: b.endpoints["ec2"]), r"the endpoint of ec2 \(vpce-[0-9a-f]+\) has another policy than EC2's own: \{.*"),
    "the endpoint of S3 denies everything": (denies(lambda b: b.made.s3), r"the endpoint of s3 \(vpce-[0-9a-f]+\) has another policy than EC2's own: \{.*\}"),
    "nodes reach a range by one machine": (by_one_machine(Deployed.table), r"the route to 192.0.2.0/24 by eni-[0-9a-f]+ is not of the plan \(rtb-[0-9a-f]+\)"),
    "login machines reach a range by one machine": (by_one_machine(lambda b: b.made.internet_table), r"the route to 192.0.2.0/24 by eni-[0-9a-f]+ is not of the plan \(rtb-[0-9a-f]+\)"),
    "nodes reach a range past the NAT gateway": (past_the_gateway, r"the route to 192.0.2.0/24 by igw-[0-9a-f]+ is not of the plan \(rtb-[0-9a-f]+\)"),
    "another network ACL": (other_acl, "SUBNET has the network ACL acl-[0-9a-f]+, not the VPC's own"),
}  # fmt: skip


@pytest.mark.parametrize(("do", "words"), OF_THE_CLI.values(), ids=OF_THE_CLI)
def test_change_by_hand_is_undone_by_its_remedy(aws: AwsCli, burst: Deployed, do: Do, words: str) -> None:
    do(burst)
    result = burst.checked()
    assert not result.is_healthy
    assert re.fullmatch(words.replace("SUBNET", burst.subnet()), result.found), result.found
    for step in result.remedy.split("; "):
        aws.typed(step)
    assert burst.checked().is_healthy


@pytest.mark.parametrize("do", [entry(50, "allow", protocol="6"), entry(200, "deny")], ids=["allow", "late"])
def test_rule_that_changes_nothing_is_no_fault(burst: Deployed, do: Do) -> None:
    do(burst)
    assert burst.checked().found == "as declared"


def test_route_to_a_network_of_the_site_is_no_fault(burst: Deployed) -> None:
    by_a_peering("10.0.0.0/8", "172.16.0.0/12", "203.0.112.0/20")(burst)
    assert burst.checked().found == "as declared"


@pytest.mark.parametrize(
    ("to", "by", "words"),
    [
        ("::/0", "igw-1", ""),
        ("::/0", "eigw-1", ""),
        ("2000::/3", "pcx-1", "the route to 2000::/3 by pcx-1 leads a part of the internet there"),
        ("2001:db8::/32", "pcx-1", ""),
    ],
)
def test_internet_of_ipv6_that_login_machines_reach_by_its_gateway_is_no_fault(
    burst: Deployed, to: str, by: str, words: str
) -> None:
    """Regression: a route to ::/0 by the internet gateway was one. The sandbox's EC2 has no IPv6, so the route is added to its answer."""
    target = {"igw": "GatewayId", "eigw": "EgressOnlyInternetGatewayId", "pcx": "VpcPeeringConnectionId"}[
        by.partition("-")[0]
    ]
    route = {"DestinationIpv6CidrBlock": to, target: by, "State": "active"}
    result = with_route(burst, burst.made.internet_table, route)
    assert result.found.startswith(words or "as declared")


def test_route_to_the_internet_that_the_plan_has_not_is_deleted(aws: AwsCli, burst: Deployed) -> None:
    want = replace(burst.want, nat=False)
    assert re.match(f"{burst.subnet()} has a route to 0.0.0.0/0 by nat-", burst.checked(want).found)
    for step in burst.checked(want).remedy.split("; "):
        aws.typed(step)
    assert burst.checked(want).is_healthy


def test_route_whose_gateway_is_gone_is_deleted(aws: AwsCli, burst: Deployed) -> None:
    other = burst.ec2.create_nat_gateway(
        SubnetId=next(iter(burst.made.public.values())), AllocationId=burst.ec2.allocate_address(Domain="vpc")["AllocationId"]
    )["NatGateway"]["NatGatewayId"]  # fmt: skip
    burst.cloud.clock.move(300)
    burst.ec2.create_route(
        RouteTableId=burst.table(), DestinationCidrBlock="172.16.0.0/12", NatGatewayId=other
    )
    assert burst.checked().is_healthy
    burst.ec2.delete_nat_gateway(NatGatewayId=other)
    burst.cloud.clock.move(300)
    result = burst.checked()
    assert result.found == f"the target {other} of the route to 172.16.0.0/12 is gone ({burst.table()})"
    aws.typed(result.remedy)
    assert burst.checked().is_healthy


@pytest.mark.parametrize(
    ("key", "to", "option"),
    [
        ("DestinationCidrBlock", "172.16.0.0/12", "--destination-cidr-block"),
        ("DestinationIpv6CidrBlock", "2001:db8::/32", "--destination-ipv6-cidr-block"),
        ("DestinationPrefixListId", "pl-0123456789abcdef0", "--destination-prefix-list-id"),
    ],
)
def test_route_is_deleted_by_the_option_of_its_destination(
    burst: Deployed, key: str, to: str, option: str
) -> None:
    """Regression: the remedy named a prefix list and a range of IPv6 by the option of IPv4, which EC2 refuses."""
    route = {key: to, "VpcPeeringConnectionId": "pcx-1", "State": "blackhole"}
    result = with_route(burst, burst.table(), route)
    assert result.found == f"the target pcx-1 of the route to {to} is gone ({burst.table()})"
    assert result.remedy == f"aws ec2 delete-route --route-table-id {burst.table()} {option} {to}"


def test_dns_is_declared_again(burst: Deployed) -> None:
    burst.ec2.modify_vpc_attribute(VpcId=burst.made.vpc, EnableDnsSupport={"Value": False})
    assert burst.checked().found == "EnableDnsSupport of the VPC is off"
    declare_dns(burst.cloud, burst.made.vpc)
    assert burst.checked().is_healthy


def test_only_endpoints_are_compared_in_a_network_of_the_site(burst: Deployed) -> None:
    want = replace(burst.want, own=False, public=(), nat=False)
    no_default_route(burst)
    other_acl(burst)
    assert burst.checked(want).is_healthy
    burst.ec2.delete_vpc_endpoints(VpcEndpointIds=[burst.endpoints["secretsmanager"]])
    assert burst.checked(want).found == "the endpoint of secretsmanager does not exist"
