"""Values that only the cloud knows, in the form that the cloud gives them. Only rules that check texts (`Rule.texts`) and
the comparison of rights may use them. Deterministic."""

from collections.abc import Mapping
from typing import Final

from gpucluster.engine.offline.model import Value

ACCOUNT: Final = "000000000000"
REGION: Final = "us-east-1"
_ADDRESS: Final = "192.0.2.1"  # RFC 5737: reserved for documentation
_TEXT_OUTPUTS: Final = (
    "bucket",
    "dnsName",
    "key",
    "mountName",
    "name",
    "url",
)  # programs put them into texts
# type -> ARN, as the service authorization reference writes it
_ARNS: Final[Mapping[str, str]] = {
    "aws:ec2/getSubnet:getSubnet": "arn:aws:ec2:{region}:{account}:subnet/{name}",
    "aws:ec2/getVpc:getVpc": "arn:aws:ec2:{region}:{account}:vpc/{name}",
    "aws:ec2/instance:Instance": "arn:aws:ec2:{region}:{account}:instance/{name}",
    "aws:ec2/launchTemplate:LaunchTemplate": "arn:aws:ec2:{region}:{account}:launch-template/{name}",
    "aws:ec2/placementGroup:PlacementGroup": "arn:aws:ec2:{region}:{account}:placement-group/{name}",
    "aws:ec2/securityGroup:SecurityGroup": "arn:aws:ec2:{region}:{account}:security-group/{name}",
    "aws:ec2/subnet:Subnet": "arn:aws:ec2:{region}:{account}:subnet/{name}",
    "aws:ec2/vpc:Vpc": "arn:aws:ec2:{region}:{account}:vpc/{name}",
    "aws:ebs/volume:Volume": "arn:aws:ec2:{region}:{account}:volume/{name}",
    "aws:cloudwatch/eventRule:EventRule": "arn:aws:events:{region}:{account}:rule/{name}",
    "aws:efs/accessPoint:AccessPoint": "arn:aws:elasticfilesystem:{region}:{account}:access-point/{name}",
    "aws:efs/fileSystem:FileSystem": "arn:aws:elasticfilesystem:{region}:{account}:file-system/{name}",
    "aws:efs/getFileSystem:getFileSystem": "arn:aws:elasticfilesystem:{region}:{account}:file-system/{name}",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "arn:aws:fsx:{region}:{account}:file-system/{name}",
    "aws:iam/instanceProfile:InstanceProfile": "arn:aws:iam::{account}:instance-profile/{name}",
    "aws:iam/policy:Policy": "arn:aws:iam::{account}:policy/{name}",
    "aws:iam/role:Role": "arn:aws:iam::{account}:role/{name}",
    "aws:kms/getKey:getKey": "arn:aws:kms:{region}:{account}:key/00000000-0000-0000-0000-000000000000",
    "aws:s3/bucket:Bucket": "arn:aws:s3:::{name}",
    "aws:secretsmanager/secret:Secret": "arn:aws:secretsmanager:{region}:{account}:secret:{name}-AbCdEf",
    "aws:sqs/queue:Queue": "arn:aws:sqs:{region}:{account}:{name}",
}


def outputs(type_: str, name: str, region: str = REGION) -> dict[str, Value]:
    """Return placeholder outputs by type and name of the resource or look-up."""
    _, _, of = type_.partition(":")
    service, _, word = of.partition("/")
    word = word.partition(":")[0]
    other = f"arn:aws:{service}:{{region}}:{{account}}:{word}/{{name}}"
    return {
        **{one: f"{word}-{name}-{one}" for one in _TEXT_OUTPUTS},
        "accountId": ACCOUNT,
        "arn": _ARNS.get(type_, other).format(region=region, account=ACCOUNT, name=name),
        "id": f"{word}-{name}",
        "latestVersion": 1,
        "ownerId": ACCOUNT,
        "privateIp": _ADDRESS,
        "publicIp": _ADDRESS,
    }
