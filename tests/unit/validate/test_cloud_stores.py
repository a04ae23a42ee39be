"""The checks of bucket, queue, secret and file systems over the sandbox's AWS: each sabotage is found by one check."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support import builders
from support.aws_cli import aws_cli
from support.cloud_roles import MARK, declare_roles
from support.cloud_stores import Stores, declare, make_stores
from support.clouds import REGION, RunningCloud, running_cloud
from support.operators import OperatorScope

from gpucluster.aws.operator_policies import command_statements
from gpucluster.checks.check import CheckResult, CheckStatus, ParseError, QueryOutput
from gpucluster.checks.cloud_stores import (
    FileSystemsWant,
    FileSystemWant,
    evaluate_bucket,
    evaluate_queue,
    evaluate_systems,
)
from gpucluster.checks.store_answers import parse_bucket, parse_queue, parse_secret, parse_systems
from gpucluster.checks.table import CHECKS
from gpucluster.plan import names
from gpucluster.plan.iam_policies import trust_ec2
from gpucluster.plan.model import Access, Bindings, Efs, FsxLustre, Mount, SlurmOnAws
from gpucluster.plan.model.aws import JobsS3Access
from gpucluster.plan.model.bindings import FileSystemBinding, TemplateBinding
from gpucluster.sandbox.aws.moto_state import ACCOUNT
from gpucluster.validate.cloud_expectations import of_cluster
from gpucluster.validate.cloud_reader import CloudReader, NoCloudError
from gpucluster.validate.store_reader import read_roles

pytestmark = pytest.mark.loopback
UP = "pulumi up --refresh --stack burst"
LUSTRE = FsxLustre(zone="us-east-2a", size_gib=1200)


@dataclass
class Deployed:
    """The stores of `burst`, and its bindings."""

    cloud: RunningCloud
    plan: SlurmOnAws
    bindings: Bindings
    made: Stores
    subnets: tuple[str, ...]

    def client(self, service: str) -> Any:
        return self.cloud.client(service)

    def checked(self, key: Any = None) -> dict[str, CheckResult]:
        reader = CloudReader("burst", lambda service: self.cloud.client(service, key))
        found: dict[str, CheckResult] = {}
        for name, want in of_cluster(self.plan, self.bindings):
            if name in ("cloud.bucket", "cloud.queue", "cloud.secret", "cloud.roles", "cloud.file_systems"):
                check = CHECKS[name]
                got = tuple(
                    QueryOutput(code=0, stdout=json.dumps(reader.read(query.argv), default=str))
                    for query in check.query(want)
                )
                found[name] = check.evaluate(check.parse(got), want)
        return found


@pytest.fixture(scope="module")
def cloud() -> Iterator[RunningCloud]:
    with running_cloud() as found:
        yield found


@pytest.fixture
def burst(cloud: RunningCloud) -> Deployed:
    ec2 = cloud.fresh(buckets=False).client("ec2")
    ours = [{"ResourceType": "vpc", "Tags": [{"Key": names.TAG_CLUSTER, "Value": "burst"}]}]
    vpc = ec2.create_vpc(CidrBlock="10.42.0.0/16", TagSpecifications=ours)["Vpc"]["VpcId"]
    subnets = {
        zone: ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.42.{n}.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for n, zone in enumerate(("us-east-1a", "us-east-1b"))
    }  # fmt: skip
    group = ec2.create_security_group(GroupName="efs", Description="efs", VpcId=vpc)["GroupId"]
    made = make_stores(cloud, "burst", tuple(subnets.values()), group)
    plan = replace(builders.a_plan(), storage=(Mount(path="/home", source=Efs()),))
    bindings = Bindings(
        schema=1, region=REGION, bucket=made.bucket, secret=made.secret, queue=made.queue, subnets=subnets,
        templates={}, file_systems={"/home": FileSystemBinding(id=made.system, dns_name="fs")},
    )  # fmt: skip
    return Deployed(cloud, plan, bindings, made, tuple(subnets.values()))


def unhealthy(found: dict[str, CheckResult]) -> dict[str, CheckResult]:
    return {name: one for name, one in found.items() if one.verdict is not CheckStatus.PASS}


def test_declared_stores_pass(burst: Deployed) -> None:
    found = burst.checked()
    assert {name: one.found for name, one in found.items()} == dict.fromkeys(
        ("cloud.bucket", "cloud.queue", "cloud.secret", "cloud.file_systems"), "as declared"
    ) | {"cloud.roles": "0 roles, as declared"}
    assert unhealthy(found) == {}


Do = Callable[[Deployed], object]


def open_bucket(b: Deployed) -> None:
    """Restrict nothing, and let everybody read."""
    s3, name = b.client("s3"), b.made.bucket
    s3.delete_public_access_block(Bucket=name)
    read = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": "s3:GetObject",
        "Resource": f"arn:aws:s3:::{name}/*",
    }
    s3.put_bucket_policy(Bucket=name, Policy=json.dumps({"Version": "2012-10-17", "Statement": [read]}))


def partly_blocked(b: Deployed) -> None:
    b.client("s3").put_public_access_block(
        Bucket=b.made.bucket,
        PublicAccessBlockConfiguration={
            "BlockPublicAcls": True, "BlockPublicPolicy": False, "IgnorePublicAcls": True, "RestrictPublicBuckets": True,
        },
    )  # fmt: skip


def other_key(b: Deployed) -> None:
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}
    b.client("s3").put_bucket_encryption(
        Bucket=b.made.bucket, ServerSideEncryptionConfiguration={"Rules": [rule]}
    )


def everybody_sends(b: Deployed) -> None:
    """The declared statement stays, another stands beside it."""
    sqs = b.client("sqs")
    here = sqs.get_queue_attributes(QueueUrl=b.made.queue, AttributeNames=["All"])["Attributes"]
    policy = json.loads(here["Policy"])
    policy["Statement"].append(
        {"Sid": "All", "Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": here["QueueArn"]}
    )  # fmt: skip
    sqs.set_queue_attributes(QueueUrl=b.made.queue, Attributes={"Policy": json.dumps(policy)})


def another_rule_sends(b: Deployed) -> None:
    sqs = b.client("sqs")
    here = sqs.get_queue_attributes(QueueUrl=b.made.queue, AttributeNames=["All"])["Attributes"]
    text = here["Policy"].replace("burst-spot-", "lab-spot-")
    sqs.set_queue_attributes(QueueUrl=b.made.queue, Attributes={"Policy": text})


def elsewhere(old: str, new: str) -> Do:
    """The rules of the policy are in another Region or account: nothing of ours sends to the queue any more."""

    def do(b: Deployed) -> None:
        sqs = b.client("sqs")
        here = sqs.get_queue_attributes(QueueUrl=b.made.queue, AttributeNames=["Policy"])["Attributes"]
        policy = here["Policy"].replace(f"events:{old}", f"events:{new}")
        assert policy != here["Policy"]
        sqs.set_queue_attributes(QueueUrl=b.made.queue, Attributes={"Policy": policy})

    return do


def queue_set(**attributes: str) -> Do:
    return lambda b: b.client("sqs").set_queue_attributes(QueueUrl=b.made.queue, Attributes=attributes)


RULE = "burst-spot-89abcde"


def gone_rule(b: Deployed) -> None:
    b.client("events").remove_targets(Rule=RULE, Ids=["spot"])
    b.client("events").delete_rule(Name=RULE)


def without_target(b: Deployed) -> None:
    efs = b.client("efs")
    (first, *_) = efs.describe_mount_targets(FileSystemId=b.made.system)["MountTargets"]
    efs.delete_mount_target(MountTargetId=first["MountTargetId"])


def gone_target(b: Deployed) -> None:
    without_target(b)
    b.cloud.clock.move(300)


OF_PULUMI: dict[str, tuple[str, Do, str]] = {
    "the bucket is open to the world": ("cloud.bucket", open_bucket, r"public access is not blocked: BlockPublicAcls, .*, its policy is not the declared one: "),
    "public policies are not blocked": ("cloud.bucket", partly_blocked, "^public access is not blocked: BlockPublicPolicy$"),
    "the bucket's policy is gone": ("cloud.bucket", lambda b: b.client("s3").delete_bucket_policy(Bucket=b.made.bucket), "^its policy is missing$"),
    "versions are suspended": ("cloud.bucket", lambda b: b.client("s3").put_bucket_versioning(Bucket=b.made.bucket, VersioningConfiguration={"Status": "Suspended"}), "^versioning is Suspended$"),
    "another kind of encryption": ("cloud.bucket", other_key, "^its default encryption is aws:kms$"),
    "everybody sends to the queue": ("cloud.queue", everybody_sends, "^its policy is not the declared one: "),
    "a rule of another cluster sends to the queue": ("cloud.queue", another_rule_sends, "^its policy is not the declared one: "),
    "the queue has no policy": ("cloud.queue", queue_set(Policy=""), "^its policy is missing$"),
    "the rules of the policy are in another Region": ("cloud.queue", elsewhere(REGION, "us-west-2"), "^its policy is not the declared one: "),
    "the rules of the policy are in another account": ("cloud.queue", elsewhere(f"{REGION}:{ACCOUNT}", f"{REGION}:210987654321"), "^its policy is not the declared one: "),
    "messages are in plain text": ("cloud.queue", queue_set(SqsManagedSseEnabled="false"), "^SqsManagedSseEnabled is false, not true$"),
    "messages are kept for a minute": ("cloud.queue", queue_set(MessageRetentionPeriod="60"), "^MessageRetentionPeriod is 60, not 3600$"),
    "a rule of EventBridge is gone": ("cloud.queue", gone_rule, "^its rule burst-spot-89abcde does not exist$"),
    "a rule has no target": ("cloud.queue", lambda b: b.client("events").remove_targets(Rule=RULE, Ids=["spot"]), "^its rule burst-spot-89abcde does not send to it$"),
    "a rule has another pattern": ("cloud.queue", lambda b: b.client("events").put_rule(Name=RULE, EventPattern='{"source": ["aws.ec3"]}'), "^its rule burst-spot-89abcde has another pattern: "),
    "the file system admits everybody": ("cloud.file_systems", lambda b: b.client("efs").delete_file_system_policy(FileSystemId=b.made.system), "^fs-[0-9a-f]+: its policy is missing$"),
    "a mount target is gone": ("cloud.file_systems", gone_target, "^fs-[0-9a-f]+ has no mount target in subnet-[0-9a-f]+$"),
}  # fmt: skip


@pytest.mark.parametrize(("check", "do", "words"), OF_PULUMI.values(), ids=OF_PULUMI)
def test_sabotage_is_found_by_one_check_and_healed_by_pulumi(
    burst: Deployed, check: str, do: Do, words: str
) -> None:
    do(burst)
    bad = unhealthy(burst.checked())
    assert list(bad) == [check]
    assert re.search(words, bad[check].found), bad[check].found
    assert bad[check].remedy == UP
    if do is not gone_target:
        declare(burst.cloud, "burst", burst.made)
        assert unhealthy(burst.checked()) == {}


def test_store_that_does_not_exist_is_named(burst: Deployed) -> None:
    burst.client("s3").delete_bucket(Bucket=burst.made.bucket)
    burst.client("sqs").delete_queue(QueueUrl=burst.made.queue)
    burst.client("secretsmanager").delete_secret(SecretId=burst.made.secret, ForceDeleteWithoutRecovery=True)
    burst.bindings.file_systems["/home"] = FileSystemBinding(id="fs-0123456789abcdef0", dns_name="fs")
    bad = unhealthy(burst.checked())
    assert list(bad) == ["cloud.bucket", "cloud.queue", "cloud.secret", "cloud.file_systems"]
    assert all(one.found.endswith(" does not exist") and one.remedy == UP for one in bad.values())


def test_policy_of_the_secret_and_its_deletion_are_undone_by_their_remedies(burst: Deployed) -> None:
    manager, secret = burst.client("secretsmanager"), burst.made.secret
    read = {"Effect": "Allow", "Principal": "*", "Action": "secretsmanager:GetSecretValue", "Resource": "*"}
    manager.put_resource_policy(
        SecretId=secret, ResourcePolicy=json.dumps({"Version": "2012-10-17", "Statement": [read]})
    )
    (name, result), *others = unhealthy(burst.checked()).items()
    assert (name, others) == ("cloud.secret", [])
    assert "has a policy, which is not the declared one" in result.found
    assert result.remedy == f"aws secretsmanager delete-resource-policy --secret-id {secret}"
    manager.delete_resource_policy(SecretId=secret)
    assert unhealthy(burst.checked()) == {}
    manager.delete_secret(SecretId=secret, RecoveryWindowInDays=7)
    result = unhealthy(burst.checked())["cloud.secret"]
    assert result.found.endswith(" is marked for deletion")
    assert result.remedy == f"aws secretsmanager restore-secret --secret-id {secret}"
    manager.restore_secret(SecretId=secret)
    assert unhealthy(burst.checked()) == {}


def test_disabled_rule_is_enabled_by_its_remedy(burst: Deployed) -> None:
    """Regression: the daemon heard of no spot notice, and everything was healthy."""
    burst.client("events").disable_rule(Name=RULE)
    result = unhealthy(burst.checked())["cloud.queue"]
    assert result.found == f"its rule {RULE} is DISABLED"
    assert result.remedy == f"aws events enable-rule --name {RULE}"
    burst.client("events").enable_rule(Name=RULE)
    assert unhealthy(burst.checked()) == {}


HEAD, NODE, JOBS = (f"burst-{role}{MARK}" for role in ("head", "node", "jobs"))
EVERYTHING = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
)
ADMINISTRATOR = "arn:aws:iam::aws:policy/AdministratorAccess"


def target(b: Deployed, **more: str) -> None:
    arn = b.client("sqs").get_queue_attributes(QueueUrl=b.made.queue, AttributeNames=["QueueArn"])
    one = {"Id": "spot", "Arn": arn["Attributes"]["QueueArn"], **more}
    b.client("events").put_targets(Rule=RULE, Targets=[one])


OF_THE_QUEUE: dict[str, tuple[Do, str, str]] = {
    "messages are delayed": (queue_set(DelaySeconds="900"), "^DelaySeconds is 900, not 0$", "aws sqs set-queue-attributes --queue-url QUEUE --attributes DelaySeconds=0"),
    "a target sends a constant": (lambda b: target(b, Input="{}"), f"^its rule {RULE} sends to it with Input$", f"aws events put-targets --rule {RULE} --targets Id=spot,Arn=ARN"),
    "a second target sends a constant": (lambda b: target(b, Id="other", Input="{}"), f"^its rule {RULE} sends to it with Input$", f"aws events remove-targets --rule {RULE} --ids other"),
}  # fmt: skip


@pytest.mark.parametrize(("do", "words", "remedy"), OF_THE_QUEUE.values(), ids=OF_THE_QUEUE)
def test_late_or_empty_notices_are_healed_by_the_remedy(
    burst: Deployed, tmp_path: Path, do: Do, words: str, remedy: str
) -> None:
    """Regression: a spot notice came after its instance had ended, or without the instance's id."""
    do(burst)
    (name, result), *others = unhealthy(burst.checked()).items()
    assert (name, others) == ("cloud.queue", [])
    assert re.search(words, result.found), result.found
    arn = burst.client("sqs").get_queue_attributes(QueueUrl=burst.made.queue, AttributeNames=["QueueArn"])
    assert result.remedy == remedy.replace("QUEUE", burst.made.queue).replace(
        "ARN", arn["Attributes"]["QueueArn"]
    )
    with aws_cli(burst.cloud, tmp_path) as aws:
        aws.typed(result.remedy)
    assert unhealthy(burst.checked()) == {}


def test_messages_that_move_to_another_queue_are_named(burst: Deployed) -> None:
    want = dict(of_cluster(burst.plan, burst.bindings))["cloud.queue"]
    found = CloudReader("burst", burst.client).read(("queue", f"url={burst.made.queue}"))
    moved = {**found, "RedrivePolicy": '{"maxReceiveCount": 1}'}
    result = evaluate_queue(parse_queue((QueryOutput(code=0, stdout=json.dumps(moved)),)), want)
    assert result.found == 'it moves messages to another queue: {"maxReceiveCount": 1}'
    assert result.remedy.endswith(f"--queue-url {burst.made.queue} --attributes RedrivePolicy=")


def with_head(b: Deployed) -> None:
    """Run a head, with the roles that the program declares, one for jobs too, and a launch template; no node lives."""
    account = b.made.secret.split(":")[4]
    jobs = JobsS3Access(read=("s3://data",))
    b.plan = replace(b.plan, aws=replace(b.plan.aws, jobs=jobs))
    b.bindings = replace(b.bindings, jobs_role=f"arn:aws:iam::{account}:role/{JOBS}")
    declare_roles(b.cloud, b.plan, b.bindings)
    b.cloud.clock.move(60)
    image = b.cloud.api.moto.register_image("gpucluster-ubuntu-24.04-slurm-24.11")
    data = {
        "ImageId": image,
        "IamInstanceProfile": {"Arn": f"arn:aws:iam::{account}:instance-profile/{NODE}"},
    }
    made = b.client("ec2").create_launch_template(
        LaunchTemplateName=f"nodes-{b.made.bucket}", LaunchTemplateData=data
    )
    template = TemplateBinding(id=made["LaunchTemplate"]["LaunchTemplateId"], version=1)
    b.bindings = replace(b.bindings, templates={"h200-spot-p5en.48xlarge": template})
    b.client("ec2").run_instances(
        ImageId=image, InstanceType="m7i.large", SubnetId=b.subnets[0], MinCount=1, MaxCount=1,
        IamInstanceProfile={"Name": HEAD},
        TagSpecifications=[{"ResourceType": "instance", "Tags": [
            {"Key": names.TAG_CLUSTER, "Value": "burst"}, {"Key": names.TAG_ROLE, "Value": "head"},
        ]}],
    )  # fmt: skip


def test_other_policies_of_a_role_are_removed_by_their_remedies(burst: Deployed) -> None:
    """Regression: the head could do everything in the account, and was healthy."""
    with_head(burst)
    iam = burst.client("iam")
    assert burst.checked()["cloud.roles"].found == "3 roles, as declared"
    own = iam.create_policy(PolicyName="all", PolicyDocument=NOTHING)["Policy"]["Arn"]
    iam.attach_role_policy(RoleName=HEAD, PolicyArn=own)
    iam.put_role_policy(RoleName=HEAD, PolicyName="mine", PolicyDocument=NOTHING)
    result = unhealthy(burst.checked())["cloud.roles"]
    assert result.found == f"{HEAD} also has the policy {own}, {HEAD} also has the inline policy mine"
    assert result.remedy.split("; ") == [
        f"aws iam detach-role-policy --role-name {HEAD} --policy-arn {own}",
        f"aws iam delete-role-policy --role-name {HEAD} --policy-name mine",
    ]
    iam.detach_role_policy(RoleName=HEAD, PolicyArn=own)
    iam.delete_role_policy(RoleName=HEAD, PolicyName="mine")
    assert unhealthy(burst.checked()) == {}
    iam.delete_role_policy(RoleName=HEAD, PolicyName=HEAD)
    lost = unhealthy(burst.checked())["cloud.roles"]
    assert (lost.found, lost.remedy) == (f"{HEAD} has lost its inline policy", UP)


def test_role_of_jobs_has_no_policy_of_others(burst: Deployed) -> None:
    """Regression: each job with credentials was an administrator, and everything was healthy."""
    with_head(burst)
    burst.client("iam").attach_role_policy(RoleName=JOBS, PolicyArn=ADMINISTRATOR)
    result = unhealthy(burst.checked())["cloud.roles"]
    assert result.found == f"{JOBS} also has the policy {ADMINISTRATOR}"
    assert result.remedy == f"aws iam detach-role-policy --role-name {JOBS} --policy-arn {ADMINISTRATOR}"
    burst.client("iam").detach_role_policy(RoleName=JOBS, PolicyArn=ADMINISTRATOR)
    assert unhealthy(burst.checked()) == {}


def put(role: str, change: Callable[[dict[str, Any]], object]) -> Do:
    """Change the inline policy of a role under its name."""

    def do(b: Deployed) -> None:
        iam = b.client("iam")
        document = iam.get_role_policy(RoleName=role, PolicyName=role)["PolicyDocument"]
        change(document)
        iam.put_role_policy(RoleName=role, PolicyName=role, PolicyDocument=json.dumps(document))

    return do


def wider(sid: str, **more: Any) -> Callable[[dict[str, Any]], object]:
    return lambda document: next(s for s in document["Statement"] if s["Sid"] == sid).update(more)


def trusted_by_all(role: str) -> Do:
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    text = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    return lambda b: b.client("iam").update_assume_role_policy(RoleName=role, PolicyDocument=text)


def without_the_role_of_jobs(b: Deployed) -> None:
    b.client("iam").delete_role_policy(RoleName=JOBS, PolicyName=JOBS)
    b.client("iam").delete_role(RoleName=JOBS)


def without_the_template(b: Deployed) -> None:
    (template,) = b.bindings.templates.values()
    b.client("ec2").delete_launch_template(LaunchTemplateId=template.id)


OTHER_ROLES: dict[str, tuple[Do, str]] = {
    "everything, under the name of the head's policy": (lambda b: b.client("iam").put_role_policy(RoleName=HEAD, PolicyName=HEAD, PolicyDocument=EVERYTHING), f"the inline policy of {HEAD} is not the declared one: it also has the statement without an id, lacks the statement LaunchFrom, .*"),
    "the head terminates every instance": (put(HEAD, wider("OwnNodes", Condition={})), f"the inline policy of {HEAD} is not the declared one: it has a changed statement OwnNodes"),
    "nodes read every object, and no node lives": (put(NODE, wider("Bundle", Resource="*")), f"the inline policy of {NODE} is not the declared one: it has a changed statement Bundle"),
    "jobs write where they only read": (put(JOBS, wider("Read", Action=["s3:GetObject", "s3:PutObject"])), f"the inline policy of {JOBS} is not the declared one: it has a changed statement Read"),
    "everybody assumes the role of jobs": (trusted_by_all(JOBS), f"the trust policy of {JOBS} is not the declared one: it has a changed statement without an id"),
    "everybody assumes the role of nodes": (trusted_by_all(NODE), f"the trust policy of {NODE} is not the declared one: it has a changed statement without an id"),
    "the role of jobs is gone": (without_the_role_of_jobs, f"there is no role of {JOBS}"),
    "the launch template is gone": (without_the_template, "the launch template lt-[0-9a-f]+ names no profile burst-node, so the role of nodes is not found"),
}  # fmt: skip


@pytest.mark.parametrize(("do", "words"), OTHER_ROLES.values(), ids=OTHER_ROLES)
def test_changed_role_is_found_and_healed_by_pulumi(burst: Deployed, do: Do, words: str) -> None:
    """Regression: only the names of policies were compared."""
    with_head(burst)
    do(burst)
    (name, result), *others = unhealthy(burst.checked()).items()
    assert (name, others, result.remedy) == ("cloud.roles", [], UP)
    assert re.fullmatch(words, result.found), result.found
    if do is not without_the_template:
        declare_roles(burst.cloud, burst.plan, burst.bindings)
        assert unhealthy(burst.checked()) == {}


@pytest.mark.parametrize("state", ["shutting-down", "terminated"])
def test_profile_of_a_machine_that_ended_is_not_read(state: str) -> None:
    """EC2 lists a terminated instance for an hour (T21); its profile may be replaced meanwhile."""
    ended = {
        "State": {"Name": state},
        "IamInstanceProfile": {"Arn": "arn:aws:iam::1:instance-profile/burst-head-1"},
    }
    assert read_roles(pytest.fail, "burst", [ended]) == {"Roles": []}


def test_mount_target_that_ends_is_not_available(burst: Deployed) -> None:
    without_target(burst)
    result = unhealthy(burst.checked())["cloud.file_systems"]
    assert re.fullmatch(r"fs-[0-9a-f]+: its mount target in subnet-[0-9a-f]+ is deleting", result.found)
    assert result.remedy == f"aws efs describe-mount-targets --file-system-id {burst.made.system}"


NOTHING = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "*", "Resource": "*"}]}
)
SYSTEM = {"ResourceARN": "arn", "Lifecycle": "AVAILABLE", "StorageCapacity": 1200}


@pytest.mark.parametrize(
    ("seen", "own", "words"),
    [
        ({}, True, ""),
        ({"Lifecycle": "UPDATING"}, True, ""),
        ({"Lifecycle": "MISCONFIGURED_UNAVAILABLE"}, True, "fs-1 is MISCONFIGURED_UNAVAILABLE"),
        ({"StorageCapacity": 2400}, True, "fs-1 has 2400 GiB, not 1200"),
        ({"StorageCapacity": 2400}, False, ""),
        ({"Lifecycle": "FAILED"}, False, "fs-1 is FAILED"),
    ],
)
def test_lustre_is_available_and_as_large_as_declared(seen: dict[str, Any], own: bool, words: str) -> None:
    want = FileSystemsWant(
        cluster="burst", systems=(FileSystemWant(id="fs-1", lustre=True, own=own, size_gib=1200),)
    )
    answer = QueryOutput(code=0, stdout=json.dumps({**SYSTEM, **seen}))
    result = evaluate_systems(parse_systems((answer,)), want)
    assert result.is_healthy == (not words)
    assert words in result.found


def test_lustre_of_the_plan_is_expected(burst: Deployed) -> None:
    burst.plan = replace(burst.plan, storage=(Mount(path="/home", source=LUSTRE),))
    wants = dict(of_cluster(burst.plan, burst.bindings))
    system = FileSystemWant(id=burst.made.system, lustre=True, size_gib=1200)
    assert wants["cloud.file_systems"] == FileSystemsWant(cluster="burst", systems=(system,))


@pytest.mark.parametrize(
    ("rule", "key", "words"),
    [
        ({"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "arn:aws:kms:x:1:key/a"}, "arn:aws:kms:x:1:key/a", ""),
        ({"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "arn:aws:kms:x:1:key/a"}, "alias/site", ""),
        ({"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "arn:aws:kms:x:1:key/b"}, "arn:aws:kms:x:1:key/a", "uses the key arn:aws:kms:x:1:key/b, not arn:aws:kms:x:1:key/a"),
        ({"SSEAlgorithm": "aws:kms"}, "alias/site", "uses the key of AWS, not alias/site"),
        ({"SSEAlgorithm": "AES256"}, "alias/site", "its default encryption is AES256"),
    ],
)  # fmt: skip
def test_key_of_the_spec_encrypts_the_bucket(
    burst: Deployed, rule: dict[str, str], key: str, words: str
) -> None:
    burst.plan = replace(burst.plan, aws=replace(burst.plan.aws, kms_key=key))
    want = dict(of_cluster(burst.plan, burst.bindings))["cloud.bucket"]
    reader = CloudReader("burst", burst.client)
    found = {
        **reader.read(("bucket", f"name={burst.made.bucket}")),
        "Encryption": [{"ApplyServerSideEncryptionByDefault": rule}],
    }
    enabled = {"KeyId": key, "KeyState": "Enabled"}
    answers = tuple(QueryOutput(code=0, stdout=json.dumps(one)) for one in (found, enabled))
    result = evaluate_bucket(parse_bucket(answers), want)
    assert result.is_healthy == (not words)
    assert words in result.found


def with_key(b: Deployed) -> str:
    """A key of the site, by its alias; the bucket uses it."""
    kms, alias = b.client("kms"), f"alias/{b.made.bucket}"
    key = kms.create_key()["KeyMetadata"]
    kms.create_alias(AliasName=alias, TargetKeyId=key["KeyId"])
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key["Arn"]}}
    b.client("s3").put_bucket_encryption(
        Bucket=b.made.bucket, ServerSideEncryptionConfiguration={"Rules": [rule]}
    )
    b.plan = replace(b.plan, aws=replace(b.plan.aws, kms_key=alias))
    return key["KeyId"]


def test_key_that_ends_is_found_and_healed_by_the_remedy(burst: Deployed, tmp_path: Path) -> None:
    """Regression: nobody could read the bucket any more, and it was healthy."""
    key = with_key(burst)
    kms, named = burst.client("kms"), burst.plan.aws.kms_key
    assert "cloud.bucket" not in unhealthy(burst.checked())
    with aws_cli(burst.cloud, tmp_path) as aws:
        for change, state in (
            (lambda: kms.disable_key(KeyId=key), "Disabled"),
            (lambda: kms.schedule_key_deletion(KeyId=key, PendingWindowInDays=7), "PendingDeletion"),
        ):
            change()
            result = unhealthy(burst.checked())["cloud.bucket"]
            assert result.found == f"the key {named} is {state}"
            for step in result.remedy.split("; "):
                aws.typed(step)
            assert "cloud.bucket" not in unhealthy(burst.checked())
    burst.plan = replace(burst.plan, aws=replace(burst.plan.aws, kms_key="alias/gone"))
    assert "the key alias/gone does not exist" in unhealthy(burst.checked())["cloud.bucket"].found


def lifecycle(**more: Any) -> dict[str, Any]:
    return {"ID": "mine", "Status": "Enabled", "Filter": {"Prefix": ""}, **more}


@pytest.mark.parametrize(
    ("rule", "ends"),
    [
        (lifecycle(Expiration={"Days": 1}), True),
        (lifecycle(Transitions=[{"Days": 1, "StorageClass": "GLACIER"}]), True),
        (lifecycle(Expiration={"Days": 1}, Status="Disabled"), False),
        (lifecycle(Expiration={"ExpiredObjectDeleteMarker": True}), False),
        (lifecycle(NoncurrentVersionExpiration={"NoncurrentDays": 30}), False),
    ],
)
def test_lifecycle_rule_that_ends_objects_is_removed_by_the_remedy(
    burst: Deployed, tmp_path: Path, rule: dict[str, Any], ends: bool
) -> None:
    """Regression: S3 deleted the bundle and the control object a day later, and everything was healthy."""
    burst.client("s3").put_bucket_lifecycle_configuration(
        Bucket=burst.made.bucket, LifecycleConfiguration={"Rules": [rule]}
    )
    bad = unhealthy(burst.checked())
    assert list(bad) == (["cloud.bucket"] if ends else [])
    if ends:
        assert bad["cloud.bucket"].found == "lifecycle rules delete or move its objects: mine"
        with aws_cli(burst.cloud, tmp_path) as aws:
            aws.typed(bad["cloud.bucket"].remedy)
        assert unhealthy(burst.checked()) == {}


UNREADABLE: list[tuple[Callable[[tuple[QueryOutput, ...]], object], dict[str, Any]]] = [
    (parse_bucket, {"Versioning": "Enabled"}),
    (parse_bucket, {"Versioning": "Enabled", "Encryption": [], "PublicAccessBlock": []}),
    (parse_bucket, {"Versioning": "Enabled", "Encryption": [], "PublicAccessBlock": {}}),
    (parse_queue, {"Policy": "{}"}),
    (parse_queue, {"QueueArn": "queue", "Rules": []}),
    (parse_secret, {"Name": "munge"}),
    (parse_systems, {"FileSystemArn": "arn", "LifeCycleState": "available"}),
    (parse_systems, {"Lifecycle": "AVAILABLE"}),
]


@pytest.mark.parametrize(("parse", "answer"), UNREADABLE)
def test_answer_without_what_is_compared_is_unreadable(
    parse: Callable[[tuple[QueryOutput, ...]], object], answer: dict[str, Any]
) -> None:
    """The rules read the answers themselves: such an answer ended the run, or passed."""
    with pytest.raises(ParseError):
        parse((QueryOutput(code=0, stdout=json.dumps(answer)),))


# --- the operator's rights ----------------------------------------------------------------------------


KEY = "alias/of-the-site"


def rights() -> list[dict[str, Any]]:
    """The statements of `plan --operator-policy commands` for `validate`, in the Region of the test."""
    plan = builders.a_plan()
    plan = replace(
        plan,
        aws=replace(plan.aws, jobs=JobsS3Access(read=("s3://data",)), kms_key=KEY),
        access=Access(ssm=True),
        storage=(Mount(path="/home", source=Efs()), Mount(path="/scratch", source=LUSTRE)),
    )
    made = command_statements(OperatorScope(plan=plan, declared={}, fixed={}, attached=(), lookups=()))
    found = json.loads(json.dumps(made).replace(plan.aws.region, REGION))
    return [one for one in found if one["Sid"] in ("Find", "UserData") or one["Sid"].startswith("Validate")]


ACTIONS = [(s["Sid"], action) for s in rights() for action in s["Action"]]


def read_all(burst: Deployed, key: Any) -> None:
    """Every call of `validate` about the cloud."""
    with_head(burst)
    burst.checked(key)
    reader = CloudReader("burst", lambda service: burst.cloud.client(service, key))
    for what in ("instances", "volumes", "images", "rules", "network", "shutdowns", "addresses"):
        reader.read((what, "cluster=burst", f"vpc-of={burst.subnets[0]}"))
    reader.read(("lustre", "id=fs-0123456789abcdef0"))
    reader.read(("key", f"id={KEY}"))


@pytest.fixture
def operator(burst: Deployed) -> Callable[[list[dict[str, Any]]], Any]:
    iam, kms = burst.client("iam"), burst.client("kms")
    if not any(one["AliasName"] == KEY for one in kms.list_aliases()["Aliases"]):
        kms.create_alias(AliasName=KEY, TargetKeyId=kms.create_key()["KeyMetadata"]["KeyId"])
    if not any(one["RoleName"] == "validator" for one in iam.list_roles()["Roles"]):
        iam.create_role(RoleName="validator", AssumeRolePolicyDocument=trust_ec2())
    burst.client("ec2").run_instances(
        ImageId=burst.cloud.api.moto.register_image("gpucluster-ubuntu-24.04-slurm-24.11"),
        InstanceType="m7i.large",
        SubnetId=burst.subnets[0],
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": names.TAG_CLUSTER, "Value": "burst"}]}
        ],
    )

    def key(statements: list[dict[str, Any]]) -> Any:
        document = json.dumps({"Version": "2012-10-17", "Statement": statements})
        iam.put_role_policy(RoleName="validator", PolicyName="own", PolicyDocument=document)
        return burst.cloud.api.ring.session("validator", "AROAVALIDATOR", "i-0", burst.cloud.clock.now)

    return key


def test_operator_reads_all_that_validate_compares(burst: Deployed, operator: Any) -> None:
    """The policy of commands had no right to list volumes, groups or rules: these checks were unknown with it."""
    read_all(burst, operator(rights()))


@pytest.mark.parametrize(("sid", "action"), ACTIONS, ids=[f"{sid}-{action}" for sid, action in ACTIONS])
def test_operator_is_refused_without_the_action(
    burst: Deployed, operator: Any, sid: str, action: str
) -> None:
    less = [{**s, "Action": [a for a in s["Action"] if (s["Sid"], a) != (sid, action)]} for s in rights()]
    key = operator([s for s in less if s["Action"]])
    with pytest.raises(NoCloudError, match=r"(?i)not authorized|AccessDenied|UnauthorizedOperation"):
        read_all(burst, key)
