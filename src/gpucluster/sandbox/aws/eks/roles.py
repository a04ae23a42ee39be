"""What EKS refuses of IAM roles: missing ones, a trust of somebody else, and a control plane without AWS's policy."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from gpucluster.sandbox.aws.eks.state import invalid
from gpucluster.sandbox.aws.iam import policies
from gpucluster.sandbox.aws.iam.policies import Need, UnknownPolicyPart
from gpucluster.sandbox.aws.moto_state import Moto, Role

_JOIN = ("ec2:DescribeInstances", "ecr:GetAuthorizationToken", "ecr:BatchGetImage")
CLUSTER_POLICY = "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"


def check_cluster(arn: str, moto: Moto) -> None:
    """Refuse a role that the control plane cannot assume, or that lacks its policy."""
    found = moto.role(arn)
    if found is None:
        raise invalid(f"roleArn, {arn}, does not exist")
    if not trusts(found, "eks.amazonaws.com", ("sts:AssumeRole",)):
        raise invalid("Role could not be assumed because the trusted entity is not correct")
    if not _allows(found.name, "ec2:DescribeSubnets", moto):
        raise invalid(
            "The provided role doesn't have the Amazon EKS Managed Policies associated with it. Please ensure the "
            f"following policy is attached: {CLUSTER_POLICY}"
        )


def check_nodes(arn: str, moto: Moto) -> Role:
    """Return the role of a node group; refuse one that EC2 cannot assume."""
    found = moto.role(arn)
    if found is None:
        raise invalid(f"The role with name {arn.rpartition('/')[2]} cannot be found.")
    if not trusts(found, "ec2.amazonaws.com", ("sts:AssumeRole",)):
        raise invalid(f"Following required service principals [ec2.amazonaws.com] were not found in the trust relationships of nodeRole {arn}")  # fmt: skip
    return found


def joins(role: str, moto: Moto) -> bool:
    """Say whether a node with the role becomes ready: nodeadm finds its name, and the kubelet pulls images (docs/facts/eks.md)."""
    return all(_allows(role, action, moto) for action in _JOIN)


def faults(role: Role, moto: Moto) -> Iterator[tuple[str, str]]:
    """What EKS finds only when the nodes of a group do not join: code and message of a health issue."""
    if not joins(role.name, moto):
        yield "NodeCreationFailure", "Instances failed to join the kubernetes cluster"


def check_pods(arn: str, moto: Moto) -> None:
    """Refuse a role that Pod Identity cannot assume with tags."""
    found = moto.role(arn)
    if found is None:
        raise invalid(f"Role provided in the request does not exist: {arn}")
    if not trusts(found, "pods.eks.amazonaws.com", ("sts:AssumeRole", "sts:TagSession")):
        raise invalid("Trust policy of the role provided is invalid")


def _allows(role: str, action: str, moto: Moto) -> bool:
    documents = [policies.parse(text) for text in moto.role_policies(role)]
    try:
        return policies.allows(documents, Need(action=action, resource="*"))
    except UnknownPolicyPart:
        return False


def trusts(role: Role, service: str, actions: Iterable[str]) -> bool:
    """Say whether the trust policy names the service with all the actions. Conditions are of the session, not of this."""
    granted = set[str]()
    for statement in _rows(policies.parse(role.trust).get("Statement")):
        principal: Any = statement.get("Principal")
        services = (
            _texts(cast(Mapping[str, Any], principal).get("Service"))
            if isinstance(principal, Mapping)
            else []
        )
        if statement.get("Effect") == "Allow" and service in services:
            granted |= {*_texts(statement.get("Action"))}
    return {*actions} <= granted


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [value] if isinstance(value, Mapping) else list(cast(Iterable[Mapping[str, Any]], value or ()))


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(one) for one in cast(Iterable[Any], value or ())]
