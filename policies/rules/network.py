"""Network access to machines, and traffic between the nodes of a fabric."""

import ipaddress
from collections import defaultdict
from collections.abc import Iterator

from gpucluster.engine.offline.model import Resource, Value
from gpucluster.engine.policy import (
    EnforcementLevel,
    Rule,
    RuleResult,
    Stack,
    Undecided,
    Violation,
    at,
    each,
    is_unreadable,
    linked,
)

GROUP = "aws:ec2/securityGroup:SecurityGroup"
DEFAULT_GROUP = "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
OLD_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
EFA = frozenset({"efa", "efa-only"})
ALL = frozenset({"-1", "all"})
# The widest private range is 10.0.0.0/8. Many small ranges count together. IPv6: registries assign sites no more.
NARROWEST_OPEN = {4: 7, 6: 18}
MOST_ADDRESSES = (
    1 << 25
)  # IPv4 addresses that all rules of one group may allow; all private ranges are half of it


def open_groups(stack: Stack) -> Iterator[RuleResult]:
    """Check that no group allows traffic from everywhere, not even on one port."""
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


def _ranges(resource: Resource, where: str, block: Value, names: tuple[str, ...]) -> Iterator[RuleResult]:
    expected = "ranges of the site, or another group"
    if is_unreadable(block):
        yield Undecided(resource=resource, property=where.rstrip("."), expected=expected)
        return
    for name in names:
        for _, span in each(at(block, name)):
            if is_unreadable(span) or name.startswith("prefixList"):
                yield Undecided(resource=resource, property=f"{where}{name}", expected=expected)
            elif _is_open(str(span)):
                yield Violation(
                    resource=resource,
                    property=f"{where}{name}",
                    found=repr(str(span)),
                    expected=expected,
                    next_step="name the site's ranges in access.ssh_from, or leave it out and use access.ssm",
                )


def _is_open(span: str) -> bool:
    """Return whether the range is too wide. AWS rejects an invalid range, so it counts as open here."""
    try:
        found = ipaddress.ip_network(span, strict=False)
    except ValueError:
        return True
    return found.prefixlen <= NARROWEST_OPEN[found.version]


def _in_slices(stack: Stack) -> Iterator[RuleResult]:
    """Check the sum of all ranges of a group."""
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
    """Return the range if it is not too wide by itself; a wide range has its own finding."""
    if not isinstance(span, str) or is_unreadable(span) or _is_open(span):
        return None
    return ipaddress.IPv4Network(span, strict=False)


def _group_of(rule: Resource) -> str:
    urns = rule.property_dependencies.get("securityGroupId", ())
    return urns[0] if urns else str(rule.properties.get("securityGroupId"))


def efa_groups(stack: Stack) -> Iterator[RuleResult]:
    """EFA needs a group that allows all traffic from itself and to itself; an address range is not enough (T30)."""
    for template in stack.of_type(TEMPLATE):
        cards = template.properties.get("networkInterfaces")
        if is_unreadable(cards):
            yield Undecided(resource=template, property="networkInterfaces", expected=_BOTH)
        elif any(at(card, "interfaceType") in EFA for _, card in each(cards)):
            yield from _both_ways(stack, template)


_BOTH = "a security group with all traffic from itself and to itself"


def _both_ways(stack: Stack, template: Resource) -> Iterator[RuleResult]:
    """Check the groups that the template links. Rules of the site's groups are unknown here."""
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
    elif not own or lacks:  # unknown ids do not show which card has which group
        yield Undecided(resource=template, property="networkInterfaces.securityGroups", expected=_BOTH)


def _groups_of_fabric(stack: Stack, template: Resource) -> list[Resource]:
    """Return the groups of the EFA cards if their ids are known, otherwise the groups of all cards."""
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
    """Return the missing rules; empty if the group has both."""
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
    Rule(name="open-group", level=EnforcementLevel.MANDATORY, about="No security group accepts traffic from everywhere.", check=open_groups),
    Rule(name="efa-group", level=EnforcementLevel.MANDATORY, about="A template with EFA has a security group that permits traffic with itself in both directions.", check=efa_groups),
)  # fmt: skip
