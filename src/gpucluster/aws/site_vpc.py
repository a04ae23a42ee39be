"""The site's own VPC and subnets: looked up, and held to what the spec says of them before anything is made."""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi import Output

from gpucluster.aws.ground import Ground
from gpucluster.plan.model import ClusterPlan, InterfaceKind, Pool, there

RESERVED = 5  # addresses of each subnet that are AWS's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the cloud says of a subnet."""

    id: str
    vpc: str
    zone: str
    cidr: str
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the spec says of a subnet, and who will stand in it."""

    field: str  # of the spec
    vpc: str
    zone: str
    need: Mapping[str, int]  # who (`pool h200`, `head`) -> addresses at most
    fixed: Mapping[str, str]  # who -> its own address


def look_up_vpc(plan: ClusterPlan, parent: pulumi.Resource) -> Ground:
    """Ask for VPC and subnets; what does not fit ends the program with the field's name."""
    network, opts = there(plan.aws).network, pulumi.InvokeOutputOptions(parent=parent)
    vpc = aws.ec2.get_vpc_output(id=there(network.vpc), opts=opts)
    vpc_id = Output.all(vpc.id, vpc.enable_dns_support, vpc.enable_dns_hostnames).apply(_resolving)
    private = {
        span.zone: _look_up(there(span.id), private_wish(plan, span.zone), opts) for span in network.subnets
    }
    public = {
        span.zone: _look_up(span.public_id, public_wish(plan, span.zone), opts)
        for span in network.subnets
        if span.public_id is not None
    }
    return Ground(
        vpc_id=vpc_id,
        vpc_arn=vpc.arn,
        private={zone: identifier for zone, (identifier, _) in private.items()},
        private_arns={zone: arn for zone, (_, arn) in private.items()},
        public={zone: identifier for zone, (identifier, _) in public.items()},
    )


def private_wish(plan: ClusterPlan, zone: str) -> Wanted:
    """The head, the nodes of each pool at their most, and their interfaces that have an address."""
    need = {f"pool {pool.name}": _addresses(pool, zone) for pool in plan.pools}
    fixed: dict[str, str] = {}
    head = there(plan.head)
    if head.zone == zone:
        need["head"], fixed["head.address"] = 1, head.address
    if head.standby is not None and head.standby.zone == zone:
        need["standby"], fixed["head.standby.address"] = 1, head.standby.address
    where = f"aws.network.subnets.{zone}"
    vpc = there(there(plan.aws).network.vpc)
    return Wanted(field=where, vpc=vpc, zone=zone, need={k: n for k, n in need.items() if n}, fixed=fixed)


def public_wish(plan: ClusterPlan, zone: str) -> Wanted:
    login = plan.login
    need = {"login": len(login.names)} if login is not None and login.zone == zone else {}
    vpc = there(there(plan.aws).network.vpc)
    return Wanted(field=f"aws.network.public.{zone}", vpc=vpc, zone=zone, need=need, fixed={})


def faults(seen: Seen, wanted: Wanted) -> Iterator[str]:
    """What makes the subnet one in which the cluster cannot stand, each with its field."""
    if seen.vpc != wanted.vpc:
        yield f"{wanted.field}: {seen.id} is in {seen.vpc}, expected one of aws.network.vpc, {wanted.vpc}"
    if seen.zone != wanted.zone:
        yield f"{wanted.field}: {seen.id} is in {seen.zone}, expected one in {wanted.zone}"
    span, need = ipaddress.ip_network(seen.cidr), sum(wanted.need.values())
    for who, address in wanted.fixed.items():
        if ipaddress.ip_address(address) not in span:
            yield f"{who}: {address} is not in {seen.id}, which has {seen.cidr}"
    if span.num_addresses - RESERVED < need:
        yield f"{wanted.field}: {seen.id} has {span.num_addresses - RESERVED} addresses, expected {need}: {_said(wanted)}"
    elif seen.free == 0:
        yield f"{wanted.field}: {seen.id} has no free address, expected {need}: {_said(wanted)}"


def shortage(seen: Seen, wanted: Wanted) -> str | None:
    """Fewer free addresses than the cluster may take: no fault, for what runs already is in neither number."""
    need = sum(wanted.need.values())
    if seen.free >= need:
        return None
    return f"{wanted.field}: {seen.id} has {seen.free} free addresses, the cluster takes up to {need}: {_said(wanted)}"


def _look_up(
    identifier: str, wanted: Wanted, opts: pulumi.InvokeOutputOptions
) -> tuple[Output[str], Output[str]]:
    subnet = aws.ec2.get_subnet_output(id=identifier, opts=opts)
    checked = Output.all(
        id=subnet.id,
        vpc=subnet.vpc_id,
        zone=subnet.availability_zone,
        cidr=subnet.cidr_block,
        free=subnet.available_ip_address_count,
    ).apply(partial(_checked, wanted))
    return checked, Output.all(checked, subnet.arn).apply(_second)


def _checked(wanted: Wanted, answer: Mapping[str, str | int]) -> str:
    seen = Seen(
        id=str(answer["id"]),
        vpc=str(answer["vpc"]),
        zone=str(answer["zone"]),
        cidr=str(answer["cidr"]),
        free=int(answer["free"]),
    )
    found = list(faults(seen, wanted))
    if found:
        raise pulumi.RunError("\n".join(found))
    short = shortage(seen, wanted)
    if short is not None:
        pulumi.log.warn(short)
    return seen.id


def _resolving(answer: Sequence[Any]) -> str:
    """File systems, endpoints and the bundle are found by name (T32)."""
    identifier, support, hostnames = answer
    if not (support and hostnames):
        lacks = "enableDnsSupport" if not support else "enableDnsHostnames"
        raise pulumi.RunError(
            f"aws.network.vpc: {identifier} has {lacks} off, expected both DNS attributes on"
        )
    return identifier


def _second(pair: Sequence[str]) -> str:
    return pair[1]


def _addresses(pool: Pool, zone: str) -> int:
    """At most: every slot of the zone lives, in the template with the most addresses."""
    nodes = min(pool.max, sum(len(span) for span in pool.slots if span.zone == zone))
    each = (
        sum(i.kind is not InterfaceKind.EFA_ONLY for i in template.interfaces) or 1
        for template in pool.templates
    )
    return nodes * max(each, default=1)


def _said(wanted: Wanted) -> str:
    return ", ".join(f"{who} {count}" for who, count in wanted.need.items())
