"""The needs behind each action of the roles on EKS. `docs/permissions.md` is generated from these tables.

`tests/unit/aws/eks` shows for each row that the policy meets the need, and that it does not without the action.
"""

from collections.abc import Iterator, Mapping

from gpucluster.aws.eks.addons import RIGHTS
from gpucluster.aws.eks.karpenter_policy import READS, KarpenterScope, karpenter_policy
from gpucluster.aws.eks.policies import SECRETS_KEY
from gpucluster.aws.eks.roles import CLUSTER_POLICIES, NODE_POLICIES
from gpucluster.plan.iam_policies import VOLUME_KEY

EC2 = "arn:aws:ec2:us-west-2:123456789012"
SCOPE = KarpenterScope(
    cluster="kube",
    cluster_arn="arn:aws:eks:us-west-2:123456789012:cluster/kube",
    region="us-west-2",
    account="123456789012",
    subnets=[f"{EC2}:subnet/subnet-1"],
    group=f"{EC2}:security-group/sg-1",
    node_role="arn:aws:iam::123456789012:role/kube-kubernetes-node",
    profile="arn:aws:iam::123456789012:instance-profile/kube-kubernetes-node",
    queue="arn:aws:sqs:us-west-2:123456789012:kube-interruptions",
    spot=True,
    reservations=["cr-1"],
    key="arn:aws:kms:us-west-2:123456789012:key/0123abcd-0123-0123-0123-0123456789ab",
)
SPOT_ROLE = "arn:aws:iam::123456789012:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
Context = dict[str, tuple[str, ...]]


def tags(kind: str, cluster: str = "kube") -> Context:
    return {
        f"aws:{kind}/kubernetes.io/cluster/{cluster}": ("owned",),
        f"aws:{kind}/karpenter.sh/nodepool": ("serve-0",),
    }


REQUEST, OWN = tags("requesttag"), tags("resourcetag")
HERE: Context = {"aws:requestedregion": ("us-west-2",)}
CREATED: Context = {**REQUEST, "ec2:createaction": ("CreateFleet",)}
TO_EC2: Context = {"iam:passedtoservice": ("ec2.amazonaws.com",)}
BY_EC2: Context = {"kms:viaservice": ("ec2.us-west-2.amazonaws.com",)}
GRANTED: Context = {**BY_EC2, "kms:grantisforawsresource": ("true",)}
NAMING: Context = {**OWN, "aws:tagkeys": ("karpenter.sh/nodeclaim", "Name")}

# (Sid, action) -> what Karpenter does with it, the resource, the context of its call
NEEDS: dict[tuple[str, str], tuple[str, str, Context]] = {
    ("LaunchImages", "ec2:CreateFleet"): ("a fleet boots an image of AWS", "arn:aws:ec2:us-west-2::image/ami-1", {"ec2:owner": ("amazon",)}),
    ("LaunchImages", "ec2:RunInstances"): ("a launch boots an image of AWS", "arn:aws:ec2:us-west-2::image/ami-1", {"ec2:owner": ("amazon",)}),
    ("LaunchFrom", "ec2:CreateFleet"): ("a fleet uses our subnet", f"{EC2}:subnet/subnet-1", {}),
    ("LaunchFrom", "ec2:RunInstances"): ("a launch uses our group", f"{EC2}:security-group/sg-1", {}),
    ("LaunchOurs", "ec2:CreateFleet"): ("a fleet uses its own template", f"{EC2}:launch-template/lt-1", OWN),
    ("LaunchOurs", "ec2:RunInstances"): ("a launch uses its own template", f"{EC2}:launch-template/lt-1", OWN),
    ("Fleet", "ec2:CreateFleet"): ("a fleet makes tagged instances", f"{EC2}:instance/*", REQUEST),
    ("LaunchTagged", "ec2:RunInstances"): ("a launch makes tagged volumes", f"{EC2}:volume/*", REQUEST),
    ("MakeTemplates", "ec2:CreateLaunchTemplate"): ("one template for each machine and image", f"{EC2}:launch-template/*", REQUEST),
    ("LaunchSpot", "ec2:RunInstances"): ("a launch makes a tagged spot request", f"{EC2}:spot-instances-request/*", REQUEST),
    ("TagAtCreation", "ec2:CreateTags"): ("new resources get the tags at creation", f"{EC2}:instance/i-1", CREATED),
    ("SpotRole", "iam:CreateServiceLinkedRole"): ("the first spot request of an account", SPOT_ROLE, {}),
    ("EndNodes", "ec2:TerminateInstances"): ("an empty node ends", f"{EC2}:instance/i-1", OWN),
    ("DropTemplates", "ec2:DeleteLaunchTemplate"): ("templates of old images go", f"{EC2}:launch-template/lt-1", OWN),
    ("NameNodes", "ec2:CreateTags"): ("a node gets the name of its claim", f"{EC2}:instance/i-1", NAMING),
    **{("See", one): ("it compares what there is with what it wants", "*", HERE) for one in READS},
    ("Images", "ssm:GetParameter"): ("the alias of an image names a parameter of AWS", "arn:aws:ssm:us-west-2::parameter/aws/service/eks/x", {}),
    ("Prices", "pricing:GetProducts"): ("it buys the cheapest machine that fits", "*", {}),
    ("Interruptions", "sqs:ReceiveMessage"): ("it drains a node before EC2 takes it", SCOPE.queue, {}),
    ("Interruptions", "sqs:DeleteMessage"): ("a handled notice goes", SCOPE.queue, {}),
    ("Interruptions", "sqs:GetQueueUrl"): ("the chart names the queue, not its URL", SCOPE.queue, {}),
    ("ApiServer", "eks:DescribeCluster"): ("nodes join by the address of the API server", SCOPE.cluster_arn, {}),
    ("PassNodeRole", "iam:PassRole"): ("a node has the role of nodes", SCOPE.node_role, TO_EC2),
    ("Profile", "iam:GetInstanceProfile"): ("it checks the profile of the NodeClass", SCOPE.profile, {}),
    ("Profiles", "iam:ListInstanceProfiles"): ("its garbage collector lists all profiles", "*", {}),
    **{("VolumeKey", one): ("EC2 encrypts the disks of its nodes with `aws.kms_key`", str(SCOPE.key), BY_EC2) for one in VOLUME_KEY},
    ("VolumeGrant", "kms:CreateGrant"): ("a running node keeps the use of the key of its disks", str(SCOPE.key), GRANTED),
}  # fmt: skip
# policy of AWS -> role, and the reason
ATTACHED: Mapping[str, tuple[str, str]] = {
    "AmazonEKSClusterPolicy": ("control-plane", "EKS makes network interfaces, routes and load balancers of the cluster"),
    "AmazonEKSWorkerNodePolicy": ("nodes", "a node asks EC2 for its name before it joins; the pod identity agent gets the credentials of pods"),
    "AmazonEC2ContainerRegistryPullOnly": ("nodes", "nodes pull the images of add-ons and of the site"),
    "AmazonEKS_CNI_Policy": ("pods of `vpc-cni`", "pods get addresses of the VPC"),
    "AmazonEBSCSIDriverPolicyV2": ("pods of `aws-ebs-csi-driver`", "claims of pods get volumes of EBS"),
}  # fmt: skip


def page() -> Iterator[str]:
    """Yield the part of `docs/permissions.md` about EKS."""
    yield ""
    yield "## On EKS"
    yield ""
    yield "With `control_plane: eks`. Each action is a test of `tests/unit/aws/eks`: the policy alone meets the need, and does not without the action."
    yield ""
    yield "| role | action | statement | reason |"
    yield "| --- | --- | --- | --- |"
    for action in SECRETS_KEY:
        yield f"| control plane | `{action}` | Secrets | envelope encryption of the cluster's secrets, on their key alone |"
    for (sid, action), (why, _, _) in NEEDS.items():
        yield f"| Karpenter | `{action}` | {sid} | {why} |"
    yield ""
    yield "Pods of a service account of `teams[].service_accounts` have the statements of jobs above for its places."
    yield ""
    yield "| policy of AWS | attached to | reason |"
    yield "| --- | --- | --- |"
    for policy, (role, why) in ATTACHED.items():
        yield f"| `{policy}` | {role} | {why} |"


ROLE_POLICIES = (*CLUSTER_POLICIES, *NODE_POLICIES, *(policy for policy, _ in RIGHTS.values()))
DOCUMENT = karpenter_policy(SCOPE)
