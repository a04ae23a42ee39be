"""Security groups and their rules, as `plan.security_rules` has them.

Each rule is a separate resource: so a preview shows a deleted rule, and a new part of the cluster adds rules and replaces
no group.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import Input, Output, ResourceOptions

from gpucluster.plan.model import AwsPlan
from gpucluster.plan.names import ROLE_HEAD, ROLE_KUBERNETES, ROLE_LOGIN, ROLE_NODE, TAG_ROLE
from gpucluster.plan.security_rules import CONTROL_PLANE, EFS, ENDPOINTS, LUSTRE, Rule, roles, rules

ALL = "-1"  # every protocol and port

# Never change this text: a changed description replaces the group, and every machine and file system in it.
DESCRIPTIONS: Mapping[str, str] = {
    ROLE_HEAD: "The head of a gpucluster",
    ROLE_NODE: "The nodes of a gpucluster",
    ROLE_LOGIN: "The login machines of a gpucluster",
    ENDPOINTS: "The endpoints of a gpucluster",
    EFS: "The EFS of a gpucluster",
    LUSTRE: "The Lustre of a gpucluster",
    CONTROL_PLANE: "The control plane of a gpucluster",
    ROLE_KUBERNETES: "The Kubernetes nodes of a gpucluster",
}


# Karpenter finds the group of its nodes by this tag and the cluster's (`k8s/views/nodes.py`).
_DISCOVERED: Mapping[str, Mapping[str, str]] = {ROLE_KUBERNETES: {TAG_ROLE: ROLE_KUBERNETES}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The declared groups and their rules, by role."""

    ids: Mapping[str, Output[str]]
    arns: Mapping[str, Output[str]]
    rules: Mapping[str, list[pulumi.Resource]]


def declare_groups(
    plan: AwsPlan, vpc_id: Input[str], *, retained: frozenset[str], child: ResourceOptions
) -> Groups:
    """Declare groups and rules as children of `child`'s parent. `retained` are the groups of protected resources."""
    made: dict[str, aws.ec2.SecurityGroup] = {}
    for role in roles(plan):
        name = f"{plan.name}-{role}"
        made[role] = aws.ec2.SecurityGroup(
            name,
            vpc_id=vpc_id,
            description=DESCRIPTIONS[role],
            tags={"Name": name, **_DISCOVERED.get(role, {})},
            opts=ResourceOptions.merge(child, ResourceOptions(protect=role in retained or None)),
        )
    found: dict[str, list[pulumi.Resource]] = defaultdict(list)
    for rule in rules(plan):
        found[rule.group].append(_declare_rule(plan.name, rule, made, child))
    return Groups(
        ids={role: group.id for role, group in made.items()},
        arns={role: group.arn for role, group in made.items()},
        rules=found,
    )


def _declare_rule(
    cluster: str, rule: Rule, groups: Mapping[str, aws.ec2.SecurityGroup], child: ResourceOptions
) -> pulumi.Resource:
    kind = aws.vpc.SecurityGroupEgressRule if rule.out else aws.vpc.SecurityGroupIngressRule
    peer = groups.get(rule.peer)
    return kind(
        f"{cluster}-{rule.name}",
        security_group_id=groups[rule.group].id,
        referenced_security_group_id=None if peer is None else peer.id,
        cidr_ipv4=rule.peer if peer is None else None,
        ip_protocol="tcp" if rule.ports else ALL,
        from_port=rule.ports and rule.ports[0],
        to_port=rule.ports and rule.ports[1],
        tags={"Name": f"{cluster}: {rule.why}"},
        opts=child,
    )
