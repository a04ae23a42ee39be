"""Commands by Systems Manager: the client of the desk against the stand-in, whose agents run scripts on this machine (T53)."""

import json
import time
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from support.clouds import RunningCloud, code_of, error_of, local_agent, running_cloud
from support.waiting import eventually

from gpucluster.aws.operator_policies import OperatorScope, command_statements
from gpucluster.cli import transport_ssm
from gpucluster.cli.context import resolve_file
from gpucluster.cli.head import reach
from gpucluster.cli.transport import HeadOptions
from gpucluster.cloud.managed_machines import ManagedMachines
from gpucluster.cloud.run_command import (
    DELIVERY_S,
    OUTPUT_MAX,
    SETTLE_S,
    TRUNCATED,
    ManagedMachine,
    RunCommand,
)
from gpucluster.cloud.terminate_nodes import Clock
from gpucluster.errors import GpuclusterError, HostError, StateError
from gpucluster.plan import names
from gpucluster.plan.iam_policies import Statement, trust_ec2
from gpucluster.plan.model import Access, SlurmOnAws
from gpucluster.plan.user_data import user_data
from gpucluster.sandbox.aws import shapes
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.ssm.calls import AGENT_NEEDS
from gpucluster.sandbox.aws.ssm.state import KILLED_CODE, Outcome, Shell, run_script
from gpucluster.shell import Result

pytestmark = pytest.mark.loopback
STACKS = Path(__file__).parents[4] / "stacks"
RECORDED = Path(__file__).parents[3] / "recorded" / "scontrol"
BUCKET, REGION, ROLE = "burst-0123456", "us-east-1", "burst-head-0123456"
LONG = ("python3", "-c", f"print('x' * {OUTPUT_MAX}); print('end')")
LIMIT_S = 90.0


def plan() -> SlurmOnAws:
    found = resolve_file(STACKS / "research.yaml").plan
    assert isinstance(found, SlurmOnAws)
    return found


@dataclass
class Agent:
    """The agents of all instances. `answer` replaces the script's own result."""

    up: bool = True
    answer: Outcome | None = None
    limits: list[float] = field(default_factory=list[float])

    def __call__(self, instance: str) -> Shell | None:
        return self._run if self.up else None

    def _run(self, script: str, limit_s: float) -> Outcome:
        self.limits.append(limit_s)
        here = local_agent("")
        assert here is not None
        return self.answer or here(script, limit_s)


@dataclass
class Site:
    """A cloud with a bucket and a role of heads; `launch` makes instances with their tags and user data."""

    cloud: RunningCloud
    agent: Agent
    subnet: str
    image: str
    name: str = field(default_factory=lambda: plan().name)
    told: list[str] = field(default_factory=list[str])

    def launch(
        self, role: str = names.ROLE_HEAD, *, cluster: str | None = None, boot: str | None = None
    ) -> str:
        tags = {names.TAG_CLUSTER: cluster or self.name, names.TAG_ROLE: role}
        text = user_data(cluster=self.name, region=REGION, bucket=BUCKET, role=role)
        (made,) = self.cloud.client("ec2").run_instances(
            ImageId=self.image,
            InstanceType="m7i.xlarge",
            SubnetId=self.subnet,
            MinCount=1,
            MaxCount=1,
            IamInstanceProfile={"Name": ROLE},
            UserData=text if boot is None else boot,
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}
            ],
        )["Instances"]
        self.cloud.model.mark_running(made["InstanceId"], self.cloud.clock.now)
        return made["InstanceId"]

    def clock(self) -> Clock:
        def pause(seconds: float) -> None:
            self.cloud.clock.move(min(seconds, 0.6))
            time.sleep(0.02)

        return Clock(self.cloud.clock, pause)

    def find(self, key: Any = None) -> ManagedMachine:
        return self.machines(key).find("head")

    def machines(self, key: Any = None, on_head: Result | None = None) -> ManagedMachines:
        """The machines of the cluster. `on_head` is the answer of Slurm on the head."""
        slurm = on_head or Result((), 1, "", "")
        return ManagedMachines(
            self.name, REGION, lambda service: self.cloud.client(service, key), lambda _argv: slurm
        )

    def run(self, *argv: str, key: Any = None, limit_s: float = LIMIT_S) -> tuple[int, str, str]:
        machine, clients = self.find(key), lambda service: self.cloud.client(service, key)
        done = RunCommand(machine, clients, self.clock(), self.told.append).run(argv, limit_s=limit_s)
        return done.code, done.stdout, done.stderr

    def allow(self, *statements: Statement, role: str = ROLE) -> None:
        text = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
        self.cloud.client("iam").put_role_policy(RoleName=role, PolicyName="own", PolicyDocument=text)

    def left(self) -> list[str]:
        """What was told of output that stays. A busy machine is also told of the wait."""
        return [one for one in self.told if not one.startswith("waiting for ")]

    def stored(self) -> list[str]:
        listed = self.cloud.client("s3").list_object_versions(Bucket=BUCKET)
        return [one["Key"] for one in (*listed.get("Versions", ()), *listed.get("DeleteMarkers", ()))]


def allowed(action: list[str], resource: str) -> Statement:
    return {"Effect": "Allow", "Action": action, "Resource": [resource]}


AGENT, WRITES = allowed([*AGENT_NEEDS], "*"), allowed(["s3:PutObject"], f"arn:aws:s3:::{BUCKET}/ssm/*")
KEY = allowed(["kms:Decrypt", "kms:GenerateDataKey"], "*")


@pytest.fixture(scope="module")
def made() -> Generator[Site]:
    agent = Agent()
    with running_cloud(agents=agent) as cloud:
        ec2, iam, s3 = cloud.client("ec2"), cloud.client("iam"), cloud.client("s3")
        vpc = ec2.create_vpc(CidrBlock="10.42.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.42.0.0/24", AvailabilityZone="us-east-1a")
        for role in (ROLE, "operator"):
            iam.create_role(RoleName=role, AssumeRolePolicyDocument=trust_ec2())
        iam.create_instance_profile(InstanceProfileName=ROLE)
        iam.add_role_to_instance_profile(InstanceProfileName=ROLE, RoleName=ROLE)
        s3.create_bucket(Bucket=BUCKET)
        s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        key = cloud.client("kms").create_key(KeyUsage="ENCRYPT_DECRYPT")["KeyMetadata"]["Arn"]
        for one in cloud.client("kms").list_aliases()["Aliases"]:  # moto keeps those of other modules
            if one["AliasName"] == plan().aws.kms_key:
                cloud.client("kms").delete_alias(AliasName=one["AliasName"])
        cloud.client("kms").create_alias(AliasName=str(plan().aws.kms_key), TargetKeyId=key)
        rule = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
        s3.put_bucket_encryption(
            Bucket=BUCKET,
            ServerSideEncryptionConfiguration={"Rules": [{"ApplyServerSideEncryptionByDefault": rule}]},
        )
        image = cloud.api.moto.register_image("gpucluster-ubuntu-24.04-slurm-24.11")
        yield Site(cloud, agent, subnet["Subnet"]["SubnetId"], image)
        cloud.client("kms").delete_alias(AliasName=str(plan().aws.kms_key))


@pytest.fixture
def site(made: Site) -> Site:
    made.cloud.fresh()
    made.agent.up, made.agent.answer = True, None
    made.agent.limits.clear()
    made.told.clear()
    made.allow(AGENT, WRITES, KEY)
    assert made.stored() == []
    return made


# --- the client -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("echo", "one two", "a'b", "$HOME", "*"), (0, "one two a'b $HOME *\n", "")),
        (("sh", "-c", "echo no >&2; exit 3"), (3, "", "no\n")),
        (("echo", "{{ssm:/account/secret}}", "{{{}"), (0, "{{ssm:/account/secret}} {{{}\n", "")),
        (("sh", "-c", "exit 194"), (1, "", "")),
        (("timeout", "0.1", "sleep", "60"), (124, "", "")),
        (("sh", "-c", "exit 137"), (124, "", "")),
    ],
    ids=["words", "code", "no parameter of the account", "no reboot", "its own limit", "killed"],
)
def test_command_returns_code_and_both_outputs(
    site: Site, argv: tuple[str, ...], expected: tuple[int, str, str]
) -> None:
    site.launch()
    assert site.run(*argv) == expected
    assert site.agent.limits == [LIMIT_S]
    assert (site.stored(), site.left()) == ([], [])


def test_long_output_comes_whole_through_the_bucket_and_leaves_nothing(site: Site) -> None:
    site.launch()
    assert site.run(*LONG) == (0, "x" * OUTPUT_MAX + "\nend\n", "")
    assert site.run("python3", "-c", "import sys; sys.exit('y' * 9000)") == (1, "", "y" * 9000 + "\n")
    assert (site.stored(), site.left()) == ([], [])


def test_long_output_without_the_right_to_write_it_is_an_error(site: Site) -> None:
    site.launch()
    site.allow(AGENT)
    with pytest.raises(
        StateError, match=rf"more than {OUTPUT_MAX} characters, and the agent wrote no s3://"
    ) as error:
        site.run(*LONG)
    assert "pulumi up" in str(error.value.next_step)


def test_head_is_found_by_its_tags_and_the_standby_while_it_does_not_run(site: Site) -> None:
    site.launch(cluster="another")
    head, standby = site.launch(), site.launch(names.ROLE_STANDBY)
    site.launch(names.ROLE_NODE)
    assert (site.find().instance, site.find().bucket) == (head, BUCKET)
    site.cloud.client("ec2").stop_instances(InstanceIds=[head])
    assert str(site.find()) == f"the standby of {site.name}, {standby} in us-east-1"
    site.cloud.client("ec2").terminate_instances(InstanceIds=[standby])
    site.cloud.clock.move(10)
    with pytest.raises(
        StateError, match=rf"no head of {site.name} runs .*: head {head} is stopped; expected"
    ):
        site.find()


def test_cluster_without_machines_is_an_error(site: Site) -> None:
    with pytest.raises(StateError, match="no instance has its tags"):
        site.find()


def test_user_data_of_others_are_refused(site: Site) -> None:
    """The tag of a cluster on an instance of another owner: nothing is sent to it."""
    site.launch(boot="#!/bin/sh\n")
    with pytest.raises(StateError, match="is not that of gpucluster: it names no bucket"):
        site.run("id")
    assert site.agent.limits == []


def test_unregistered_machine_is_told_with_the_query_that_shows_it(site: Site) -> None:
    instance = site.launch()
    site.agent.up = False
    with pytest.raises(StateError, match="has no running agent of it: the machine is stopped") as error:
        site.run("id")
    assert (
        f"describe-instance-information --region us-east-1 --filters Key=InstanceIds,Values={instance}"
        in str(error.value.next_step)
    )
    filters = [{"Key": "InstanceIds", "Values": [instance]}]
    ssm = site.cloud.client("ssm")
    assert ssm.describe_instance_information(Filters=filters)["InstanceInformationList"] == []
    site.agent.up = True
    (row,) = ssm.describe_instance_information(Filters=filters)["InstanceInformationList"]
    assert (row["InstanceId"], row["PingStatus"]) == (instance, "Online")


def test_command_beyond_its_limit_is_told(site: Site) -> None:
    site.launch()
    site.agent.answer = (KILLED_CODE, "", "")
    with pytest.raises(StateError, match="did not end within 7 s") as error:
        site.run("sleep", "100", limit_s=7.0)
    assert "aws ssm start-session --region us-east-1 --target i-" in str(error.value.next_step)
    assert site.agent.limits == [7.0]


def test_agent_kills_a_script_at_its_limit() -> None:
    """Regression: the stand-in's thread died at the limit, and the command was InProgress for ever."""
    assert run_script(["sleep", "100"], 0.1)[0] == KILLED_CODE
    assert run_script(["sh", "-c", "echo 1; exit 124"], LIMIT_S) == (124, "1\n", "")


class Answers:
    """A stand-in of SSM whose commands stay in one state; the rest of the cloud is the site's."""

    def __init__(self, status: str, details: str, code: int = -1) -> None:
        self._answer = {"Status": status, "StatusDetails": details, "ResponseCode": code}

    def send_command(self, **_: Any) -> Any:
        return {"Command": {"CommandId": "c"}}

    def get_command_invocation(self, **_: Any) -> Any:
        return {**self._answer, "StandardOutputContent": "", "StandardErrorContent": ""}


@pytest.mark.parametrize(
    ("status", "details", "text"),
    [
        ("Failed", "Undeliverable", "cannot be delivered"),
        ("TimedOut", "DeliveryTimedOut", f"did not take the command within {DELIVERY_S} s"),
        ("TimedOut", "TimedOut", "did not end within 90 s"),
        ("Cancelled", "Cancelled", "somebody cancelled"),
        ("Failed", "Failed", "ended with the status Failed"),
        ("Failed", "InvalidPlatform", "ended with the status InvalidPlatform"),
    ],
)
def test_command_that_did_not_run_is_an_error(site: Site, status: str, details: str, text: str) -> None:
    site.launch()
    answers = Answers(status, details)
    commands = RunCommand(
        site.find(),
        lambda service: answers if service == "ssm" else site.cloud.client(service),
        site.clock(),
        site.told.append,
    )
    with pytest.raises(StateError, match=text) as error:
        commands.run(["id"], limit_s=LIMIT_S)
    assert error.value.next_step


def test_wait_is_bounded_and_says_what_it_waits_for(site: Site) -> None:
    site.launch()
    answers, begun = Answers("InProgress", "InProgress"), site.cloud.clock.now
    clock = Clock(site.cloud.clock, site.cloud.clock.move)
    machine = site.find()
    commands = RunCommand(
        machine,
        lambda service: answers if service == "ssm" else site.cloud.client(service),
        clock,
        site.told.append,
    )
    with pytest.raises(StateError, match=r"has the status InProgress after .* expected its end within 90 s"):
        commands.run(["id"], limit_s=LIMIT_S)
    assert site.cloud.clock.now - begun < LIMIT_S + DELIVERY_S + SETTLE_S + 5
    assert site.told == [f"waiting for {machine}: its command is InProgress, limit 90 s"]


def test_stack_with_session_manager_is_reached_by_its_spec(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = site.cloud.api.operator
    environment = {
        "AWS_ENDPOINT_URL": site.cloud.endpoint,
        "AWS_ACCESS_KEY_ID": key.access_key,
        "AWS_SECRET_ACCESS_KEY": key.secret,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(transport_ssm, "Clock", lambda *_: site.clock())
    site.launch()
    head = reach(HeadOptions(cluster=str(STACKS / "research.yaml")))
    assert (head.name, head.run(("echo", "1"))) == (site.name, (0, "1\n", ""))


# --- rights of the operator ---------------------------------------------------------------------------


def operator_statements() -> list[Statement]:
    """The policy of `plan --operator-policy commands`, in the Region of the test."""
    made = command_statements(OperatorScope(plan=plan(), declared={}, fixed={}, attached=(), lookups=()))
    return json.loads(json.dumps(made).replace(plan().aws.region, REGION).replace("research-???????", BUCKET))


RIGHTS = [
    (s["Sid"], action)
    for s in operator_statements()
    for action in s["Action"]
    if not s["Sid"].startswith("Validate")  # tests/unit/validate/test_cloud_stores.py
]


def as_operator(site: Site, statements: list[Statement]) -> None:
    """Do all that the desk does, as an operator with these rights."""
    site.allow(*statements, role="operator")
    key = site.cloud.api.ring.session("operator", "AROAOPERATOR", "i-0", site.cloud.clock.now)
    site.cloud.client("ssm", key).describe_instance_information()  # the next step of an error
    site.cloud.client("s3", key).get_object(Bucket=BUCKET, Key=names.BUNDLE_KEY)  # validate
    assert site.run(*LONG, key=key)[0] == 0
    for text in site.left():
        raise HostError(text)


@pytest.mark.parametrize(("sid", "action"), RIGHTS, ids=[f"{sid}-{action}" for sid, action in RIGHTS])
def test_operator_is_refused_without_the_action(site: Site, sid: str, action: str) -> None:
    site.launch()
    site.cloud.client("s3").put_object(Bucket=BUCKET, Key=names.BUNDLE_KEY, Body=b"bundle")
    whole = operator_statements()
    as_operator(site, whole)
    less = [
        {**s, "Action": [a for a in s["Action"] if (s["Sid"], a) != (sid, action)]} if s["Sid"] == sid else s
        for s in whole
    ]
    with pytest.raises((HostError, ClientError), match=f"the {action} action"):
        as_operator(site, [s for s in less if s["Action"]])
    empty(site)  # an operator without the right to delete leaves the output


def empty(site: Site) -> None:
    """Delete all output, after every command has ended and so has written its output."""
    s3, ssm = site.cloud.client("s3"), site.cloud.client("ssm")
    eventually(
        "every command has ended",
        lambda: all(
            one["Status"] not in ("Pending", "InProgress")
            for one in ssm.list_command_invocations()["CommandInvocations"]
        ),
    )
    listed = s3.list_object_versions(Bucket=BUCKET)
    for one in (*listed.get("Versions", ()), *listed.get("DeleteMarkers", ())):
        s3.delete_object(Bucket=BUCKET, Key=one["Key"], VersionId=one["VersionId"])


def send_as_operator(site: Site, instance: str, statements: list[Statement] | None = None) -> Any:
    site.allow(*(statements or operator_statements()), role="operator")
    key = site.cloud.api.ring.session("operator", "AROAOPERATOR", "i-0", site.cloud.clock.now)
    return site.cloud.client("ssm", key).send_command(
        InstanceIds=[instance], DocumentName="AWS-RunShellScript", Parameters={"commands": ["id"]}
    )


def sends(resource: str, **when: str) -> Statement:
    """A statement that allows SendCommand on a resource; `when` has condition keys with `_` instead of `:`."""
    condition = {key.replace("_", ":", 1) + f"/{names.TAG_CLUSTER}": value for key, value in when.items()}
    found = allowed(["ssm:SendCommand"], resource)
    return {**found, "Condition": {"StringEquals": condition}} if when else found


MACHINES, SCRIPT = "arn:aws:ec2:us-east-1:*:instance/*", "arn:aws:ssm:us-east-1::document/AWS-RunShellScript"


@pytest.mark.parametrize(
    ("statements", "code"),
    [
        ([sends(MACHINES, ssm_resourceTag="research"), sends(SCRIPT)], ""),
        ([sends(MACHINES, ssm_resourceTag="another"), sends(SCRIPT)], "AccessDeniedException"),
        ([sends(MACHINES, ssm_resourceTag="research")], "AccessDeniedException"),
        ([sends("*", ssm_resourceTag="research")], "AccessDeniedException"),
        (
            [
                sends(MACHINES, ssm_resourceTag="research"),
                sends(SCRIPT.replace("RunShellScript", "ConfigureDocker")),
            ],
            "AccessDeniedException",
        ),
        (
            [
                sends(MACHINES, ssm_resourceTag="research"),
                sends(SCRIPT.replace("::document", ":123456789012:document")),
            ],
            "AccessDeniedException",
        ),
        ([sends(MACHINES, aws_ResourceTag="research"), sends(SCRIPT)], "AccessDeniedException"),
    ],
    ids=[
        "tag of the machine, and the document",
        "another tag",
        "no document",
        "a document has no tag of the cluster",
        "another document",
        "AWS's document has no account",
        "a global condition key",
    ],
)
def test_send_command_needs_the_machine_by_its_tag_and_the_document(
    site: Site, statements: list[Statement], code: str
) -> None:
    machine = site.launch()
    if not code:
        assert send_as_operator(site, machine, statements)["Command"]["Status"] == "Pending"
        return
    refusal = error_of(send_as_operator, site=site, instance=machine, statements=statements)
    assert refusal.response["Error"]["Code"] == code
    assert site.agent.limits == []


def test_commands_policy_sends_one_document_to_machines_with_the_tag() -> None:
    """Nothing narrower is documented: no condition key of SendCommand limits what the script does."""
    found = {s["Sid"]: s for s in operator_statements() if "ssm:SendCommand" in s["Action"]}
    assert {sid: s["Resource"] for sid, s in found.items()} == {
        "SendToMachines": [MACHINES],
        "SendScript": [SCRIPT, f"arn:aws:s3:::{BUCKET}"],
    }
    assert found["SendToMachines"]["Condition"] == {
        "StringEquals": {f"ssm:resourceTag/{names.TAG_CLUSTER}": "research"}
    }


def test_operator_sends_nothing_to_machines_of_another_cluster(site: Site) -> None:
    other = site.launch(cluster="another")
    refusal = error_of(send_as_operator, site=site, instance=other)
    assert refusal.response["Error"]["Code"] == "AccessDeniedException"
    assert "the ssm:SendCommand action" in str(refusal)
    assert site.agent.limits == []


@pytest.mark.parametrize("role", [names.ROLE_HEAD, names.ROLE_STANDBY, names.ROLE_LOGIN, names.ROLE_NODE])
def test_operator_sends_commands_to_every_machine_of_the_cluster(site: Site, role: str) -> None:
    assert send_as_operator(site, site.launch(role))["Command"]["Status"] == "Pending"


# --- the machines of a cluster ------------------------------------------------------------------------


def slurm_node(name: str, address: str) -> Result:
    nodes = json.loads((RECORDED / "24.11" / "nodes-drained.json").read_text())["nodes"]
    one = {**nodes[0], "name": name, "address": address}
    return Result((), 0, json.dumps({"nodes": [one]}), "")


def test_each_machine_is_found_by_its_words(site: Site) -> None:
    head, login, node = (site.launch(r) for r in (names.ROLE_HEAD, names.ROLE_LOGIN, names.ROLE_NODE))
    site.cloud.client("ec2").create_tags(
        Resources=[login], Tags=[{"Key": "Name", "Value": "research-login-1"}]
    )
    (shown,) = site.cloud.client("ec2").describe_instances(InstanceIds=[node])["Reservations"][0]["Instances"]
    machines = site.machines(on_head=slurm_node("small-1a-1", shown["PrivateIpAddress"]))
    words = ("head", "login", "research-login-1", "small-1a-1", node)
    assert [machines.find(one).instance for one in words] == [head, login, login, node, node]
    assert [machines.find(one).bucket for one in ("head", "login", node)] == [BUCKET, "", ""]


@pytest.mark.parametrize("word", ["small-1a-2", "standby", "i-0", "-h", "a b", "$(id)", ""])
def test_words_of_no_machine_are_refused(site: Site, word: str) -> None:
    site.launch()
    with pytest.raises(StateError, match=r"no running machine of research is called"):
        site.machines(on_head=slurm_node("small-1a-2", "10.42.0.250")).find(word)


def test_long_output_of_a_node_is_refused_and_short_output_is_not(site: Site) -> None:
    node = site.launch(names.ROLE_NODE)
    machine = site.machines().find(node)
    commands = RunCommand(machine, site.cloud.client, site.clock(), site.told.append)
    assert commands.run(["echo", "1"], limit_s=LIMIT_S).stdout == "1\n"
    with pytest.raises(StateError, match="stdout has more than 24000 characters, and only a head may write"):
        commands.run(LONG, limit_s=LIMIT_S)
    assert (site.stored(), site.left()) == ([], [])


def test_spec_without_session_manager_has_no_such_policy() -> None:
    closed = replace(plan(), access=Access())
    with pytest.raises(GpuclusterError, match="has no commands by Systems Manager"):
        command_statements(OperatorScope(plan=closed, declared={}, fixed={}, attached=(), lookups=()))


# --- the stand-in -------------------------------------------------------------------------------------


def send(site: Site, instance: str, script: str = "true", **more: Any) -> dict[str, Any]:
    asked = {
        "InstanceIds": [instance],
        "DocumentName": "AWS-RunShellScript",
        "Parameters": {"commands": [script]},
        **more,
    }
    return site.cloud.client("ssm").send_command(**asked)["Command"]


@pytest.mark.parametrize("end", ["stop_instances", "terminate_instances"])
def test_instance_that_does_not_run_is_refused(site: Site, end: str) -> None:
    instance, before = site.launch(), site.cloud.client("ssm").list_commands()["Commands"]
    getattr(site.cloud.client("ec2"), end)(InstanceIds=[instance])
    assert code_of(send, site=site, instance=instance) == "InvalidInstanceId"
    assert code_of(send, site=site, instance="i-00000000000000000") == "InvalidInstanceId"
    assert site.cloud.client("ssm").list_commands()["Commands"] == before


@pytest.mark.parametrize("missing", AGENT_NEEDS)
def test_agent_without_a_right_is_not_registered(site: Site, missing: str) -> None:
    instance = site.launch()
    site.allow(allowed([one for one in AGENT_NEEDS if one != missing], "*"), WRITES)
    assert code_of(send, site=site, instance=instance) == "InvalidInstanceId"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"DocumentName": "AWS-RunAnsiblePlaybook"}, "InvalidDocument"),
        ({"Parameters": {}}, "InvalidParameters"),
        ({"Parameters": {"commands": ["id"], "sourceType": ["S3"]}}, "InvalidParameters"),
        ({"Parameters": {"commands": ["id"], "executionTimeout": ["soon"]}}, "InvalidParameters"),
        ({"Parameters": {"commands": ["echo {{ ssm:/a }}"]}}, "UnsupportedOperation"),
        ({"MaxErrors": "1"}, "UnsupportedOperation"),
        ({"TimeoutSeconds": 2592001}, "ValidationException"),
    ],
)
def test_what_the_stand_in_does_not_know_is_refused(site: Site, more: dict[str, Any], code: str) -> None:
    assert code_of(send, site=site, instance=site.launch(), **more) == code
    assert site.agent.limits == []


def test_unknown_member_of_a_request_is_refused_by_botocores_model(site: Site) -> None:
    with pytest.raises(Refusal, match="ValidationException"):
        shapes.parameters(
            "ssm", "SendCommand", "/", b'{"InstanceId": "i-1", "DocumentName": "AWS-RunShellScript"}'
        )


def test_young_invocation_does_not_exist_and_long_output_is_cut(site: Site) -> None:
    instance = site.launch()
    command = send(site, instance, f"head -c {OUTPUT_MAX + 1} /dev/zero | tr '\\0' x; exit 4")["CommandId"]
    asked = {"CommandId": command, "InstanceId": instance}
    ssm = site.cloud.client("ssm")
    assert code_of(ssm.get_command_invocation, **asked) == "InvocationDoesNotExist"
    found = _result(site, asked)
    assert (found["Status"], found["StatusDetails"], found["ResponseCode"]) == ("Failed", "Failed", 4)
    assert len(found["StandardOutputContent"]) == OUTPUT_MAX
    assert found["StandardOutputContent"].endswith("x" + TRUNCATED)
    assert found["StandardOutputUrl"] == ""
    (row,) = ssm.list_command_invocations(CommandId=command)["CommandInvocations"]
    assert (row["InstanceId"], row["Status"]) == (instance, "Failed")
    unknown = {**asked, "CommandId": "0" * 36}
    assert code_of(ssm.get_command_invocation, **unknown) == "InvocationDoesNotExist"
    assert code_of(ssm.cancel_command, CommandId="0" * 36) == "InvalidCommandId"


def _result(site: Site, asked: dict[str, str]) -> Any:
    site.cloud.clock.move(1)

    def result() -> Any:
        found = site.cloud.client("ssm").get_command_invocation(**asked)
        return None if found["Status"] in ("Pending", "InProgress") else found

    return eventually("the command has ended", result, poll=0.05)


@pytest.mark.parametrize(("code", "status"), [(124, "Failed"), (137, "TimedOut")])
def test_exit_code_of_a_killed_script_is_a_time_out_for_the_agent(site: Site, code: int, status: str) -> None:
    """Regression: a check whose `timeout` ended it with 124 was unknown over Systems Manager, not failed."""
    instance = site.launch()
    command = send(site, instance, f"exit {code}")["CommandId"]
    found = _result(site, {"CommandId": command, "InstanceId": instance})
    assert (found["Status"], found["StatusDetails"], found["ResponseCode"]) == (status, status, code)


def test_cancelled_command_stays_cancelled(site: Site, tmp_path: Path) -> None:
    instance, wait = site.launch(), tmp_path / "go"
    script = f"while [ ! -e {wait} ]; do sleep 0.05; done"
    asked = {"CommandId": send(site, instance, script)["CommandId"], "InstanceId": instance}
    site.cloud.client("ssm").cancel_command(CommandId=asked["CommandId"])
    wait.touch()
    assert _result(site, asked)["StatusDetails"] == "Cancelled"
