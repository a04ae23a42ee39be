"""The rights of Karpenter's controller: launch nodes of this cluster, end them, and look.

Karpenter writes its own tags onto what it makes: `kubernetes.io/cluster/NAME` and `karpenter.sh/nodepool`. The limits by tag,
and the list of its reads, are those of its documentation (https://karpenter.sh/docs/reference/cloudformation, version 1.14).
Parts of a launch are limited further: to our subnets, our security group and the reservations of the spec. Left out is what
our settings never make it call: profiles of its own, `arc-zonal-shift` (`enableZonalShift` is false) and
`DescribePlacementGroups` (no NodeClass has a placement group).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpucluster.plan.iam_policies import SPOT_ROLE, allow, volume_key
from gpucluster.plan.store_policies import Statement, document

READS = (
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceStatus",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeInstances",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeSubnets",
)
_CALLS = ("CreateFleet", "CreateLaunchTemplate", "RunInstances")


@dataclass(frozen=True, slots=True, kw_only=True)
class KarpenterScope:
    """The resources of the permissions, by ARN."""

    cluster: str  # name
    cluster_arn: str
    region: str
    account: str
    subnets: Sequence[str]
    group: str
    node_role: str
    profile: str
    queue: str
    spot: bool
    reservations: Sequence[str] = ()  # ids
    key: str | None = None  # of the disks; None: the account's default key


def karpenter_policy(scope: KarpenterScope) -> str:
    """Return the policy of the controller."""
    disks = [] if scope.key is None else volume_key(scope.key)
    return document(*_launch(scope), *_own(scope), *_look(scope), *_profiles(scope), *disks)


def _launch(scope: KarpenterScope) -> list[Statement]:
    base, image = f"arn:aws:ec2:{scope.region}:{scope.account}", f"arn:aws:ec2:{scope.region}::image/*"
    reservations = [f"arn:aws:ec2:{scope.region}:*:capacity-reservation/{one}" for one in scope.reservations]
    template, requests = f"{base}:launch-template/*", f"{base}:spot-instances-request/*"
    made = [f"{base}:{kind}/*" for kind in ("instance", "network-interface", "volume")]
    spot = [requests] if scope.spot else []
    tagged = _tags(scope, "aws:RequestTag")
    at_creation = {**tagged, "StringEquals": {**tagged["StringEquals"], "ec2:CreateAction": list(_CALLS)}}
    calls = ["ec2:CreateFleet", "ec2:RunInstances"]
    return [
        allow("LaunchImages", calls, image, when={"StringEquals": {"ec2:Owner": "amazon"}}),
        allow("LaunchFrom", calls, scope.group, *sorted(scope.subnets), *reservations),
        allow("LaunchOurs", calls, template, when=_tags(scope, "aws:ResourceTag")),
        allow("LaunchTagged", ["ec2:RunInstances"], *made, when=tagged),
        allow("Fleet", ["ec2:CreateFleet"], f"{base}:fleet/*", *made, *spot, when=tagged),
        allow("MakeTemplates", ["ec2:CreateLaunchTemplate"], template, when=tagged),
        allow(
            "TagAtCreation", ["ec2:CreateTags"], f"{base}:fleet/*", template, *made, *spot, when=at_creation
        ),
        *(_spot(scope, requests, tagged) if scope.spot else []),
    ]


def _spot(scope: KarpenterScope, requests: str, tagged: Statement) -> list[Statement]:
    role = f"arn:aws:iam::{scope.account}:{SPOT_ROLE}"
    return [
        allow("LaunchSpot", ["ec2:RunInstances"], requests, when=tagged),
        allow("SpotRole", ["iam:CreateServiceLinkedRole"], role),
    ]


def _own(scope: KarpenterScope) -> list[Statement]:
    """Only what carries both tags of Karpenter: never a node of a node group or of Slurm."""
    base, ours = f"arn:aws:ec2:{scope.region}:{scope.account}", _tags(scope, "aws:ResourceTag")
    keys = ["Name", "eks:eks-cluster-name", "karpenter.sh/nodeclaim"]
    naming = {**ours, "ForAllValues:StringEquals": {"aws:TagKeys": keys}}
    return [
        allow("EndNodes", ["ec2:TerminateInstances"], f"{base}:instance/*", when=ours),
        allow("DropTemplates", ["ec2:DeleteLaunchTemplate"], f"{base}:launch-template/*", when=ours),
        allow("NameNodes", ["ec2:CreateTags"], f"{base}:instance/*", when=naming),
    ]


def _look(scope: KarpenterScope) -> list[Statement]:
    here = {"StringEquals": {"aws:RequestedRegion": scope.region}}
    notices = ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"]
    return [
        allow("See", list(READS), "*", when=here),  # these calls have no narrower resource
        allow("Images", ["ssm:GetParameter"], f"arn:aws:ssm:{scope.region}::parameter/aws/service/*"),
        allow("Prices", ["pricing:GetProducts"], "*"),
        allow("Interruptions", notices, scope.queue),
        allow("ApiServer", ["eks:DescribeCluster"], scope.cluster_arn),
    ]


def _profiles(scope: KarpenterScope) -> list[Statement]:
    """Pass our profile's role. Karpenter makes no profile of its own, for the NodeClass names ours."""
    to_ec2 = {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
    return [
        allow("PassNodeRole", ["iam:PassRole"], scope.node_role, when=to_ec2),
        allow("Profile", ["iam:GetInstanceProfile"], scope.profile),
        allow("Profiles", ["iam:ListInstanceProfiles"], "*"),  # its garbage collector lists all
    ]


def _tags(scope: KarpenterScope, key: str) -> Statement:
    return {
        "StringEquals": {f"{key}/kubernetes.io/cluster/{scope.cluster}": "owned"},
        "StringLike": {f"{key}/karpenter.sh/nodepool": "*"},
    }
