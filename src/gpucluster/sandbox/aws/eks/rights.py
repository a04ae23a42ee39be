"""The rights of EKS's calls (service authorization reference of EKS), and the roles that a caller must be able to pass."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from gpucluster.sandbox.aws import shapes
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.eks.state import Eks
from gpucluster.sandbox.aws.iam.policies import Need
from gpucluster.sandbox.aws.kms import keys
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.rights import ApiRequest, linked_role, need, request_tags, resource_tags

_ON_CLUSTER = frozenset(
    {"CreateNodegroup", "CreateAddon", "CreateAccessEntry", "CreatePodIdentityAssociation", "ListNodegroups", "ListAddons",
     "ListAccessEntries", "ListPodIdentityAssociations"}
)  # fmt: skip
_ANYWHERE = frozenset({"CreateCluster", "ListClusters", "DescribeAddonVersions"})
# who takes the role that a call passes
_PASSED: Mapping[str, tuple[str, str]] = {
    "CreateCluster": ("roleArn", "eks.amazonaws.com"),
    "CreateNodegroup": ("nodeRole", "ec2.amazonaws.com"),
    "CreatePodIdentityAssociation": ("roleArn", "pods.eks.amazonaws.com"),
    "UpdatePodIdentityAssociation": ("roleArn", "pods.eks.amazonaws.com"),
}
_LINKED: Mapping[str, tuple[str, str]] = {
    "CreateCluster": ("eks.amazonaws.com", "AWSServiceRoleForAmazonEKS"),
    "CreateNodegroup": ("eks-nodegroup.amazonaws.com", "AWSServiceRoleForAmazonEKSNodegroup"),
}


def rights(request: ApiRequest, model: CloudModel, moto: Moto, _now: float) -> Iterable[Need]:
    """The action on its resource; tags at creation; PassRole; the key of secrets; a look at the role of nodes; the service-linked role."""
    asked = shapes.parameters(request.service, request.operation, request.target, request.body)
    arn, tags = _resource(request, asked, model)
    requested = request_tags(cast("Mapping[str, str]", asked.get("tags") or {}))
    yield need(request, arn, {**resource_tags(tags), **requested, **_keys(request.operation, asked)})
    for role, service in _roles(request.operation, asked):
        yield Need(action="iam:PassRole", resource=role, context={"iam:passedtoservice": (service,)})
    for row in cast("Iterable[Mapping[str, Mapping[str, str]]]", asked.get("encryptionConfig") or ()):
        yield from keys.cluster_needs(row["provider"]["keyArn"], moto)
    if request.operation == "CreateNodegroup":
        for action in ("iam:GetRole", "iam:ListAttachedRolePolicies"):
            yield Need(action=action, resource=str(asked["nodeRole"]))
        if asked.get("launchTemplate"):
            yield from _launch(request, asked, moto)
    if request.operation == "CreatePodIdentityAssociation":
        yield Need(action="iam:GetRole", resource=str(asked["roleArn"]))
    if request.operation in _LINKED:
        yield from linked_role(*_LINKED[request.operation])


def _resource(
    request: ApiRequest, asked: Mapping[str, Any], model: CloudModel
) -> tuple[str, Mapping[str, str]]:
    eks: Eks = model.eks
    base = f"arn:aws:eks:{request.region}:{ACCOUNT}"
    cluster = str(asked.get("clusterName") or asked.get("name") or "")
    if request.operation in _ANYWHERE:
        return (f"{base}:cluster/{cluster}" if request.operation == "CreateCluster" else "*"), {}
    if asked.get("resourceArn"):
        arn = str(asked["resourceArn"])
        found = eks.named(arn)
        return arn, {} if found is None else found.tags
    keys = (
        ("nodegroup", eks.groups, asked.get("nodegroupName")),
        ("addon", eks.addons, asked.get("addonName")),
        ("access-entry", eks.entries, asked.get("principalArn")),
        ("podidentityassociation", eks.identities, asked.get("associationId")),
    )
    for kind, table, name in keys:
        if name and request.operation not in _ON_CLUSTER:
            known: Any = cast("Mapping[Any, Any]", table).get((cluster, name))
            return (f"{base}:{kind}/{cluster}/*", {}) if known is None else (known.arn, known.tags)
    owner = eks.clusters.get(cluster)
    return f"{base}:cluster/{cluster}", {} if owner is None else owner.tags


def _keys(operation: str, asked: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """EKS's own condition keys."""
    if operation == "AssociateAccessPolicy":
        scope: Mapping[str, Any] = asked.get("accessScope") or {}
        return {"eks:policyarn": (str(asked["policyArn"]),), "eks:accessscope": (str(scope.get("type")),)}
    if operation == "CreateAccessEntry":
        return {
            "eks:principalarn": (str(asked["principalArn"]),),
            "eks:accessentrytype": (str(asked.get("type") or "STANDARD"),),
        }
    return {}


def _roles(operation: str, asked: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    if operation in _PASSED:
        field, service = _PASSED[operation]
        if asked.get(field):
            yield str(asked[field]), service
    for row in cast("Iterable[Mapping[str, str]]", asked.get("podIdentityAssociations") or ()):
        yield row["roleArn"], "pods.eks.amazonaws.com"


def _launch(request: ApiRequest, asked: Mapping[str, Any], moto: Moto) -> Iterable[Need]:
    """With a template of the caller, EKS tries the launch with the caller's rights (EKS user guide, launch templates)."""
    named: Mapping[str, str] = asked["launchTemplate"]
    base = f"arn:aws:ec2:{request.region}:{ACCOUNT}"
    template = str(named.get("id", "*"))
    arn = f"{base}:launch-template/{template}"
    yield Need(action="ec2:RunInstances", resource=arn, context=resource_tags(moto.tags(template)))
    yield Need(action="ec2:DescribeLaunchTemplateVersions", resource="*")
