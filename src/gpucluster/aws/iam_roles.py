"""IAM roles with their policies, and an instance profile for each kind of machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import Output, ResourceOptions

from gpucluster.aws.bucket import Bucket
from gpucluster.aws.events import Events
from gpucluster.aws.network import Network
from gpucluster.aws.storage import Stores
from gpucluster.plan.iam_policies import (
    JobsScope,
    boot_script_arns,
    head_policy,
    head_scope,
    jobs_policy,
    node_policy,
    reader_scope,
    standby_policy,
    trust_ec2,
    trust_role,
)
from gpucluster.plan.model import SlurmOnAws
from gpucluster.plan.names import ROLE_HEAD, ROLE_JOBS, ROLE_LOGIN, ROLE_NODE, ROLE_STANDBY


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A role with its instance profile."""

    role_arn: Output[str]
    profile: Output[str]  # name
    profile_arn: Output[str]


class NodeIdentity(pulumi.ComponentResource):
    """The role of nodes: it reads the bundle and the munge key, and assumes the role for jobs if there is one."""

    node: Identity
    jobs: Output[str]  # the role's ARN; empty: jobs have none

    def __init__(self, plan: SlurmOnAws, stores: Stores, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:NodeIdentity", plan.name, None, opts)
        made = _role(self, plan, ROLE_NODE, trust_ec2())
        self.jobs = self._jobs(plan, made.arn, stores.bucket)
        scripts = boot_script_arns(plan)
        policy = _reader_policy(plan, stores, jobs_role=self.jobs, boot_scripts=scripts)
        self.node = _with_profile(self, plan, ROLE_NODE, made, policy)
        self.register_outputs({"role": self.node.role_arn})

    def _jobs(self, plan: SlurmOnAws, node: Output[str], bucket: Bucket) -> Output[str]:
        """Declare the role for jobs, which only the role of nodes can assume."""
        jobs = plan.aws.jobs
        if jobs is None:
            return Output.from_input("")
        made = _role(self, plan, ROLE_JOBS, node.apply(trust_role))
        rights = bucket.arn.apply(
            lambda own: jobs_policy(JobsScope(own_bucket=own, read=jobs.read, write=jobs.write))
        )
        _policy(self, plan, ROLE_JOBS, made, rights)
        return made.arn


class LoginIdentity(pulumi.ComponentResource):
    """The role of login machines: the permissions of a node, because Slurm's commands use the same munge key."""

    login: Identity

    def __init__(self, plan: SlurmOnAws, stores: Stores, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:LoginIdentity", plan.name, None, opts)
        policy = _reader_policy(plan, stores, jobs_role=Output.from_input(""))
        self.login = _identity(self, plan, ROLE_LOGIN, policy)
        self.register_outputs({"role": self.login.role_arn})


class HeadIdentity(pulumi.ComponentResource):
    """The roles of head and standby: launch and terminate nodes of this cluster, read and write its objects."""

    profiles: Mapping[str, Output[str]]  # by role

    def __init__(
        self,
        plan: SlurmOnAws,
        *,
        images: Sequence[Output[str]],
        stores: Stores,
        network: Network,
        node: NodeIdentity,
        events: Events,
        opts: ResourceOptions,
    ) -> None:
        super().__init__("gpucluster:aws:HeadIdentity", plan.name, None, opts)
        scope = Output.all(
            **stores.arns(on_head=True),
            account=network.vpc_context.account,
            images=list(images),
            subnets=list(network.vpc_context.private_arns.values()),
            node_group=network.groups.arns[ROLE_NODE],
            node_role=node.node.role_arn,
            queue=events.queue_arn,
        )
        head = scope.apply(lambda arns: head_policy(head_scope(plan, arns)))
        made = {ROLE_HEAD: _identity(self, plan, ROLE_HEAD, head)}
        if plan.head.standby is not None:
            standby = scope.apply(lambda arns: standby_policy(head_scope(plan, arns)))
            made[ROLE_STANDBY] = _identity(self, plan, ROLE_STANDBY, standby)
        self.profiles = {role: identity.profile for role, identity in made.items()}
        self.register_outputs({"role": made[ROLE_HEAD].role_arn})


def _reader_policy(
    plan: SlurmOnAws, stores: Stores, *, jobs_role: Output[str], boot_scripts: Sequence[str] = ()
) -> Output[str]:
    """Return the policy of machines that read the stores. An empty `jobs_role`: they assume no role for jobs."""
    arns = Output.all(**stores.arns(on_head=False), jobs_role=jobs_role)
    return arns.apply(lambda arns: node_policy(reader_scope(plan, arns, boot_scripts)))


def _identity(parent: pulumi.Resource, plan: SlurmOnAws, role: str, policy: Output[str]) -> Identity:
    """Declare a role for machines with policy and profile."""
    return _with_profile(parent, plan, role, _role(parent, plan, role, trust_ec2()), policy)


def _role(parent: pulumi.Resource, plan: SlurmOnAws, role: str, trust: Output[str] | str) -> aws.iam.Role:
    """Declare a role with the permission boundary of the site. A generated name lets a replacement exist beside it."""
    return aws.iam.Role(
        f"{plan.name}-{role}",
        assume_role_policy=trust,
        permissions_boundary=plan.aws.boundary,
        opts=ResourceOptions(parent=parent),
    )


def _policy(
    parent: pulumi.Resource, plan: SlurmOnAws, role: str, made: aws.iam.Role, policy: Output[str]
) -> aws.iam.RolePolicy:
    """Declare the inline policy of a role."""
    return aws.iam.RolePolicy(
        f"{plan.name}-{role}", role=made.name, policy=policy, opts=ResourceOptions(parent=parent)
    )


def _with_profile(
    parent: pulumi.Resource, plan: SlurmOnAws, role: str, made: aws.iam.Role, policy: Output[str]
) -> Identity:
    """Declare the instance profile of a role, after its policy."""
    written = _policy(parent, plan, role, made, policy)
    profile = aws.iam.InstanceProfile(
        f"{plan.name}-{role}",
        role=made.name,
        opts=ResourceOptions(parent=parent, depends_on=[written]),
    )
    return Identity(role_arn=made.arn, profile=profile.name, profile_arn=profile.arn)
