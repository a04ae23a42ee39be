"""The metadata service through urllib, by rows, and through botocore's own fetcher."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.utils import IMDSRegionProvider, InstanceMetadataFetcher
from support.clouds import RunningCloud, a_network, ask, running_cloud
from support.waiting import BOUND_S

from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.metadata.service import MetadataService

pytestmark = pytest.mark.loopback
TTL = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN = "X-aws-ec2-metadata-token"
USER_DATA = b"#cloud-config\nwrite_files: []\n\xff"


@dataclass
class Machine:
    """An instance with its own view of the metadata service."""

    cloud: RunningCloud
    base: str
    id: str

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
        return ask(self.base + path, method, None, headers)

    def token(self, ttl: str = "300") -> str:
        status, text = self.ask("/latest/api/token", "PUT", **{TTL: ttl})
        assert status == 200
        return text.decode()

    def read(self, path: str) -> tuple[int, str]:
        status, text = self.ask(path, **{TOKEN: self.token()})
        return status, text.decode(errors="replace")


@pytest.fixture
def machine() -> Generator[Machine, None, None]:
    with running_cloud(metadata=True) as cloud:
        network = a_network(cloud)
        trust = json.dumps(
            {
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": {"Service": "ec2.amazonaws.com"},
                        "Action": "sts:AssumeRole",
                    }
                ]
            }
        )
        iam = cloud.client("iam")
        iam.create_role(RoleName="imds-role", AssumeRolePolicyDocument=trust)
        iam.create_instance_profile(InstanceProfileName="imds")
        iam.add_role_to_instance_profile(InstanceProfileName="imds", RoleName="imds-role")
        (one,) = cloud.client("ec2").run_instances(
            ImageId=network.image,
            InstanceType="m7i.large",
            SubnetId=network.subnets["us-east-1a"],
            PrivateIpAddress="10.42.0.10",
            UserData=USER_DATA,
            IamInstanceProfile={"Name": "imds"},
            MinCount=1,
            MaxCount=1,
            MetadataOptions={"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": "gpucluster:role", "Value": "node"}]}
            ],
        )["Instances"]
        assert cloud.api.metadata is not None
        port = cloud.api.metadata.server_address[1]
        yield Machine(cloud, f"http://127.0.0.1:{port}", one["InstanceId"])


@pytest.mark.parametrize("ttl", ["1", "300", "21600"])
def test_token_with_a_valid_ttl_is_issued(machine: Machine, ttl: str):
    assert len(machine.token(ttl)) > 40


@pytest.mark.parametrize("ttl", ["0", "21601", "-1", "x", "", "1.5", "٣"])
def test_wrong_ttl_is_a_400(machine: Machine, ttl: str):
    headers = {TTL: ttl} if ttl.isascii() else {TTL: ttl.encode().decode("latin-1")}
    assert machine.ask("/latest/api/token", "PUT", **headers)[0] == 400


def test_token_request_without_ttl_is_a_400(machine: Machine):
    assert machine.ask("/latest/api/token", "PUT")[0] == 400


def test_token_through_a_proxy_is_a_403(machine: Machine):
    assert machine.ask("/latest/api/token", "PUT", **{TTL: "300", "X-Forwarded-For": "10.0.0.1"})[0] == 403


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/latest/api/token", 404),
        ("PUT", "/latest/meta-data/", 404),
        ("POST", "/latest/meta-data/", 501),
    ],
)
def test_other_methods_and_places(machine: Machine, method: str, path: str, status: int):
    assert machine.ask(path, method, **{TOKEN: machine.token()})[0] == status


def test_t33_without_a_token_or_with_a_wrong_one_it_is_a_401(machine: Machine):
    for headers in ({}, {TOKEN: ""}, {TOKEN: "guessed"}):
        for path in ("/", "/latest/meta-data/instance-id", "/latest/user-data"):
            assert machine.ask(path, **headers) == (401, b"")


def test_t33_token_ends_with_its_ttl(machine: Machine):
    token = machine.token("60")
    assert machine.ask("/latest/meta-data/instance-id", **{TOKEN: token})[0] == 200
    machine.cloud.clock.move(60)
    assert machine.ask("/latest/meta-data/instance-id", **{TOKEN: token})[0] == 401


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/", "1.0\n2009-04-04\n2021-03-23\nlatest"),
        ("/latest/", "dynamic/\nmeta-data/\nuser-data"),
        ("/latest/meta-data/placement/", "availability-zone\nregion"),
        ("/latest/meta-data/placement/region", "us-east-1"),
        ("/2021-03-23/meta-data/placement/availability-zone", "us-east-1a"),
        ("/2009-04-04/meta-data/local-ipv4", "10.42.0.10"),
        ("/latest/meta-data/hostname", "ip-10-42-0-10.ec2.internal"),
        ("/latest/meta-data/instance-type", "m7i.large"),
        ("/latest/meta-data/instance-life-cycle", "on-demand"),
        ("/latest/meta-data/mac", "02:00:0a:2a:00:0a"),
        ("/latest/meta-data/network/interfaces/macs/", "02:00:0a:2a:00:0a/"),
        ("/latest/meta-data/network/interfaces/macs/02:00:0a:2a:00:0a/local-ipv4s", "10.42.0.10"),
        ("/latest/meta-data/network/interfaces/macs/02:00:0a:2a:00:0a/device-number", "0"),
        (
            "/latest/meta-data/network/interfaces/macs/02:00:0a:2a:00:0a/subnet-ipv4-cidr-block",
            "10.42.0.0/24",
        ),
        ("/latest/meta-data/tags/instance", "gpucluster:role"),
        ("/latest/meta-data/tags/instance/gpucluster:role", "node"),
        ("/latest/meta-data/iam/security-credentials/", "imds-role"),
        ("/latest/meta-data/iam/", "info\nsecurity-credentials/"),
    ],
)
def test_readable_paths(machine: Machine, path: str, content: str):
    assert machine.read(path) == (200, content)


@pytest.mark.parametrize(
    "path",
    [
        "/latest/meta-data/spot/instance-action",
        "/latest/meta-data/nothing",
        "/latest/meta-data/instance-id/below",
        "/latest/meta-data/public-ipv4",
        "/latest/meta-data/iam/security-credentials/other",
        "/latest/meta-data/../user-data",
        "/1999-01-01/meta-data/",
        "/moto-api/",
    ],
)
def test_missing_paths(machine: Machine, path: str):
    assert machine.read(path)[0] == 404


def test_every_entry_of_every_listing_can_be_read(machine: Machine):
    """cloud-init follows all listings, and retries on a 404."""
    todo, seen = ["/latest/"], 0
    while todo:
        folder = todo.pop()
        status, listing = machine.read(folder)
        assert status == 200, folder
        for name in listing.split("\n"):
            if name.endswith("/"):
                todo.append(folder + name)
            else:
                assert machine.read(folder + name)[0] == 200, folder + name
                seen += 1
    assert seen >= 30


def test_user_data_is_returned_byte_by_byte(machine: Machine):
    assert machine.ask("/latest/user-data", **{TOKEN: machine.token()}) == (200, USER_DATA)


def test_identity_document_names_the_instance(machine: Machine):
    document = json.loads(machine.read("/latest/dynamic/instance-identity/document")[1])
    assert (document["instanceId"], document["region"], document["privateIp"]) == (
        machine.id,
        "us-east-1",
        "10.42.0.10",
    )


def test_t34_spot_notice_is_read_once_it_is_given(machine: Machine):
    machine.cloud.model.interrupt(machine.id, machine.cloud.clock.now, after_s=10_000)
    action = json.loads(machine.read("/latest/meta-data/spot/instance-action")[1])
    assert action["action"] == "terminate"
    assert action["time"].endswith("Z")


def test_t34_notice_that_is_hidden_is_not_read_and_ends_the_machine_either_way(machine: Machine):
    model, now = machine.cloud.model, machine.cloud.clock.now
    model.interrupt(machine.id, now, 10_000, silent=["metadata"])
    assert machine.read("/latest/meta-data/spot/instance-action")[0] == 404
    assert "spot/" not in machine.read("/latest/meta-data/")[1]
    assert model.wanted(now + 9_000)[0].notice_at == now + 10_000


def test_t34_rebalance_hint_is_read_once_it_is_given(machine: Machine):
    path = "/latest/meta-data/events/recommendations/rebalance"
    assert machine.read(path)[0] == 404
    machine.cloud.model.recommend(machine.id, machine.cloud.clock.now, silent=["metadata"])
    assert machine.read(path)[0] == 404
    machine.cloud.model.recommend(machine.id, machine.cloud.clock.now)
    assert json.loads(machine.read(path)[1])["noticeTime"].endswith("Z")


def test_t35_scheduled_events_and_past_events_have_separate_paths(machine: Machine):
    path = "/latest/meta-data/events/maintenance"
    assert machine.read(path + "/scheduled")[0] == 404
    machine.cloud.control.maintain(machine.id, code="instance-retirement", after_s=7200, words="old")
    machine.cloud.control.maintain(machine.id, code="system-reboot", completed=True, words="done")
    (active,) = json.loads(machine.read(path + "/scheduled")[1])
    (over,) = json.loads(machine.read(path + "/history")[1])
    assert (active["Code"], active["State"], active["Description"]) == (
        "instance-retirement",
        "active",
        "old",
    )
    assert active["NotBefore"].endswith(" GMT")
    assert (over["Code"], over["State"], over["Description"]) == (
        "system-reboot",
        "completed",
        "[Completed] done",
    )


def test_t33_service_that_hangs_takes_connections_and_answers_when_it_is_let_go(machine: Machine):
    import http.client

    machine.cloud.control.hang_metadata(machine.id)
    port = int(machine.base.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=0.2)
    try:
        connection.request("PUT", "/latest/api/token", headers={TTL: "60"})
        with pytest.raises(TimeoutError):
            connection.getresponse()
    finally:
        connection.close()
        machine.cloud.control.hang_metadata()
    assert machine.token()


def test_botocore_finds_role_and_region_and_the_api_knows_the_key(machine: Machine):
    settings: Any = {"base_url": machine.base + "/", "num_attempts": 1, "timeout": BOUND_S}
    found = InstanceMetadataFetcher(**settings).retrieve_iam_role_credentials()
    assert found["role_name"] == "imds-role"
    session: Any = machine.cloud.api.ring.find(found["access_key"])
    assert (session.secret, session.token) == (found["secret_key"], found["token"])
    assert (
        machine.cloud.client("sts", session).get_caller_identity()["Arn"].endswith(f"imds-role/{machine.id}")
    )


def test_botocore_reads_the_region(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    import botocore.session

    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", machine.base)
    assert IMDSRegionProvider(botocore.session.get_session()).provide() == "us-east-1"


def test_connection_serves_more_than_one_request(machine: Machine):
    import http.client

    connection = http.client.HTTPConnection(
        "127.0.0.1", int(machine.base.rpartition(":")[2]), timeout=BOUND_S
    )
    token = machine.token()
    for _ in range(3):
        connection.request("GET", "/latest/meta-data/instance-id", headers={TOKEN: token})
        assert connection.getresponse().read().decode() == machine.id
    connection.close()


def test_token_is_bound_to_its_instance(machine: Machine):
    """Two callers with two addresses. The test calls the service as a function."""
    model: CloudModel = machine.cloud.model
    (mine,) = model.wanted(machine.cloud.clock.now)
    others = {"10.42.0.10": mine}
    service = MetadataService(
        model,
        machine.cloud.api.moto,
        machine.cloud.api.ring,
        clock=machine.cloud.clock,
        lookup=others.get,
    )
    token = service.token("10.42.0.10", "300", forwarded=False).body.decode()
    assert service.get("10.42.0.10", "/latest/meta-data/instance-id", token).status == 200
    (second,) = model.run(
        mine.spec.__class__(**{**_fields(mine.spec), "address": None, "token": None}),
        machine.cloud.clock.now,
    )
    others["10.42.0.11"] = second
    assert service.get("10.42.0.11", "/latest/meta-data/instance-id", token).status == 401
    assert service.get("10.9.9.9", "/latest/meta-data/instance-id", token).status == 404
    assert service.token("10.9.9.9", "300", forwarded=False).status == 404


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
