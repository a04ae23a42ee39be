"""Rights of the operator on EKS: the cluster and what belongs to it, the key of its secrets, its logs, and the roles that it passes.

EKS names its resources by their cluster, so no tag is needed. Roles and policies are those of the program.
"""

from collections.abc import Iterator, Mapping, Sequence

from gpucluster.aws.operator_statements import allow
from gpucluster.catalog.calls import call_facts
from gpucluster.plan.iam_policies import Statement
from gpucluster.plan.names import TAG_CLUSTER, log_group

SERVICES = ("eks", "kms", "logs")
CLUSTER, NODE_GROUP = "aws:eks/cluster:Cluster", "aws:eks/nodeGroup:NodeGroup"
SECRETS_KEY = "aws:kms/key:Key"
LOGS = "aws:cloudwatch/logGroup:LogGroup"
LINKED: Mapping[str, tuple[str, str]] = {  # type -> service and name of the role that AWS makes for it
    CLUSTER: ("eks.amazonaws.com", "AWSServiceRoleForAmazonEKS"),
    NODE_GROUP: ("eks-nodegroup.amazonaws.com", "AWSServiceRoleForAmazonEKSNodegroup"),
}
_KINDS: Mapping[str, str] = {  # kind of a resource -> its word in the ids of statements
    "access-entry": "EksAccessEntry",
    "addon": "EksAddon",
    "cluster": "EksCluster",
    "nodegroup": "EksNodeGroup",
    "podidentityassociation": "EksPodIdentity",
}
_MAKES = frozenset({"eks:CreateCluster", "kms:CreateKey"})  # the calls name no resource
_LISTS = frozenset({"logs:DescribeLogGroups"})
# word of a role -> who takes it. All other roles of the program but Karpenter's nodes' are those of pods.
_TAKEN_BY: Mapping[str, str] = {"control-plane": "eks.amazonaws.com", "node-groups": "ec2.amazonaws.com"}
_BY_KARPENTER = "karpenter-node"
_PODS = "pods.eks.amazonaws.com"


def statements(
    cluster: str, region: str, declared: Mapping[str, Sequence[str]], actions: frozenset[str]
) -> Iterator[Statement]:
    """Yield the rights for those of the actions that are of EKS, its key and its logs."""
    if CLUSTER not in declared:
        return
    requested = {"StringEquals": {f"aws:RequestTag/{TAG_CLUSTER}": cluster}}
    eks = {a for a in actions if a.startswith("eks:")}
    yield from allow("MakeEks", eks & _MAKES, ["*"], requested)
    for kind, name in _KINDS.items():
        own = {a for a in eks - _MAKES if kind in call_facts().kinds[a]}
        yield from allow(
            f"Own{name}", own, [f"arn:aws:eks:{region}:*:{kind}/{cluster}{'' if kind == 'cluster' else '/*'}"]
        )
    logs = {a for a in actions if a.startswith("logs:")}
    yield from allow("ReadLogs", logs & _LISTS, ["*"])
    group = f"arn:aws:logs:{region}:*:log-group:{log_group(cluster)}"
    yield from allow("OwnLogs", logs - _LISTS, [group, f"{group}:*"])
    if SECRETS_KEY in declared:
        yield from _key(cluster, region, {a for a in actions if a.startswith("kms:")}, requested)


def launches(cluster: str, region: str, reservations: Sequence[str]) -> Iterator[Statement]:
    """Yield the right to launch with the program's templates: EKS tries it with the rights of who makes a node group."""
    base, run = f"arn:aws:ec2:{region}:*", ["ec2:RunInstances"]
    own = {"StringEquals": {f"aws:ResourceTag/{TAG_CLUSTER}": cluster}}
    yield from allow("LaunchOwn", run, [f"{base}:launch-template/*", f"{base}:placement-group/*"], own)
    yield from allow("LaunchReserved", run, [f"{base}:capacity-reservation/{one}" for one in reservations])


def passed(cluster: str, roles: Mapping[str, str]) -> Iterator[Statement]:
    """Yield the right to pass each role to the service that takes it. `roles`: logical name -> ARN."""
    by_service = dict[str, list[str]]()
    for name, arn in roles.items():
        word = name.removeprefix(f"{cluster}-")
        if word != _BY_KARPENTER:
            by_service.setdefault(_TAKEN_BY.get(word, _PODS), []).append(arn)
    for service, arns in sorted(by_service.items()):
        to = {"StringEquals": {"iam:PassedToService": service}}
        yield from allow(f"Pass{service.partition('.')[0].title()}", ["iam:PassRole"], sorted(arns), to)


def attached(roles: Sequence[str], policies: Sequence[str]) -> Iterator[Statement]:
    """Yield the right to attach AWS's own policies, by their ARNs, to the program's roles."""
    when = {"ArnEquals": {"iam:PolicyARN": sorted(set(policies))}}
    if policies:
        yield from allow("Attach", ["iam:AttachRolePolicy", "iam:DetachRolePolicy"], roles, when)


def _key(cluster: str, region: str, actions: set[str], requested: Statement) -> Iterator[Statement]:
    """A key of KMS has no name: it is ours by its tag. CreateKey sends no key of its own for tags, so `TagKey` fits another key, too."""
    arn = [f"arn:aws:kms:{region}:*:key/*"]
    tagged = {f"aws:ResourceTag/{TAG_CLUSTER}": cluster}
    grants = {"StringEquals": tagged, "Bool": {"kms:GrantIsForAWSResource": "true"}}
    yield from allow("MakeKey", actions & _MAKES, ["*"], requested)
    yield from allow("TagKey", actions & {"kms:TagResource"}, arn, requested)
    yield from allow("GrantKey", actions & {"kms:CreateGrant"}, arn, grants)
    rest = actions - _MAKES - {"kms:TagResource", "kms:CreateGrant"}
    yield from allow("OwnKey", rest, arn, {"StringEquals": tagged})
