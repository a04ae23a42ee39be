"""Bucket, queue, secret and EFS in the sandbox's AWS, as the program declares them."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

from gpucluster.plan import store_policies
from support.clouds import REGION, RunningCloud

BLOCKED = dict.fromkeys(
    ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"), True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Names as in the bindings; `system`: id of the EFS, empty without one."""

    bucket: str
    queue: str
    secret: str
    system: str = ""


def make_stores(cloud: RunningCloud, cluster: str, subnets: tuple[str, ...] = (), group: str = "") -> Stores:
    """Create them with names as Pulumi gives: the cluster's, a dash and seven characters. With `subnets` an EFS, too."""
    mark = uuid.uuid4().hex[:7]
    bucket = f"{cluster}-{mark}"
    cloud.client("s3").create_bucket(Bucket=bucket)
    queue = cloud.client("sqs").create_queue(QueueName=f"{cluster}-events-{mark}")["QueueUrl"]
    secret = cloud.client("secretsmanager").create_secret(Name=f"{cluster}-munge-{mark}")["ARN"]
    system = ""
    if subnets:
        efs = cloud.client("efs")
        made = efs.create_file_system(CreationToken=mark, Encrypted=True, ThroughputMode="elastic")
        system = made["FileSystemId"]
        cloud.clock.move(60)
        for subnet in subnets:
            efs.create_mount_target(FileSystemId=system, SubnetId=subnet, SecurityGroups=[group])
        cloud.clock.move(300)
    found = Stores(bucket=bucket, queue=queue, secret=secret, system=system)
    declare(cloud, cluster, found)
    return found


def declare(cloud: RunningCloud, cluster: str, made: Stores) -> None:
    """Write every setting, as `pulumi up --refresh` does after drift."""
    s3: Any = cloud.client("s3")
    s3.put_public_access_block(Bucket=made.bucket, PublicAccessBlockConfiguration=BLOCKED)
    s3.put_bucket_versioning(Bucket=made.bucket, VersioningConfiguration={"Status": "Enabled"})
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    s3.put_bucket_encryption(Bucket=made.bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})
    s3.put_bucket_policy(Bucket=made.bucket, Policy=store_policies.only_tls(f"arn:aws:s3:::{made.bucket}"))
    sqs: Any = cloud.client("sqs")
    arn = sqs.get_queue_attributes(QueueUrl=made.queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    account = arn.split(":")[4]
    rules = [
        f"arn:aws:events:{REGION}:{account}:rule/{cluster}-{name}-89abcde" for name in store_policies.PATTERNS
    ]
    sqs.set_queue_attributes(
        QueueUrl=made.queue,
        Attributes={**store_policies.QUEUE, "Policy": store_policies.events_to(arn, rules)},
    )
    events: Any = cloud.client("events")
    for one, (name, pattern) in zip(rules, store_policies.PATTERNS.items(), strict=True):
        rule_name = one.rpartition("/")[2]
        events.put_rule(Name=rule_name, EventPattern=json.dumps(pattern), State="ENABLED")
        events.put_targets(Rule=rule_name, Targets=[{"Id": name, "Arn": arn}])
    if made.system:
        efs: Any = cloud.client("efs")
        found = efs.describe_file_systems(FileSystemId=made.system)["FileSystems"][0]
        efs.put_file_system_policy(
            FileSystemId=made.system, Policy=store_policies.only_machines(found["FileSystemArn"])
        )


def opened(policy: str) -> str:
    """The same policy with a statement that lets everybody in."""
    document = json.loads(policy)
    resource = document["Statement"][0]["Resource"]
    document["Statement"].append(
        {"Sid": "All", "Effect": "Allow", "Principal": "*", "Action": "*", "Resource": resource}
    )
    return json.dumps(document)
