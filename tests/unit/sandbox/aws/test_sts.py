"""AssumeRole: trust policy and caller's policy must both allow it. The session lasts an hour and has the role's permissions."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError
from support.clouds import RunningCloud, running_cloud

from gpucluster.plan.iam_policies import JobsScope, NodeScope, jobs_policy, node_policy, trust_ec2, trust_role
from gpucluster.sandbox.aws.credentials import Key, Principal

pytestmark = pytest.mark.loopback
ROLES = "arn:aws:iam::123456789012:role"
JOBS, NODE, HEAD = f"{ROLES}/sts-jobs", f"{ROLES}/sts-node", f"{ROLES}/sts-head"
OWN, SECRET = "sts-own", "arn:aws:secretsmanager:us-east-1:123456789012:secret:munge"


@dataclass
class World:
    cloud: RunningCloud
    keys: dict[str, Key]

    def take_on(self, whose: str, arn: str = JOBS, **more: Any) -> Key:
        asked = {"RoleArn": arn, "RoleSessionName": "7-vision", **more}
        told = self.cloud.client("sts", self.keys[whose]).assume_role(**asked)["Credentials"]
        return Key(
            access_key=told["AccessKeyId"],
            secret=told["SecretAccessKey"],
            token=told["SessionToken"],
            expires=told["Expiration"].timestamp(),
            principal=Principal(arn="", user_id=""),
        )


@pytest.fixture(scope="module")
def world() -> Generator[World]:
    with running_cloud() as cloud:
        iam, s3 = cloud.client("iam"), cloud.client("s3")
        node = node_policy(NodeScope(bucket=f"arn:aws:s3:::{OWN}", secret=SECRET, jobs_role=JOBS))
        jobs = jobs_policy(
            JobsScope(
                own_bucket=f"arn:aws:s3:::{OWN}",
                read=["s3://sts-sets/sets"],
                write=["s3://sts-data", f"s3://{OWN}"],
            )
        )
        rights = {"node": node, "jobs": jobs, "head": node}
        for name, policy in rights.items():
            trust = trust_role(NODE) if name == "jobs" else trust_ec2()
            role = f"sts-{name}"  # moto's roles are of the whole process
            iam.create_role(RoleName=role, AssumeRolePolicyDocument=trust)
            iam.put_role_policy(RoleName=role, PolicyName=role, PolicyDocument=policy)
        for bucket in ("sts-data", "sts-sets", OWN):
            s3.create_bucket(Bucket=bucket)
        ring, now = cloud.api.ring, cloud.clock.now
        keys = {name: ring.session(f"sts-{name}", f"AROA{name}", f"i-{name}", now) for name in rights}
        yield World(cloud, {**keys, "operator": ring.operator})


def refused(call: Any, *arguments: Any, **more: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(*arguments, **more)
    response: Any = caught.value.response
    return f"{response['Error']['Code']}: {response['Error']['Message']}"


def test_node_role_assumes_the_jobs_role_and_has_only_its_permissions(world: World) -> None:
    key = world.take_on("node")
    assert (
        world.cloud.client("sts", key).get_caller_identity()["Arn"].endswith("assumed-role/sts-jobs/7-vision")
    )
    world.cloud.client("s3", key).put_object(Bucket="sts-data", Key="1", Body=b"x")
    said = refused(world.cloud.client("secretsmanager", key).get_secret_value, SecretId="x")
    assert said.startswith("AccessDenied")


@pytest.mark.parametrize("call", ["put_object", "get_object", "delete_object"])
def test_own_bucket_is_denied_for_every_spec(world: World, call: str) -> None:
    s3 = world.cloud.client("s3", world.take_on("node"))
    assert refused(getattr(s3, call), Bucket=OWN, Key="bundle.tar.gz").startswith("AccessDenied")


def test_folder_is_listed_without_folders_of_the_same_prefix(world: World) -> None:
    s3 = world.cloud.client("s3", world.take_on("node"))
    s3.list_objects_v2(Bucket="sts-sets", Prefix="sets/")
    for asked in ({"Prefix": "sets"}, {"Prefix": "sets-of-others/"}, {"Prefix": ""}, {}):
        assert refused(s3.list_objects_v2, Bucket="sts-sets", **asked).startswith("AccessDenied"), asked


@pytest.mark.parametrize(
    ("whose", "arn"),
    [("head", JOBS), ("operator", JOBS), ("jobs", JOBS), ("node", HEAD), ("node", f"{ROLES}/none")],
    ids=["another role's machine", "the operator", "the role itself", "another role", "a role that is not there"],
)  # fmt: skip
def test_only_the_node_role_assumes_it_and_it_assumes_no_other(world: World, whose: str, arn: str) -> None:
    assert "is not authorized to perform: sts:AssumeRole" in refused(world.take_on, whose, arn)


def test_trust_policy_with_a_deny_is_obeyed(world: World) -> None:
    iam, open_ = world.cloud.client("iam"), json.loads(trust_role(NODE))
    for everybody in ("*", {"AWS": "*"}):
        deny = {"Effect": "Deny", "Principal": everybody, "Action": "sts:AssumeRole"}
        shut = {**open_, "Statement": [*open_["Statement"], deny]}
        iam.update_assume_role_policy(RoleName="sts-jobs", PolicyDocument=json.dumps(shut))
        try:
            assert "is not authorized to perform: sts:AssumeRole" in refused(world.take_on, "node")
        finally:
            iam.update_assume_role_policy(RoleName="sts-jobs", PolicyDocument=json.dumps(open_))


def test_trust_policy_alone_is_not_enough(world: World) -> None:
    iam = world.cloud.client("iam")
    whole = iam.get_role_policy(RoleName="sts-node", PolicyName="sts-node")["PolicyDocument"]
    less = {**whole, "Statement": [s for s in whole["Statement"] if s["Sid"] != "JobsRole"]}
    iam.put_role_policy(RoleName="sts-node", PolicyName="sts-node", PolicyDocument=json.dumps(less))
    try:
        assert "the sts:AssumeRole action" in refused(world.take_on, "node")
    finally:
        iam.put_role_policy(RoleName="sts-node", PolicyName="sts-node", PolicyDocument=json.dumps(whole))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"DurationSeconds": 3601}, "exceeds the 1 hour session limit for roles assumed by role chaining"),
        ({"RoleSessionName": "7 vision"}, "roleSessionName"),
        ({"Tags": [{"Key": "job", "Value": "7"}]}, "UnsupportedOperation: the sandbox's AssumeRole takes no Tags"),
    ],
    ids=["longer than an hour", "a name that STS does not take", "what the sandbox lacks"],
)  # fmt: skip
def test_invalid_sts_parameter_is_refused_by_name(world: World, more: dict[str, Any], says: str) -> None:
    assert says in refused(world.take_on, "node", **more)


def test_its_keys_end(world: World) -> None:
    key = world.take_on("node", DurationSeconds=900)
    assert key.expires == pytest.approx(world.cloud.clock.now + 900, abs=1)
    late = Key(access_key=key.access_key, secret="wrong", token=key.token, principal=key.principal)
    assert "SignatureDoesNotMatch" in refused(world.cloud.client("sts", late).get_caller_identity)
    world.cloud.clock.move(901)
    assert "ExpiredToken" in refused(world.cloud.client("sts", key).get_caller_identity)
