"""What machines and jobs may do in the account: policy documents as plain values, nothing wider than the work."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpucluster.plan.names import (
    BUNDLE_KEY,
    CONTROL_KEY,
    ROLE_NODE,
    STATUS_KEY,
    TAG_CLUSTER,
    TAG_ROLE,
)

Statement = dict[str, Any]
SEEN = ("ec2:DescribeCapacityReservations", "ec2:DescribeInstances")
# What the SSM agent needs for Session Manager alone. The channels know no narrower resource; the first takes an
# instance's ARN by now, but AWS's own policies for the agent name none (policies/rules/identity.py).
SESSION_MANAGER = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)

# The first spot request of an account makes this role, with the caller's rights. As a Pulumi resource it would
# collide with the one that most accounts have.
SPOT_ROLE = "role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadScope:
    """What the head works on, by ARN."""

    cluster: str
    vpc: str
    image: str  # id
    subnets: Sequence[str]
    node_group: str
    node_role: str
    bucket: str
    secret: str
    queue: str
    spot: bool
    fleet: bool = False  # some source has several machines: they are asked for at once
    reservations: Sequence[str] = ()  # ids
    more_images: Sequence[str] = ()  # ids, of pools with their own
    placement: bool = False  # some pool launches into placement groups
    ssm: bool = False  # people reach machines by Session Manager
    directory: str | None = None  # the secret of the bind password


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeScope:
    """What a node works on, by ARN."""

    bucket: str
    secret: str
    ssm: bool = False
    directory: str | None = None
    jobs_role: str | None = None  # taken on for jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsScope:
    """What jobs work on: `s3://BUCKET` or `s3://BUCKET/FOLDER`; and the ARN of the cluster's own bucket, which is not theirs."""

    own_bucket: str
    read: Sequence[str] = ()
    write: Sequence[str] = ()


def trust_ec2() -> str:
    """Only EC2 takes the role on, for its instances."""
    principal = {"Service": "ec2.amazonaws.com"}
    return document({"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"})


def trust_role(role_arn: str) -> str:
    """Only that role takes this one on, and only if its own policy lets it, too.

    By a condition and not as the principal: that alone would let it, and IAM must know a principal already, which a role
    that was made a moment ago is not.
    """
    statement = {
        "Effect": "Allow",
        "Principal": {"AWS": role_arn.split(":")[4]},
        "Action": "sts:AssumeRole",
        "Condition": {"ArnEquals": {"aws:PrincipalArn": role_arn}},
    }
    return document(statement)


def head_policy(scope: HeadScope) -> str:
    """Launch from our templates, end our nodes, hear of interruptions, keep bundle, control object and key."""
    key = _allow("Key", ["secretsmanager:GetSecretValue", "secretsmanager:PutSecretValue"], scope.secret)
    return document(*_controller(scope), key, *_access(scope.ssm, scope.directory))


def standby_policy(scope: HeadScope) -> str:
    """A second head takes over all but the making of the key, which the first one made."""
    key = _allow("Key", ["secretsmanager:GetSecretValue"], scope.secret)
    return document(*_controller(scope), key, *_access(scope.ssm, scope.directory))


def node_policy(scope: NodeScope) -> str:
    """Read the bundle and the key. A node that ends itself shuts down: its template says terminate."""
    return document(
        _allow("Bundle", ["s3:GetObject"], f"{scope.bucket}/{BUNDLE_KEY}"),
        _allow("Key", ["secretsmanager:GetSecretValue"], scope.secret),
        *([] if scope.jobs_role is None else [_allow("JobsRole", ["sts:AssumeRole"], scope.jobs_role)]),
        *_access(scope.ssm, scope.directory),
    )


def jobs_policy(scope: JobsScope) -> str:
    """Read data, write checkpoints. Who could write the bundle would be root on every machine: that is denied."""
    own = {
        "Sid": "NotOurs",
        "Effect": "Deny",
        "Action": "s3:*",
        "Resource": [scope.own_bucket, f"{scope.own_bucket}/*"],
    }
    read = [_allow("Read", ["s3:GetObject"], *map(_objects_of, scope.read))] if scope.read else []
    writes = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
    write = [_allow("Write", writes, *map(_objects_of, scope.write))] if scope.write else []
    return document(*read, *write, *_lists([*scope.read, *scope.write]), own)


def only_tls(bucket_arn: str) -> str:
    """The bucket's policy: nothing without TLS."""
    statement = {
        "Sid": "OnlyTls",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [bucket_arn, f"{bucket_arn}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return document(statement)


def events_to(queue_arn: str, rule_arns: Sequence[str]) -> str:
    """The queue's policy: EventBridge's rules of this cluster write, and nobody else."""
    statement = {
        "Sid": "Events",
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": sorted(rule_arns)}},
    }
    return document(statement)


def document(*statements: Statement) -> str:
    """A policy's canonical text."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)}, sort_keys=True)


def _controller(scope: HeadScope) -> list[Statement]:
    return [*_launch(scope), *_own_nodes(scope), _notices(scope), *_objects(scope)]


def _launch(scope: HeadScope) -> list[Statement]:
    """What a launch uses, what it may be launched from, and what it makes: all of ours, all by tag."""
    base = _ec2_base(scope.vpc)
    calls = ["ec2:CreateFleet", "ec2:RunInstances"] if scope.fleet else ["ec2:RunInstances"]
    made = [f"{base}:instance/*", f"{base}:network-interface/*", f"{base}:volume/*"]
    tagged = {f"aws:RequestTag/{TAG_CLUSTER}": scope.cluster}
    # By its tag and not by its ARN: a role's policies are short (T37), and a cluster may have a hundred templates.
    ours = {"StringEquals": {f"aws:ResourceTag/{TAG_CLUSTER}": scope.cluster}}
    groups = [f"{base}:placement-group/*"] if scope.placement else []
    from_template = {"ArnLike": {"ec2:LaunchTemplate": f"{base}:launch-template/*"}, "StringEquals": tagged}
    passed = {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
    return [
        _allow("LaunchFrom", calls, *_launch_parts(scope)),
        _allow("LaunchOurs", calls, f"{base}:launch-template/*", *groups, when=ours),
        _allow("LaunchTagged", ["ec2:RunInstances"], *made, when=from_template),
        _tag_at_birth(scope, made, tagged),
        _allow("PassNodeRole", ["iam:PassRole"], scope.node_role, when=passed),
        *_fleet(scope, made, tagged),
        *_spot(scope, tagged),
    ]


def _launch_parts(scope: HeadScope) -> list[str]:
    base, image_base = _ec2_base(scope.vpc), f"arn:aws:ec2:{scope.vpc.split(':')[3]}::image"
    images = [f"{image_base}/{one}" for one in (scope.image, *scope.more_images)]
    held = [f"{base}:capacity-reservation/{one}" for one in scope.reservations]
    return sorted([*images, scope.node_group, *scope.subnets, *held])


def _tag_at_birth(scope: HeadScope, made: Sequence[str], tagged: Statement) -> Statement:
    """Nothing that stands already may get our tag."""
    base = _ec2_base(scope.vpc)
    kinds = [*made, *([f"{base}:fleet/*"] if scope.fleet else []), *_requests(scope)]
    calls: str | list[str] = ["CreateFleet", "RunInstances"] if scope.fleet else "RunInstances"
    born = {"StringEquals": {"ec2:CreateAction": calls, **tagged}}
    return _allow("TagAtBirth", ["ec2:CreateTags"], *sorted(kinds), when=born)


def _fleet(scope: HeadScope, made: Sequence[str], tagged: Statement) -> list[Statement]:
    if not scope.fleet:
        return []
    kinds = sorted([*made, f"{_ec2_base(scope.vpc)}:fleet/*", *_requests(scope)])
    return [_allow("Fleet", ["ec2:CreateFleet"], *kinds, when={"StringEquals": tagged})]


def _spot(scope: HeadScope, tagged: Statement) -> list[Statement]:
    if not scope.spot:
        return []
    role = f"arn:aws:iam::{scope.vpc.split(':')[4]}:{SPOT_ROLE}"
    return [
        _allow("LaunchSpot", ["ec2:RunInstances"], *_requests(scope), when={"StringEquals": tagged}),
        _allow("SpotRole", ["iam:CreateServiceLinkedRole"], role),
    ]


def _requests(scope: HeadScope) -> list[str]:
    return [f"{_ec2_base(scope.vpc)}:spot-instances-request/*"] if scope.spot else []


def _own_nodes(scope: HeadScope) -> list[Statement]:
    own = {f"aws:ResourceTag/{TAG_CLUSTER}": scope.cluster, f"aws:ResourceTag/{TAG_ROLE}": ROLE_NODE}
    nodes = f"{_ec2_base(scope.vpc)}:instance/*"
    return [
        _allow("OwnNodes", ["ec2:TerminateInstances"], nodes, when={"StringEquals": own}),
        _allow("See", list(SEEN), "*"),  # these calls know no narrower resource
    ]


def _notices(scope: HeadScope) -> Statement:
    return _allow("Notices", ["sqs:DeleteMessage", "sqs:ReceiveMessage"], scope.queue)


def _objects(scope: HeadScope) -> list[Statement]:
    own = (f"{scope.bucket}/{CONTROL_KEY}", f"{scope.bucket}/{STATUS_KEY}")
    return [
        _allow("Bundle", ["s3:GetObject"], f"{scope.bucket}/{BUNDLE_KEY}"),
        _allow("Objects", ["s3:GetObject", "s3:PutObject"], *own),
        _allow("Missing", ["s3:ListBucket"], scope.bucket),  # else a missing object answers 403, not 404
    ]


def _objects_of(place: str) -> str:
    return f"arn:aws:s3:::{place.removeprefix('s3://')}/*"


def _lists(places: Sequence[str]) -> list[Statement]:
    """Buckets that are listed whole, and those of which only folders are."""
    folders: dict[str, list[str]] = {}
    for place in sorted(set(places)):
        bucket, _, folder = place.removeprefix("s3://").partition("/")
        folders.setdefault(bucket, []).append(folder)
    whole = [f"arn:aws:s3:::{bucket}" for bucket, found in folders.items() if "" in found]
    statements = [_allow("List", ["s3:ListBucket"], *whole)] if whole else []
    for number, (bucket, found) in enumerate((b, f) for b, f in folders.items() if "" not in f):
        # `sets` without its slash would also tell the names in `sets-of-others`
        when = {"StringLike": {"s3:prefix": [f"{folder}/*" for folder in found]}}
        statements.append(
            _allow(f"ListFolders{number}", ["s3:ListBucket"], f"arn:aws:s3:::{bucket}", when=when)
        )
    return statements


def _access(ssm: bool, directory: str | None) -> list[Statement]:
    """How people come in: Session Manager's channels, and the directory's bind password."""
    statements: list[Statement] = []
    if ssm:
        statements.append(_allow("SessionManager", list(SESSION_MANAGER), "*"))
    if directory is not None:
        statements.append(_allow("Directory", ["secretsmanager:GetSecretValue"], directory))
    return statements


def _allow(sid: str, actions: list[str], *resources: str, when: Statement | None = None) -> Statement:
    statement: Statement = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": list(resources)}
    return statement | ({"Condition": when} if when else {})


def _ec2_base(vpc_arn: str) -> str:
    """`arn:aws:ec2:REGION:ACCOUNT` of an EC2 ARN."""
    return vpc_arn.rsplit(":", 1)[0]
