"""An existing VPC and its subnets: look them up, and compare them with the spec before anything is created."""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi import Output

from gpucluster.aws.vpc import VpcContext
from gpucluster.plan.model import AwsPlan, AwsPool, InterfaceKind, SiteNetwork

RESERVED = 5  # addresses of each subnet that AWS reserves


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetFacts:
    """The facts of a subnet, from EC2."""

    id: str
    vpc: str
    zone: str
    cidr: str
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetRequirement:
    """What the spec requires of a subnet."""

    field: str  # of the spec
    vpc: str
    zone: str
    need: Mapping[str, int]  # user (`pool h200`, `head`) -> most addresses that it needs
    fixed: Mapping[str, str]  # user -> its own address


def look_up_vpc(plan: AwsPlan, network: SiteNetwork, parent: pulumi.Resource) -> VpcContext:
    """Look up VPC and subnets. A mismatch ends the program with the name of the field."""
    opts = pulumi.InvokeOutputOptions(parent=parent)
    vpc = aws.ec2.get_vpc_output(id=network.vpc, opts=opts)
    account = aws.get_caller_identity_output(opts=opts).account_id  # the owner may be another (T50)
    vpc_id = Output.all(
        id=vpc.id,
        support=vpc.enable_dns_support,
        hostnames=vpc.enable_dns_hostnames,
        owner=vpc.owner_id,
        account=account,
    ).apply(partial(require_vpc, network))
    private = {
        span.zone: _look_up(span.id, private_requirement(plan, network.vpc, span.zone), opts)
        for span in network.subnets
    }
    public = {
        span.zone: _look_up(span.public_id, public_requirement(plan, network.vpc, span.zone), opts)
        for span in network.subnets
        if span.public_id is not None
    }
    return VpcContext(
        vpc_id=vpc_id,
        account=account,
        private={zone: identifier for zone, (identifier, _) in private.items()},
        private_arns={zone: arn for zone, (_, arn) in private.items()},
        public={zone: identifier for zone, (identifier, _) in public.items()},
    )


def private_requirement(plan: AwsPlan, vpc: str, zone: str) -> SubnetRequirement:
    """Return the addresses that head, standby and the nodes of each pool need at most."""
    need = {f"pool {pool.name}": _addresses(pool, zone) for pool in plan.pools}
    fixed: dict[str, str] = {}
    head = plan.head
    if head is not None and head.zone == zone:
        need["head"], fixed["head.address"] = 1, head.address
    if head is not None and head.standby is not None and head.standby.zone == zone:
        need["standby"], fixed["head.standby.address"] = 1, head.standby.address
    where = f"aws.network.subnets.{zone}"
    return SubnetRequirement(
        field=where, vpc=vpc, zone=zone, need={k: n for k, n in need.items() if n}, fixed=fixed
    )


def public_requirement(plan: AwsPlan, vpc: str, zone: str) -> SubnetRequirement:
    login = plan.login
    need = {"login": len(login.names)} if login is not None and login.zone == zone else {}
    return SubnetRequirement(field=f"aws.network.public.{zone}", vpc=vpc, zone=zone, need=need, fixed={})


def faults(seen: SubnetFacts, wanted: SubnetRequirement) -> Iterator[str]:
    """Yield each reason why the cluster cannot use the subnet, with its field."""
    if seen.vpc != wanted.vpc:
        yield f"{wanted.field}: {seen.id} is in {seen.vpc}, expected one of aws.network.vpc, {wanted.vpc}"
    if seen.zone != wanted.zone:
        yield f"{wanted.field}: {seen.id} is in {seen.zone}, expected one in {wanted.zone}"
    span, need = ipaddress.ip_network(seen.cidr), sum(wanted.need.values())
    for who, address in wanted.fixed.items():
        if ipaddress.ip_address(address) not in span:
            yield f"{who}: {address} is not in {seen.id}, which has {seen.cidr}"
    if span.num_addresses - RESERVED < need:
        yield f"{wanted.field}: {seen.id} has {span.num_addresses - RESERVED} addresses, expected {need}: {_listed(wanted)}"
    elif seen.free == 0:
        yield f"{wanted.field}: {seen.id} has no free address, expected {need}: {_listed(wanted)}"


def shortage(seen: SubnetFacts, wanted: SubnetRequirement) -> str | None:
    """Return a warning if fewer addresses are free than the cluster may use. It is no error: running nodes use some of them."""
    need = sum(wanted.need.values())
    if seen.free >= need:
        return None
    return f"{wanted.field}: {seen.id} has {seen.free} free addresses, the cluster takes up to {need}: {_listed(wanted)}"


def _look_up(
    identifier: str, wanted: SubnetRequirement, opts: pulumi.InvokeOutputOptions
) -> tuple[Output[str], Output[str]]:
    subnet = aws.ec2.get_subnet_output(id=identifier, opts=opts)
    checked = subnet.apply(partial(_checked, wanted))
    return checked, Output.all(checked, subnet.arn).apply(_second)


def _checked(wanted: SubnetRequirement, answer: aws.ec2.GetSubnetResult) -> str:
    seen = SubnetFacts(
        id=answer.id,
        vpc=answer.vpc_id,
        zone=answer.availability_zone,
        cidr=answer.cidr_block,
        free=int(answer.available_ip_address_count),  # Pulumi may pass it as a float
    )
    found = list(faults(seen, wanted))
    if found:
        raise pulumi.RunError("\n".join(found))
    short = shortage(seen, wanted)
    if short is not None:
        pulumi.log.warn(short)
    return seen.id


def require_vpc(network: SiteNetwork, answer: Mapping[str, Any]) -> str:
    """Check the DNS attributes, because machines find file systems and endpoints by name (T32), and the endpoints."""
    identifier = str(answer["id"])
    if not (answer["support"] and answer["hostnames"]):
        lacks = "enableDnsSupport" if not answer["support"] else "enableDnsHostnames"
        raise pulumi.RunError(
            f"aws.network.vpc: {identifier} has {lacks} off, expected both DNS attributes on"
        )
    if network.endpoints and answer["owner"] != answer["account"]:
        raise pulumi.RunError(
            f"aws.network.endpoints: {identifier} belongs to the account {answer['owner']}, and only the owner of a VPC can "
            f"create its endpoints. Remove the field, and ask the owner for endpoints of {', '.join(network.endpoints)}"
        )
    return identifier


def _second(pair: Sequence[str]) -> str:
    return pair[1]


def _addresses(pool: AwsPool, zone: str) -> int:
    """Return the most addresses of a pool in a zone: all its slots, with the template that has the most addresses."""
    nodes = min(pool.max, sum(len(span) for span in pool.slots if span.zone == zone))
    each = (
        sum(i.kind is not InterfaceKind.EFA_ONLY for i in template.interfaces) or 1
        for template in pool.templates
    )
    return nodes * max(each, default=1)


def _listed(wanted: SubnetRequirement) -> str:
    return ", ".join(f"{who} {count}" for who, count in wanted.need.items())
