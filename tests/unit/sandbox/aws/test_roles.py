"""Keys of roles over loopback: exactly the permissions of the program's own policies."""

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError
from support.clouds import Network, RunningCloud, a_network, running_cloud
from support.launches import launch_call, with_changes

from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import CloudError, Control, Fault, LaunchCall
from gpucluster.plan import names
from gpucluster.plan.iam_policies import HeadScope, NodeScope, head_policy, node_policy
from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.credentials import Key

pytestmark = pytest.mark.loopback
TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
        ],
    }
)
BASE = "arn:aws:ec2:us-east-1:123456789012"
BUCKET = "burst-bucket"
RESERVED = "cr-0123456789abcdef0"


@dataclass
class Cluster:
    """Return a cloud with the roles of the program."""

    cloud: RunningCloud
    network: Network
    secret: str
    head: Key
    node: Key

    def request(self, **change: Any) -> LaunchCall:
        tags = {names.TAG_CLUSTER: "burst", names.TAG_ROLE: names.ROLE_NODE, names.TAG_REQUEST: "r1"}
        base = launch_call(
            token="t",
            count=1,
            template_id=self.network.template,
            template_version=1,
            subnet_id=self.network.subnets["us-east-1a"],
            zone="us-east-1a",
            machine="p5.48xlarge",
            market=Market.SPOT,
            tags=tags,
        )
        return with_changes(base, **change)

    def port(self, key: Key) -> AwsCloud:
        return AwsCloud("us-east-1", lambda _: self.cloud.client("ec2", key))


@pytest.fixture(scope="module")
def made() -> Generator[Cluster, None, None]:
    with running_cloud() as cloud:
        for role in ("head-role", "node-role"):
            cloud.client("iam").create_role(RoleName=role, AssumeRolePolicyDocument=TRUST)
        iam = cloud.client("iam")
        iam.create_instance_profile(InstanceProfileName="node-profile")
        iam.add_role_to_instance_profile(InstanceProfileName="node-profile", RoleName="node-role")
        network = a_network(cloud, IamInstanceProfile={"Name": "node-profile"})
        ours = [{"Key": names.TAG_CLUSTER, "Value": "burst"}]
        cloud.client("ec2").create_tags(Resources=[network.template], Tags=ours)
        secret = cloud.client("secretsmanager").create_secret(Name="burst-munge")["ARN"]
        cloud.client("s3").create_bucket(Bucket=BUCKET)
        put_policies(cloud, network, secret)
        ring, now = cloud.api.ring, cloud.clock.now
        head = ring.session("head-role", "AROAHEAD", "i-0000000000000000a", now)
        node = ring.session("node-role", "AROANODE", "i-0000000000000000b", now)
        yield Cluster(cloud, network, secret, head, node)


def put_policies(cloud: RunningCloud, network: Network, secret: str) -> None:
    scope = HeadScope(
        cluster="burst",
        region="us-east-1",
        account="123456789012",
        image=network.image,
        machines=["p5.48xlarge"],
        subnets=[f"{BASE}:subnet/{s}" for s in network.subnets.values()],
        node_group=f"{BASE}:security-group/{network.group}",
        node_role="arn:aws:iam::123456789012:role/node-role",
        bucket=f"arn:aws:s3:::{BUCKET}",
        secret=secret,
        queue="arn:aws:sqs:us-east-1:123456789012:burst-events",
        spot=True,
        fleet=True,
        reservations=[RESERVED],
    )
    iam = cloud.client("iam")
    iam.put_role_policy(RoleName="head-role", PolicyName="head", PolicyDocument=head_policy(scope))
    node = node_policy(NodeScope(bucket=scope.bucket, secret=secret))
    iam.put_role_policy(RoleName="node-role", PolicyName="node", PolicyDocument=node)


@pytest.fixture
def cluster(made: Cluster) -> Cluster:
    made.cloud.fresh()
    return made


def refused(call: Callable[[], object]) -> str:
    with pytest.raises((CloudError, ClientError)) as caught:
        call()
    error: Any = caught.value
    code = error.code if isinstance(error, CloudError) else error.response["Error"]["Code"]
    assert code in {"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"}, error
    return str(error)


def test_head_launches_lists_and_ends_its_nodes(cluster: Cluster):
    port, model = cluster.port(cluster.head), cluster.cloud.model
    for market in Market:
        block = market is Market.CAPACITY_BLOCK
        held = model.reserve("p5.48xlarge", "us-east-1a", 1, id=RESERVED, block=block)
        reservation = held if block or market is Market.RESERVATION else None
        request = cluster.request(token=f"launch-{market}", market=market, reservation=reservation)
        ids = port.launch(request)
        assert {i.id for i in port.instances("burst")} >= set(ids)
        port.terminate(ids)


def test_dry_run_of_the_head_tries_rights_and_parameters_and_launches_nothing(cluster: Cluster):
    port, model = cluster.port(cluster.head), cluster.cloud.model
    port.try_launch(cluster.request())
    model.reserve("p5.48xlarge", "us-east-1a", 0, id=RESERVED)  # a full one: capacity is not tried
    port.try_launch(cluster.request(market=Market.RESERVATION, reservation=RESERVED))
    assert "UnauthorizedOperation" in refused(lambda: port.try_launch(cluster.request(tags={})))
    assert "UnauthorizedOperation" in refused(
        lambda: cluster.port(cluster.node).try_launch(cluster.request())
    )
    with pytest.raises(CloudError, match=r"InvalidLaunchTemplateId\.VersionNotFound") as wrong:
        port.try_launch(cluster.request(template_version=9))
    assert wrong.value.fault is Fault.CONFIGURATION
    assert port.instances("burst") == ()
    assert port.launch(cluster.request())  # the token is still new


@pytest.mark.parametrize(
    ("sentence", "tags"),
    [
        ("no cluster's tag", {names.TAG_ROLE: "node"}),
        ("another cluster's tag", {names.TAG_CLUSTER: "other"}),
        ("no tag at all", {}),
    ],
)
def test_head_cannot_launch_for_other_clusters(cluster: Cluster, sentence: str, tags: dict[str, str]):
    request = cluster.request(token=sentence, tags=tags)
    text = refused(lambda: cluster.port(cluster.head).launch(request))
    assert "perform: ec2:RunInstances on resource: arn:aws:ec2:us-east-1:123456789012:instance/*" in text


def test_head_cannot_launch_from_other_templates(cluster: Cluster):
    ec2 = cluster.cloud.client("ec2")
    content = {"ImageId": cluster.network.image, "InstanceType": "p5.48xlarge"}
    other = ec2.create_launch_template(LaunchTemplateName="other", LaunchTemplateData=content)
    template = other["LaunchTemplate"]["LaunchTemplateId"]
    refused(lambda: cluster.port(cluster.head).launch(cluster.request(token="o", template_id=template)))


def test_launch_without_a_template_is_refused(cluster: Cluster):
    ec2 = cluster.cloud.client("ec2", cluster.head)
    subnet = cluster.network.subnets["us-east-1a"]
    refused(
        lambda: ec2.run_instances(
            ImageId=cluster.network.image, InstanceType="p5.48xlarge", SubnetId=subnet, MinCount=1, MaxCount=1
        )
    )


def test_t37_profile_needs_the_right_to_pass_its_role(cluster: Cluster):
    iam = cluster.cloud.client("iam")
    text = iam.get_role_policy(RoleName="head-role", PolicyName="head")["PolicyDocument"]
    kept = [s for s in text["Statement"] if s["Action"] != ["iam:PassRole"]]
    without = json.dumps({**text, "Statement": kept})
    iam.put_role_policy(RoleName="head-role", PolicyName="head", PolicyDocument=without)
    try:
        assert "iam:PassRole" in refused(
            lambda: cluster.port(cluster.head).launch(cluster.request(token="p"))
        )
    finally:
        iam.put_role_policy(RoleName="head-role", PolicyName="head", PolicyDocument=json.dumps(text))


def test_head_cannot_terminate_other_instances_or_itself(cluster: Cluster):
    for number, tags in enumerate(
        (
            {names.TAG_CLUSTER: "other", names.TAG_ROLE: "node"},
            {names.TAG_CLUSTER: "burst", names.TAG_ROLE: "head"},
            {},
        )
    ):
        ids = cluster.port(cluster.cloud.api.operator).launch(cluster.request(token=f"e{number}", tags=tags))
        refused(lambda ids=ids: cluster.port(cluster.head).terminate(ids))
        assert ids[0] in {i.id for i in cluster.cloud.model.wanted(cluster.cloud.clock.now)}


def test_head_cannot_tag_existing_resources(cluster: Cluster):
    operator = cluster.port(cluster.cloud.api.operator)
    (other,) = operator.launch(cluster.request(token="g", tags={}))
    ec2 = cluster.cloud.client("ec2", cluster.head)
    tags = [{"Key": names.TAG_CLUSTER, "Value": "burst"}]
    refused(lambda: ec2.create_tags(Resources=[other], Tags=tags))


def test_node_cannot_launch_list_or_terminate(cluster: Cluster):
    port = cluster.port(cluster.node)
    refused(lambda: port.launch(cluster.request(token="n")))
    refused(lambda: port.instances("burst"))
    refused(lambda: port.terminate(["i-0123456789abcdef0"]))


def test_objects_are_read_and_written_by_name(cluster: Cluster):
    operator, head, node = (cluster.cloud.client("s3", k) for k in (None, cluster.head, cluster.node))
    operator.put_object(Bucket=BUCKET, Key=names.BUNDLE_KEY, Body=b"bundle")
    for who in (head, node):
        assert who.get_object(Bucket=BUCKET, Key=names.BUNDLE_KEY)["Body"].read() == b"bundle"
    head.put_object(Bucket=BUCKET, Key=names.STATUS_KEY, Body=b"{}")
    refused(lambda: head.put_object(Bucket=BUCKET, Key=names.BUNDLE_KEY, Body=b"x"))
    refused(lambda: node.put_object(Bucket=BUCKET, Key=names.STATUS_KEY, Body=b"x"))
    refused(lambda: node.get_object(Bucket=BUCKET, Key=names.CONTROL_KEY))
    refused(lambda: head.delete_object(Bucket=BUCKET, Key=names.STATUS_KEY))
    refused(lambda: head.delete_bucket(Bucket=BUCKET))
    refused(lambda: node.list_objects_v2(Bucket=BUCKET))
    refused(node.list_buckets)


def test_missing_object_is_404_only_with_list_permission(cluster: Cluster):
    cluster.cloud.client("s3").delete_object(Bucket=BUCKET, Key=names.CONTROL_KEY)
    cluster.cloud.client("s3").delete_object(Bucket=BUCKET, Key=names.BUNDLE_KEY)
    control = S3Control("us-east-1", BUCKET, lambda: cluster.cloud.client("s3", cluster.head))
    assert control.read() == Control()
    refused(lambda: cluster.cloud.client("s3", cluster.node).get_object(Bucket=BUCKET, Key=names.BUNDLE_KEY))


def test_key_is_put_by_the_head_and_read_by_nodes(cluster: Cluster):
    head, node = (cluster.cloud.client("secretsmanager", k) for k in (cluster.head, cluster.node))
    head.put_secret_value(SecretId=cluster.secret, SecretBinary=b"munge")
    assert node.get_secret_value(SecretId=cluster.secret)["SecretBinary"] == b"munge"
    assert node.get_secret_value(SecretId="burst-munge")["SecretBinary"] == b"munge"
    refused(lambda: node.put_secret_value(SecretId=cluster.secret, SecretBinary=b"x"))
    refused(lambda: node.get_secret_value(SecretId="another"))
    refused(node.list_secrets)


def test_role_cannot_change_policies_or_inject_faults(cluster: Cluster):
    iam = cluster.cloud.client("iam", cluster.head)
    everything = json.dumps({"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
    refused(lambda: iam.put_role_policy(RoleName="head-role", PolicyName="x", PolicyDocument=everything))

    from gpucluster.errors import GpuclusterError
    from gpucluster.sandbox.aws.scenario_client import SandboxControl

    with pytest.raises(GpuclusterError, match="refused"):
        SandboxControl(cluster.cloud.endpoint, cluster.head.access_key, cluster.head.secret).set_capacity(
            free=0
        )


def test_policy_that_the_sandbox_cannot_evaluate_is_refused(cluster: Cluster):
    iam = cluster.cloud.client("iam")
    when = {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}
    document = json.dumps(
        {"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": when}]}
    )
    with pytest.raises(ClientError, match="IpAddress"):
        iam.put_role_policy(RoleName="node-role", PolicyName="x", PolicyDocument=document)


def test_role_without_policies_can_only_get_its_identity(cluster: Cluster):
    cluster.cloud.client("iam").create_role(RoleName="bare", AssumeRolePolicyDocument=TRUST)
    key = cluster.cloud.api.ring.session("bare", "AROABARE", "i-0000000000000000c", cluster.cloud.clock.now)
    assert cluster.cloud.client("sts", key).get_caller_identity()["Account"] == "123456789012"
    refused(lambda: cluster.cloud.client("ec2", key).describe_vpcs())


def test_refusal_is_a_configuration_fault(cluster: Cluster):
    with pytest.raises(CloudError) as caught:
        cluster.port(cluster.node).launch(cluster.request(token="c"))
    assert caught.value.fault is Fault.CONFIGURATION
