"""Check the network on AWS: routes, NAT gateways and network ACLs of the cluster's own VPC, and the cluster's endpoints."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.checks.check import CheckResult, Location, Query
from gpucluster.checks.cloud import UP, Fault, judged
from gpucluster.checks.network_answers import Acl, Endpoint, Network, RouteTable
from gpucluster.plan.security_rules import ANYWHERE
from gpucluster.text import short

AVAILABLE = "available"
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
        faults += [Fault(words=f"{one} of the VPC is off", step=UP) for one in found.attributes_off]
        parts = f"routes of {len(want.private) + len(want.public)} subnets, {parts}"
    return judged(faults, want.cluster, "as declared", f"{parts}, as the plan has them")


def _private(found: Network, want: NetworkWant) -> Iterator[Fault]:
    """Machines reach S3 by the gateway endpoint, and everything else by a NAT gateway, if the plan has one."""
    for subnet in want.private:
        table = _table_of(found, subnet)
        if table is None:
            yield Fault(words=f"{subnet} has no route table of its own", step=UP)
            continue
        yield from _blackholes(table)
        yield from _default_route(found, subnet, table, want)
        if not any(_serves_s3(one, table) for one in found.endpoints):
            yield Fault(words=f"{table.id} of {subnet} has no endpoint of S3", step=UP)


def _table_of(found: Network, subnet: str) -> RouteTable | None:
    return next((table for table in found.tables if subnet in table.subnets), None)


def _default_route(found: Network, subnet: str, table: RouteTable, want: NetworkWant) -> Iterator[Fault]:
    target = next((route.by for route in table.routes if route.to == ANYWHERE), "")
    state = found.gateways.get(target, "")
    if not want.nat and target:
        step = f"aws ec2 delete-route --route-table-id {table.id} --destination-cidr-block {ANYWHERE}"
        yield Fault(words=f"{subnet} has a route to {ANYWHERE} by {target}", step=step)
    elif want.nat and not target:
        yield Fault(words=f"{subnet} has no route to a NAT gateway", step=UP)
    elif want.nat and not target.startswith("nat-"):
        yield Fault(words=f"the route of {subnet} leads to {target}, not to a NAT gateway", step=UP)
    elif want.nat and state != AVAILABLE:
        yield Fault(words=f"{target}, the NAT gateway of {subnet}, {_is(state)}", step=UP)


def _is(state: str) -> str:
    return f"is {short(state, 30)}" if state else "does not exist"


def _blackholes(table: RouteTable) -> Iterator[Fault]:
    """Routes by hand whose target is gone. The default route is compared by itself."""
    for route in table.routes:
        if route.blackhole and route.to != ANYWHERE:
            step = f"aws ec2 delete-route --route-table-id {table.id} --destination-cidr-block {route.to}"
            yield Fault(
                words=f"the target {route.by} of the route to {route.to} is gone ({table.id})", step=step
            )


def _serves_s3(one: Endpoint, table: RouteTable) -> bool:
    return not one.interface and one.service == "s3" and one.state == AVAILABLE and table.id in one.tables


def _public(found: Network, want: NetworkWant) -> Iterator[Fault]:
    """Login machines and NAT gateways reach the internet by the internet gateway."""
    for cidr in want.public:
        subnet = found.public.get(cidr)
        if subnet is None:
            yield Fault(words=f"there is no subnet {cidr}", step=UP)
            continue
        table = _table_of(found, subnet)
        routes = () if table is None else table.routes
        target = next((route for route in routes if route.to == ANYWHERE), None)
        if target is None or target.blackhole or not target.by.startswith("igw-"):
            yield Fault(words=f"{subnet} has no route to the internet gateway", step=UP)


def _endpoint_faults(found: Network, want: NetworkWant) -> Iterator[Fault]:
    """EC2 lists a deleted endpoint for a while, also beside the new one: one that is right is enough."""
    for service in want.endpoints:
        ours = [one for one in found.endpoints if one.interface and one.service == service]
        living = [list(_words(one, want)) for one in ours if one.state != "deleted"]
        words = min(living, key=len, default=["does not exist"])
        yield from (Fault(words=f"the endpoint of {service} {one}", step=UP) for one in words)


def _words(one: Endpoint, want: NetworkWant) -> Iterator[str]:
    """An interface endpoint has an address in each zone, and the normal name of its service leads there."""
    missing = [subnet for subnet in want.private if subnet not in one.subnets]
    if one.state != AVAILABLE:
        yield f"({one.id}) {_is(one.state)}"
    if not one.private_dns:
        yield f"({one.id}) has no private DNS"
    if missing:
        yield f"({one.id}) has no address in {', '.join(missing)}"


def _acls(found: Network, want: NetworkWant) -> Iterator[Fault]:
    """The plan declares no network ACL. A new VPC has one, whose first rules admit everything in both directions."""
    public = {found.public[cidr] for cidr in want.public if cidr in found.public}
    ours = {*want.private, *public}
    default = next((one.id for one in found.acls if one.default), "")
    for acl in found.acls:
        used = sorted(ours & acl.subnets.keys())
        if used and not acl.default and default:
            for subnet in used:
                step = f"aws ec2 replace-network-acl-association --association-id {acl.subnets[subnet]} --network-acl-id {default}"
                yield Fault(words=f"{subnet} has the network ACL {acl.id}, not the VPC's own", step=step)
        elif used:
            yield from _entries(acl)


def _entries(acl: Acl) -> Iterator[Fault]:
    """Rules before the one that admits everything; a rule that admits does no harm there."""
    for out in (False, True):
        way = "egress" if out else "ingress"
        rules = sorted((one for one in acl.entries if one.out == out), key=lambda one: one.number)
        admits = next((one.number for one in rules if one.allow and one.everything), None)
        for one in rules:
            if not one.allow and one.number < min(admits or _LAST_RULE, _LAST_RULE):
                step = f"aws ec2 delete-network-acl-entry --network-acl-id {acl.id} --{way} --rule-number {one.number}"
                yield Fault(words=f"{acl.id} denies {short(one.what, 80)} (rule {one.number})", step=step)
        if admits is None:
            step = (
                f"aws ec2 create-network-acl-entry --network-acl-id {acl.id} --{way} --rule-number 100"
                f" --protocol -1 --rule-action allow --cidr-block {ANYWHERE}"
            )
            yield Fault(words=f"{acl.id} has no rule that admits everything ({way})", step=step)
