"""Every action of every role: why it is there, and the smallest thing of ours that fails without it.

`docs/permissions.md` is made of this table and of the policies' own text; `tests/unit/sandbox/test_permissions.py` runs
each scenario twice, once with the role's policy whole and once without the one action.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from clouds import Network, RunningCloud, a_network, running_cloud

from gpucluster.aws.policies import (
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
from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import Control, FleetOverride, FleetRequest, LaunchRequest
from gpucluster.cloud.queue import SqsNotices
from gpucluster.plan import names
from gpucluster.plan.model import Market
from gpucluster.plan.names import ROLE_HEAD, ROLE_JOBS, ROLE_LOGIN, ROLE_NODE, ROLE_STANDBY
from gpucluster.sandbox.keys import Key
from gpucluster.sandbox.policies import Need, allows

BASE, ROLES_BASE = "arn:aws:ec2:us-east-1:123456789012", "arn:aws:iam::123456789012:role"
BUCKET, RESERVED, GROUP = "rights-bucket", "cr-0123456789abcdef0", "rights-us-east-1a"
ROLES = (ROLE_HEAD, ROLE_STANDBY, ROLE_NODE, ROLE_LOGIN, ROLE_JOBS)
DATA, PUBLIC = "rights-data", "rights-public"
ZONE = "us-east-1a"
TAGS = {names.TAG_CLUSTER: "burst", names.TAG_ROLE: names.ROLE_NODE}


class RefusedError(Exception):
    """An action of a service that the sandbox has not, judged by the policy alone."""


@dataclass
class World:
    """A cloud with every role of a cluster, and what they work on."""

    cloud: RunningCloud
    network: Network
    secret: str
    bind: str
    queue: str  # URL
    keys: Mapping[str, Key]

    def policies(self) -> dict[str, str]:
        """As the program writes them, with everything that a spec can ask for."""
        queue = f"arn:aws:sqs:us-east-1:123456789012:{self.queue.rpartition('/')[2]}"
        bucket = f"arn:aws:s3:::{BUCKET}"
        head = HeadScope(
            cluster="burst",
            vpc=f"{BASE}:vpc/{self.network.vpc}",
            image=self.network.image,
            subnets=[f"{BASE}:subnet/{s}" for s in self.network.subnets.values()],
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
        )
        node = NodeScope(bucket=bucket, secret=self.secret, ssm=True, directory=self.bind)
        jobs = JobsScope(
            own_bucket=bucket,
            read=[f"s3://{DATA}/sets", f"s3://{PUBLIC}"],
            write=[f"s3://{DATA}/checkpoints"],
        )
        return {
            ROLE_HEAD: head_policy(head),
            ROLE_STANDBY: standby_policy(head),
            ROLE_NODE: node_policy(replace(node, jobs_role=f"{ROLES_BASE}/{ROLE_JOBS}")),
            ROLE_LOGIN: node_policy(node),
            ROLE_JOBS: jobs_policy(jobs),
        }

    def put(self, role: str, document: str) -> None:
        self.cloud.client("iam").put_role_policy(RoleName=role, PolicyName=role, PolicyDocument=document)

    def client(self, service: str, role: str) -> Any:
        return self.cloud.client(service, self.keys[role])

    def port(self, role: str) -> AwsCloud:
        return AwsCloud("us-east-1", lambda _: self.client("ec2", role))

    def request(self, **change: Any) -> LaunchRequest:
        base = LaunchRequest(
            token="t",
            count=1,
            template_id=self.network.template,
            template_version=1,
            subnet_id=self.network.subnets[ZONE],
            zone=ZONE,
            machine="p5.48xlarge",
            market=Market.ON_DEMAND,
            tags={**TAGS, names.TAG_REQUEST: "r1"},
        )
        return replace(base, **change)


@contextmanager
def a_world() -> Iterator[World]:
    """The operator makes all of it, as `pulumi up` does."""
    with running_cloud() as cloud:
        iam = cloud.client("iam")
        for role in ROLES:
            trust = trust_role(f"{ROLES_BASE}/{ROLE_NODE}") if role == ROLE_JOBS else trust_ec2()
            iam.create_role(RoleName=role, AssumeRolePolicyDocument=trust)
        iam.create_instance_profile(InstanceProfileName="rights-node")
        iam.add_role_to_instance_profile(InstanceProfileName="rights-node", RoleName=ROLE_NODE)
        own = [{"Key": key, "Value": value} for key, value in TAGS.items()]
        born = [{"ResourceType": kind, "Tags": own} for kind in ("instance", "network-interface", "volume")]
        network = a_network(
            cloud, IamInstanceProfile={"Name": "rights-node"}, TagSpecifications=born
        )  # a fleet tags no more than itself and its instances
        cloud.client("ec2").create_tags(Resources=[network.template], Tags=own)
        tags = [{"ResourceType": "placement-group", "Tags": own}]
        cloud.client("ec2").create_placement_group(
            GroupName=GROUP, Strategy="cluster", TagSpecifications=tags
        )
        secrets = cloud.client("secretsmanager")
        for bucket in (BUCKET, DATA, PUBLIC):
            cloud.client("s3").create_bucket(Bucket=bucket)
        keys = {
            role: cloud.api.ring.session(role, f"AROA{role.upper()}", f"i-{n:017x}", cloud.clock.now)
            for n, role in enumerate(ROLES)
        }
        world = World(
            cloud=cloud,
            network=network,
            secret=secrets.create_secret(Name="rights-munge")["ARN"],
            bind=secrets.create_secret(Name="rights-bind", SecretString="bind")["ARN"],
            queue=cloud.client("sqs").create_queue(QueueName="rights-events")["QueueUrl"],
            keys=keys,
        )
        for role, document in world.policies().items():
            world.put(role, document)
        yield world


# --- scenarios: what a role does, by our own clients where there is one ------------------------------------
Scenario = Callable[[World, str], object]


def launch(world: World, role: str) -> object:
    return world.port(role).launch(world.request())


def launch_spot(world: World, role: str) -> object:
    return world.port(role).launch(world.request(market=Market.SPOT))


def first_spot(world: World, role: str) -> object:
    world.cloud.model.spot_role = False
    return launch_spot(world, role)


def launch_together(world: World, role: str) -> object:
    return world.port(role).launch(world.request(placement_group=GROUP))


def a_fleet(world: World, role: str, group: str | None = None) -> object:
    override = FleetOverride(machine="p5.48xlarge", template_id=world.network.template, template_version=1)
    request = FleetRequest(
        token="f",
        count=1,
        overrides=(override, replace(override, machine="p4d.24xlarge")),
        subnet_id=world.network.subnets[ZONE],
        zone=ZONE,
        market=Market.SPOT,
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


def read_control(world: World, role: str) -> object:
    world.cloud.client("s3").put_object(Bucket=BUCKET, Key=names.CONTROL_KEY, Body=b"{}")
    return world.client("s3", role).get_object(Bucket=BUCKET, Key=names.CONTROL_KEY)


def write_control(world: World, role: str) -> object:
    world.cloud.client("s3").delete_object(Bucket=BUCKET, Key=names.CONTROL_KEY)
    return _control(world, role).write(Control(), None)


def begin_without_control(world: World, role: str) -> object:
    world.cloud.client("s3").delete_object(Bucket=BUCKET, Key=names.CONTROL_KEY)
    assert _control(world, role).read() == Control()
    return None


def take_the_key(world: World, role: str) -> object:
    world.cloud.client("secretsmanager").put_secret_value(SecretId=world.secret, SecretBinary=b"munge")
    return world.client("secretsmanager", role).get_secret_value(SecretId=world.secret)


def offer_the_key(world: World, role: str) -> object:
    return world.client("secretsmanager", role).put_secret_value(SecretId=world.secret, SecretBinary=b"munge")


def bind_to_the_directory(world: World, role: str) -> object:
    return world.client("secretsmanager", role).get_secret_value(SecretId=world.bind)


def take_on_jobs_role(world: World, role: str) -> object:
    return world.client("sts", role).assume_role(
        RoleArn=f"{ROLES_BASE}/{ROLE_JOBS}", RoleSessionName="7-vision", DurationSeconds=3600
    )


def _in_s3(folder: str, call: str, **more: Any) -> Scenario:
    """One call of S3's on an object of a folder that the operator has put there."""

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
    """What an SDK does with a large object when it fails halfway: parts cost until then."""
    begun = world.cloud.client("s3").create_multipart_upload(Bucket=DATA, Key="checkpoints/2")
    return world.client("s3", role).abort_multipart_upload(
        Bucket=DATA, Key="checkpoints/2", UploadId=begun["UploadId"]
    )


def judged(action: str) -> Scenario:
    """A service that the sandbox has not: the policy is judged, nothing is called."""

    def ask(world: World, role: str) -> object:
        told = world.cloud.client("iam").get_role_policy(RoleName=role, PolicyName=role)["PolicyDocument"]
        if not allows([told], Need(action=action, resource="*")):
            raise RefusedError(f"no policy allows the {action} action")
        return None

    ask.__name__ = "judged_by_the_policy_alone"
    return ask


@dataclass(frozen=True)
class Right:
    """Why an action stands in a statement, and what needs it."""

    why: str
    scenario: Scenario


def _session_manager(why: str, *actions: str) -> dict[tuple[str, str], Right]:
    return {("SessionManager", action): Right(why, judged(action)) for action in actions}


# (statement, action) -> the right; a statement says the same for each role that has it
RIGHTS: Mapping[tuple[str, str], Right] = {
    ("LaunchFrom", "ec2:RunInstances"): Right("nodes come from our images, subnets, group and reservations", launch),
    ("LaunchFrom", "ec2:CreateFleet"): Right("several machine types are asked for at once, from the same parts", a_fleet),
    ("LaunchTagged", "ec2:RunInstances"): Right("instances, volumes and interfaces are made only by our templates and with our tag", launch),
    ("TagAtBirth", "ec2:CreateTags"): Right("what is made carries its tags from the start, and nothing else may be tagged", launch),
    ("PassNodeRole", "iam:PassRole"): Right("a launch hands nodes their role, this one and no other (T37)", launch),
    ("LaunchOurs", "ec2:RunInstances"): Right("nodes come from our templates, a gang into its placement group", launch_together),
    ("LaunchOurs", "ec2:CreateFleet"): Right("a fleet comes from our templates, a gang into its placement group", fleet_together),
    ("Fleet", "ec2:CreateFleet"): Right("a fleet makes instances, volumes, interfaces and spot requests with our tag", a_fleet),
    ("LaunchSpot", "ec2:RunInstances"): Right("a spot request is made with our tag", launch_spot),
    ("SpotRole", "iam:CreateServiceLinkedRole"): Right("the account's first spot request makes EC2's own role for them", first_spot),
    ("OwnNodes", "ec2:TerminateInstances"): Right("idle and broken nodes of this cluster are ended; the head and other clusters are not", end_a_node),
    ("See", "ec2:DescribeInstances"): Right("which of the nodes live, and under which address; the call knows no narrower resource", look),
    ("See", "ec2:DescribeCapacityReservations"): Right("how much of a reservation or block is free; the call knows no narrower resource", look_at_reservations),
    ("Notices", "sqs:ReceiveMessage"): Right("notices of interruption, rebalance and maintenance are heard", hear),
    ("Notices", "sqs:DeleteMessage"): Right("a notice that was heard is not heard again", forget),
    ("Bundle", "s3:GetObject"): Right("the configuration is fetched at boot and when it changes", take_the_bundle),
    ("Objects", "s3:GetObject"): Right("who may act, and whether to scale, is read before each act", read_control),
    ("Objects", "s3:PutObject"): Right("the acting head writes its name and its state", write_control),
    ("Missing", "s3:ListBucket"): Right("a control object that is not there yet answers 404, not 403", begin_without_control),
    ("Key", "secretsmanager:GetSecretValue"): Right("the munge key is read at boot", take_the_key),
    ("Key", "secretsmanager:PutSecretValue"): Right("the first head makes the munge key", offer_the_key),
    ("JobsRole", "sts:AssumeRole"): Right("the agent takes on the role for jobs, and hands its keys to each job", take_on_jobs_role),
    ("Read", "s3:GetObject"): Right("a job reads its data", _in_s3("sets", "get_object")),
    ("Write", "s3:GetObject"): Right("a job goes on from its checkpoint", _in_s3("checkpoints", "get_object")),
    ("Write", "s3:PutObject"): Right("a job writes its checkpoint", _in_s3("checkpoints", "put_object", Body=b"weights")),
    ("Write", "s3:DeleteObject"): Right("a job keeps the newest of its checkpoints", _in_s3("checkpoints", "delete_object")),
    ("Write", "s3:AbortMultipartUpload"): Right("an upload that failed halfway costs nothing more", give_up_an_upload),
    ("List", "s3:ListBucket"): Right("a job finds what is in a bucket; a missing object answers 404, not 403", list_all),
    ("ListFolders0", "s3:ListBucket"): Right("a job finds what is in its folders, and in no other", list_folders),
    ("Directory", "secretsmanager:GetSecretValue"): Right("sssd binds to the site's directory", bind_to_the_directory),
    **_session_manager("the SSM agent tells that it is there", "ssm:UpdateInstanceInformation"),
    **_session_manager(
        "Session Manager's channels, for people without an open port",
        "ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel", "ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel"),
}  # fmt: skip


def statements(document: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Statements by their name."""
    return ((s["Sid"], s) for s in json.loads(document)["Statement"])


def rights_of(document: str) -> list[tuple[str, str]]:
    """Every (statement, action) of a policy, in its order."""
    found = ((sid, one) for sid, one in statements(document) if one["Effect"] == "Allow")
    return [(sid, action) for sid, one in found for action in one["Action"]]


def without(document: str, sid: str, action: str) -> str:
    """The policy with one action of one statement less."""
    kept: list[Mapping[str, Any]] = []
    for name, one in statements(document):
        if one["Effect"] == "Deny":
            kept.append(one)
            continue
        actions: Sequence[str] = [a for a in one["Action"] if (name, a) != (sid, action)]
        if actions:
            kept.append({**one, "Action": actions})
    return json.dumps({"Version": "2012-10-17", "Statement": kept})
