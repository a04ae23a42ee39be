"""Who may reach a machine, and whether a fabric's nodes may reach each other."""

import ipaddress
from collections import defaultdict
from collections.abc import Iterator

from gpucluster.engine.offline.model import Resource, Value
from gpucluster.engine.policy import Level, Open, Rule, Said, Stack, Violation, at, each, linked, untold

GROUP = "aws:ec2/securityGroup:SecurityGroup"
DEFAULT_GROUP = "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
OLD_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
EFA = frozenset({"efa", "efa-only"})
ALL = frozenset({"-1", "all"})
# The widest range that is one site's: 10.0.0.0/8. Two halves of the world are the world. IPv6: a registry gives no site more.
NARROWEST_OPEN = {4: 7, 6: 18}
MOST_ADDRESSES = (
    1 << 25
)  # of IPv4 that one group may take from in all its rules: the private ranges are half of it


def open_groups(stack: Stack) -> Iterator[Said]:
    """No group takes from everywhere, not on one port either."""
    for resource in stack.of_type(INGRESS):
        yield from _ranges(resource, "", resource.properties, ("cidrIpv4", "cidrIpv6", "prefixListId"))
    for resource in stack.of_type(OLD_RULE):
        if at(resource.properties, "type") != "egress":
            yield from _ranges(resource, "", resource.properties, _LISTS)
    for resource in stack.of_type(GROUP, DEFAULT_GROUP):
        for number, block in each(resource.properties.get("ingress")):
            yield from _ranges(resource, f"ingress[{number}].", block, _LISTS)
    yield from _in_slices(stack)


_LISTS = ("cidrBlocks", "ipv6CidrBlocks", "prefixListIds")


def _ranges(resource: Resource, where: str, block: Value, names: tuple[str, ...]) -> Iterator[Said]:
    expected = "ranges of the site, or another group"
    if untold(block):
        yield Open(resource=resource, property=where.rstrip("."), expected=expected)
        return
    for name in names:
        for _, span in each(at(block, name)):
            if untold(span) or name.startswith("prefixList"):
                yield Open(resource=resource, property=f"{where}{name}", expected=expected)
            elif _is_open(str(span)):
                yield Violation(
                    resource=resource,
                    property=f"{where}{name}",
                    found=repr(str(span)),
                    expected=expected,
                    next_step="name the site's ranges in access.ssh_from, or leave it out and use access.ssm",
                )


def _is_open(span: str) -> bool:
    """What is no range at all is refused by AWS, so it counts as open here."""
    try:
        found = ipaddress.ip_network(span, strict=False)
    except ValueError:
        return True
    return found.prefixlen <= NARROWEST_OPEN[found.version]


def _in_slices(stack: Stack) -> Iterator[Said]:
    """The world in many rules is the world."""
    slices: dict[str, list[tuple[Resource, ipaddress.IPv4Network]]] = defaultdict(list)
    for rule in stack.of_type(INGRESS):
        span = _narrow(rule.properties.get("cidrIpv4"))
        if span is not None:
            slices[_group_of(rule)].append((rule, span))
    for every in slices.values():
        spans = ipaddress.collapse_addresses(span for _, span in every)
        taken = sum(span.num_addresses for span in spans)
        if taken >= MOST_ADDRESSES:
            yield Violation(
                resource=every[0][0],
                property="cidrIpv4",
                found=f"{taken} addresses in {len(every)} rules of one group",
                expected=f"fewer than {MOST_ADDRESSES}, the ranges of a site",
                next_step="name the site's ranges in access.ssh_from, or leave it out and use access.ssm",
            )


def _narrow(span: Value) -> ipaddress.IPv4Network | None:
    """One that is not open by itself, and has its own sentence then."""
    if not isinstance(span, str) or untold(span) or _is_open(span):
        return None
    return ipaddress.IPv4Network(span, strict=False)


def _group_of(rule: Resource) -> str:
    urns = rule.property_dependencies.get("securityGroupId", ())
    return urns[0] if urns else str(rule.properties.get("securityGroupId"))


def efa_groups(stack: Stack) -> Iterator[Said]:
    """The fabric needs a group that takes all from itself and sends all to itself; a range does not count (T30)."""
    for template in stack.of_type(TEMPLATE):
        cards = template.properties.get("networkInterfaces")
        if untold(cards):
            yield Open(resource=template, property="networkInterfaces", expected=_BOTH)
        elif any(at(card, "interfaceType") in EFA for _, card in each(cards)):
            yield from _both_ways(stack, template)


_BOTH = "a security group with all traffic from itself and to itself"


def _both_ways(stack: Stack, template: Resource) -> Iterator[Said]:
    """Groups are seen by what the template's property links; the ids of a site's own group say nothing of its rules."""
    own = _groups_of_fabric(stack, template)
    lacks = {group.name: lack for group in own if (lack := _lacking(stack, group))}
    if own and len(lacks) == len(own):
        yield Violation(
            resource=template,
            property="networkInterfaces.securityGroups",
            found="; ".join(f"{name} without {lack}" for name, lack in lacks.items()),
            expected=_BOTH,
            next_step="declare both rules for the nodes' group: all protocols, the group itself as the peer",
        )
    elif not own or lacks:  # which card stands in which group is not told while ids are unknown
        yield Open(resource=template, property="networkInterfaces.securityGroups", expected=_BOTH)


def _groups_of_fabric(stack: Stack, template: Resource) -> list[Resource]:
    """Of the cards with EFA where ids are known here, or else of all cards."""
    ids = {
        str(one)
        for _, card in each(template.properties.get("networkInterfaces"))
        if at(card, "interfaceType") in EFA
        for _, one in each(at(card, "securityGroups"))
    }
    groups = list(stack.of_type(GROUP))
    own = [group for group in groups if group.properties.get("id") in ids]
    return own or [group for group in groups if linked(template, "networkInterfaces", group)]


def _lacking(stack: Stack, group: Resource) -> str:
    """What the group has not, in words; empty when it has both."""
    ways = (("traffic from itself", INGRESS, "ingress"), ("traffic to itself", EGRESS, "egress"))
    return " and ".join(word for word, kind, block in ways if not _has(stack, group, kind, block))


def _has(stack: Stack, group: Resource, kind: str, block: str) -> bool:
    for rule in stack.of_type(kind):
        to_itself = linked(rule, "securityGroupId", group) and linked(
            rule, "referencedSecurityGroupId", group
        )
        if to_itself and at(rule.properties, "ipProtocol") in ALL:
            return True
    inline = (one for _, one in each(group.properties.get(block)))
    if any(at(one, "self") is True and at(one, "protocol") in ALL for one in inline):
        return True
    return any(
        at(rule.properties, "type") == block
        and (at(rule.properties, "self") is True or linked(rule, "sourceSecurityGroupId", group))
        and at(rule.properties, "protocol") in ALL
        and linked(rule, "securityGroupId", group)
        for rule in stack.of_type(OLD_RULE)
    )


RULES = (
    Rule(name="open-group", level=Level.MANDATORY, about="No security group takes from everywhere.", judge=open_groups),
    Rule(name="efa-group", level=Level.MANDATORY, about="A template with EFA stands in a group that speaks with itself both ways.", judge=efa_groups),
)  # fmt: skip
