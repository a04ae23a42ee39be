"""Security groups and their rules. A rule is a separate resource, so drift shows a deleted rule.

A group also reads all of its rules, as upstream does: `ingress` and `egress`. No input sets them here, so a foreign rule is no
difference (decision 0008).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.calls import retag_ec2
from gpucluster.sandbox.provider.cloud import Cloud, only
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Autoname,
    Call,
    Property,
    ResourceType,
    computed,
    replaces,
    updates,
)
from gpucluster.sandbox.provider.shapes import FLAG, NUMBER, READ_ONLY

Seen = Mapping[str, Value] | None


def _create_group(call: Call) -> str:
    arguments = call.api("name", "description", "vpcId") | call.tag_specifications("security-group")
    return call.cloud.ec2.create_security_group(**arguments)["GroupId"]


def _complete_group(call: Call) -> None:
    """Remove the default egress rule of a new group, as the upstream provider does.

    Rules of a program are separate resources with tags; AWS's default rule has no tags.
    """
    of_group = [{"Name": "group-id", "Values": [call.id]}]
    rules = call.cloud.ec2.describe_security_group_rules(Filters=of_group)["SecurityGroupRules"]
    given = [rule["SecurityGroupRuleId"] for rule in rules if rule["IsEgress"] and not rule.get("Tags")]
    if given:
        call.cloud.ec2.revoke_security_group_egress(GroupId=call.id, SecurityGroupRuleIds=given)


def _read_group(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = only(cloud.ec2.describe_security_groups(GroupIds=[identifier])["SecurityGroups"])
    if seen is None:
        return None
    rules = {
        "Ingress": _in_group(identifier, seen.get("IpPermissions", ())),
        "Egress": _in_group(identifier, seen.get("IpPermissionsEgress", ())),
    }
    return {**seen, **rules, "Arn": cloud.ec2_arn("security-group", identifier)}


_PEERS = (  # of a permission: list, key in it, property of the group's rule
    ("IpRanges", "CidrIp", "cidrBlocks"),
    ("Ipv6Ranges", "CidrIpv6", "ipv6CidrBlocks"),
    ("PrefixListIds", "PrefixListId", "prefixListIds"),
    ("UserIdGroupPairs", "GroupId", "securityGroups"),
)


def _in_group(group: str, permissions: Iterable[Mapping[str, Any]]) -> list[Values]:
    """Return rules in the form of `ingress`: one for each protocol, ports and description (upstream: `securityGroupIPPermGather`)."""
    found: dict[tuple[str, int, int, str], Values] = {}
    for permission in permissions:
        ports = (permission.get("FromPort", 0), permission.get("ToPort", 0))
        protocol = permission["IpProtocol"]
        first, last = (0, 0) if protocol == "-1" else ports
        for several, key, name in _PEERS:
            for one in permission.get(several, ()):
                about = one.get("Description", "")
                rule = found.setdefault(
                    (protocol, first, last, about), _no_peer(protocol, first, last, about)
                )
                if one[key] == group:
                    rule["self"] = True
                else:
                    rule[name] = sorted({*rule[name], one[key]})
    return [found[key] for key in sorted(found)]


def _no_peer(protocol: str, first: int, last: int, about: str) -> Values:
    peers: Values = {name: [] for *_, name in _PEERS}
    return {
        **peers,
        "protocol": protocol,
        "fromPort": first,
        "toPort": last,
        "description": about,
        "self": False,
    }


SECURITY_GROUP = ResourceType(
    name="aws:ec2/securityGroup:SecurityGroup",
    properties={
        "name": replaces("GroupName"),
        "description": replaces("Description", default="Managed by Pulumi"),
        "vpcId": replaces("VpcId"),
        "revokeRulesOnDelete": updates(None, FLAG, default=False),
        "arn": computed("Arn"),
        "ownerId": computed("OwnerId"),
        "ingress": updates("Ingress", READ_ONLY, from_cloud=True),
        "egress": updates("Egress", READ_ONLY, from_cloud=True),
        **TAG_PROPERTIES,
    },
    create=_create_group,
    complete=_complete_group,
    read=_read_group,
    update=lambda call, _: retag_ec2(call),
    delete=lambda call: call.cloud.ec2.delete_security_group(GroupId=call.id),
    autoname=Autoname("name", 255),
)


_SOURCES = ("cidrIpv4", "referencedSecurityGroupId", "prefixListId")


def _other_kind(olds: Values, news: Values) -> bool:
    """Change the value of a rule in place. The kind of its source cannot change."""
    return [bool(olds.get(name)) for name in _SOURCES] != [bool(news.get(name)) for name in _SOURCES]


_RULE_PROPERTIES: Mapping[str, Property] = {
    "securityGroupId": replaces("GroupId"),
    "ipProtocol": updates("IpProtocol"),
    "fromPort": updates("FromPort", NUMBER),
    "toPort": updates("ToPort", NUMBER),
    "cidrIpv4": updates("CidrIpv4", anew_when=_other_kind),
    "referencedSecurityGroupId": updates("ReferencedGroupId", anew_when=_other_kind),
    "prefixListId": updates("PrefixListId", anew_when=_other_kind),
    "description": updates("Description"),
    "securityGroupRuleId": computed("SecurityGroupRuleId"),
    "arn": computed("Arn"),
    **TAG_PROPERTIES,
}


def _permission(call: Call) -> dict[str, Any]:
    """Return the rule in the form of the authorize calls."""
    permission: dict[str, Any] = call.api("ipProtocol", "fromPort", "toPort")
    about = {"Description": call.inputs["description"]} if call.inputs.get("description") else {}
    sources = (
        ("cidrIpv4", "IpRanges", "CidrIp"),
        ("referencedSecurityGroupId", "UserIdGroupPairs", "GroupId"),
        ("prefixListId", "PrefixListIds", "PrefixListId"),
    )
    for name, kind, key in sources:
        if call.inputs.get(name):
            permission[kind] = [{key: call.inputs[name], **about}]
    return permission


def _create_rule(call: Call, authorize: str) -> str:
    answer = getattr(call.cloud.ec2, authorize)(
        GroupId=call.inputs["securityGroupId"],
        IpPermissions=[_permission(call)],
        **call.tag_specifications("security-group-rule"),
    )
    return answer["SecurityGroupRules"][0]["SecurityGroupRuleId"]


def _read_rule(cloud: Cloud, identifier: str, _: Values) -> Seen:
    answer = cloud.ec2.describe_security_group_rules(SecurityGroupRuleIds=[identifier])
    seen = only(answer["SecurityGroupRules"])
    if seen is None:
        return None
    if seen.get("IpProtocol") == "-1":  # a rule for all traffic has no ports; the API returns -1
        seen = {k: v for k, v in seen.items() if k not in ("FromPort", "ToPort")}
    return seen | {
        "ReferencedGroupId": seen.get("ReferencedGroupInfo", {}).get("GroupId"),
        "Arn": cloud.ec2_arn("security-group-rule", identifier),
    }


def _update_rule(call: Call, changed: frozenset[str]) -> None:
    if changed - TAG_PROPERTIES.keys():
        names = tuple(n for n in _RULE_PROPERTIES if n not in ("securityGroupId", *TAG_PROPERTIES))
        rule = call.api(*(n for n in names if n not in ("securityGroupRuleId", "arn")))
        if rule["IpProtocol"] == "-1":
            rule |= {"FromPort": -1, "ToPort": -1}
        call.cloud.ec2.modify_security_group_rules(
            GroupId=call.inputs["securityGroupId"],
            SecurityGroupRules=[{"SecurityGroupRuleId": call.id, "SecurityGroupRule": rule}],
        )
    retag_ec2(call)


def _rule(name: str, authorize: str, revoke: str) -> ResourceType:
    def delete(call: Call) -> None:
        getattr(call.cloud.ec2, revoke)(
            GroupId=call.inputs["securityGroupId"], SecurityGroupRuleIds=[call.id]
        )

    return ResourceType(
        name=name,
        properties=_RULE_PROPERTIES,
        create=lambda call: _create_rule(call, authorize),
        read=_read_rule,
        update=_update_rule,
        delete=delete,
    )


INGRESS_RULE = _rule(
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    "authorize_security_group_ingress",
    "revoke_security_group_ingress",
)
EGRESS_RULE = _rule(
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
    "authorize_security_group_egress",
    "revoke_security_group_egress",
)

ROWS = (SECURITY_GROUP, INGRESS_RULE, EGRESS_RULE)
