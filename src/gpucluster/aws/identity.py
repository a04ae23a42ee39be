"""A role and an instance profile for each kind of machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws.bucket import Bucket
from gpucluster.aws.events import Events
from gpucluster.aws.network import Network
from gpucluster.aws.policies import (
    HeadScope,
    JobsScope,
    NodeScope,
    head_policy,
    jobs_policy,
    node_policy,
    standby_policy,
    trust_ec2,
    trust_role,
)
from gpucluster.aws.secrets import Secrets
from gpucluster.plan.model import ClusterPlan, Market, there
from gpucluster.plan.names import ROLE_HEAD, ROLE_JOBS, ROLE_LOGIN, ROLE_NODE, ROLE_STANDBY


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A role, and the profile that hands it to an instance."""

    role_arn: Output[str]
    profile: Output[str]  # name
    profile_arn: Output[str]


class NodeIdentity(pulumi.ComponentResource):
    """The nodes' role: the bundle and the key, and to take on the role for jobs, if there is one."""

    node: Identity
    jobs: Output[str]  # the role's ARN; empty: jobs have none

    def __init__(self, plan: ClusterPlan, bucket: Bucket, secrets: Secrets, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:NodeIdentity", plan.name, None, opts)
        made = _role(self, plan, ROLE_NODE, trust_ec2())
        self.jobs = self._jobs(plan, made.arn, bucket)
        self.node = _held(self, plan, ROLE_NODE, made, _reader_policy(plan, bucket, secrets, self.jobs))
        self.register_outputs({"role": self.node.role_arn})

    def _jobs(self, plan: ClusterPlan, node: Output[str], bucket: Bucket) -> Output[str]:
        """A role that no machine has: only the nodes' takes it on."""
        wish = there(plan.aws).jobs
        if wish is None:
            return Output.from_input("")
        made = _role(self, plan, ROLE_JOBS, node.apply(trust_role))
        rights = bucket.arn.apply(
            lambda own: jobs_policy(JobsScope(own_bucket=own, read=wish.read, write=wish.write))
        )
        _written(self, plan, ROLE_JOBS, made, rights)
        return made.arn


class LoginIdentity(pulumi.ComponentResource):
    """The login machines' role: what a node may, for they run Slurm's commands with the same key."""

    login: Identity

    def __init__(self, plan: ClusterPlan, bucket: Bucket, secrets: Secrets, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:LoginIdentity", plan.name, None, opts)
        self.login = _identity(self, plan, ROLE_LOGIN, _reader_policy(plan, bucket, secrets))
        self.register_outputs({"role": self.login.role_arn})


class HeadIdentity(pulumi.ComponentResource):
    """The head's role: launch and end this cluster's nodes, and keep its objects; a standby's, which takes over."""

    profiles: Mapping[str, Output[str]]  # by role

    def __init__(
        self,
        plan: ClusterPlan,
        *,
        images: Sequence[Output[str]],
        network: Network,
        bucket: Bucket,
        secrets: Secrets,
        node: NodeIdentity,
        events: Events,
        opts: ResourceOptions,
    ) -> None:
        super().__init__("gpucluster:aws:HeadIdentity", plan.name, None, opts)
        scope = Output.all(
            vpc=network.ground.vpc_arn,
            images=list(images),
            subnets=list(network.ground.private_arns.values()),
            node_group=network.groups.arns[ROLE_NODE],
            node_role=node.node.role_arn,
            bucket=bucket.arn,
            secret=secrets.munge,
            queue=events.queue_arn,
        )
        head = scope.apply(lambda arns: head_policy(_scope(plan, arns)))
        made = {ROLE_HEAD: _identity(self, plan, ROLE_HEAD, head)}
        if there(plan.head).standby is not None:
            standby = scope.apply(lambda arns: standby_policy(_scope(plan, arns)))
            made[ROLE_STANDBY] = _identity(self, plan, ROLE_STANDBY, standby)
        self.profiles = {role: identity.profile for role, identity in made.items()}
        self.register_outputs({"role": made[ROLE_HEAD].role_arn})


def _scope(plan: ClusterPlan, arns: Mapping[str, Any]) -> HeadScope:
    """What the plan decides of a head's rights, and the ARNs that the cloud told."""
    sources = [source for pool in plan.pools for source in pool.sources]
    image, *more = sorted(set(arns["images"]))
    return HeadScope(
        cluster=plan.name,
        vpc=arns["vpc"],
        image=image,
        more_images=more,
        subnets=arns["subnets"],
        node_group=arns["node_group"],
        node_role=arns["node_role"],
        bucket=arns["bucket"],
        secret=arns["secret"],
        queue=arns["queue"],
        spot=any(s.market is Market.SPOT for s in sources),
        fleet=any(len(s.machines) > 1 for s in sources),
        reservations=sorted({s.reservation for s in sources if s.reservation is not None}),
        placement=any(pool.placement for pool in plan.pools),
        ssm=plan.access.ssm,
        directory=None if plan.directory is None else plan.directory.secret,
    )


def _reader_policy(
    plan: ClusterPlan, bucket: Bucket, secrets: Secrets, jobs_role: Output[str] | str = ""
) -> Output[str]:
    directory = None if plan.directory is None else plan.directory.secret
    return Output.all(bucket.arn, secrets.munge, jobs_role).apply(
        lambda arns: node_policy(
            NodeScope(
                bucket=arns[0],
                secret=arns[1],
                jobs_role=arns[2] or None,
                ssm=plan.access.ssm,
                directory=directory,
            )
        )
    )


def _identity(parent: pulumi.Resource, plan: ClusterPlan, role: str, policy: Output[str]) -> Identity:
    """A machine's role, its rights and its profile."""
    return _held(parent, plan, role, _role(parent, plan, role, trust_ec2()), policy)


def _role(parent: pulumi.Resource, plan: ClusterPlan, role: str, trust: Output[str] | str) -> aws.iam.Role:
    """Within the site's bounds. It has no name of its own: a replaced one needs another."""
    return aws.iam.Role(
        f"{plan.name}-{role}",
        assume_role_policy=trust,
        permissions_boundary=there(plan.aws).boundary,
        opts=ResourceOptions(parent=parent),
    )


def _written(
    parent: pulumi.Resource, plan: ClusterPlan, role: str, made: aws.iam.Role, policy: Output[str]
) -> aws.iam.RolePolicy:
    """A role's one inline policy."""
    return aws.iam.RolePolicy(
        f"{plan.name}-{role}", role=made.name, policy=policy, opts=ResourceOptions(parent=parent)
    )


def _held(
    parent: pulumi.Resource, plan: ClusterPlan, role: str, made: aws.iam.Role, policy: Output[str]
) -> Identity:
    """The role in a profile, once its rights are there."""
    written = _written(parent, plan, role, made, policy)
    profile = aws.iam.InstanceProfile(
        f"{plan.name}-{role}",
        role=made.name,
        opts=ResourceOptions(parent=parent, depends_on=[written]),
    )
    return Identity(role_arn=made.arn, profile=profile.name, profile_arn=profile.arn)
