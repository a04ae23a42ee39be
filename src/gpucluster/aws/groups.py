"""Security groups, and who may speak to whom: one table, decided by the parts that a plan has.

A rule is a resource of its own, so that a deleted one is seen, and so that a new part of the cluster adds rules
and replaces no group. Nobody is let in from outside but by ssh, from the ranges that the site named.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import Input, Output, ResourceOptions

from gpucluster.plan.model import ClusterPlan, InterfaceKind, there
from gpucluster.plan.names import (
    LUSTRE_PORTS,
    NFS_PORT,
    ROLE_HEAD,
    ROLE_LOGIN,
    ROLE_NODE,
    SLURMD_PORT,
    SRUN_PORTS,
)

ANYWHERE = "0.0.0.0/0"
ALL = "-1"  # every protocol and port
SSH_PORT, HTTPS_PORT = 22, 443
ENDPOINTS, EFS, LUSTRE = "endpoints", "efs", "lustre"

# Frozen text: a changed description replaces the group, and every machine and file system in it.
DESCRIPTIONS: Mapping[str, str] = {
    ROLE_HEAD: "The head of a gpucluster",
    ROLE_NODE: "The nodes of a gpucluster",
    ROLE_LOGIN: "The login machines of a gpucluster",
    ENDPOINTS: "The endpoints of a gpucluster",
    EFS: "The EFS of a gpucluster",
    LUSTRE: "The Lustre of a gpucluster",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What `group` takes from `peer` (or, with `out`, may send to it): another group by its role, or a range."""

    name: str
    group: str
    peer: str
    why: str
    ports: tuple[int, int] | None = None  # TCP; None: every protocol and port
    out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The declared groups by role; `rules` are of the group that they stand in."""

    ids: Mapping[str, Output[str]]
    arns: Mapping[str, Output[str]]
    rules: Mapping[str, list[pulumi.Resource]]


def declare_groups(
    plan: ClusterPlan, vpc_id: Input[str], *, kept: frozenset[str], child: ResourceOptions
) -> Groups:
    """Declare groups and rules as children of `child`'s parent. `kept` are the groups that a protected thing stands in."""
    made: dict[str, aws.ec2.SecurityGroup] = {}
    for role in roles(plan):
        name = f"{plan.name}-{role}"
        made[role] = aws.ec2.SecurityGroup(
            name,
            vpc_id=vpc_id,
            description=DESCRIPTIONS[role],
            tags={"Name": name},
            opts=ResourceOptions.merge(child, ResourceOptions(protect=role in kept or None)),
        )
    found: dict[str, list[pulumi.Resource]] = defaultdict(list)
    for rule in rules(plan):
        found[rule.group].append(_declare_rule(plan.name, rule, made, child))
    return Groups(
        ids={role: group.id for role, group in made.items()},
        arns={role: group.arn for role, group in made.items()},
        rules=found,
    )


def roles(plan: ClusterPlan) -> tuple[str, ...]:
    """The groups that the plan needs."""
    need = {
        ROLE_HEAD: True,
        ROLE_NODE: True,
        ROLE_LOGIN: plan.login is not None,
        ENDPOINTS: bool(there(plan.aws).network.endpoints),
        EFS: any(m.efs is not None and m.efs.id is None for m in plan.storage),
        LUSTRE: any(m.lustre is not None and m.lustre.id is None for m in plan.storage),
    }
    return tuple(role for role, needed in need.items() if needed)


def rules(plan: ClusterPlan) -> tuple[Rule, ...]:
    """Every rule of the plan's groups."""
    parts = (_slurm(plan), _login(plan), _second_head(plan), _files(plan), _endpoints(plan), _outward(plan))
    return tuple(rule for part in parts for rule in part)


def _slurm(plan: ClusterPlan) -> Iterator[Rule]:
    """The head has no open port but for its nodes."""
    head = there(plan.head)
    controller, registration = _one(head.controller_port), _one(head.registration_port)
    yield _in("head-controller", ROLE_HEAD, ROLE_NODE, "slurmctld from nodes", controller)
    yield _in("head-registration", ROLE_HEAD, ROLE_NODE, "registration of nodes", registration)
    yield _in("head-srun", ROLE_HEAD, ROLE_NODE, "srun's own ports from nodes", SRUN_PORTS)
    yield _in("node-slurmd", ROLE_NODE, ROLE_HEAD, "slurmd from the head", _one(SLURMD_PORT))
    yield _in("node-node", ROLE_NODE, ROLE_NODE, "nodes among themselves")


def _login(plan: ClusterPlan) -> Iterator[Rule]:
    if plan.login is None:
        return
    head = there(plan.head)
    controller, registration = _one(head.controller_port), _one(head.registration_port)
    yield _in("head-login-controller", ROLE_HEAD, ROLE_LOGIN, "slurmctld from login", controller)
    yield _in("head-login-registration", ROLE_HEAD, ROLE_LOGIN, "nodes' addresses for login", registration)
    yield _in("node-login-slurmd", ROLE_NODE, ROLE_LOGIN, "slurmd from srun on login", _one(SLURMD_PORT))
    yield _in("login-head-srun", ROLE_LOGIN, ROLE_HEAD, "srun's own ports from the head", SRUN_PORTS)
    yield _in("login-node-srun", ROLE_LOGIN, ROLE_NODE, "srun's own ports from nodes", SRUN_PORTS)
    for span in plan.access.ssh_from:
        name = f"login-ssh-{span.replace('/', '-')}"
        yield _in(name, ROLE_LOGIN, span, f"ssh from {span}", _one(SSH_PORT))


def _second_head(plan: ClusterPlan) -> Iterator[Rule]:
    head = there(plan.head)
    if head.standby is None:
        return
    yield _in(
        "head-head-controller",
        ROLE_HEAD,
        ROLE_HEAD,
        "slurmctld and its backup",
        _one(head.controller_port),
    )
    yield _in(
        "head-head-registration",
        ROLE_HEAD,
        ROLE_HEAD,
        "both daemons",
        _one(head.registration_port),
    )


def _files(plan: ClusterPlan) -> Iterator[Rule]:
    """Each file system's port from every kind of machine that mounts it."""
    own = roles(plan)
    machines = [role for role in (ROLE_HEAD, ROLE_NODE, ROLE_LOGIN) if role in own]
    if any(m.nfs is not None and m.nfs.from_head for m in plan.storage):
        for role in machines[1:]:
            yield _in(f"head-{role}-nfs", ROLE_HEAD, role, f"NFS from {role}", _one(NFS_PORT))
    if EFS in own:
        for role in machines:
            yield _in(f"efs-{role}", EFS, role, f"NFS from {role}", _one(NFS_PORT))
    if LUSTRE in own:
        for ports in LUSTRE_PORTS:  # LNET connects both ways (T45)
            for role in machines:
                yield _in(f"lustre-{role}-{ports[0]}", LUSTRE, role, f"Lustre from {role}", ports)
                yield _in(f"{role}-lustre-{ports[0]}", role, LUSTRE, f"Lustre to {role}", ports)
            yield _in(f"lustre-lustre-{ports[0]}", LUSTRE, LUSTRE, "Lustre's servers", ports)


def _endpoints(plan: ClusterPlan) -> Iterator[Rule]:
    own = roles(plan)
    if ENDPOINTS in own:
        for role in (ROLE_HEAD, ROLE_NODE, ROLE_LOGIN):
            if role in own:
                yield _in(f"endpoints-{role}", ENDPOINTS, role, f"AWS's APIs from {role}", _one(HTTPS_PORT))


def _outward(plan: ClusterPlan) -> Iterator[Rule]:
    """The cloud's own open egress is dropped by the provider, so it is said. A mount target and an endpoint only answer."""
    own = roles(plan)
    for role in (ROLE_HEAD, ROLE_NODE, ROLE_LOGIN, LUSTRE):
        if role in own:
            yield Rule(name=f"{role}-out", group=role, peer=ANYWHERE, why=f"{role} to anywhere", out=True)
    kinds = {i.kind for pool in plan.pools for template in pool.templates for i in template.interfaces}
    if kinds - {InterfaceKind.ENA}:  # the fabric asks for the group itself; a range does not count (T30)
        yield Rule(name="node-node-out", group=ROLE_NODE, peer=ROLE_NODE, why="EFA among nodes", out=True)


def _in(name: str, group: str, peer: str, why: str, ports: tuple[int, int] | None = None) -> Rule:
    return Rule(name=name, group=group, peer=peer, why=why, ports=ports)


def _one(port: int) -> tuple[int, int]:
    return port, port


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
