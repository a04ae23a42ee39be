"""Check the network on AWS: routes, NAT gateways and network ACLs of the cluster's own VPC, and the cluster's endpoints."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from gpucluster.checks.check import CheckResult, Location, Query, listed
from gpucluster.checks.cloud import UP, CloudDifference, is_named, judged
from gpucluster.checks.network_answers import Acl, Endpoint, Network, RouteTable
from gpucluster.checks.policy_documents import differences, loaded
from gpucluster.plan.security_rules import ANYWHERE, ENDPOINTS
from gpucluster.text import short

AVAILABLE = "available"
OPEN: Mapping[str, Any] = {  # the policy of an endpoint that declares none
    "Version": "2008-10-17",
    "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}],
}
LARGEST = {4: 8, 6: 16}  # bits of a prefix: a shorter one is no network of a site
_GATEWAYS = ("eigw-", "igw-")  # they lead to the internet, whatever the range
_LAST_RULE = 32767  # EC2's own rule, which denies the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkWant:
    """The network of the plan. `own`: the VPC is the cluster's; in a VPC of the site only the endpoints are compared.

    `private`: ids of the subnets of machines. `public`: ranges of the subnets with a route to the internet.
    """

    cluster: str
    own: bool
    private: tuple[str, ...]
    public: tuple[str, ...] = ()
    nat: bool = False
    endpoints: tuple[str, ...] = ()  # services with an interface endpoint


def query_network(want: NetworkWant) -> tuple[Query, ...]:
    subnets = (f"vpc-of={one}" for one in want.private)
    what = "network" if want.own else "endpoints"
    return (Query(at=Location.CLOUD, argv=(what, f"cluster={want.cluster}", *subnets)),)


def evaluate_network(found: Network, want: NetworkWant) -> CheckResult:
    faults = [*_endpoint_faults(found, want)]
    parts = f"{len(want.endpoints)} interface endpoints"
    if want.own:
        faults += [*_private(found, want), *_public(found, want), *_acls(found, want)]
        faults += [CloudDifference(words=f"{one} of the VPC is off", step=UP) for one in found.attributes_off]
        parts = f"routes of {len(want.private) + len(want.public)} subnets, {parts}"
    each = dict.fromkeys(faults)  # subnets may share a table
    return judged(each, want.cluster, "as declared", f"{parts}, as the plan has them")


def _private(found: Network, want: NetworkWant) -> Iterator[CloudDifference]:
    """Machines reach S3 by the gateway endpoint, and everything else by a NAT gateway, if the plan has one."""
    for subnet in want.private:
        table = _table_of(found, subnet)
        if subnet in found.gives_public:
            words = f"{subnet} gives its machines public addresses (MapPublicIpOnLaunch)"
            yield CloudDifference(words=words, step=UP)
        if table is None:
            yield CloudDifference(words=f"{subnet} has no route table of its own", step=UP)
            continue
        yield from _routes_by_hand(table, ("eni-", "i-", "igw-"))
        yield from _default_route(found, subnet, table, want)
        serving = [one for one in found.endpoints if _serves_s3(one, table)]
        if not serving:
            yield CloudDifference(words=f"{table.id} of {subnet} has no endpoint of S3", step=UP)
        for one in serving:
            yield from _policy(f"the endpoint of s3 ({one.id})", one)


def _table_of(found: Network, subnet: str) -> RouteTable | None:
    return next((table for table in found.tables if subnet in table.subnets), None)


def _default_route(
    found: Network, subnet: str, table: RouteTable, want: NetworkWant
) -> Iterator[CloudDifference]:
    target = next((route.by for route in table.routes if route.to == ANYWHERE), "")
    state = found.gateways.get(target, "")
    if not want.nat and target:
        step = f"aws ec2 delete-route --route-table-id {table.id} --destination-cidr-block {ANYWHERE}"
        yield CloudDifference(words=f"{subnet} has a route to {ANYWHERE} by {target}", step=step)
    elif want.nat and not target:
        yield CloudDifference(words=f"{subnet} has no route to a NAT gateway", step=UP)
    elif want.nat and not target.startswith("nat-"):
        yield CloudDifference(words=f"the route of {subnet} leads to {target}, not to a NAT gateway", step=UP)
    elif want.nat and state != AVAILABLE:
        yield CloudDifference(words=f"{target}, the NAT gateway of {subnet}, {_is(state)}", step=UP)


def _is(state: str) -> str:
    return f"is {short(state, 30)}" if state else "does not exist"


def _routes_by_hand(table: RouteTable, foreign: tuple[str, ...]) -> Iterator[CloudDifference]:
    """Routes whose target is gone, or by a single machine or straight to the internet: traffic of nodes goes there.

    Routes to networks of the site, by a peering, a gateway or an endpoint, are nobody's fault, unless the range is so large that it
    is the internet: 0.0.0.0/1 goes before 0.0.0.0/0. The default route is compared by itself.
    """
    for route in table.routes:
        step = f"aws ec2 delete-route --route-table-id {table.id} {_destination(route.to)}"
        if route.to == ANYWHERE:
            continue
        if route.blackhole:
            words = f"the target {route.by} of the route to {route.to} is gone ({table.id})"
            yield CloudDifference(words=words, step=step)
        elif route.by.startswith(foreign):
            words = f"the route to {route.to} by {route.by} is not of the plan ({table.id})"
            yield CloudDifference(words=words, step=step)
        elif _is_internet(route.to) and not route.by.startswith(_GATEWAYS):
            words = f"the route to {route.to} by {route.by} leads a part of the internet there ({table.id})"
            yield CloudDifference(words=words, step=step)


def _is_internet(to: str) -> bool:
    """Whether a range of public addresses is larger than any network of a site; a prefix list is none."""
    try:
        network = ip_network(to)
    except ValueError:
        return False
    return not network.is_private and network.prefixlen < LARGEST[network.version]


def _destination(to: str) -> str:
    """The option of `aws ec2 delete-route` for a destination."""
    if to.startswith("pl-"):
        return f"--destination-prefix-list-id {to}"
    return f"--destination-ipv6-cidr-block {to}" if ":" in to else f"--destination-cidr-block {to}"


def _serves_s3(one: Endpoint, table: RouteTable) -> bool:
    return not one.interface and one.service == "s3" and one.state == AVAILABLE and table.id in one.tables


def _public(found: Network, want: NetworkWant) -> Iterator[CloudDifference]:
    """Login machines and NAT gateways reach the internet by the internet gateway."""
    for cidr in want.public:
        subnet = found.public.get(cidr)
        if subnet is None:
            yield CloudDifference(words=f"there is no subnet {cidr}", step=UP)
            continue
        table = _table_of(found, subnet)
        routes = () if table is None else table.routes
        if table is not None:
            yield from _routes_by_hand(table, ("eni-", "i-"))
        target = next((route for route in routes if route.to == ANYWHERE), None)
        if target is None or target.blackhole or not target.by.startswith("igw-"):
            yield CloudDifference(words=f"{subnet} has no route to the internet gateway", step=UP)


def _endpoint_faults(found: Network, want: NetworkWant) -> Iterator[CloudDifference]:
    """EC2 lists a deleted endpoint for a while, also beside the new one: one that is right is enough."""
    for service in want.endpoints:
        ours = [one for one in found.endpoints if one.interface and one.service == service]
        living = [list(_of_endpoint(one, want)) for one in ours if one.state != "deleted"]
        missing = [CloudDifference(words=f"the endpoint of {service} does not exist", step=UP)]
        yield from min(living, key=len, default=missing)


def _of_endpoint(one: Endpoint, want: NetworkWant) -> Iterator[CloudDifference]:
    """An interface endpoint has an address in each zone, and the normal name of its service leads there."""
    about = f"the endpoint of {one.service} ({one.id})"
    missing = [subnet for subnet in want.private if subnet not in one.subnets]
    if one.state != AVAILABLE:
        yield CloudDifference(words=f"{about} {_is(one.state)}", step=UP)
    if not one.private_dns:
        yield CloudDifference(words=f"{about} has no private DNS", step=UP)
    if missing:
        yield CloudDifference(words=f"{about} has no address in {', '.join(missing)}", step=UP)
    if len(one.groups) != 1 or not is_named(one.groups[0], f"{want.cluster}-{ENDPOINTS}"):
        groups = listed([short(group, 60) for group in one.groups]) or "none"
        yield CloudDifference(words=f"{about} has the groups {groups}", step=UP)
    yield from _policy(about, one)


def _policy(about: str, one: Endpoint) -> Iterator[CloudDifference]:
    """The program declares no policy, so EC2 writes its own, and `pulumi up` does not compare it."""
    if one.policy and differences(loaded(one.policy), OPEN):
        text = json.dumps(OPEN).replace("{", "{{").replace("}", "}}")  # `judged` formats the step
        step = f"aws ec2 modify-vpc-endpoint --vpc-endpoint-id {one.id} --policy-document '{text}'"
        yield CloudDifference(
            words=f"{about} has another policy than EC2's own: {short(one.policy, 120)}", step=step
        )


def _acls(found: Network, want: NetworkWant) -> Iterator[CloudDifference]:
    """The plan declares no network ACL. A new VPC has one, whose first rules admit everything in both directions."""
    public = {found.public[cidr] for cidr in want.public if cidr in found.public}
    ours = {*want.private, *public}
    default = next((one.id for one in found.acls if one.default), "")
    for acl in found.acls:
        used = sorted(ours & acl.subnets.keys())
        if used and not acl.default and default:
            for subnet in used:
                step = f"aws ec2 replace-network-acl-association --association-id {acl.subnets[subnet]} --network-acl-id {default}"
                yield CloudDifference(
                    words=f"{subnet} has the network ACL {acl.id}, not the VPC's own", step=step
                )
        elif used:
            yield from _entries(acl)


def _entries(acl: Acl) -> Iterator[CloudDifference]:
    """Rules before the one that admits everything; a rule that admits does no harm there."""
    for out in (False, True):
        way = "egress" if out else "ingress"
        rules = sorted((one for one in acl.entries if one.out == out), key=lambda one: one.number)
        admits = next((one.number for one in rules if one.allow and one.everything), None)
        for one in rules:
            if not one.allow and one.number < min(admits or _LAST_RULE, _LAST_RULE):
                step = f"aws ec2 delete-network-acl-entry --network-acl-id {acl.id} --{way} --rule-number {one.number}"
                yield CloudDifference(
                    words=f"{acl.id} denies {short(one.what, 80)} (rule {one.number})", step=step
                )
        if admits is None:
            step = (
                f"aws ec2 create-network-acl-entry --network-acl-id {acl.id} --{way} --rule-number 100"
                f" --protocol -1 --rule-action allow --cidr-block {ANYWHERE}"
            )
            yield CloudDifference(words=f"{acl.id} has no rule that admits everything ({way})", step=step)
