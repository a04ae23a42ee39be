"""IAM policy documents of machines and jobs, as plain values, with the smallest permissions that the work needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpucluster.plan.model import Market, SlurmOnAws
from gpucluster.plan.names import (
    BUNDLE_KEY,
    COMMAND_OUTPUT,
    CONTROL_KEY,
    ORDERS_KEY,
    ROLE_NODE,
    STATUS_KEY,
    TAG_CLUSTER,
    TAG_ROLE,
)
from gpucluster.plan.store_policies import EFS_CLIENT, Statement, document

SEEN = ("ec2:DescribeCapacityReservations", "ec2:DescribeInstanceTopology", "ec2:DescribeInstances")
# The actions of the SSM agent for Session Manager. The channels have no narrower resource. The first action can take an
# instance ARN, but AWS's own policies for the agent use none (policies/rules/identity.py).
SESSION_MANAGER = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)

# The actions of EC2 on the key of an encrypted volume, besides CreateGrant (T51). `kms:ReEncrypt*` in full.
VOLUME_KEY = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)

# The first spot request of an account creates this role with the caller's permissions. As a Pulumi resource it would
# conflict with the existing role of most accounts.
SPOT_ROLE = "role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadScope:
    """The resources of the head's permissions, by ARN."""

    cluster: str
    region: str
    account: str  # of the caller; a shared VPC belongs to another account (T50)
    image: str  # id
    machines: Sequence[str]  # instance types of the plan's pools
    subnets: Sequence[str]
    node_group: str
    node_role: str
    bucket: str
    secret: str
    queue: str
    spot: bool
    fleet: bool = False  # some source has several machine types, which one fleet request names
    reservations: Sequence[str] = ()  # ids
    more_images: Sequence[str] = ()  # ids, of pools with their own image
    placement: bool = False  # some pool launches into placement groups
    ssm: bool = False  # users reach machines by Session Manager
    directory: str | None = None  # the secret of the bind password
    database: str | None = None  # the secret of an existing accounting database
    key: str | None = None  # customer-managed, of volumes, bucket and secret
    file_systems: Sequence[str] = ()  # our own EFS


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeScope:
    """The resources of a node's permissions, by ARN."""

    bucket: str
    secret: str
    ssm: bool = False
    directory: str | None = None
    jobs_role: str | None = None  # assumed for jobs
    key: str | None = None  # customer-managed, of bucket and secret
    boot_scripts: Sequence[str] = ()  # ARNs of objects
    file_systems: Sequence[str] = ()  # our own EFS, except the one with the state of the heads


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsScope:
    """The places of jobs, `s3://BUCKET` or `s3://BUCKET/FOLDER`, and the ARN of the cluster's own bucket, which is denied."""

    own_bucket: str | None = None  # None: the cluster has none
    read: Sequence[str] = ()
    write: Sequence[str] = ()


def head_scope(plan: SlurmOnAws, arns: Mapping[str, Any]) -> HeadScope:
    """Return the scope of the head's policy, from the plan and the ARNs of its resources."""
    sources = [source for pool in plan.pools for source in pool.sources]
    image, *more = sorted(set(arns["images"]))
    return HeadScope(
        cluster=plan.name,
        region=plan.aws.region,
        account=arns["account"],
        image=image,
        machines=sorted({machine for source in sources for machine in source.machines}),
        more_images=more,
        subnets=arns["subnets"],
        node_group=arns["node_group"],
        node_role=arns["node_role"],
        bucket=arns["bucket"],
        secret=arns["secret"],
        queue=arns["queue"],
        key=arns["key"] or None,
        spot=any(s.market is Market.SPOT for s in sources),
        fleet=any(len(s.machines) > 1 for s in sources),
        reservations=sorted({s.reservation for s in sources if s.reservation is not None}),
        placement=any(pool.placement for pool in plan.pools),
        ssm=plan.access.ssm,
        directory=None if plan.directory is None else plan.directory.secret,
        database=None if plan.slurm.accounting is None else plan.slurm.accounting.secret,
        file_systems=arns["file_systems"],
    )


def reader_scope(plan: SlurmOnAws, arns: Mapping[str, Any], boot_scripts: Sequence[str]) -> NodeScope:
    """Return the scope of the policy of machines that read the stores."""
    return NodeScope(
        bucket=arns["bucket"],
        secret=arns["secret"],
        jobs_role=arns["jobs_role"] or None,
        boot_scripts=boot_scripts,
        key=arns["key"] or None,
        file_systems=arns["file_systems"],
        ssm=plan.access.ssm,
        directory=None if plan.directory is None else plan.directory.secret,
    )


def trust_ec2() -> str:
    """Return the trust policy: only EC2 assumes the role, for its instances."""
    principal = {"Service": "ec2.amazonaws.com"}
    return document({"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"})


def trust_role(role_arn: str) -> str:
    """Return the trust policy: only that role assumes this one, and only if its own policy also allows it.

    The role is named in a condition. As the principal it would need no permission of its own, and IAM refuses a principal
    that was created a moment ago.
    """
    statement = {
        "Effect": "Allow",
        "Principal": {"AWS": role_arn.split(":")[4]},
        "Action": "sts:AssumeRole",
        "Condition": {"ArnEquals": {"aws:PrincipalArn": role_arn}},
    }
    return document(statement)


def head_policy(scope: HeadScope) -> str:
    """Launch from our templates, terminate our nodes, receive notices, use bundle, control object and munge key."""
    return _controller_policy(scope, ["secretsmanager:GetSecretValue", "secretsmanager:PutSecretValue"])


def standby_policy(scope: HeadScope) -> str:
    """All permissions of the head, except the creation of the munge key."""
    return _controller_policy(scope, ["secretsmanager:GetSecretValue"])


def node_policy(scope: NodeScope) -> str:
    """Read the bundle and the munge key. A node terminates by a shutdown, because its launch template says so."""
    return document(
        allow("Bundle", ["s3:GetObject"], f"{scope.bucket}/{BUNDLE_KEY}"),
        allow("Key", ["secretsmanager:GetSecretValue"], scope.secret),
        *([] if scope.key is None else [_stored(scope.key, ["kms:Decrypt"])]),
        *([allow("BootScripts", ["s3:GetObject"], *scope.boot_scripts)] if scope.boot_scripts else []),
        *([] if scope.jobs_role is None else [allow("JobsRole", ["sts:AssumeRole"], scope.jobs_role)]),
        *_every_machine(scope),
    )


def jobs_policy(scope: JobsScope) -> str:
    """Read data and write checkpoints. The cluster's own bucket is denied: a user who can write the bundle is root everywhere."""
    own: list[Statement] = []
    if scope.own_bucket is not None:
        ours = [scope.own_bucket, f"{scope.own_bucket}/*"]
        own = [{"Sid": "NotOurs", "Effect": "Deny", "Action": "s3:*", "Resource": ours}]
    read = [allow("Read", ["s3:GetObject"], *map(_objects_of, scope.read))] if scope.read else []
    writes = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
    write = [allow("Write", writes, *map(_objects_of, scope.write))] if scope.write else []
    return document(*read, *write, *_lists([*scope.read, *scope.write]), *own)


def boot_script_arns(plan: SlurmOnAws) -> list[str]:
    """Return the ARNs of the objects that nodes run at their boot."""
    return sorted({f"arn:aws:s3:::{one.bucket}/{one.key}" for pool in plan.pools for one in pool.on_boot})


def _controller_policy(scope: HeadScope, secret_actions: list[str]) -> str:
    """Return the policy of a machine that runs the controller. `secret_actions`: on the secret of the munge key."""
    return document(
        *_launch(scope),
        *_own_nodes(scope),
        _notices(scope),
        *_objects(scope),
        *_controller_key(scope.key),
        allow("Key", secret_actions, scope.secret),
        *_database(scope),
        *_command_output(scope),
        *_every_machine(scope),
    )


def _command_output(scope: HeadScope) -> list[Statement]:
    """Let the SSM agent write the output of a command, which the operator reads and deletes."""
    if not scope.ssm:
        return []
    return [allow("CommandOutput", ["s3:PutObject"], f"{scope.bucket}/{COMMAND_OUTPUT}/*")]


def _database(scope: HeadScope) -> list[Statement]:
    """Read the account of slurmdbd in an existing database."""
    if scope.database is None:
        return []
    return [allow("Database", ["secretsmanager:GetSecretValue"], scope.database)]


def _launch(scope: HeadScope) -> list[Statement]:
    """Statements of a launch: the parts it uses, its templates, and the resources it creates, limited by tag."""
    base = _ec2_base(scope)
    calls = ["ec2:CreateFleet", "ec2:RunInstances"] if scope.fleet else ["ec2:RunInstances"]
    made = [f"{base}:instance/*", f"{base}:network-interface/*", f"{base}:volume/*"]
    tagged = {f"aws:RequestTag/{TAG_CLUSTER}": scope.cluster}
    # By tag and not by ARN: the size of a role's policies is limited (T37), and a cluster may have a hundred templates.
    ours = {"StringEquals": {f"aws:ResourceTag/{TAG_CLUSTER}": scope.cluster}}
    groups = [f"{base}:placement-group/*"] if scope.placement else []
    templates = {"ec2:LaunchTemplate": f"{base}:launch-template/*"}
    from_template = {"ArnLike": templates, "StringEquals": tagged}
    # A request may replace the type of its template. Only an instance has the key of its type.
    of_plan = {"ArnLike": templates, "StringEquals": {**tagged, "ec2:InstanceType": sorted(scope.machines)}}
    passed = {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
    return [
        allow("LaunchFrom", calls, *_launch_parts(scope)),
        allow("LaunchOurs", calls, f"{base}:launch-template/*", *groups, when=ours),
        allow("LaunchMachines", ["ec2:RunInstances"], made[0], when=of_plan),
        allow("LaunchTagged", ["ec2:RunInstances"], *made[1:], when=from_template),
        _tag_on_creation(scope, made, tagged),
        allow("PassNodeRole", ["iam:PassRole"], scope.node_role, when=passed),
        *_fleet(scope, made, tagged),
        *_spot(scope, tagged),
    ]


def _launch_parts(scope: HeadScope) -> list[str]:
    base = f"arn:aws:ec2:{scope.region}"
    images = [f"{base}::image/{one}" for one in (scope.image, *scope.more_images)]
    # A shared reservation belongs to another account. Its id is unique in AWS, so any account may stand before it (T50).
    reservations = [f"{base}:*:capacity-reservation/{one}" for one in scope.reservations]
    return sorted([*images, scope.node_group, *scope.subnets, *reservations])


def _tag_on_creation(scope: HeadScope, made: Sequence[str], tagged: Statement) -> Statement:
    """Allow tags only at creation, so that no existing resource gets our tag."""
    base = _ec2_base(scope)
    kinds = [*made, *([f"{base}:fleet/*"] if scope.fleet else []), *_requests(scope)]
    calls: str | list[str] = ["CreateFleet", "RunInstances"] if scope.fleet else "RunInstances"
    condition = {"StringEquals": {"ec2:CreateAction": calls, **tagged}}
    return allow("TagAtCreation", ["ec2:CreateTags"], *sorted(kinds), when=condition)


def _fleet(scope: HeadScope, made: Sequence[str], tagged: Statement) -> list[Statement]:
    if not scope.fleet:
        return []
    kinds = sorted([*made, f"{_ec2_base(scope)}:fleet/*", *_requests(scope)])
    return [allow("Fleet", ["ec2:CreateFleet"], *kinds, when={"StringEquals": tagged})]


def _spot(scope: HeadScope, tagged: Statement) -> list[Statement]:
    if not scope.spot:
        return []
    role = f"arn:aws:iam::{scope.account}:{SPOT_ROLE}"
    return [
        allow("LaunchSpot", ["ec2:RunInstances"], *_requests(scope), when={"StringEquals": tagged}),
        allow("SpotRole", ["iam:CreateServiceLinkedRole"], role),
    ]


def _requests(scope: HeadScope) -> list[str]:
    return [f"{_ec2_base(scope)}:spot-instances-request/*"] if scope.spot else []


def _own_nodes(scope: HeadScope) -> list[Statement]:
    own = {f"aws:ResourceTag/{TAG_CLUSTER}": scope.cluster, f"aws:ResourceTag/{TAG_ROLE}": ROLE_NODE}
    nodes = f"{_ec2_base(scope)}:instance/*"
    return [
        allow("OwnNodes", ["ec2:TerminateInstances"], nodes, when={"StringEquals": own}),
        allow("See", list(SEEN), "*"),  # these calls have no narrower resource
    ]


def _notices(scope: HeadScope) -> Statement:
    return allow("Notices", ["sqs:DeleteMessage", "sqs:ReceiveMessage"], scope.queue)


def _objects(scope: HeadScope) -> list[Statement]:
    """The statements are few: the size of a role's boundary is limited (T37)."""
    own = (f"{scope.bucket}/{key}" for key in (CONTROL_KEY, ORDERS_KEY, STATUS_KEY))
    return [
        allow("Bundle", ["s3:GetObject"], f"{scope.bucket}/{BUNDLE_KEY}"),
        allow("Objects", ["s3:GetObject", "s3:GetObjectVersion", "s3:PutObject"], *own),
        # without ListBucket a missing object answers 403, not 404
        allow("Lists", ["s3:ListBucket", "s3:ListBucketVersions"], scope.bucket),
    ]


def _controller_key(key: str | None) -> list[Statement]:
    """Statements for the key: EC2 uses it for the volumes of a launch, S3 and Secrets Manager for reads and writes (T51)."""
    if key is None:
        return []
    return [*volume_key(key), _stored(key, ["kms:Decrypt", "kms:GenerateDataKey"])]


def volume_key(key: str) -> list[Statement]:
    """Return the rights of who launches instances whose volumes have the key. EC2 uses it as the caller (T51)."""
    by_ec2 = {"StringEquals": {"kms:ViaService": [_service(key, "ec2")]}}
    return [
        allow("VolumeKey", list(VOLUME_KEY), key, when=by_ec2),
        # Only grants for AWS's own use of the key: a principal with a grant of its own could use the key directly.
        allow(
            "VolumeGrant",
            ["kms:CreateGrant"],
            key,
            when={**by_ec2, "Bool": {"kms:GrantIsForAWSResource": "true"}},
        ),
    ]


def _stored(key: str, actions: list[str]) -> Statement:
    """Allow the key for objects of the bucket and for the secret."""
    services = [_service(key, "s3"), _service(key, "secretsmanager")]
    return allow("StoredKey", actions, key, when={"StringEquals": {"kms:ViaService": services}})


def _service(key: str, service: str) -> str:
    """Return the name of a service in the region of the key, as `kms:ViaService` has it."""
    return f"{service}.{key.split(':')[3]}.amazonaws.com"


def _objects_of(place: str) -> str:
    return f"arn:aws:s3:::{place.removeprefix('s3://')}/*"


def _lists(places: Sequence[str]) -> list[Statement]:
    """Statements to list whole buckets, and single folders of other buckets."""
    folders: dict[str, list[str]] = {}
    for place in sorted(set(places)):
        bucket, _, folder = place.removeprefix("s3://").partition("/")
        folders.setdefault(bucket, []).append(folder)
    whole = [f"arn:aws:s3:::{bucket}" for bucket, found in folders.items() if "" in found]
    statements = [allow("List", ["s3:ListBucket"], *whole)] if whole else []
    for number, (bucket, found) in enumerate((b, f) for b, f in folders.items() if "" not in f):
        # `sets` without a slash would also list `sets-of-others`
        when = {"StringLike": {"s3:prefix": [f"{folder}/*" for folder in found]}}
        statements.append(
            allow(f"ListFolders{number}", ["s3:ListBucket"], f"arn:aws:s3:::{bucket}", when=when)
        )
    return statements


def _every_machine(scope: HeadScope | NodeScope) -> list[Statement]:
    """Statements of every machine: mount file systems, open channels of Session Manager, read the bind password."""
    statements: list[Statement] = []
    if scope.file_systems:
        statements.append(allow("FileSystems", list(EFS_CLIENT), *sorted(scope.file_systems)))
    if scope.ssm:
        statements.append(allow("SessionManager", list(SESSION_MANAGER), "*"))
    if scope.directory is not None:
        statements.append(allow("Directory", ["secretsmanager:GetSecretValue"], scope.directory))
    return statements


def allow(sid: str, actions: list[str], *resources: str, when: Statement | None = None) -> Statement:
    statement: Statement = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": list(resources)}
    return statement | ({"Condition": when} if when else {})


def _ec2_base(scope: HeadScope) -> str:
    """Return the begin of the ARNs of EC2 resources that the launch creates or that Pulumi created."""
    return f"arn:aws:ec2:{scope.region}:{scope.account}"
