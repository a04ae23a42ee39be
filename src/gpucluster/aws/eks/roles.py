"""IAM roles of a cluster on EKS: trust, policies of AWS, and inline policies."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import Input, Output, ResourceOptions

from gpucluster.plan.model import AwsPlan

_MANAGED = "arn:aws:iam::aws:policy/"
# Policies of AWS, each with the need that it serves. Without one the need's service refuses, so none has a narrower form.
NODE_POLICIES = (
    # nodeadm asks EC2 for the name of the node before the kubelet starts; the pod identity agent gets the credentials of pods
    "AmazonEKSWorkerNodePolicy",
    "AmazonEC2ContainerRegistryPullOnly",  # the images of the add-ons, and those of the site
)
CLUSTER_POLICIES = (
    "AmazonEKSClusterPolicy",
)  # the control plane's network interfaces, routes and load balancers


@dataclass(frozen=True, slots=True, kw_only=True)
class EksRole:
    """A role, and what must exist before somebody assumes it."""

    arn: Output[str]
    name: Output[str]
    ready: Sequence[pulumi.Resource]


def declare_role(
    plan: AwsPlan,
    word: str,
    *,
    trust: Input[str],
    parent: pulumi.Resource,
    managed: Sequence[str] = (),
    inline: Input[str] | None = None,
    name: str | None = None,
) -> EksRole:
    """Declare the role `word` with the permission boundary of the site. Without a `name` Pulumi draws one (T38).

    IAM's names hold for all Regions. So a role with a `name` is deleted first when another Region replaces it.
    """
    logical, child = f"{plan.name}-{word}", ResourceOptions(parent=parent)
    role = aws.iam.Role(
        logical,
        name=name,
        assume_role_policy=trust,
        permissions_boundary=plan.aws.boundary,
        opts=ResourceOptions(parent=parent, delete_before_replace=None if name is None else True),
    )
    ready: list[pulumi.Resource] = [
        aws.iam.RolePolicyAttachment(
            f"{logical}-{policy.rpartition('/')[2]}", role=role.name, policy_arn=_MANAGED + policy, opts=child
        )
        for policy in managed
    ]
    if inline is not None:
        ready.append(aws.iam.RolePolicy(logical, role=role.name, policy=inline, opts=child))
    return EksRole(arn=role.arn, name=role.name, ready=ready)
