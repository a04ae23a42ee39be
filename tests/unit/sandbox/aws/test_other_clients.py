"""Requests of the AWS CLI that our own clients never send. Each test names the fault that it guards against."""

from typing import Any

import pytest
from support.clouds import SESSION, Network, RunningCloud, code_of, error_of

pytestmark = pytest.mark.loopback


@pytest.fixture
def instance(ec2: Any, network: Network) -> str:
    template = {"LaunchTemplateId": network.template, "Version": "1"}
    made = ec2.run_instances(
        LaunchTemplate=template, SubnetId=network.subnets["us-east-1a"], MinCount=1, MaxCount=1
    )
    return made["Instances"][0]["InstanceId"]


@pytest.mark.parametrize("ended", [True, False])
def test_command_on_a_machine_is_refused(cloud: RunningCloud, ec2: Any, instance: str, ended: bool) -> None:
    """moto reported success, also on a terminated instance. The instance has no role, so no agent of it is registered."""
    if ended:
        ec2.terminate_instances(InstanceIds=[instance])
    ssm = cloud.client("ssm")
    code = code_of(ssm.send_command, InstanceIds=[instance], DocumentName="AWS-RunShellScript")
    assert code == "InvalidInstanceId"
    assert ssm.list_commands()["Commands"] == []


@pytest.mark.parametrize(
    ("service", "call", "asked"),
    [
        ("pricing", "get_products", {"ServiceCode": "AmazonEC2"}),  # json
        ("cloudwatch", "list_metrics", {}),  # smithy-rpc-v2-cbor
        ("cloudtrail", "lookup_events", {}),
        ("batch", "describe_job_queues", {}),  # rest-json
        ("resourcegroupstaggingapi", "get_resources", {}),
        ("dynamodb", "list_tables", {}),
        ("lambda", "list_functions", {}),
        ("autoscaling", "describe_auto_scaling_groups", {}),  # query
        ("route53", "list_hosted_zones", {}),  # rest-xml
    ],
)
def test_absent_service_is_refused_in_its_own_protocol(
    cloud: RunningCloud, service: str, call: str, asked: dict[str, Any]
) -> None:
    """Regression: all answers were XML, which JSON clients cannot read."""
    error = error_of(getattr(cloud.client(service), call), **asked).response["Error"]
    assert error["Code"] == "UnknownService"
    assert error["Message"].startswith("the sandbox has no service")


def test_absent_service_refuses_a_wrong_key_in_its_own_protocol(cloud: RunningCloud) -> None:
    from gpucluster.sandbox.aws.credentials import Key, Principal

    wrong = Key(access_key="AKIANOBODY0000000001", secret="x", principal=Principal(arn="", user_id=""))
    for service, call in (
        ("dynamodb", "list_tables"),
        ("batch", "describe_job_queues"),
        ("cloudwatch", "list_metrics"),
    ):
        assert code_of(getattr(cloud.client(service, wrong), call)) == "UnrecognizedClientException"


def test_instances_by_the_subnet_of_their_interface(ec2: Any, network: Network, instance: str) -> None:
    def found(name: str, value: str) -> list[str]:
        pages = ec2.describe_instances(Filters=[{"Name": name, "Values": [value]}])["Reservations"]
        return [one["InstanceId"] for page in pages for one in page["Instances"]]

    interface = ec2.describe_network_interfaces(
        Filters=[{"Name": "attachment.instance-id", "Values": [instance]}]
    )["NetworkInterfaces"][0]
    assert found("network-interface.subnet-id", network.subnets["us-east-1a"]) == [instance]
    assert found("network-interface.subnet-id", network.subnets["us-east-1b"]) == []
    assert found("network-interface.vpc-id", network.vpc) == [instance]
    assert found("network-interface.network-interface-id", interface["NetworkInterfaceId"]) == [instance]
    assert found("root-device-type", "ebs") == [instance]


def test_documented_filter_that_the_sandbox_lacks_is_refused_by_name(ec2: Any) -> None:
    """Regression: the code was InvalidParameterValue, which means that EC2 has no such filter."""
    lacks = error_of(ec2.describe_instances, Filters=[{"Name": "boot-mode", "Values": ["uefi"]}])
    assert lacks.response["Error"]["Code"] == "UnsupportedOperation"
    assert "'boot-mode'" in str(lacks)
    unknown = {"Filters": [{"Name": "boot-moed", "Values": ["uefi"]}]}
    assert code_of(ec2.describe_instances, **unknown) == "InvalidParameterValue"


def test_urls_of_queues_have_the_port(cloud: RunningCloud) -> None:
    sqs = cloud.client("sqs")
    url = sqs.create_queue(QueueName="with-a-port")["QueueUrl"]
    assert url == f"{cloud.endpoint}/123456789012/with-a-port"
    assert sqs.get_queue_url(QueueName="with-a-port")["QueueUrl"] == url
    assert url in sqs.list_queues()["QueueUrls"]
    sqs.send_message(QueueUrl=url, MessageBody='"QueueUrl": "http://127.0.0.1/"')
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == '"QueueUrl": "http://127.0.0.1/"'


def test_iam_and_sts_name_the_same_user(cloud: RunningCloud) -> None:
    iam, caller = cloud.client("iam"), cloud.client("sts").get_caller_identity()
    user = iam.get_user()["User"]
    assert (user["Arn"], user["UserId"]) == (caller["Arn"], caller["UserId"])
    assert iam.get_user(UserName=user["UserName"])["User"]["Arn"] == caller["Arn"]
    keys = iam.list_access_keys()["AccessKeyMetadata"]
    assert [one["AccessKeyId"] for one in keys] == [cloud.api.operator.access_key]


def test_role_has_no_user(cloud: RunningCloud) -> None:
    iam = cloud.client("iam")
    trust = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]}'
    right = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "iam:GetUser", "Resource": "*"}]}'
    role = iam.create_role(RoleName="who", AssumeRolePolicyDocument=trust)["Role"]
    iam.put_role_policy(RoleName="who", PolicyName="who", PolicyDocument=right)
    key = cloud.api.ring.assumed("who", role["RoleId"], "session", cloud.clock.now, 3600)
    assert code_of(cloud.client("iam", key).get_user) == "ValidationError"


def test_spot_prices_are_of_today_and_near_the_price_list(cloud: RunningCloud, ec2: Any) -> None:
    """Regression: each price was 0.00001 USD, dated 2006."""
    asked = {"InstanceTypes": ["p5.48xlarge"], "ProductDescriptions": ["Linux/UNIX"]}
    rows = ec2.describe_spot_price_history(**asked)["SpotPriceHistory"]
    assert {row["AvailabilityZone"] for row in rows} >= {"us-east-1a", "us-east-1b"}
    assert {10 < float(row["SpotPrice"]) < 60 for row in rows} == {True}
    assert {0 <= cloud.clock.now - row["Timestamp"].timestamp() < 86400 for row in rows} == {True}


def test_spot_prices_are_those_of_the_scenario(cloud: RunningCloud, ec2: Any) -> None:
    cloud.control.set_spot_price("p5.48xlarge", "us-east-1a", 12_345_678)
    asked = {"InstanceTypes": ["p5.48xlarge"], "AvailabilityZone": "us-east-1a"}
    (row,) = ec2.describe_spot_price_history(**asked)["SpotPriceHistory"]
    assert row["SpotPrice"] == "12.345678"
    assert ec2.describe_spot_price_history(InstanceTypes=["x9.none"])["SpotPriceHistory"] == []


@pytest.mark.parametrize(
    ("service", "call"),
    [("secretsmanager", "list_secrets"), ("sqs", "list_queues"), ("efs", "describe_file_systems")],
)
def test_request_for_another_region_is_refused(cloud: RunningCloud, service: str, call: str) -> None:
    """moto kept a second, empty account in each Region. An endpoint of AWS takes only signatures for its own Region."""
    key = cloud.api.operator
    other = SESSION.client(
        service,
        region_name="eu-west-1",
        endpoint_url=cloud.endpoint,
        aws_access_key_id=key.access_key,
        aws_secret_access_key=key.secret,
    )
    assert code_of(getattr(other, call)) == "InvalidSignatureException"
