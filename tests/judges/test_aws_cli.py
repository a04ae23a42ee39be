"""The real AWS CLI as a client of the sandbox: outputs parse, waiters and pagers work, errors have the codes of AWS."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from support.aws_cli import AwsCli, aws_cli
from support.clouds import Network, RunningCloud, a_network, running_cloud

FEWEST = 170  # commands of this module; the count guards against tests that no longer run
DOCUMENT = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    ],
}


@pytest.fixture(scope="module")
def running() -> Generator[tuple[RunningCloud, Network]]:
    with running_cloud() as cloud:
        yield cloud, a_network(cloud)


@pytest.fixture(scope="module")
def aws(running: tuple[RunningCloud, Network], tmp_path_factory: pytest.TempPathFactory) -> Generator[AwsCli]:
    with aws_cli(running[0], tmp_path_factory.mktemp("home")) as cli:
        yield cli
        assert len(cli.commands) >= FEWEST
        assert [one.command for one in cli.commands if "InternalError" in one.err or "(5" in one.err] == []


@pytest.fixture
def cloud(running: tuple[RunningCloud, Network]) -> RunningCloud:
    return running[0]


@pytest.fixture
def network(running: tuple[RunningCloud, Network]) -> Network:
    return running[1]


@pytest.fixture
def instance(aws: AwsCli, network: Network) -> str:
    subnet = network.subnets["us-east-1a"]
    return aws.text(
        f"ec2 run-instances --image-id {network.image} --instance-type m7i.large --subnet-id {subnet}"
        f" --security-group-ids {network.group} --query Instances[0].InstanceId --output text"
        " --tag-specifications ResourceType=instance,Tags=[{Key=cli,Value=yes}]"
    )


def test_instances_are_launched_listed_and_terminated(aws: AwsCli, instance: str, network: Network) -> None:
    found = aws.json(f"ec2 describe-instances --instance-ids {instance}")["Reservations"][0]["Instances"][0]
    assert (found["InstanceType"], found["SubnetId"]) == ("m7i.large", network.subnets["us-east-1a"])
    query = "--query Reservations[].Instances[].InstanceId --output text"
    by_tag = "Name=tag:cli,Values=yes Name=instance-state-name,Values=pending,running"
    assert instance in aws.text(f"ec2 describe-instances --filters {by_tag} {query}").split()
    by_subnet = f"Name=network-interface.subnet-id,Values={found['SubnetId']}"
    assert instance in aws.text(f"ec2 describe-instances --filters {by_subnet} {query}").split()
    assert instance in aws.text("ec2 describe-instances --page-size 5 --output table")
    aws.text(f"ec2 wait instance-running --instance-ids {instance}")
    (status,) = aws.json(f"ec2 describe-instance-status --instance-ids {instance}")["InstanceStatuses"]
    assert status["InstanceState"]["Name"] == "running"
    aws.json(f"ec2 describe-instance-attribute --instance-id {instance} --attribute userData")
    aws.text(f"ec2 modify-instance-attribute --instance-id {instance} --disable-api-termination")
    assert aws.error(f"ec2 terminate-instances --instance-ids {instance}") == "OperationNotPermitted"
    aws.text(f"ec2 modify-instance-attribute --instance-id {instance} --no-disable-api-termination")
    assert f"console of {instance}" in aws.text(
        f"ec2 get-console-output --instance-id {instance} --output text"
    )
    (ending,) = aws.json(f"ec2 terminate-instances --instance-ids {instance}")["TerminatingInstances"]
    assert ending["CurrentState"]["Name"] == "shutting-down"


def test_instances_are_stopped_and_started(aws: AwsCli, cloud: RunningCloud, instance: str) -> None:
    cloud.clock.move(60)
    aws.json(f"ec2 stop-instances --instance-ids {instance}")
    cloud.clock.move(600)
    state = (
        f"ec2 describe-instances --instance-ids {instance} --query Reservations[0].Instances[0].State.Name"
    )
    assert aws.json(state) in ("stopping", "stopped")
    assert aws.error("ec2 start-instances --instance-ids i-00000000000000000") == "InvalidInstanceID.NotFound"
    aws.json(f"ec2 terminate-instances --instance-ids {instance}")


def test_errors_of_ec2(aws: AwsCli, network: Network) -> None:
    assert (
        aws.error("ec2 describe-instances --instance-ids i-00000000000000000") == "InvalidInstanceID.NotFound"
    )
    assert aws.error("ec2 describe-instances --instance-ids nonsense") == "InvalidInstanceID.Malformed"
    assert aws.error("ec2 describe-instances --filters Name=nonsense,Values=x") == "InvalidParameterValue"
    assert aws.error("ec2 describe-instances --filters Name=boot-mode,Values=x") == "UnsupportedOperation"
    assert (
        aws.error("ec2 terminate-instances --instance-ids i-00000000000000000")
        == "InvalidInstanceID.NotFound"
    )
    assert (
        aws.error("ec2 describe-subnets --subnet-ids subnet-00000000000000000") == "InvalidSubnetID.NotFound"
    )
    assert aws.error("ec2 describe-vpcs --vpc-ids vpc-00000000000000000") == "InvalidVpcID.NotFound"
    unknown = f"ec2 run-instances --image-id {network.image} --subnet-id {network.subnets['us-east-1a']}"
    assert aws.error(f"{unknown} --instance-type p9.huge") == "InvalidParameterValue"
    assert aws.error(f"{unknown} --instance-type m7i.large --dry-run") == "DryRunOperation"
    assert aws.error("ec2 reboot-instances --instance-ids i-00000000000000000") == "UnsupportedOperation"
    assert aws.error("ec2 describe-fleets") == "UnsupportedOperation"
    assert aws.error("ec2 describe-instances --region eu-west-1") == "OptInRequired"


def test_launch_templates_and_fleets(aws: AwsCli, network: Network) -> None:
    data = json.dumps(
        {"ImageId": network.image, "InstanceType": "p5.48xlarge", "SecurityGroupIds": [network.group]}
    )
    template = aws.text(
        f"ec2 create-launch-template --launch-template-name cli --launch-template-data '{data}'"
        " --query LaunchTemplate.LaunchTemplateId --output text"
    )
    again = f"ec2 create-launch-template --launch-template-name cli --launch-template-data '{data}'"
    assert aws.error(again) == "InvalidLaunchTemplateName.AlreadyExistsException"
    made = aws.json(
        f"ec2 create-launch-template-version --launch-template-id {template} --source-version 1"
        """ --launch-template-data '{"InstanceType":"p5en.48xlarge"}'"""
    )["LaunchTemplateVersion"]
    assert made["VersionNumber"] == 2
    versions = f"ec2 describe-launch-template-versions --launch-template-id {template}"
    (latest,) = aws.json(f"{versions} --versions '$Latest'")["LaunchTemplateVersions"]
    assert latest["LaunchTemplateData"]["InstanceType"] == "p5en.48xlarge"
    assert aws.json(f"{versions} --query length(LaunchTemplateVersions)") == 2
    aws.json(f"ec2 modify-launch-template --launch-template-id {template} --default-version 2")
    subnet = network.subnets["us-east-1a"]
    configs = json.dumps(
        [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": "1"},
                "Overrides": [{"SubnetId": subnet, "InstanceType": "p5.48xlarge"}],
            }
        ]
    )
    fleet = aws.json(
        "ec2 create-fleet --type instant --target-capacity-specification"
        f" TotalTargetCapacity=2,DefaultTargetCapacityType=on-demand --launch-template-configs '{configs}'"
    )
    ids = [one for group in fleet["Instances"] for one in group["InstanceIds"]]
    assert len(ids) == 2
    aws.json(f"ec2 terminate-instances --instance-ids {' '.join(ids)}")
    launch = f"ec2 run-instances --subnet-id {subnet} --launch-template LaunchTemplateId={template},Version"
    assert aws.error(f"{launch}=9") == "InvalidLaunchTemplateId.VersionNotFound"
    aws.json(f"ec2 delete-launch-template --launch-template-id {template}")
    assert aws.error(versions) == "InvalidLaunchTemplateId.NotFound"


def test_tags(aws: AwsCli, instance: str) -> None:
    aws.text(f"ec2 create-tags --resources {instance} --tags Key=a,Value=b Key=c,Value=")
    listed = f"ec2 describe-tags --filters Name=resource-id,Values={instance}"
    assert {one["Key"]: one["Value"] for one in aws.json(listed)["Tags"]} == {"cli": "yes", "a": "b", "c": ""}
    aws.text(f"ec2 delete-tags --resources {instance} --tags Key=a Key=c")
    assert [one["Key"] for one in aws.json(listed)["Tags"]] == ["cli"]
    assert (
        aws.error(f"ec2 create-tags --resources {instance} --tags Key=aws:a,Value=b")
        == "InvalidParameterValue"
    )
    assert aws.error("ec2 create-tags --resources vol-00000000000000000 --tags Key=a,Value=b").startswith(
        "Invalid"
    )
    aws.json(f"ec2 terminate-instances --instance-ids {instance}")


def test_volumes(aws: AwsCli, cloud: RunningCloud, instance: str) -> None:
    make = "ec2 create-volume --availability-zone us-east-1a --volume-type gp3 --size 10"
    volume = aws.text(f"{make} --query VolumeId --output text")
    cloud.clock.move(60)
    aws.text(f"ec2 wait volume-available --volume-ids {volume}")
    aws.json(f"ec2 attach-volume --volume-id {volume} --instance-id {instance} --device /dev/sdf")
    assert aws.error(f"ec2 delete-volume --volume-id {volume}") == "VolumeInUse"
    query = "--query Volumes[].VolumeId --output text"
    by_instance = f"ec2 describe-volumes --filters Name=attachment.instance-id,Values={instance} {query}"
    assert volume in aws.text(by_instance).split()
    aws.json(f"ec2 detach-volume --volume-id {volume}")
    cloud.clock.move(60)
    aws.json(f"ec2 modify-volume --volume-id {volume} --size 20")
    assert aws.error(f"ec2 modify-volume --volume-id {volume} --size 5") != ""
    aws.text(f"ec2 delete-volume --volume-id {volume}")
    assert aws.error(f"{make}0000000") != ""
    assert aws.error("ec2 create-snapshot --volume-id vol-00000000000000000") == "UnsupportedOperation"
    aws.json(f"ec2 terminate-instances --instance-ids {instance}")


def test_the_rest_of_ec2_parses(aws: AwsCli, network: Network) -> None:
    for command in (
        "describe-availability-zones",
        "describe-regions",
        "describe-account-attributes",
        "describe-key-pairs",
        "describe-capacity-reservations",
        "describe-instance-topology",
        "describe-placement-groups",
        "describe-nat-gateways",
        "describe-vpc-endpoints",
        "describe-addresses",
        "describe-internet-gateways",
        "describe-security-group-rules",
        f"describe-route-tables --filters Name=vpc-id,Values={network.vpc}",
        f"describe-subnets --filters Name=vpc-id,Values={network.vpc}",
        f"describe-network-interfaces --filters Name=vpc-id,Values={network.vpc}",
        "describe-images --owners self",
        "describe-instance-types --instance-types p5.48xlarge",
        "describe-instance-type-offerings --filters Name=instance-type,Values=p5.48xlarge",
    ):
        assert aws.json(f"ec2 {command}") != {}
    prices = aws.json("ec2 describe-spot-price-history --instance-types p5.48xlarge")["SpotPriceHistory"]
    assert all(float(one["SpotPrice"]) > 1 for one in prices)
    aws.json("ec2 create-placement-group --group-name cli --strategy cluster")
    assert aws.error("ec2 create-placement-group --group-name cli --strategy cluster") == (
        "InvalidPlacementGroup.Duplicate"
    )
    aws.text("ec2 delete-placement-group --group-name cli")


def test_iam_and_sts(aws: AwsCli) -> None:
    caller, user = aws.json("sts get-caller-identity"), aws.json("iam get-user")["User"]
    assert (caller["Arn"], caller["UserId"]) == (user["Arn"], user["UserId"])
    assert user["Arn"] in aws.text("iam list-users --query Users[].Arn --output text")
    aws.json(f"iam create-role --role-name cli --assume-role-policy-document '{json.dumps(DOCUMENT)}'")
    right = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}]}'
    aws.text(f"iam put-role-policy --role-name cli --policy-name p --policy-document '{right}'")
    assert aws.error("iam delete-role --role-name cli") == "DeleteConflict"
    assert aws.json("iam list-role-policies --role-name cli")["PolicyNames"] == ["p"]
    aws.json("iam create-instance-profile --instance-profile-name cli")
    aws.text("iam add-role-to-instance-profile --instance-profile-name cli --role-name cli")
    assert aws.error("iam get-role --role-name none") == "NoSuchEntity"
    assert aws.error("iam put-role-policy --role-name cli --policy-name p --policy-document {") == (
        "MalformedPolicyDocument"
    )
    assert aws.error("iam create-access-key") == "AccessDenied"
    assert aws.error("iam get-account-password-policy") == "NoSuchEntity"
    none = "arn:aws:iam::123456789012:role/none"
    assert aws.error(f"sts assume-role --role-arn {none} --role-session-name cli") == "AccessDenied"
    assert aws.error("sts get-session-token") == "InvalidAction"


def test_s3(aws: AwsCli, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/one").write_text("1\n")
    (tmp_path / "a/two").write_text("2\n")
    assert aws.text("s3 mb s3://cli-data") == "make_bucket: cli-data"
    aws.text(f"s3 cp --quiet {tmp_path}/a s3://cli-data/a --recursive")
    assert aws.text("s3 cp s3://cli-data/a/one -") == "1"
    assert [line.split()[-1] for line in aws.text("s3 ls s3://cli-data/a/").splitlines()] == ["one", "two"]
    aws.text(f"s3 sync --quiet s3://cli-data {tmp_path}/b")
    assert (tmp_path / "b/a/two").read_text() == "2\n"
    aws.text("s3 mv --quiet s3://cli-data/a/two s3://cli-data/three")
    keys = aws.json("s3api list-objects-v2 --bucket cli-data --query Contents[].Key")
    assert keys == ["a/one", "three"]
    versioning = "s3api put-bucket-versioning --bucket cli-data --versioning-configuration"
    aws.text(f"{versioning} Status=Enabled")
    assert aws.json("s3api get-bucket-versioning --bucket cli-data") == {"Status": "Enabled"}
    assert aws.error("s3api get-bucket-policy --bucket cli-data") == "NoSuchBucketPolicy"
    assert aws.error("s3api get-object --bucket cli-data --key none /dev/null") == "NoSuchKey"
    assert aws.error("s3api head-object --bucket cli-data --key none") == "404"
    assert aws.error("s3api list-objects-v2 --bucket cli-none") == "NoSuchBucket"
    put = f"s3api put-object --bucket cli-data --key three --body {tmp_path}/a/one"
    assert aws.error(f"{put} --if-none-match '*'") == "PreconditionFailed"
    assert aws.error("s3api delete-bucket --bucket cli-data") == "BucketNotEmpty"


def test_secrets(aws: AwsCli) -> None:
    aws.json("secretsmanager create-secret --name cli --secret-string one")
    assert aws.json("secretsmanager get-secret-value --secret-id cli --query SecretString") == "one"
    aws.json("secretsmanager put-secret-value --secret-id cli --secret-string two")
    aws.json("secretsmanager describe-secret --secret-id cli")
    elsewhere = "secretsmanager describe-secret --secret-id cli --region eu-west-1"
    assert aws.error(elsewhere) == "InvalidSignatureException"
    assert "cli" in aws.json("secretsmanager list-secrets --query SecretList[].Name")
    assert aws.error("secretsmanager get-secret-value --secret-id none") == "ResourceNotFoundException"
    aws.json("secretsmanager delete-secret --secret-id cli")
    assert aws.error("secretsmanager create-secret --name cli --secret-string x") == "InvalidRequestException"


def test_ssm(aws: AwsCli, instance: str) -> None:
    aws.json("ssm put-parameter --name /cli --value one --type String")
    assert aws.json("ssm get-parameter --name /cli --query Parameter.Value") == "one"
    assert aws.error("ssm get-parameter --name /none") == "ParameterNotFound"
    assert aws.error("ssm put-parameter --name /cli --value two --type String") == "ParameterAlreadyExists"
    send = "ssm send-command --document-name AWS-RunShellScript --parameters commands=true --instance-ids"
    assert aws.error(f"{send} {instance}") == "InvalidInstanceId"
    aws.json(f"ec2 terminate-instances --instance-ids {instance}")
    assert aws.error(f"{send} {instance}") == "InvalidInstanceId"
    assert aws.error(f"ssm start-session --target {instance}") == "UnsupportedOperation"


def test_queues_and_events(aws: AwsCli, cloud: RunningCloud) -> None:
    url = aws.text("sqs create-queue --queue-name cli --query QueueUrl --output text")
    assert url.startswith(cloud.endpoint)
    aws.json(f"sqs send-message --queue-url {url} --message-body hello")
    (message,) = aws.json(f"sqs receive-message --queue-url {url}")["Messages"]
    assert message["Body"] == "hello"
    aws.text(f"sqs delete-message --queue-url {url} --receipt-handle '{message['ReceiptHandle']}'")
    assert url in aws.json("sqs list-queues")["QueueUrls"]
    assert aws.error("sqs get-queue-url --queue-name none").endswith("NonExistentQueue")
    aws.text(f"sqs delete-queue --queue-url {url}")
    assert aws.error("sqs create-queue --queue-name cli").endswith("QueueDeletedRecently")
    aws.json("""events put-rule --name cli --event-pattern '{"source":["aws.ec2"]}'""")
    arn = "arn:aws:sqs:us-east-1:123456789012:cli"
    assert aws.json(f"events put-targets --rule cli --targets Id=1,Arn={arn}")["FailedEntryCount"] == 0
    assert aws.error("events delete-rule --name cli") == "ValidationException"
    assert aws.error("events describe-rule --name none") == "ResourceNotFoundException"


def test_file_systems(aws: AwsCli, cloud: RunningCloud, network: Network) -> None:
    subnet = network.subnets["us-east-1a"]
    home = aws.text("efs create-file-system --creation-token cli --query FileSystemId --output text")
    target = f"efs create-mount-target --file-system-id {home} --subnet-id {subnet}"
    assert aws.error(target) == "IncorrectFileSystemLifeCycleState"
    cloud.clock.move(600)
    aws.json(target)
    assert aws.error(target) == "MountTargetConflict"
    cloud.clock.move(600)
    assert aws.json("efs describe-mount-targets --file-system-id " + home)["MountTargets"] != []
    assert aws.error(f"efs delete-file-system --file-system-id {home}") == "FileSystemInUse"
    assert (
        aws.error("efs describe-file-systems --file-system-id fs-00000000000000000") == "FileSystemNotFound"
    )
    lustre = (
        "fsx create-file-system --file-system-type LUSTRE --lustre-configuration DeploymentType=SCRATCH_2"
    )
    assert aws.error(f"{lustre} --storage-capacity 1300 --subnet-ids {subnet}") == "BadRequest"
    assert aws.json("fsx describe-file-systems") == {"FileSystems": []}
    assert (
        aws.error("fsx describe-file-systems --file-system-ids fs-00000000000000000") == "FileSystemNotFound"
    )
    assert aws.error("fsx create-backup --file-system-id fs-00000000000000000") == "UnsupportedOperation"


def test_budgets_and_quotas(aws: AwsCli) -> None:
    of = "--account-id 123456789012"
    budget = "BudgetName=cli,BudgetLimit={Amount=5,Unit=USD},TimeUnit=MONTHLY,BudgetType=COST"
    aws.text(f"budgets create-budget {of} --budget {budget}")
    assert aws.error(f"budgets create-budget {of} --budget {budget}") == "DuplicateRecordException"
    (found,) = aws.json(f"budgets describe-budgets {of}")["Budgets"]
    assert found["BudgetName"] == "cli"
    assert aws.error(f"budgets describe-budget {of} --budget-name none") == "NotFoundException"
    quota = "service-quotas get-service-quota --service-code ec2 --quota-code"
    assert aws.json(f"{quota} L-417A185B")["Quota"]["Adjustable"] is True
    assert aws.error(f"{quota} L-00000000") == "NoSuchResourceException"
    assert len(aws.json("service-quotas list-service-quotas --service-code ec2")["Quotas"]) > 1


@pytest.mark.parametrize(
    "command",
    [
        "ce get-cost-and-usage --time-period Start=2026-01-01,End=2026-01-02 --granularity DAILY --metrics A",
        "pricing get-products --service-code AmazonEC2",
        "cloudwatch list-metrics",
        "cloudtrail lookup-events",
        "batch describe-job-queues",
        "resourcegroupstaggingapi get-resources",
        "dynamodb list-tables",
        "lambda list-functions",
        "route53 list-hosted-zones",
        "autoscaling describe-auto-scaling-groups",
        "sns list-topics",
    ],
)
def test_an_absent_service_is_refused_by_name(aws: AwsCli, command: str) -> None:
    assert aws.error(command) == "UnknownService"
    assert "the sandbox has no service" in aws.commands[-1].err
