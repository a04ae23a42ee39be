"""Stacks for the judges of other hands: every resource of a plan, with ids and ARNs in AWS's own forms.

The placeholder ids of `declared` are not in AWS's form, so patterns of AWS's schemas would refuse them.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from pulumi.runtime import MockCallArgs, MockResourceArgs

from gpucluster.aws.program import declare
from gpucluster.catalog import load as load_catalog
from gpucluster.files import checkout
from gpucluster.plan.model import AwsPlan, SiteEfs, SiteLustre, SiteNetwork, SiteSubnet, SlurmOnAws
from gpucluster.plan.model.storage import Mount
from gpucluster.plan.resolve import resolve
from gpucluster.spec import load as load_spec
from support import eks_plans
from support.aws_plans import aws, both, mounts, own_image, research, standby
from support.builders import a_plan
from support.declared import ACCOUNT, Declared, Recorder, declared_by

IMAGE, SITE_VPC = "ami-0123456789abcdef0", "vpc-00000000000000001"
# type -> (form of the id, form of the ARN); {hex} is 17 hexadecimal digits, {name} the resource's name
_EC2 = "arn:aws:ec2:{region}:{account}"
_FORMS: Mapping[str, tuple[str, str]] = {
    "aws:budgets/budget:Budget": (
        "{account}:{name}",
        "arn:aws:budgets::{account}:budget/{name}",
    ),
    "aws:cloudwatch/eventRule:EventRule": ("{name}", "arn:aws:events:{region}:{account}:rule/{name}"),
    "aws:cloudwatch/eventTarget:EventTarget": ("{name}-queue", ""),
    "aws:cloudwatch/logGroup:LogGroup": ("{name}", "arn:aws:logs:{region}:{account}:log-group:{id}"),
    "aws:ebs/volume:Volume": ("vol-{hex}", _EC2 + ":volume/{id}"),
    "aws:ec2/eip:Eip": ("eipalloc-{hex}", _EC2 + ":elastic-ip/{id}"),
    "aws:ec2/instance:Instance": ("i-{hex}", _EC2 + ":instance/{id}"),
    "aws:ec2/internetGateway:InternetGateway": ("igw-{hex}", _EC2 + ":internet-gateway/{id}"),
    "aws:ec2/launchTemplate:LaunchTemplate": ("lt-{hex}", _EC2 + ":launch-template/{id}"),
    "aws:ec2/natGateway:NatGateway": ("nat-{hex}", _EC2 + ":natgateway/{id}"),
    "aws:ec2/placementGroup:PlacementGroup": ("{name}", _EC2 + ":placement-group/{id}"),
    "aws:ec2/routeTable:RouteTable": ("rtb-{hex}", _EC2 + ":route-table/{id}"),
    "aws:ec2/securityGroup:SecurityGroup": ("sg-{hex}", _EC2 + ":security-group/{id}"),
    "aws:ec2/subnet:Subnet": ("subnet-{hex}", _EC2 + ":subnet/{id}"),
    "aws:ec2/subnetCidrReservation:SubnetCidrReservation": ("scr-{hex}", ""),
    "aws:ec2/vpc:Vpc": ("vpc-{hex}", _EC2 + ":vpc/{id}"),
    "aws:ec2/vpcEndpoint:VpcEndpoint": ("vpce-{hex}", _EC2 + ":vpc-endpoint/{id}"),
    "aws:efs/accessPoint:AccessPoint": (
        "fsap-{hex}",
        "arn:aws:elasticfilesystem:{region}:{account}:access-point/{id}",
    ),
    "aws:efs/fileSystem:FileSystem": (
        "fs-{hex}",
        "arn:aws:elasticfilesystem:{region}:{account}:file-system/{id}",
    ),
    "aws:efs/fileSystemPolicy:FileSystemPolicy": ("fs-{hex}", ""),
    "aws:efs/mountTarget:MountTarget": ("fsmt-{hex}", ""),
    "aws:eks/accessEntry:AccessEntry": (
        "{name}",
        "arn:aws:eks:{region}:{account}:access-entry/{name}",
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": ("{name}", ""),
    "aws:eks/cluster:Cluster": ("{name}", "arn:aws:eks:{region}:{account}:cluster/{id}"),
    "aws:eks/addon:Addon": ("{name}", "arn:aws:eks:{region}:{account}:addon/{name}"),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": (
        "a-{hex}",
        "arn:aws:eks:{region}:{account}:podidentityassociation/{name}",
    ),
    "aws:eks/nodeGroup:NodeGroup": ("{name}", "arn:aws:eks:{region}:{account}:nodegroup/{name}"),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": (
        "dra-{hex}",
        "arn:aws:fsx:{region}:{account}:association/{id}",
    ),
    "aws:fsx/lustreFileSystem:LustreFileSystem": (
        "fs-{hex}",
        "arn:aws:fsx:{region}:{account}:file-system/{id}",
    ),
    "aws:iam/instanceProfile:InstanceProfile": (
        "{name}",
        "arn:aws:iam::{account}:instance-profile/{id}",
    ),
    "aws:iam/role:Role": ("{name}", "arn:aws:iam::{account}:role/{id}"),
    "aws:kms/key:Key": ("{uuid}", "arn:aws:kms:{region}:{account}:key/{id}"),
    "aws:s3/bucket:Bucket": ("{name}", "arn:aws:s3:::{id}"),
    "aws:secretsmanager/secret:Secret": (
        "arn:aws:secretsmanager:{region}:{account}:secret:{name}-AbCdEf",
        "{id}",
    ),
    "aws:sqs/queue:Queue": (
        "https://sqs.{region}.amazonaws.com/{account}/{name}",
        "arn:aws:sqs:{region}:{account}:{name}",
    ),
}
_NAMED_BY_ID = ("name", "bucket", "url")  # outputs that repeat the id where the type has them


class _RealNames(Recorder):
    """Outputs in AWS's forms; each is a function of stack, type and name."""

    def __init__(self, stack: str, region: str) -> None:
        super().__init__()
        self._stack, self._region = stack, region

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        identity, outputs = super().new_resource(args)
        if args.resource_id:  # it is only read, so AWS gets no property of it
            self.found.pop()
        forms = _FORMS.get(args.typ)
        if forms is None:
            return identity, outputs
        digits = hashlib.sha256(f"{self._stack}/{args.typ}/{args.name}".encode()).hexdigest()
        fields = {
            "region": self._region,
            "account": ACCOUNT,
            "hex": digits[:17],
            "uuid": f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}",
            "name": args.name,
        }
        real = forms[0].format(**fields)
        made = {name: real for name in _NAMED_BY_ID if name in outputs and name not in args.inputs}
        return real, {**outputs, **made, "arn": forms[1].format(**fields, id=real)}

    def call(self, args: MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        answer, failures = super().call(args)
        texts: dict[str, str] = {}
        if args.token == "aws:ec2/getAmi:getAmi":
            texts |= {"id": IMAGE, "imageId": IMAGE}
        if args.token == "aws:ec2/getSubnet:getSubnet":
            texts |= {"vpcId": SITE_VPC}
        return {**answer, **texts}, failures


@dataclass(frozen=True)
class JudgedStack:
    """A stack and its resources. Components and providers are left out: AWS does not see them."""

    name: str
    region: str
    resources: tuple[Declared, ...]


def _of_file(name: str) -> SlurmOnAws:
    root = checkout()
    assert root is not None
    plan = resolve(load_spec(root / "stacks" / f"{name}.yaml"), load_catalog())
    assert isinstance(plan, SlurmOnAws)
    return plan


def _in_a_site_vpc(plan: SlurmOnAws) -> SlurmOnAws:
    """Use a site's VPC and file systems. The last letter of a subnet's id is that of its zone."""
    subnets = (
        SiteSubnet(zone="us-east-2a", id="subnet-0000000000000000a", public_id="subnet-0000000000000001a"),
        SiteSubnet(zone="us-east-2b", id="subnet-0000000000000000b"),
    )
    home = Mount(path="/home", source=SiteEfs(id="fs-00000000000000001"))
    data = Mount(path="/data", source=SiteLustre(id="fs-00000000000000002", zone="us-east-2a"))
    changed = aws(network=SiteNetwork(vpc=SITE_VPC, subnets=subnets))(plan)
    return mounts(home, data)(changed)


STACKS: Mapping[str, Callable[[], SlurmOnAws]] = {
    **{name: partial(_of_file, name) for name in ("burst", "first", "research", "steady")},
    "every kind": lambda: research(a_plan()),
    "own key": lambda: research(aws(kms_key="alias/research")(a_plan())),
    "standby": lambda: both(standby, own_image)(a_plan()),
    "site's VPC": lambda: _in_a_site_vpc(a_plan()),
}
ON_EKS: Mapping[str, Callable[[], AwsPlan]] = {
    "kube": eks_plans.the_stack,
    "every kind on EKS": eks_plans.everything,
    "prepaid on EKS": eks_plans.prepaid,
    "hybrid": partial(_of_file, "hybrid"),
    "Slurm and EKS": eks_plans.hybrid,
}
EVERY: Mapping[str, Callable[[], AwsPlan]] = {**STACKS, **ON_EKS}


@cache
def judged(name: str) -> JudgedStack:
    """Declare a stack of EVERY; a third of a second of CPU."""
    plan = EVERY[name]()
    region = plan.aws.region
    found = declared_by(partial(declare, plan), _RealNames(name, region))
    kept = tuple(r for r in found if r.name and r.type.startswith("aws:"))
    return JudgedStack(name, region, kept)
