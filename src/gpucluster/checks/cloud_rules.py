"""Check the rules of the cluster's security groups: exactly those of the plan, and none by hand."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.checks import json_fields
from gpucluster.checks.check import CheckResult, Location, Query, QueryOutput, failed, listed, passed
from gpucluster.checks.cloud import UP, SearchScope, is_named
from gpucluster.plan.names import ROLE_KUBERNETES
from gpucluster.text import short

EVERY = "-1"  # every protocol and port
# Beginning of a rule's description -> the controller that makes it for a Service. kubernetes/cloud-provider-aws, pkg/providers/v1/aws_loadbalancer.go;
# kubernetes-sigs/aws-load-balancer-controller, pkg/networking/networking_manager.go
_CONTROLLERS = {
    "kubernetes.io/rule/nlb/": "a Service of Kubernetes",
    "elbv2.k8s.aws/": "AWS Load Balancer Controller",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleWant:
    """One rule. `peer` is the role of a group of the cluster, or an address range. Without ports: every protocol."""

    group: str
    peer: str
    ports: tuple[int, int] | None = None
    out: bool = False

    def __str__(self) -> str:
        if self.ports is None:
            what = "everything"
        else:
            first, last = self.ports
            what = f"tcp {first}" if first == last else f"tcp {first}-{last}"
        return f"{self.group} {'to' if self.out else 'from'} {self.peer}: {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesWant:
    """The groups of the plan by role, and their rules."""

    place: SearchScope
    groups: tuple[str, ...]
    rules: tuple[RuleWant, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRule:
    """A rule in EC2, with the name of its group. `peer` is a range, the id of a prefix list or a group's name."""

    id: str
    group_id: str
    group: str
    protocol: str
    ports: tuple[int, int]
    peer: str
    out: bool
    why: str = ""  # its description


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRules:
    """The names of the groups in the network, and their rules."""

    groups: tuple[str, ...]
    rules: tuple[FoundRule, ...]


def query_rules(want: RulesWant) -> tuple[Query, ...]:
    return (Query(at=Location.CLOUD, argv=("rules", *want.place.words())),)


def parse_rules(got: tuple[QueryOutput, ...]) -> FoundRules:
    """The answers of DescribeSecurityGroups and DescribeSecurityGroupRules in one."""
    found = json_fields.table(got[0].text())
    names = {
        json_fields.text(one, "GroupId"): json_fields.text(one, "GroupName")
        for one in json_fields.members(found, "SecurityGroups")
    }
    rules = (_rule(one, names) for one in json_fields.members(found, "SecurityGroupRules"))
    return FoundRules(groups=tuple(sorted(names.values())), rules=tuple(sorted(rules, key=lambda r: r.id)))


def evaluate_rules(found: FoundRules, want: RulesWant) -> CheckResult:
    cluster = want.place.cluster
    expected = f"{len(want.rules)} rules of {len(want.groups)} security groups, as the plan has them"
    roles = {
        name: role for name in found.groups for role in want.groups if is_named(name, f"{cluster}-{role}")
    }
    missing = [f"the group {role} is missing" for role in want.groups if role not in roles.values()]
    ours = [(rule, _as_want(rule, roles)) for rule in found.rules if rule.group in roles]
    planned, seen = set(want.rules), {shape for _, shape in ours}
    missing += [f"{one} is missing" for one in want.rules if one not in seen]
    added = [rule for rule, shape in ours if shape not in planned]
    foreign = [rule for rule in added if not _controller(rule, roles)]
    if not missing and not foreign:
        notes = [f"{_shown(rule, roles)} ({_controller(rule, roles)})" for rule in added]
        return passed(f"{len(ours)} rules{f'; of others: {listed(notes)}' if notes else ''}", expected)
    words = [f"{_shown(rule, roles)} is not of the plan ({rule.id})" for rule in foreign]
    steps = [_revoke(rule) for rule in foreign] + ([UP.format(cluster=cluster)] if missing else [])
    return failed(listed([*words, *missing]), expected, remedy="; ".join(steps))


def _controller(rule: FoundRule, roles: Mapping[str, str]) -> str:
    """The controller of a load balancer that made the rule on Kubernetes' nodes; empty for a rule by hand."""
    if roles[rule.group] != ROLE_KUBERNETES:
        return ""
    return next((name for begin, name in _CONTROLLERS.items() if rule.why.startswith(begin)), "")


def _as_want(rule: FoundRule, roles: Mapping[str, str]) -> RuleWant | None:
    """The rule in the form of the plan; None if the plan has no rule of this kind."""
    ports = None if rule.protocol == EVERY else rule.ports
    if rule.protocol not in (EVERY, "tcp"):
        return None
    return RuleWant(group=roles[rule.group], peer=roles.get(rule.peer, rule.peer), ports=ports, out=rule.out)


def _shown(rule: FoundRule, roles: Mapping[str, str]) -> str:
    way = "to" if rule.out else "from"
    what = (
        "everything"
        if rule.protocol == EVERY
        else f"{short(rule.protocol, 20)} {rule.ports[0]}-{rule.ports[1]}"
    )
    return f"{roles[rule.group]} {way} {short(roles.get(rule.peer, rule.peer), 60)}: {what}"


def _revoke(rule: FoundRule) -> str:
    verb = "revoke-security-group-egress" if rule.out else "revoke-security-group-ingress"
    return f"aws ec2 {verb} --group-id {rule.group_id} --security-group-rule-ids {rule.id}"


def _rule(item: Mapping[str, Any], names: Mapping[str, str]) -> FoundRule:
    group = json_fields.text(item, "GroupId")
    ports = [int(json_fields.number(item, key)) if key in item else -1 for key in ("FromPort", "ToPort")]
    return FoundRule(
        id=json_fields.text(item, "SecurityGroupRuleId"),
        group_id=group,
        group=names.get(group, group),
        protocol=json_fields.text(item, "IpProtocol"),
        ports=(ports[0], ports[1]),
        peer=_peer(item, names),
        out=item.get("IsEgress") is True,
        why=json_fields.text(item, "Description") if "Description" in item else "",
    )


def _peer(item: Mapping[str, Any], names: Mapping[str, str]) -> str:
    for key in ("CidrIpv4", "CidrIpv6", "PrefixListId"):
        if key in item:
            return json_fields.text(item, key)
    if "ReferencedGroupInfo" not in item:
        return "nothing"
    peer = json_fields.text(item, "ReferencedGroupInfo", "GroupId")
    return names.get(peer, peer)
