"""Permissions of head, nodes and jobs: golden documents, and what they must not contain."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gpucluster.plan.iam_policies import (
    SEEN,
    SESSION_MANAGER,
    HeadScope,
    JobsScope,
    NodeScope,
    head_policy,
    jobs_policy,
    node_policy,
    standby_policy,
    trust_ec2,
    trust_role,
)
from gpucluster.plan.store_policies import events_to, only_tls
from gpucluster.plan.user_data import LIMIT_BYTES, encoded, user_data
from gpucluster.sandbox.aws.iam.policies import Need, allows, check
from gpucluster.spec.rules.s3_places import MOST_LETTERS, MOST_PREFIXES

EC2 = "arn:aws:ec2:us-east-2:123456789012"
HEAD = HeadScope(
    cluster="burst",
    region="us-east-2",
    account="123456789012",
    image="ami-1",
    machines=("p5en.48xlarge", "p5e.48xlarge"),
    subnets=(f"{EC2}:subnet/subnet-1", f"{EC2}:subnet/subnet-2"),
    node_group=f"{EC2}:security-group/sg-1",
    node_role="arn:aws:iam::123456789012:role/burst-node-1",
    bucket="arn:aws:s3:::burst-1",
    secret="arn:aws:secretsmanager:us-east-2:123456789012:secret:burst-munge-1",
    queue="arn:aws:sqs:us-east-2:123456789012:burst-events-1",
    spot=True,
    fleet=True,
    reservations=("cr-1",),
    more_images=("ami-2",),
    placement=True,
    ssm=True,
    directory="arn:aws:secretsmanager:us-east-2:123456789012:secret:ldap-1",
    key="arn:aws:kms:us-east-2:123456789012:key/0123abcd-0123-0123-0123-0123456789ab",
)
KEY = "arn:aws:kms:us-east-2:123456789012:key/0123abcd-0123-0123-0123-0123456789ab"
PLAIN = replace(HEAD, more_images=(), placement=False, ssm=False, directory=None, key=None)
NODE = NodeScope(bucket=HEAD.bucket, secret=HEAD.secret)
JOBS_ROLE = "arn:aws:iam::123456789012:role/burst-jobs-1"
OPEN = replace(NODE, ssm=True, directory=HEAD.directory, jobs_role=JOBS_ROLE, key=KEY)
JOBS = JobsScope(
    own_bucket=HEAD.bucket,
    read=("s3://example-data/sets", "s3://example-public"),
    write=("s3://example-data/checkpoints", "s3://example-runs/a/b"),
)


def pretty(document: str) -> bytes:
    return (json.dumps(json.loads(document), indent=1, sort_keys=True) + "\n").encode()


def test_documents_are_golden(golden: Any) -> None:
    documents = {
        "head.json": head_policy(PLAIN),
        "head-of-all.json": head_policy(HEAD),
        "standby-of-all.json": standby_policy(HEAD),
        "node.json": node_policy(NODE),
        "node-of-all.json": node_policy(OPEN),
        "trust.json": trust_ec2(),
        "bucket.json": only_tls(HEAD.bucket),
        "jobs.json": jobs_policy(JOBS),
        "trust-of-jobs.json": trust_role(HEAD.node_role),
    }
    golden("aws/policies", {name: pretty(text) for name, text in documents.items()})


EVERY = pytest.mark.parametrize(
    "text",
    [head_policy(HEAD), standby_policy(HEAD), node_policy(NODE), node_policy(OPEN), jobs_policy(JOBS)],
    ids=["head", "standby", "node", "login", "jobs"],
)


@EVERY
def test_no_action_has_a_wildcard_and_only_list_calls_use_all_resources(text: str) -> None:
    for statement in (s for s in json.loads(text)["Statement"] if s["Effect"] == "Allow"):
        assert [a for a in statement["Action"] if "*" in a] == []
        if statement["Resource"] == ["*"]:
            assert statement["Action"] in (list(SEEN), list(SESSION_MANAGER))


@EVERY
def test_sandbox_can_evaluate_every_statement(text: str) -> None:
    check(json.loads(text))


def test_policies_fit_the_size_limit_of_a_role() -> None:
    """The scope has a reservation for each of fifty pools. Templates are matched by tag, so their number does not matter (T37)."""
    many = tuple(f"cr-{number:017x}" for number in range(50))
    wide = replace(HEAD, reservations=many, ssm=True, placement=True, directory=SECRET)
    assert len(head_policy(wide)) < 10_240


def test_largest_jobs_policy_fits_the_size_limit_of_a_role() -> None:
    folders = "f" * (MOST_LETTERS // MOST_PREFIXES - len("s3://bucket-00/"))
    places = [f"s3://bucket-{number:02}/{folders}" for number in range(MOST_PREFIXES)]
    assert sum(map(len, places)) == MOST_LETTERS
    assert len(jobs_policy(JobsScope(own_bucket=HEAD.bucket, write=places))) < 10_240


JOB_NEEDS = [
    ("read a set", "s3:GetObject", "example-data/sets/a", {}, True),
    ("write a set", "s3:PutObject", "example-data/sets/a", {}, False),
    ("read what only begins alike", "s3:GetObject", "example-data/sets-of-others/a", {}, False),
    ("read a whole bucket", "s3:GetObject", "example-public/a", {}, True),
    ("write a checkpoint", "s3:PutObject", "example-runs/a/b/c", {}, True),
    ("write beside it", "s3:PutObject", "example-runs/a/x", {}, False),
    ("list a folder", "s3:ListBucket", "example-data", {"s3:prefix": ("sets/",)}, True),
    ("list the names that begin alike", "s3:ListBucket", "example-data", {"s3:prefix": ("sets",)}, False),
    ("list beside it", "s3:ListBucket", "example-data", {"s3:prefix": ("sets-of-others/",)}, False),
    ("list all of a bucket of which a folder is theirs", "s3:ListBucket", "example-data", {}, False),
    ("list a whole bucket", "s3:ListBucket", "example-public", {}, True),
    ("read the bundle", "s3:GetObject", "burst-1/bundle.tar.gz", {}, False),
]


@pytest.mark.parametrize(
    ("action", "on", "context", "may"), [n[1:] for n in JOB_NEEDS], ids=[n[0] for n in JOB_NEEDS]
)
def test_permissions_of_a_job(action: str, on: str, context: dict[str, tuple[str, ...]], may: bool) -> None:
    need = Need(action=action, resource=f"arn:aws:s3:::{on}", context=context)
    assert allows([json.loads(jobs_policy(JOBS))], need) == may
    forgot = replace(JOBS, write=(*JOBS.write, "s3://burst-1"))
    assert allows([json.loads(jobs_policy(forgot))], need) == may, "the cluster's own bucket is denied"


def test_spot_permissions_need_a_spot_source() -> None:
    plain = replace(HEAD, spot=False)
    assert "spot" not in head_policy(plain).lower()


def test_fleet_permissions_need_a_source_with_several_machines() -> None:
    assert "fleet" not in head_policy(replace(HEAD, fleet=False)).lower()


def test_optional_permissions_need_their_spec_field() -> None:
    for text in (head_policy(PLAIN), node_policy(NODE)):
        assert [word for word in ("placement-group", "ssmmessages", "ldap") if word in text] == []


def test_standby_has_all_permissions_except_creation_of_the_key() -> None:
    def rights(text: str) -> set[str]:
        return {f"{s['Sid']} {action}" for s in json.loads(text)["Statement"] for action in s["Action"]}

    gone = rights(head_policy(HEAD)) - rights(standby_policy(HEAD))
    assert gone == {"Key secretsmanager:PutSecretValue"}
    assert rights(standby_policy(HEAD)) <= rights(head_policy(HEAD))


def test_only_rules_of_the_cluster_send_to_the_queue() -> None:
    (statement,) = json.loads(events_to(HEAD.queue, ["arn:rule/b", "arn:rule/a"]))["Statement"]
    assert statement["Principal"] == {"Service": "events.amazonaws.com"}
    assert statement["Condition"] == {"ArnEquals": {"aws:SourceArn": ["arn:rule/a", "arn:rule/b"]}}


SECRET = "arn:aws:secretsmanager:us-east-2:123456789012:secret:ldap-1"
LAUNCH = {
    "ec2:launchtemplate": (f"{EC2}:launch-template/lt-1",),
    "ec2:instancetype": ("p5en.48xlarge",),
    "aws:requesttag/gpucluster:cluster": ("burst",),
}
TAGGED = {"aws:resourcetag/gpucluster:cluster": ("burst",)}
OWN = {"aws:resourcetag/gpucluster:cluster": ("burst",), "aws:resourcetag/gpucluster:role": ("node",)}
NEEDS: list[tuple[str, str, str, dict[str, tuple[str, ...]], bool]] = [
    ("launch an instance from our template", "ec2:RunInstances", f"{EC2}:instance/*", LAUNCH, True),
    ("launch without a template", "ec2:RunInstances", f"{EC2}:instance/*", {k: v for k, v in LAUNCH.items() if k[0] == "a"}, False),
    ("launch a type outside the plan", "ec2:RunInstances", f"{EC2}:instance/*", {**LAUNCH, "ec2:instancetype": ("p4de.24xlarge",)}, False),
    ("use our template", "ec2:RunInstances", f"{EC2}:launch-template/lt-1", TAGGED, True),
    ("use another's template", "ec2:RunInstances", f"{EC2}:launch-template/lt-9", {"aws:resourcetag/gpucluster:cluster": ("other",)}, False),
    ("use a template of nobody", "ec2:RunInstances", f"{EC2}:launch-template/lt-9", {}, False),
    ("a fleet from our template", "ec2:CreateFleet", f"{EC2}:launch-template/lt-1", TAGGED, True),
    ("launch into our placement group", "ec2:RunInstances", f"{EC2}:placement-group/pg-1", TAGGED, True),
    ("launch into another's placement group", "ec2:RunInstances", f"{EC2}:placement-group/pg-9", {"aws:resourcetag/gpucluster:cluster": ("other",)}, False),
    ("a fleet in our placement group", "ec2:CreateFleet", f"{EC2}:placement-group/pg-1", TAGGED, True),
    ("tag what stands already", "ec2:CreateTags", f"{EC2}:instance/i-9", {"aws:requesttag/gpucluster:cluster": ("burst",)}, False),
    ("boot a pool's own image", "ec2:RunInstances", "arn:aws:ec2:us-east-2::image/ami-2", {}, True),
    ("boot another image", "ec2:RunInstances", "arn:aws:ec2:us-east-2::image/ami-9", {}, False),
    ("read the directory's bind password", "secretsmanager:GetSecretValue", SECRET, {}, True),
    ("change the directory's bind password", "secretsmanager:PutSecretValue", SECRET, {}, False),
    ("open a channel for Session Manager", "ssmmessages:OpenDataChannel", "*", {}, True),
    ("read the site's parameters", "ssm:GetParameter", "arn:aws:ssm:us-east-2:123456789012:parameter/x", {}, False),
    ("launch with another's tag", "ec2:RunInstances", f"{EC2}:instance/*", {**LAUNCH, "aws:requesttag/gpucluster:cluster": ("other",)}, False),
    ("launch into our subnet", "ec2:RunInstances", f"{EC2}:subnet/subnet-1", LAUNCH, True),
    ("launch into another subnet", "ec2:RunInstances", f"{EC2}:subnet/subnet-9", LAUNCH, False),
    ("launch in another group", "ec2:RunInstances", f"{EC2}:security-group/sg-9", LAUNCH, False),
    ("end a node of ours", "ec2:TerminateInstances", f"{EC2}:instance/i-1", OWN, True),
    ("end a node of another cluster", "ec2:TerminateInstances", f"{EC2}:instance/i-1", {**OWN, "aws:resourcetag/gpucluster:cluster": ("other",)}, False),
    ("end the head", "ec2:TerminateInstances", f"{EC2}:instance/i-1", {**OWN, "aws:resourcetag/gpucluster:role": ("head",)}, False),
    ("pass the node's role to EC2", "iam:PassRole", HEAD.node_role, {"iam:passedtoservice": ("ec2.amazonaws.com",)}, True),
    ("pass another role", "iam:PassRole", "arn:aws:iam::123456789012:role/admin", {"iam:passedtoservice": ("ec2.amazonaws.com",)}, False),
    ("read the bundle", "s3:GetObject", f"{HEAD.bucket}/bundle.tar.gz", {}, True),
    ("write the bundle", "s3:PutObject", f"{HEAD.bucket}/bundle.tar.gz", {}, False),
    ("write the control object", "s3:PutObject", f"{HEAD.bucket}/control.json", {}, True),
    ("write the copy of the orders", "s3:PutObject", f"{HEAD.bucket}/orders.json", {}, True),
    ("delete the copy of the orders", "s3:DeleteObject", f"{HEAD.bucket}/orders.json", {}, False),
    ("put the key", "secretsmanager:PutSecretValue", HEAD.secret, {}, True),
    ("delete the secret", "secretsmanager:DeleteSecret", HEAD.secret, {}, False),
    ("make a fleet of ours", "ec2:CreateFleet", f"{EC2}:fleet/*", LAUNCH, True),
    ("make a fleet with another's tag", "ec2:CreateFleet", f"{EC2}:fleet/*", {"aws:requesttag/gpucluster:cluster": ("other",)}, False),
    ("a fleet in another subnet", "ec2:CreateFleet", f"{EC2}:subnet/subnet-9", {}, False),
    ("launch into our reservation", "ec2:RunInstances", f"{EC2}:capacity-reservation/cr-1", LAUNCH, True),
    ("launch into a reservation that another account shares", "ec2:RunInstances", "arn:aws:ec2:us-east-2:210987654321:capacity-reservation/cr-1", LAUNCH, True),
    ("launch into another reservation", "ec2:RunInstances", f"{EC2}:capacity-reservation/cr-9", LAUNCH, False),
    ("hear of interruptions", "sqs:ReceiveMessage", HEAD.queue, {}, True),
    ("delete a received message", "sqs:DeleteMessage", HEAD.queue, {}, True),
    ("write to the queue", "sqs:SendMessage", HEAD.queue, {}, False),
    ("read another queue", "sqs:ReceiveMessage", "arn:aws:sqs:us-east-2:123456789012:other", {}, False),
    ("encrypt a volume with our key", "kms:GenerateDataKeyWithoutPlaintext", KEY, {"kms:viaservice": ("ec2.us-east-2.amazonaws.com",)}, True),
    ("use our key directly", "kms:Decrypt", KEY, {}, False),
    ("use another key", "kms:Decrypt", KEY.replace("0123abcd", "9999abcd"), {"kms:viaservice": ("ec2.us-east-2.amazonaws.com",)}, False),
    ("let EC2 use our key", "kms:CreateGrant", KEY, {"kms:viaservice": ("ec2.us-east-2.amazonaws.com",), "kms:grantisforawsresource": ("true",)}, True),
    ("let a person use our key", "kms:CreateGrant", KEY, {"kms:viaservice": ("ec2.us-east-2.amazonaws.com",), "kms:grantisforawsresource": ("false",)}, False),
    ("encrypt the control object", "kms:GenerateDataKey", KEY, {"kms:viaservice": ("s3.us-east-2.amazonaws.com",)}, True),
    ("make a template", "ec2:CreateLaunchTemplateVersion", f"{EC2}:launch-template/lt-1", {}, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("action", "resource", "context", "allowed"), [r[1:] for r in NEEDS], ids=[r[0] for r in NEEDS]
)
def test_permissions_of_the_head(action: str, resource: str, context: Any, allowed: bool) -> None:
    need = Need(action=action, resource=resource, context=context)
    assert allows([json.loads(head_policy(HEAD))], need) is allowed


@pytest.mark.parametrize(
    ("action", "resource", "allowed"),
    [
        ("s3:GetObject", f"{HEAD.bucket}/bundle.tar.gz", True),
        ("s3:GetObject", f"{HEAD.bucket}/control.json", False),
        ("s3:PutObject", f"{HEAD.bucket}/status/head.json", False),
        ("s3:GetObject", f"{HEAD.bucket}/orders.json", False),
        ("s3:PutObject", f"{HEAD.bucket}/orders.json", False),
        ("secretsmanager:GetSecretValue", HEAD.secret, True),
        ("secretsmanager:PutSecretValue", HEAD.secret, False),
        ("ec2:TerminateInstances", f"{EC2}:instance/i-1", False),
        ("ec2:DescribeInstances", "*", False),
    ],
)
def test_permissions_of_a_node(action: str, resource: str, allowed: bool) -> None:
    need = Need(action=action, resource=resource, context=OWN)
    assert allows([json.loads(node_policy(NODE))], need) is allowed


def test_user_data_is_golden_and_deterministic(golden: Any) -> None:
    texts = {
        f"{role}.yaml": user_data(cluster="burst", region="us-east-2", bucket="burst-1", role=role).encode()
        for role in ("head", "node")
    }
    golden("aws/userdata", texts)


def test_user_data_is_small_and_accepts_every_cluster_name() -> None:
    text = user_data(cluster='"\n#: {}', region="r", bucket="b" * 63, role="node")
    config = json.loads(text.removeprefix("#cloud-config\n"))
    assert json.loads(config["write_files"][0]["content"])["cluster"] == '"\n#: {}'
    assert len(text) < 1024 < LIMIT_BYTES
    assert encoded(text) == encoded(text)


def test_user_data_over_the_limit_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"user data is 2[0-9]{4} bytes, EC2 takes 16384"):
        user_data(cluster="c" * 20_000, region="r", bucket="b", role="node")
