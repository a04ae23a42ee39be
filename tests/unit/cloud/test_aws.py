"""What the client does beside the port's rows: arguments, paging, and errors that come from no service."""

from typing import Any

import botocore.exceptions as boto
import pytest
from support.clouds import OPERATOR, a_network, running_cloud
from support.launches import launch_call

from gpucluster.cloud.aws import _READ, AwsCloud, client_config, launch_arguments, translated, view
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import CloudError, Control, Fault, InstanceState, LaunchCall, Scaling
from gpucluster.plan import names
from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.client import ModelControl


def a_request(market: Market = Market.SPOT) -> LaunchCall:
    return launch_call(
        count=4, template_version=3, machine="p5.48xlarge", market=market, tags={"b": "2", "a": "1"}
    )


def test_t15_a_launch_names_its_version_and_asks_all_or_none():
    asked = launch_arguments(a_request())
    assert asked["LaunchTemplate"] == {"LaunchTemplateId": "lt-1", "Version": "3"}
    assert asked["MinCount"] == asked["MaxCount"] == 4
    assert asked["InstanceMarketOptions"]["MarketType"] == "spot"


def test_t17_owner_tags_reach_all_that_is_made():
    tags = {t["ResourceType"]: t["Tags"] for t in launch_arguments(a_request())["TagSpecifications"]}
    assert set(tags) == {"instance", "volume", "network-interface", "spot-instances-request"}
    assert all(t == [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}] for t in tags.values())


def test_on_demand_names_no_market_and_no_spot_request():
    asked = launch_arguments(a_request(Market.ON_DEMAND))
    assert "InstanceMarketOptions" not in asked
    assert "spot-instances-request" not in {t["ResourceType"] for t in asked["TagSpecifications"]}


def test_launches_are_not_retried_by_the_sdk():
    made: list[Any] = []

    def client(config: Any) -> Any:
        made.append(config)
        return NoCloud()

    with pytest.raises(CloudError):
        AwsCloud("us-east-1", client).launch(a_request())
    assert made[0].retries["total_max_attempts"] == 1
    reading: Any = client_config(attempts=3, read_timeout_s=1)
    assert reading.retries["total_max_attempts"] == 3


class NoCloud:
    """A client whose endpoint does not answer."""

    def run_instances(self, **_: Any) -> Any:
        raise boto.EndpointConnectionError(endpoint_url="http://nowhere")


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (boto.EndpointConnectionError(endpoint_url="x"), Fault.LOST),
        (boto.ConnectTimeoutError(endpoint_url="x"), Fault.LOST),
        (boto.ReadTimeoutError(endpoint_url="x"), Fault.LOST),
        (boto.ConnectionClosedError(endpoint_url="x"), Fault.LOST),
        (boto.HTTPClientError(error="x"), Fault.LOST),
        (boto.IncompleteReadError(actual_bytes=1, expected_bytes=2), Fault.LOST),
        (boto.NoCredentialsError(), Fault.CONFIGURATION),
        (boto.ParamValidationError(report="x"), Fault.CONFIGURATION),
        (boto.CredentialRetrievalError(provider="x", error_msg="y"), Fault.THROTTLED),
        (boto.ClientError({"Error": {"Code": "RequestLimitExceeded", "Message": ""}}, "X"), Fault.THROTTLED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_boto3_error_has_a_class(error: Exception, fault: Fault):
    with pytest.raises(CloudError) as caught, translated():
        raise error
    assert caught.value.fault is fault
    assert caught.value.__cause__ is error


def test_instance_with_only_an_id_is_parsed():
    seen = view({"InstanceId": "i-1"})
    assert (seen.id, seen.state, seen.address, seen.token, seen.tags) == (
        "i-1",
        InstanceState.PENDING,
        None,
        None,
        {},
    )


@pytest.mark.loopback
def test_all_pages_of_instances_are_listed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpucluster.cloud.aws._PAGE", 5)
    with running_cloud() as cloud:
        network = a_network(cloud)
        port = AwsCloud("us-east-1", lambda _: cloud.client("ec2"))
        tags = {names.TAG_CLUSTER: "burst", names.TAG_ROLE: names.ROLE_NODE}
        request = launch_call(
            token="t",
            count=23,
            template_id=network.template,
            subnet_id=network.subnets["us-east-1a"],
            zone="us-east-1a",
            machine="p5.48xlarge",
            tags=tags,
        )
        ids = port.launch(request)
        listed = [i.id for i in port.instances("burst")]
        assert sorted(listed) == sorted(ids)
        assert len([c for c in cloud.model.trail if c.action == "DescribeInstances"]) == 5


@pytest.mark.loopback
def test_narrow_answers_say_what_whole_ones_say(monkeypatch: pytest.MonkeyPatch):
    """botocore parses only what is read: the daemon's own client gives the instances that boto3's client gives."""
    with running_cloud() as cloud:
        network = a_network(cloud)
        plain = AwsCloud("us-east-1", lambda _: cloud.client("ec2"))
        for name, value in zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), OPERATOR, strict=True):
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.endpoint)
        own = AwsCloud("us-east-1")
        tags = {names.TAG_CLUSTER: "burst", names.TAG_ROLE: names.ROLE_NODE}
        ids: list[str] = []
        for number, market in enumerate((Market.SPOT, Market.ON_DEMAND)):
            request = launch_call(
                token=f"t{number}", count=3, template_id=network.template, subnet_id=network.subnets["us-east-1a"],
                zone="us-east-1a", machine="p5.48xlarge", market=market, tags=tags,
            )  # fmt: skip
            made = own.launch(request)
            assert made == plain.launch(request), "the same token gives the same instances"
            ids += made
        own.terminate(ids[:1])
        assert sorted(own.instances("burst"), key=lambda i: i.id) == sorted(
            plain.instances("burst"), key=lambda i: i.id
        )
        assert {i.id for i in own.instances("burst")} <= set(ids)
        reader, launcher = own._clients()
        answer: Any = reader.describe_instances()
        assert set(answer["Reservations"][0]["Instances"][0]) <= set(_READ)
        wanted = launch_arguments(launch_call(token="t9", count=1, template_id=network.template, subnet_id=network.subnets["us-east-1a"], machine="p5.48xlarge"))  # fmt: skip
        again: Any = launcher.run_instances(**wanted)
        assert [set(i) for i in again["Instances"]] == [{"InstanceId"}]


def test_control_object_of_the_model_stops_or_is_unreadable():
    control = ModelControl()
    assert control.read() == Control()
    control.scale(Scaling.STOP, "down")
    assert control.read().scaling is Scaling.STOP
    control.readable = False
    with pytest.raises(CloudError):
        control.read()


def test_late_credentials_are_found(monkeypatch: pytest.MonkeyPatch):
    """A daemon that started while the metadata service did not answer stood without a word, for good (soak, 2026-11-21)."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent"),
        ("AWS_CONFIG_FILE", "/nonexistent"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
    ):
        monkeypatch.setenv(name, value)
    cloud, control = AwsCloud("us-east-1"), S3Control("us-east-1", "b")
    for ask in (lambda: cloud.instances("c"), control.read):
        with pytest.raises(CloudError, match="NoCredentialsError"):
            ask()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    for ask in (lambda: cloud.instances("c"), control.read):
        with pytest.raises(CloudError) as found:
            ask()
        assert found.value.fault is Fault.LOST, "asked, with nobody there"
