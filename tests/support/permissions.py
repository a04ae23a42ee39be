"""Every action of every role: its reason, and the smallest scenario that fails without it.

`docs/permissions.md` is generated from this table and the policies. `tests/unit/sandbox/aws/test_permissions.py` runs
each scenario twice: with the whole policy of the role, and without the one action.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.bucket_object import BucketObject
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import Control, LaunchCall, Scaling
from gpucluster.cloud.queue import SqsNotices
from gpucluster.plan import names
from gpucluster.plan.codec import dumps
from gpucluster.plan.iam_policies import (
    VOLUME_KEY,
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
from gpucluster.plan.model import Market
from gpucluster.plan.names import ROLE_HEAD, ROLE_JOBS, ROLE_LOGIN, ROLE_NODE, ROLE_STANDBY
from gpucluster.plan.store_policies import only_machines
from gpucluster.sandbox.aws.credentials import Key
from gpucluster.sandbox.aws.iam.policies import Need, allows, for_everyone
from gpucluster.sandbox.aws.moto_state import ACCOUNT
from support.clouds import Network, RunningCloud, a_network, running_cloud
from support.launches import fleet_call, launch_call, with_changes

BASE, ROLES_BASE = "arn:aws:ec2:us-east-1:123456789012", "arn:aws:iam::123456789012:role"
BUCKET, RESERVED, GROUP = "rights-bucket", "cr-0123456789abcdef0", "rights-us-east-1a"
MACHINES = ("p5.48xlarge", "p4d.24xlarge")
ROLES = (ROLE_HEAD, ROLE_STANDBY, ROLE_NODE, ROLE_LOGIN, ROLE_JOBS)
EFS = "arn:aws:elasticfilesystem:us-east-1:123456789012:file-system"
HOME, STATE = f"{EFS}/fs-0123456789abcdef0", f"{EFS}/fs-0fedcba9876543210"
DATA, PUBLIC = "rights-data", "rights-public"
ZONE = "us-east-1a"
TAGS = {names.TAG_CLUSTER: "burst", names.TAG_ROLE: names.ROLE_NODE}


class RefusedError(Exception):
    """An action of a service outside of the sandbox: only the policy is evaluated."""


@dataclass
class World:
    """A cloud with every role of a cluster and the resources of their actions."""

    cloud: RunningCloud
    network: Network
    secret: str
    bind: str
    database: str
    queue: str  # URL
    keys: Mapping[str, Key]
    key: str = ""  # ARN of the customer-managed key of volumes, bucket and secret
    owner: str = ACCOUNT  # of the subnets

    def policies(self) -> dict[str, str]:
        """Return the policies of the Pulumi program for a spec with all options."""
        queue = f"arn:aws:sqs:us-east-1:123456789012:{self.queue.rpartition('/')[2]}"
        bucket = f"arn:aws:s3:::{BUCKET}"
        head = HeadScope(
            cluster="burst",
            region="us-east-1",
            account=ACCOUNT,
            image=self.network.image,
            machines=MACHINES,
            subnets=[f"arn:aws:ec2:us-east-1:{self.owner}:subnet/{s}" for s in self.network.subnets.values()],
            node_group=f"{BASE}:security-group/{self.network.group}",
            node_role=f"{ROLES_BASE}/{ROLE_NODE}",
            bucket=bucket,
            secret=self.secret,
            queue=queue,
            spot=True,
            fleet=True,
            reservations=[RESERVED],
            placement=True,
            ssm=True,
            directory=self.bind,
            database=self.database,
            key=self.key,
            file_systems=[HOME, STATE],
        )
        node = NodeScope(
            bucket=bucket,
            secret=self.secret,
            ssm=True,
            directory=self.bind,
            key=self.key,
            file_systems=[HOME],
        )
        scripts = [f"arn:aws:s3:::{DATA}/site/1"]
        jobs = JobsScope(
            own_bucket=bucket,
            read=[f"s3://{DATA}/sets", f"s3://{PUBLIC}"],
            write=[f"s3://{DATA}/checkpoints"],
        )
        return {
            ROLE_HEAD: head_policy(head),
            ROLE_STANDBY: standby_policy(head),
            ROLE_NODE: node_policy(
                replace(node, jobs_role=f"{ROLES_BASE}/{ROLE_JOBS}", boot_scripts=scripts)
            ),
            ROLE_LOGIN: node_policy(node),
            ROLE_JOBS: jobs_policy(jobs),
        }

    def put(self, role: str, document: str) -> None:
        self.cloud.client("iam").put_role_policy(RoleName=role, PolicyName=role, PolicyDocument=document)

    def client(self, service: str, role: str) -> Any:
        return self.cloud.client(service, self.keys[role])

    def port(self, role: str) -> AwsCloud:
        return AwsCloud("us-east-1", lambda _: self.client("ec2", role))

    def request(self, **change: Any) -> LaunchCall:
        base = launch_call(
            template_id=self.network.template,
            subnet_id=self.network.subnets[ZONE],
            zone=ZONE,
            machine="p5.48xlarge",
            market=Market.ON_DEMAND,
            tags={**TAGS, names.TAG_REQUEST: "r1"},
        )
        return with_changes(base, **change)


@contextmanager
def a_world() -> Iterator[World]:
    """Create all resources with the operator's permissions, as `pulumi up` does."""
    with running_cloud() as cloud:
        iam = cloud.client("iam")
        for role in ROLES:
            trust = trust_role(f"{ROLES_BASE}/{ROLE_NODE}") if role == ROLE_JOBS else trust_ec2()
            iam.create_role(RoleName=role, AssumeRolePolicyDocument=trust)
        iam.create_instance_profile(InstanceProfileName="rights-node")
        iam.add_role_to_instance_profile(InstanceProfileName="rights-node", RoleName=ROLE_NODE)
        own = [{"Key": key, "Value": value} for key, value in TAGS.items()]
        tagged = [{"ResourceType": kind, "Tags": own} for kind in ("instance", "network-interface", "volume")]
        key = cloud.client("kms").create_key()["KeyMetadata"]["Arn"]
        root = {"DeviceName": "/dev/sda1", "Ebs": {"Encrypted": True, "KmsKeyId": key}}
        network = a_network(
            cloud,
            IamInstanceProfile={"Name": "rights-node"},
            TagSpecifications=tagged,
            BlockDeviceMappings=[root],
        )  # a fleet tags only itself and its instances
        cloud.client("ec2").create_tags(Resources=[network.template], Tags=own)
        tags = [{"ResourceType": "placement-group", "Tags": own}]
        cloud.client("ec2").create_placement_group(
            GroupName=GROUP, Strategy="cluster", TagSpecifications=tags
        )
        secrets = cloud.client("secretsmanager")
        for bucket in (BUCKET, DATA, PUBLIC):
            cloud.client("s3").create_bucket(Bucket=bucket)
        default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
        cloud.client("s3").put_bucket_encryption(
            Bucket=BUCKET,
            ServerSideEncryptionConfiguration={"Rules": [{"ApplyServerSideEncryptionByDefault": default}]},
        )
        keys = {
            role: cloud.api.ring.session(role, f"AROA{role.upper()}", f"i-{n:017x}", cloud.clock.now)
            for n, role in enumerate(ROLES)
        }
        world = World(
            cloud=cloud,
            network=network,
            secret=secrets.create_secret(Name="rights-munge", KmsKeyId=key)["ARN"],
            bind=secrets.create_secret(Name="rights-bind", SecretString="bind")["ARN"],
            database=secrets.create_secret(Name="rights-database", SecretString="{}")["ARN"],
            queue=cloud.client("sqs").create_queue(QueueName="rights-events")["QueueUrl"],
            keys=keys,
            key=key,
        )
        for role, document in world.policies().items():
            world.put(role, document)
        yield world


# --- scenarios: the actions of a role, by our own clients if there is one ------------------------------------
Scenario = Callable[[World, str], object]


def launch(world: World, role: str) -> object:
    return world.port(role).launch(world.request())


def launch_with_key(world: World, role: str) -> object:
    """Launch; the answer is good, and without the rights on the key the instance has ended a moment later (T51)."""
    world.cloud.model.trail.clear()
    (made,) = world.port(role).launch(world.request())
    listed = next(i for i in world.port(role).instances("burst") if i.id == made)
    if listed.key_refused:
        refused = next(one.action for one in world.cloud.model.trail if one.action.startswith("kms:"))
        raise RefusedError(f"no policy allows the {refused} action")
    return listed


def launch_spot(world: World, role: str) -> object:
    return world.port(role).launch(world.request(market=Market.SPOT))


def first_spot(world: World, role: str) -> object:
    world.cloud.model.spot_role = False
    return launch_spot(world, role)


def launch_together(world: World, role: str) -> object:
    return world.port(role).launch(world.request(placement_group=GROUP))


def a_fleet(world: World, role: str, group: str | None = None) -> object:
    request = fleet_call(
        "p5.48xlarge",
        "p4d.24xlarge",
        template_id=world.network.template,
        subnet_id=world.network.subnets[ZONE],
        zone=ZONE,
        tags=TAGS,
        placement_group=group,
    )
    answer = world.port(role).fleet(request)
    if answer.errors:  # a refusal is inside a 200 (T14)
        raise RefusedError(answer.errors[0].message)
    return answer


def fleet_together(world: World, role: str) -> object:
    return a_fleet(world, role, GROUP)


def end_a_node(world: World, role: str) -> object:
    operator = AwsCloud("us-east-1", lambda _: world.cloud.client("ec2"))
    return world.port(role).terminate(operator.launch(world.request(token="e")))


def look(world: World, role: str) -> object:
    return world.port(role).instances("burst")


def look_at_reservations(world: World, role: str) -> object:
    return world.port(role).reservations([RESERVED])


def look_at_switches(world: World, role: str) -> object:
    (made,) = world.port(role).launch(world.request())
    return world.port(role).network_nodes([made])


def hear(world: World, role: str) -> object:
    return SqsNotices("us-east-1", world.queue, lambda: world.client("sqs", role)).receive(0)


def forget(world: World, role: str) -> object:
    world.cloud.client("sqs").send_message(QueueUrl=world.queue, MessageBody="nothing that can be read")
    return hear(world, role)


def take_the_bundle(world: World, role: str) -> object:
    world.cloud.client("s3").put_object(Bucket=BUCKET, Key=names.BUNDLE_KEY, Body=b"bundle")
    return world.client("s3", role).get_object(Bucket=BUCKET, Key=names.BUNDLE_KEY)


def _control(world: World, role: str) -> S3Control:
    return S3Control("us-east-1", BUCKET, lambda: world.client("s3", role))


def write_output(world: World, role: str) -> object:
    key = f"{names.COMMAND_OUTPUT}/1/i-1/awsrunShellScript/0.awsrunShellScript/stdout"
    return world.client("s3", role).put_object(Bucket=BUCKET, Key=key, Body=b"x")


def read_control(world: World, role: str) -> object:
    world.cloud.client("s3").put_object(Bucket=BUCKET, Key=names.CONTROL_KEY, Body=b"{}")
    return world.client("s3", role).get_object(Bucket=BUCKET, Key=names.CONTROL_KEY)


def write_control(world: World, role: str) -> object:
    world.cloud.client("s3").delete_object(Bucket=BUCKET, Key=names.CONTROL_KEY)
    return _control(world, role).write(Control(), None)


def read_old_control(world: World, role: str) -> object:
    """Read the stop that came before the damage."""
    s3 = world.cloud.client("s3")
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    for body in (dumps(Control(scaling=Scaling.RUN)), dumps(Control(scaling=Scaling.STOP)), "{damaged"):
        s3.put_object(Bucket=BUCKET, Key=names.CONTROL_KEY, Body=body.encode())
    found = _control(world, role).last_readable()
    assert found == Control(scaling=Scaling.STOP)
    return found


def read_orders(world: World, role: str) -> object:
    world.cloud.client("s3").put_object(Bucket=BUCKET, Key=names.ORDERS_KEY, Body=b"{}")
    return _orders(world, role).read()


def write_orders(world: World, role: str) -> object:
    world.cloud.client("s3").delete_object(Bucket=BUCKET, Key=names.ORDERS_KEY)
    return _orders(world, role).write(b"{}", None)


def read_own(world: World, role: str) -> object:
    return read_control(world, role), read_orders(world, role)


def write_own(world: World, role: str) -> object:
    return write_control(world, role), write_orders(world, role)


def _orders(world: World, role: str) -> BucketObject:
    return BucketObject("us-east-1", BUCKET, names.ORDERS_KEY, lambda: world.client("s3", role))


def begin_without_control(world: World, role: str) -> object:
    world.cloud.client("s3").delete_object(Bucket=BUCKET, Key=names.CONTROL_KEY)
    assert _control(world, role).read() == Control()
    return None


def take_the_key(world: World, role: str) -> object:
    world.cloud.client("secretsmanager").put_secret_value(SecretId=world.secret, SecretBinary=b"munge")
    return world.client("secretsmanager", role).get_secret_value(SecretId=world.secret)


def offer_the_key(world: World, role: str) -> object:
    return world.client("secretsmanager", role).put_secret_value(SecretId=world.secret, SecretBinary=b"munge")


def read_the_databases_account(world: World, role: str) -> object:
    return world.client("secretsmanager", role).get_secret_value(SecretId=world.database)


def bind_to_the_directory(world: World, role: str) -> object:
    return world.client("secretsmanager", role).get_secret_value(SecretId=world.bind)


def take_on_jobs_role(world: World, role: str) -> object:
    return world.client("sts", role).assume_role(
        RoleArn=f"{ROLES_BASE}/{ROLE_JOBS}", RoleSessionName="7-vision", DurationSeconds=3600
    )


def _in_s3(folder: str, call: str, **more: Any) -> Scenario:
    """Return a scenario: one S3 call on an object in a folder."""

    def ask(world: World, role: str) -> object:
        world.cloud.client("s3").put_object(Bucket=DATA, Key=f"{folder}/1", Body=b"data")
        return getattr(world.client("s3", role), call)(Bucket=DATA, Key=f"{folder}/1", **more)

    ask.__name__ = f"{call}_in_{folder}"
    return ask


def list_all(world: World, role: str) -> object:
    return world.client("s3", role).list_objects_v2(Bucket=PUBLIC)


def list_folders(world: World, role: str) -> object:
    s3 = world.client("s3", role)
    return [s3.list_objects_v2(Bucket=DATA, Prefix=prefix) for prefix in ("sets/", "checkpoints/run-1/")]


def give_up_an_upload(world: World, role: str) -> object:
    """Abort a multipart upload, as an SDK does after a failure. The parts cost until then."""
    begun = world.cloud.client("s3").create_multipart_upload(Bucket=DATA, Key="checkpoints/2")
    return world.client("s3", role).abort_multipart_upload(
        Bucket=DATA, Key="checkpoints/2", UploadId=begun["UploadId"]
    )


def judged(action: str) -> Scenario:
    """Return a scenario for a service that the sandbox does not have: it evaluates the policy and calls nothing."""

    def ask(world: World, role: str) -> object:
        document = world.cloud.client("iam").get_role_policy(RoleName=role, PolicyName=role)["PolicyDocument"]
        if not allows([document], Need(action=action, resource="*")):
            raise RefusedError(f"no policy allows the {action} action")
        return None

    ask.__name__ = "judged_by_the_policy_alone"
    return ask


def mounted(action: str) -> Scenario:
    """Return a scenario: the policy of an EFS and that of the role decide about a client that mounts with `tls,iam`."""

    def ask(world: World, role: str) -> object:
        document = world.cloud.client("iam").get_role_policy(RoleName=role, PolicyName=role)["PolicyDocument"]
        documents = [for_everyone(json.loads(only_machines(HOME))), document]
        context = {
            "aws:securetransport": ("true",),
            "elasticfilesystem:accessedviamounttarget": ("true",),
        }
        if not allows(documents, Need(action=action, resource=HOME, context=context)):
            raise RefusedError(f"no policy allows the {action} action")
        return None

    ask.__name__ = "mounted_by_both_policies"
    return ask


@dataclass(frozen=True)
class Right:
    """The reason of an action in a statement, and a scenario that needs it."""

    why: str
    scenario: Scenario


def _session_manager(why: str, *actions: str) -> dict[tuple[str, str], Right]:
    return {("SessionManager", action): Right(why, judged(action)) for action in actions}


# (Sid, action) -> reason and scenario; the same for each role that has the statement
RIGHTS: Mapping[tuple[str, str], Right] = {
    ("LaunchFrom", "ec2:RunInstances"): Right("nodes launch only from our images, subnets, security group and reservations", launch),
    ("LaunchFrom", "ec2:CreateFleet"): Right("one request names several machine types, with the same image, subnets, group and reservations", a_fleet),
    ("LaunchMachines", "ec2:RunInstances"): Right("instances are created only from our templates, with our tag, and of the machine types of the spec's pools", launch),
    ("LaunchTagged", "ec2:RunInstances"): Right("volumes and interfaces are created only from our templates and with our tag", launch),
    ("TagAtCreation", "ec2:CreateTags"): Right("new resources get their tags at creation; existing resources cannot be tagged", launch),
    ("PassNodeRole", "iam:PassRole"): Right("a launch passes only the node role (T37)", launch),
    ("LaunchOurs", "ec2:RunInstances"): Right("nodes launch only from our templates; gangs launch into their placement group", launch_together),
    ("LaunchOurs", "ec2:CreateFleet"): Right("fleets launch only from our templates; gangs launch into their placement group", fleet_together),
    ("Fleet", "ec2:CreateFleet"): Right("a fleet creates instances, volumes, interfaces and spot requests with our tag", a_fleet),
    ("LaunchSpot", "ec2:RunInstances"): Right("a spot request is created with our tag", launch_spot),
    ("SpotRole", "iam:CreateServiceLinkedRole"): Right("the first spot request of an account creates EC2's service-linked role", first_spot),
    **{
        ("VolumeKey", action): Right("EC2 uses the key of the site for the volumes of a node", launch_with_key)
        for action in VOLUME_KEY
    },
    ("VolumeGrant", "kms:CreateGrant"): Right("EC2 keeps the use of the key for the life of a volume; grants only for AWS's own services", launch_with_key),
    ("StoredKey", "kms:Decrypt"): Right("the bundle and the munge key are encrypted with the key of the site", take_the_key),
    ("StoredKey", "kms:GenerateDataKey"): Right("the head writes encrypted objects", write_control),
    ("OwnNodes", "ec2:TerminateInstances"): Right("idle and broken nodes of this cluster are terminated, never the head or another cluster", end_a_node),
    ("See", "ec2:DescribeInstances"): Right("list the running nodes and their addresses; the call has no narrower resource", look),
    ("See", "ec2:DescribeInstanceTopology"): Right("read the switches above always-on and reserved nodes; the call has no narrower resource", look_at_switches),
    ("See", "ec2:DescribeCapacityReservations"): Right("read the free capacity of reservations and capacity blocks; the call has no narrower resource", look_at_reservations),
    ("Notices", "sqs:ReceiveMessage"): Right("receive notices of interruption, rebalance and maintenance", hear),
    ("Notices", "sqs:DeleteMessage"): Right("delete a received notice", forget),
    ("Bundle", "s3:GetObject"): Right("fetch the configuration at boot and when it changes", take_the_bundle),
    ("Objects", "s3:GetObject"): Right("read before each action which daemon may act, and whether to scale; without a journal, the orders and the spend", read_own),
    ("Objects", "s3:GetObjectVersion"): Right("read the scaling of the last version of a control object that was damaged or deleted", read_old_control),
    ("Objects", "s3:PutObject"): Right("the active head writes its name, its status, and the copy of orders and spend", write_own),
    ("CommandOutput", "s3:PutObject"): Right("the SSM agent writes the output of a command of the operator, who reads and deletes it", write_output),
    ("Lists", "s3:ListBucket"): Right("a missing control object answers 404, not 403", begin_without_control),
    ("Lists", "s3:ListBucketVersions"): Right("find the last readable version of a damaged or deleted control object; it shows names only", read_old_control),
    ("Key", "secretsmanager:GetSecretValue"): Right("read the munge key at boot", take_the_key),
    ("Key", "secretsmanager:PutSecretValue"): Right("the first head creates the munge key", offer_the_key),
    ("BootScripts", "s3:GetObject"): Right("fetch the boot scripts of the site; the agent checks their hashes", _in_s3("site", "get_object")),
    ("JobsRole", "sts:AssumeRole"): Right("the agent assumes the role for jobs, and gives its credentials to jobs", take_on_jobs_role),
    ("Database", "secretsmanager:GetSecretValue"): Right("slurmdbd connects to the existing accounting database", read_the_databases_account),
    ("FileSystems", "elasticfilesystem:ClientMount"): Right("mount our own EFS, which admits only roles (T47)", mounted("elasticfilesystem:ClientMount")),
    ("FileSystems", "elasticfilesystem:ClientWrite"): Right("write to our own EFS", mounted("elasticfilesystem:ClientWrite")),
    ("FileSystems", "elasticfilesystem:ClientRootAccess"): Right("root creates homes and, on a head, the folder of slurmctld's state", mounted("elasticfilesystem:ClientRootAccess")),
    ("Read", "s3:GetObject"): Right("a job reads its data", _in_s3("sets", "get_object")),
    ("Write", "s3:GetObject"): Right("a job continues from its checkpoint", _in_s3("checkpoints", "get_object")),
    ("Write", "s3:PutObject"): Right("a job writes its checkpoint", _in_s3("checkpoints", "put_object", Body=b"weights")),
    ("Write", "s3:DeleteObject"): Right("a job deletes old checkpoints", _in_s3("checkpoints", "delete_object")),
    ("Write", "s3:AbortMultipartUpload"): Right("remove the parts of a failed upload, which cost until then", give_up_an_upload),
    ("List", "s3:ListBucket"): Right("a job lists a bucket; a missing object answers 404, not 403", list_all),
    ("ListFolders0", "s3:ListBucket"): Right("a job lists its folders, and no other", list_folders),
    ("Directory", "secretsmanager:GetSecretValue"): Right("sssd binds to the site's LDAP directory", bind_to_the_directory),
    **_session_manager("the SSM agent registers the machine", "ssm:UpdateInstanceInformation"),
    **_session_manager(
        "channels of Session Manager, which gives access without an open port",
        "ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel", "ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel"),
}  # fmt: skip


def statements(document: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the statements by Sid."""
    return ((s["Sid"], s) for s in json.loads(document)["Statement"])


def rights_of(document: str) -> list[tuple[str, str]]:
    """Return every (Sid, action) of a policy, in its order."""
    found = ((sid, one) for sid, one in statements(document) if one["Effect"] == "Allow")
    return [(sid, action) for sid, one in found for action in one["Action"]]


def without(document: str, sid: str, action: str) -> str:
    """Return the policy without one action of one statement."""
    kept: list[Mapping[str, Any]] = []
    for name, one in statements(document):
        if one["Effect"] == "Deny":
            kept.append(one)
            continue
        actions: Sequence[str] = [a for a in one["Action"] if (name, a) != (sid, action)]
        if actions:
            kept.append({**one, "Action": actions})
    return json.dumps({"Version": "2012-10-17", "Statement": kept})
