"""Signatures: only issued keys are accepted, and only for unchanged requests."""

from collections.abc import Generator
from datetime import datetime
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from support.clouds import OPERATOR, RunningCloud, ask, code_of, running_cloud

from gpucluster.sandbox.aws.credentials import Key, KeyRing, Principal
from gpucluster.sandbox.aws.signature import BadSignature, Flaw, SignedRequest, verify

NOW = 1_800_000_000.0


def a_request(
    ring: KeyRing,
    *,
    key: Key | None = None,
    body: bytes = b"Action=X",
    service: str = "ec2",
    target: str = "/",
) -> SignedRequest:
    """Sign the request as botocore does."""
    who = key or ring.operator
    made: Any = AWSRequest(
        method="POST", url=f"http://127.0.0.1:5000{target}", data=body, headers={"Content-Type": "text/plain"}
    )
    kind: Any = S3SigV4Auth if service == "s3" else SigV4Auth
    kind(Credentials(who.access_key, who.secret, who.token or None), service, "us-east-1").add_auth(made)
    headers = {k.lower(): str(v) for k, v in made.headers.items()} | {"host": "127.0.0.1:5000"}
    return SignedRequest(method="POST", target=target, headers=headers, body=body)


def signed_at(request: SignedRequest) -> float:
    """Return the time of the signature, so that the tests do not depend on the machine's speed."""
    return datetime.strptime(request.headers["x-amz-date"] + "+0000", "%Y%m%dT%H%M%SZ%z").timestamp()


def flaw_of(request: SignedRequest, ring: KeyRing, now: float = NOW, later_s: float = 0.0) -> Flaw:
    with pytest.raises(BadSignature) as caught:
        verify(request, ring, now=now, wall=signed_at(request) + later_s)
    return caught.value.flaw


def changed(request: SignedRequest, **change: Any) -> SignedRequest:
    values = {
        "method": request.method,
        "target": request.target,
        "headers": request.headers,
        "body": request.body,
    }
    return SignedRequest(**(values | change))


RING = KeyRing("123456789012", operator=OPERATOR)


@pytest.mark.parametrize("service", ["ec2", "iam", "secretsmanager", "s3"])
@pytest.mark.parametrize("target", ["/", "/bucket/a%20b/c%2Fd?x=1&list-type=2", "/b//k", "/b/./k"])
def test_signature_of_botocore_is_accepted(service: str, target: str):
    request = a_request(RING, service=service, target=target)
    key = verify(request, RING, now=NOW, wall=signed_at(request))
    assert key.principal.arn.endswith("user/operator")


@pytest.mark.parametrize(
    ("sentence", "change"),
    [
        ("another body", {"body": b"Action=Y"}),
        ("another path", {"target": "/other"}),
        ("another query", {"target": "/?x=1"}),
        ("another method", {"method": "GET"}),
    ],
)
def test_modified_request_is_refused(sentence: str, change: dict[str, Any]):
    assert flaw_of(changed(a_request(RING), **change), RING) is Flaw.WRONG, sentence


def test_another_host_is_refused():
    request = a_request(RING)
    assert flaw_of(changed(request, headers={**request.headers, "host": "elsewhere"}), RING) is Flaw.WRONG


def test_right_key_with_a_wrong_secret_is_refused():
    forged = Key(access_key=OPERATOR[0], secret="guessed", principal=RING.operator.principal)
    assert flaw_of(a_request(RING, key=forged), RING) is Flaw.WRONG


def test_unknown_access_key_is_refused():
    invented = Key(access_key="AKIAINVENTED00000001", secret="x", principal=Principal(arn="a", user_id="b"))
    assert flaw_of(a_request(RING, key=invented), RING) is Flaw.UNKNOWN


@pytest.mark.parametrize(
    "text", ["", "Bearer x", "AWS4-HMAC-SHA256", "AWS AKIA:sig", "AWS4-HMAC-SHA256 Credential=a/b"]
)
def test_signature_of_another_scheme_is_no_signature(text: str):
    request = a_request(RING)
    assert flaw_of(changed(request, headers={**request.headers, "authorization": text}), RING) is Flaw.MISSING


@pytest.mark.parametrize(("minutes", "flaw"), [(-6, Flaw.EARLY), (6, Flaw.LATE)])
def test_t12_clock_that_is_off_by_six_minutes_is_refused(minutes: int, flaw: Flaw):
    assert flaw_of(a_request(RING), RING, later_s=60 * minutes) is flaw


@pytest.mark.loopback
@pytest.mark.parametrize(("seconds", "code"), [(-600.0, "RequestExpired"), (600.0, "AuthFailure")])
def test_t12_clock_of_one_role_is_off(seconds: float, code: str):
    """EC2 does not name the clock when it is ahead (aws/aws-sdk-java 519); S3 does in both cases."""
    with running_cloud() as cloud:
        head, node = (
            cloud.api.ring.session(role, "AROA", "i-0000000000000000a", cloud.clock.now)
            for role in ("head", "node")
        )
        asked, denied = cloud.client("ec2", head).describe_instances, "UnauthorizedOperation"
        cloud.control.switch(clocks={"head": seconds})
        assert code_of(asked) == code
        assert code_of(cloud.client("s3", head).list_buckets) == "RequestTimeTooSkewed"
        assert code_of(cloud.client("ec2", node).describe_instances) == denied
        cloud.control.switch(clocks={})
        assert code_of(asked) == denied


def test_session_is_accepted_until_it_expires():
    ring = KeyRing("123456789012", session_s=3600)
    session = ring.session("head", "AROA1", "i-1", NOW)
    request = a_request(ring, key=session)
    assert verify(request, ring, now=NOW + 3599, wall=signed_at(request)).principal.instance_id == "i-1"
    assert flaw_of(request, ring, now=NOW + 3600) is Flaw.EXPIRED


def test_session_without_its_token_is_refused():
    ring = KeyRing("123456789012")
    session = ring.session("head", "AROA1", "i-1", NOW)
    bare = Key(access_key=session.access_key, secret=session.secret, principal=session.principal)
    assert flaw_of(a_request(ring, key=bare), ring) is Flaw.UNKNOWN


def test_session_is_renewed_after_half_of_its_time():
    ring = KeyRing("123456789012", session_s=3600)
    first = ring.session("head", "AROA1", "i-1", NOW)
    assert ring.session("head", "AROA1", "i-1", NOW + 1799) is first
    second = ring.session("head", "AROA1", "i-1", NOW + 1800)
    assert second.access_key != first.access_key
    assert ring.find(first.access_key) is first


def test_two_instances_have_two_sessions_and_old_ones_are_forgotten():
    ring = KeyRing("123456789012", session_s=3600)
    one, two = ring.session("node", "AROA1", "i-1", NOW), ring.session("node", "AROA1", "i-2", NOW)
    assert one.access_key != two.access_key
    ring.session("node", "AROA1", "i-3", NOW + 3600 * 3)
    assert ring.find(one.access_key) is None


def test_no_secret_is_shown_by_repr():
    ring = KeyRing("123456789012")
    session = ring.session("node", "AROA1", "i-1", NOW)
    assert session.secret not in repr(session)
    assert session.token not in repr(session)


@pytest.fixture(scope="module")
def cloud() -> Generator[RunningCloud, None, None]:
    with running_cloud() as running:
        yield running


CALLS: list[tuple[str, str, str]] = [
    ("ec2", "describe_instances", "AuthFailure"),
    ("iam", "list_roles", "InvalidClientTokenId"),
    ("sts", "get_caller_identity", "InvalidClientTokenId"),
    ("s3", "list_buckets", "InvalidAccessKeyId"),
    ("secretsmanager", "list_secrets", "UnrecognizedClientException"),
]


@pytest.mark.loopback
@pytest.mark.parametrize(("service", "call", "code"), CALLS)
def test_each_protocol_refuses_an_invented_key_in_its_own_words(
    cloud: RunningCloud, service: str, call: str, code: str
):
    invented = Key(access_key="AKIAINVENTED00000001", secret="x", principal=Principal(arn="a", user_id="b"))
    with pytest.raises(ClientError, match=rf"\({code}\)"):
        getattr(cloud.client(service, invented), call)()


@pytest.mark.loopback
@pytest.mark.parametrize(
    ("target", "body", "headers"),
    [
        ("/", b"Action=DescribeInstances&Version=2016-11-15", {}),
        ("/?Action=DescribeInstances&Version=2016-11-15", None, {}),
        ("/", b"Action=GetCallerIdentity&Version=2011-06-15", {}),
        ("/", b"{}", {"X-Amz-Target": "secretsmanager.ListSecrets"}),
        ("/bucket/key", None, {}),
        ("/moto-api/reset", b"", {}),
        ("/moto-api/data.json", None, {}),
        ("/latest/meta-data/iam/security-credentials/", None, {}),
        ("/_gpucluster/trail", None, {}),
        ("/_gpucluster/capacity", b'{"free": 0}', {}),
    ],
)
def test_unsigned_request_is_refused(
    cloud: RunningCloud, target: str, body: bytes | None, headers: dict[str, str]
):
    status, _ = ask(cloud.endpoint + target, "GET" if body is None else "POST", body, headers)
    assert status in (400, 401, 403)


@pytest.mark.loopback
def test_caller_identity_is_returned(cloud: RunningCloud):
    session = cloud.api.ring.session("head", "AROAHEAD", "i-0123456789abcdef0", cloud.clock.now)
    identity = cloud.client("sts", session).get_caller_identity()
    assert identity["Arn"] == "arn:aws:sts::123456789012:assumed-role/head/i-0123456789abcdef0"
    assert identity["UserId"] == "AROAHEAD:i-0123456789abcdef0"
    assert cloud.client("sts").get_caller_identity()["Arn"].endswith(":user/operator")


@pytest.mark.loopback
@pytest.mark.parametrize(
    ("service", "call", "arguments"),
    [
        ("sts", "get_session_token", {}),
        ("iam", "create_access_key", {"UserName": "x"}),
        ("autoscaling", "describe_auto_scaling_groups", {}),
        (
            "ec2",
            "create_fleet",
            {
                "LaunchTemplateConfigs": [
                    {"LaunchTemplateSpecification": {"LaunchTemplateName": "none", "Version": "1"}}
                ],
                "TargetCapacitySpecification": {"TotalTargetCapacity": 1},
            },
        ),
        ("ec2", "request_spot_instances", {}),
        ("ec2", "reboot_instances", {"InstanceIds": ["i-0123456789abcdef0"]}),
    ],
)
def test_ambiguous_request_is_refused_by_name(
    cloud: RunningCloud, service: str, call: str, arguments: dict[str, Any]
):
    with pytest.raises(ClientError, match=r"the sandbox has (no|only) |not a part"):
        getattr(cloud.client(service), call)(**arguments)


@pytest.mark.loopback
def test_request_with_two_actions_is_refused(cloud: RunningCloud):
    """The checked action must be the executed one. moto would read both."""
    body, target = b"Action=DescribeVpcs&Version=2016-11-15", "/?Action=DeleteVpc&VpcId=vpc-1"
    request = a_request(cloud.api.ring, target=target, body=body)
    headers = {**request.headers, "host": "127.0.0.1:5000"}
    status, text = ask(cloud.endpoint + target, "POST", body, headers)
    assert (status, b"InvalidQueryParameter" in text) == (400, True)


@pytest.mark.loopback
def test_motos_own_paths_are_refused_to_the_operator_too(cloud: RunningCloud):
    request = a_request(cloud.api.ring, service="s3", target="/moto-api/reset", body=b"")
    status, _ = ask(cloud.endpoint + "/moto-api/reset", "POST", b"", request.headers)
    assert status == 403
