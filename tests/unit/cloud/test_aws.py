"""What the client does beside the port's rows: arguments, paging, and errors that come from no service."""

from typing import Any

import botocore.exceptions as boto
import pytest
from clouds import a_network, running_cloud

from gpucluster.cloud.aws import AwsCloud, client_config, launch_arguments, translated, view
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.model import ModelControl
from gpucluster.cloud.port import CloudError, Control, Fault, InstanceState, LaunchRequest, Scaling
from gpucluster.plan import names
from gpucluster.plan.model import Market


def a_request(market: Market = Market.SPOT) -> LaunchRequest:
    return LaunchRequest(
        token="t",
        count=4,
        template_id="lt-1",
        template_version=3,
        subnet_id="subnet-1",
        zone="us-east-1a",
        machine="p5.48xlarge",
        market=market,
        tags={"b": "2", "a": "1"},
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
def test_every_error_of_boto3_has_a_meaning(error: Exception, fault: Fault):
    with pytest.raises(CloudError) as caught, translated():
        raise error
    assert caught.value.fault is fault
    assert caught.value.__cause__ is error


def test_an_instance_of_which_only_the_id_is_known_can_be_listed():
    seen = view({"InstanceId": "i-1"})
    assert (seen.id, seen.state, seen.address, seen.token, seen.tags) == (
        "i-1",
        InstanceState.PENDING,
        None,
        None,
        {},
    )


@pytest.mark.loopback
def test_more_instances_than_a_page_are_all_listed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpucluster.cloud.aws._PAGE", 5)
    with running_cloud() as cloud:
        network = a_network(cloud)
        port = AwsCloud("us-east-1", lambda _: cloud.client("ec2"))
        tags = {names.TAG_CLUSTER: "burst", names.TAG_ROLE: names.ROLE_NODE}
        request = LaunchRequest(
            token="t",
            count=23,
            template_id=network.template,
            template_version=1,
            subnet_id=network.subnets["us-east-1a"],
            zone="us-east-1a",
            machine="p5.48xlarge",
            market=Market.SPOT,
            tags=tags,
        )
        ids = port.launch(request)
        listed = [i.id for i in port.instances("burst")]
        assert sorted(listed) == sorted(ids)
        assert len([c for c in cloud.model.trail if c.action == "DescribeInstances"]) == 5


def test_the_models_control_stops_and_can_be_unreadable():
    control = ModelControl()
    assert control.read() == Control()
    control.stop("down")
    assert control.read().scaling is Scaling.STOP
    control.readable = False
    with pytest.raises(CloudError):
        control.read()


def test_credentials_that_come_late_are_found(monkeypatch: pytest.MonkeyPatch):
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
