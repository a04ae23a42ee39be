"""`gpucluster down` and what it does not end: it says so before the head is deleted, and no wait is silent or without an end."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.clouds import REGION, RunningCloud, a_network, running_cloud
from support.clouds import Network as Site
from support.downs import emptied
from support.waiting import BOUND_S

from gpucluster.cli import down_network, transport_ssm
from gpucluster.cli.down_jobs import Jobs
from gpucluster.cli.down_network import BlockedError, Watch, destroyed, launched_by, require_clear, warn
from gpucluster.cli.down_world import ClusterAccess, Stack, World, of_user
from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.identity import caller_account
from gpucluster.cloud.network_interfaces import AwsOccupants, Blocker
from gpucluster.cloud.port import CloudError, Fault
from gpucluster.cloud.terminate_nodes import Clock
from gpucluster.engine.deployment import DeployedResource
from gpucluster.engine.events import Outcome, Progress, Report
from gpucluster.engine.run import EngineError
from gpucluster.errors import StateError
from gpucluster.plan import names
from gpucluster.sandbox.aws.ec2.state.values import Timing
from gpucluster.shell import Result

FIRM = Blocker(id="i-1", words="m7i.large, stopped", step="aws ec2 terminate-instances --instance-ids i-1")
ENDING = Blocker(id="i-2", words="m7i.large, shutting-down", step="", ends=True)
NODE = {names.TAG_CLUSTER: "burst", names.TAG_ROLE: names.ROLE_NODE}


@dataclass
class Time:
    now: float = 1000.0
    pauses: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])

    def clock(self) -> Clock:
        return Clock(lambda: self.now, self.pause)

    def pause(self, seconds: float) -> None:
        self.now += seconds
        if self.pauses:
            self.pauses.pop(0)()


EKS = (
    DeployedResource(type="aws:eks/cluster:Cluster", name="burst", id="burst"),
    DeployedResource(type="aws:eks/nodeGroup:NodeGroup", name="burst-tune", id="burst:burst-tune"),
)
OF_GROUP = {"eks:cluster-name": "burst", "eks:nodegroup-name": "burst-tune"}
OF_KARPENTER = {
    names.TAG_CLUSTER: "burst", names.TAG_ROLE: names.ROLE_KUBERNETES, "karpenter.sh/nodepool": "burst-serve-0",
}  # fmt: skip


def ignore(_: str) -> None:
    pass


# --- over EC2 -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cloud() -> Iterator[RunningCloud]:
    with running_cloud(timing=Timing(pending_s=0.0, ending_s=5.0)) as found:
        yield found


def launch(cloud: RunningCloud, site: Site, tags: dict[str, str] | None = None) -> str:
    """A node of the cluster with `tags`, else an instance of somebody else."""
    about = [{"Key": key, "Value": value} for key, value in (tags or {}).items()]
    ours: dict[str, Any] = {"LaunchTemplate": {"LaunchTemplateId": site.template, "Version": "1"}}
    theirs: dict[str, Any] = {"ImageId": site.image, "InstanceType": "m7i.large"}
    made = cloud.client("ec2").run_instances(
        **(ours if about else theirs), SubnetId=site.subnets["us-east-1a"], MinCount=1, MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": about}] if about else [],
    )  # fmt: skip
    return made["Instances"][0]["InstanceId"]


@dataclass
class Deployed:
    """A cluster of a head and a network in EC2. `destroy` deletes the state's resources only."""

    cloud: RunningCloud
    site: Site
    head: str
    destroyed: int = 0
    launched: tuple[str, ...] = ()
    eks: bool = False

    def access(self) -> ClusterAccess:
        return ClusterAccess(
            stack=Stack(world=World.AWS, name="burst", project="gpucluster"),
            account=lambda region: caller_account(region, lambda: self.cloud.client("sts")),
            jobs=lambda _: Jobs(running={"ann": 1}, waiting={}),
            resources=self.resources,
            destroy=self.destroy,
            release=lambda: None,
            cloud=lambda region: AwsCloud(region, lambda _: self.cloud.client("ec2")),
            occupants=lambda region: AwsOccupants(region, lambda: self.cloud.client("ec2")),
            control=lambda *_: pytest.fail("no bucket"),
            launched=lambda _: frozenset(self.launched),
            region=REGION,
        )

    def resources(self) -> tuple[DeployedResource, ...]:
        if self.destroyed:
            return ()
        return (
            DeployedResource(type="aws:ec2/vpc:Vpc", name="burst", id=self.site.vpc),
            DeployedResource(type="aws:ec2/launchTemplate:LaunchTemplate", name="t", id=self.site.template),
            DeployedResource(type="aws:ec2/instance:Instance", name="burst-head", id=self.head),
            *(EKS if self.eks else ()),
        )

    def destroy(self, _: Report) -> Outcome:
        self.destroyed += 1
        return Outcome(counts={}, changes=())

    def state(self, instance: str) -> str:
        found = self.cloud.client("ec2").describe_instances(InstanceIds=[instance])
        return found["Reservations"][0]["Instances"][0]["State"]["Name"]


@pytest.fixture
def deployed(cloud: RunningCloud, monkeypatch: pytest.MonkeyPatch) -> Deployed:
    """Pauses move the cloud's clock."""
    monkeypatch.setattr("time.sleep", cloud.clock.move)
    site = a_network(cloud.fresh())
    return Deployed(
        cloud, site, launch(cloud, site, {names.TAG_CLUSTER: "burst", names.TAG_ROLE: names.ROLE_HEAD})
    )


@pytest.mark.loopback
def test_untagged_stopped_and_foreign_instances_are_named_before_the_head_is_deleted(
    deployed: Deployed, capsys: pytest.CaptureFixture[str]
) -> None:
    """`down` deleted everything else, then said nothing for nine minutes beside a node that had lost its tag."""
    cloud, site, ec2 = deployed.cloud, deployed.site, deployed.cloud.client("ec2")
    node, untagged = launch(cloud, site, NODE), launch(cloud, site, NODE)
    foreign, stopped = launch(cloud, site), launch(cloud, site)
    ec2.delete_tags(Resources=[untagged], Tags=[{"Key": names.TAG_CLUSTER}])
    ec2.stop_instances(InstanceIds=[stopped])
    cloud.clock.move(60)
    with pytest.raises(BlockedError) as caught:
        emptied(deployed.access())
    assert deployed.destroyed == 0
    states = {one: deployed.state(one) for one in (deployed.head, node, untagged, foreign, stopped)}
    assert list(states.values()) == ["running", "terminated", "running", "running", "stopped"]
    said = capsys.readouterr().err
    for one in (untagged, foreign, stopped):
        assert f"  {one} (" in caught.value.message
        assert f"in the network of burst, and no node of it: {one} (" in said
    assert node not in caught.value.message
    assert said.index("in the network of burst") < said.index("nodes left")
    assert caught.value.next_step is not None
    assert caught.value.next_step.endswith("; gpucluster down burst")
    for step in caught.value.next_step.partition("then: ")[2].split("; ")[:-1]:
        typed(cloud, step)
    emptied(deployed.access())
    assert deployed.destroyed == 1
    assert {deployed.state(one) for one in (untagged, foreign, stopped)} == {"terminated"}


@pytest.mark.loopback
def test_untagged_instance_of_the_journal_is_named_wherever_it_is(deployed: Deployed) -> None:
    """Instances were found by network, template and tag: one by hand's network and an old template was nobody's."""
    cloud = deployed.cloud
    other = a_network(cloud)
    mine, away, foreign = (launch(cloud, deployed.site), launch(cloud, other), launch(cloud, other))
    ended = launch(cloud, other)
    cloud.client("ec2").terminate_instances(InstanceIds=[ended])
    cloud.clock.move(60)
    deployed.launched = (mine, away, ended, "i-0123456789abcdef0")
    with pytest.raises(BlockedError) as caught:
        emptied(deployed.access())
    assert deployed.destroyed == 0
    words = "m7i.large, running, without the tag gpucluster:cluster, launched by this cluster's daemon"
    assert f"  {mine} ({words})" in caught.value.message
    assert f"  {away} ({words})" in caught.value.message
    assert foreign not in caught.value.message
    assert ended not in caught.value.message
    assert {deployed.state(one) for one in (mine, away, foreign)} == {"running"}
    assert caught.value.next_step is not None
    for step in caught.value.next_step.partition("then: ")[2].split("; ")[:-1]:
        typed(cloud, step)
    emptied(deployed.access())
    assert deployed.destroyed == 1
    assert [deployed.state(one) for one in (mine, away, foreign)] == ["terminated", "terminated", "running"]


@pytest.mark.loopback
def test_machine_of_karpenter_is_named_before_anything_changes(deployed: Deployed) -> None:
    """Karpenter alone ends it, and only while its pods run. The nodes of a node group end with their group."""
    deployed.eks = True
    node, of_karpenter = (
        launch(deployed.cloud, deployed.site, NODE),
        launch(deployed.cloud, deployed.site, OF_KARPENTER),
    )
    of_group = launch(deployed.cloud, deployed.site, OF_GROUP)
    with pytest.raises(StateError, match="burst has machines of Karpenter") as caught:
        emptied(deployed.access())
    assert "nothing was changed" in caught.value.message
    assert of_group not in caught.value.message
    assert deployed.destroyed == 0
    assert {deployed.state(one) for one in (deployed.head, node, of_karpenter, of_group)} == {"running"}
    step = caught.value.next_step
    assert step is not None
    assert step.startswith("gpucluster k8s down burst; then: gpucluster down burst; ")
    typed(deployed.cloud, step.partition("gone for good, first: ")[2])
    emptied(deployed.access())
    assert deployed.destroyed == 1
    assert [deployed.state(one) for one in (node, of_karpenter)] == ["terminated", "terminated"]


@pytest.mark.loopback
def test_node_of_a_group_that_is_not_in_the_state_is_in_the_way(deployed: Deployed) -> None:
    deployed.eks = True
    other = launch(deployed.cloud, deployed.site, {**OF_GROUP, "eks:nodegroup-name": "by-hand"})
    with pytest.raises(BlockedError, match=other):
        emptied(deployed.access())
    assert deployed.destroyed == 0
    deployed.cloud.client("ec2").terminate_instances(InstanceIds=[other])
    deployed.cloud.clock.move(60)


JOURNAL = '{"open": [], "launched": ["i-1", "i-2"], "living": []}'


@pytest.mark.parametrize(
    ("answer", "ids", "told"),
    [
        (Result((), 0, JOURNAL, ""), {"i-1", "i-2"}, ""),
        (Result((), 1, "", "no such user"), set[str](), "the daemon's journal is not read: exit 1: no such user; "),
        (Result((), 0, "no JSON", ""), set[str](), "the daemon's journal is not read: not JSON: "),
        (StateError("the head does not run"), set[str](), "the daemon's journal is not read: the head does not run"),
    ],
)  # fmt: skip
def test_journal_is_read_on_the_head_or_said_to_be_unread(
    answer: Result | StateError, ids: set[str], told: str
) -> None:
    asked: list[str] = []
    said: list[str] = []

    def run(machine: str, argv: Sequence[str], _: float) -> Result:
        asked.append(f"{machine} {argv[0]}")
        if isinstance(answer, StateError):
            raise answer
        return answer

    assert launched_by(run, said.append) == ids
    assert asked == ["head runuser"]
    assert "".join(said).startswith(told)
    assert bool(said) == bool(told)


def test_down_of_a_stack_on_aws_asks_the_head_over_systems_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    class Machines:
        def __init__(self, cluster: str, region: str) -> None:
            asked.append((cluster, region))

        def run(self, machine: str, argv: Sequence[str], _: float) -> Result:
            return Result(tuple(argv), 0 if machine == names.ROLE_HEAD else 1, JOURNAL, "")

    monkeypatch.setattr(transport_ssm, "SsmMachines", Machines)
    assert of_user("burst", Path("/nowhere/pulumi")).launched(REGION) == {"i-1", "i-2"}
    assert asked == [("burst", REGION)]


def typed(cloud: RunningCloud, step: str) -> None:
    """Run the command with the real AWS CLI and the operator's key."""
    key = cloud.api.operator
    environment = {
        "AWS_ACCESS_KEY_ID": key.access_key,
        "AWS_SECRET_ACCESS_KEY": key.secret,
        "PATH": "/usr/bin:/bin",
    }
    argv = [sys.executable, "-m", "awscli", "--endpoint-url", cloud.endpoint, *step.split()[1:]]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (step.split(maxsplit=1)[0], done.returncode) == ("aws", 0), done.stderr


@pytest.mark.loopback
def test_instance_that_ends_is_waited_for(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    other = launch(deployed.cloud, deployed.site)
    deployed.cloud.client("ec2").terminate_instances(InstanceIds=[other])
    emptied(deployed.access())
    assert deployed.destroyed == 1
    assert deployed.state(other) == "terminated"


# --- waits --------------------------------------------------------------------------------------


def test_nothing_in_the_network_is_no_wait() -> None:
    time = Time()
    require_clear(tuple, "burst", time.clock(), ignore)
    assert time.now == 1000


def test_wait_names_what_ends_and_how_long_it_waits() -> None:
    time, said = Time(), list[str]()
    left = [ENDING]
    time.pauses += [lambda: None] * 7 + [left.clear]
    require_clear(lambda: tuple(left), "burst", time.clock(), said.append)
    assert said == [
        "waiting for the end of i-2 (m7i.large, shutting-down); at most 10 more minutes",
        "waiting for the end of i-2 (m7i.large, shutting-down); at most 10 more minutes",
    ]
    assert time.now == 1040


def test_wait_has_an_end() -> None:
    said = list[str]()
    with pytest.raises(BlockedError, match="i-2") as caught:
        require_clear(lambda: (ENDING,), "burst", Time().clock(), said.append)
    assert len(said) == 21
    assert said[-1].endswith("at most 0 more minutes")
    assert str(caught.value).endswith("next: check that nobody needs them; then: gpucluster down burst")


def refuse(fault: Fault) -> tuple[Blocker, ...]:
    raise CloudError(fault, "Code", "text")


def test_missing_answer_is_waited_for_and_a_refusal_is_an_error() -> None:
    said = list[str]()
    with pytest.raises(StateError, match="EC2 does not list the interfaces of burst: Code: text"):
        require_clear(lambda: refuse(Fault.THROTTLED), "burst", Time().clock(), said.append)
    assert said[0] == "EC2 does not list interfaces: Code: text; at most 10 more minutes"
    with pytest.raises(CloudError):
        require_clear(lambda: refuse(Fault.CONFIGURATION), "burst", Time().clock(), ignore)


def test_warning_without_an_answer_says_so() -> None:
    said = list[str]()
    warn(lambda: refuse(Fault.LOST), "burst", said.append)
    warn(lambda: (FIRM, ENDING), "burst", said.append)
    assert said == [
        "what else is in the network of burst is not known yet: Code: text",
        f"in the network of burst, and no node of it: i-1 (m7i.large, stopped); next: {FIRM.step}",
    ]


# --- the deletion -------------------------------------------------------------------------------
SUBNET = Progress(op="delete", type="aws:ec2/subnet:Subnet", name="burst-us-east-1a")


def test_silent_deletion_is_explained_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(down_network, "REPEAT_S", 0.01)
    said, explained = list[str](), threading.Event()

    def report(line: str) -> None:
        said.append(line)
        if "in use by" in line:
            explained.set()

    def destroy(report: Report) -> int:
        report(SUBNET)
        assert explained.wait(BOUND_S)
        report(Progress(op="delete", type=SUBNET.type, name=SUBNET.name, done=True))
        return 1

    assert destroyed(destroy, lambda: (FIRM,), "burst", report) == 1
    waiting = (
        "still waiting for AWS: Subnet burst-us-east-1a; the provider gives up at most 60 minutes after the start of a "
        "deletion"
    )
    assert waiting in said
    assert f"  in use by i-1 (m7i.large, stopped); next: {FIRM.step}" in said
    assert "Subnet burst-us-east-1a: deleted" in said


def test_ended_deletion_is_not_waited_for() -> None:
    said = list[str]()
    with Watch(tuple, said.append) as watch:
        watch.take(SUBNET)
        watch.take(Progress(message="Subnet burst-us-east-1a: retrying"))
        watch.take(Progress(op="delete", type=SUBNET.type, name=SUBNET.name, done=True))
    assert said == ["Subnet burst-us-east-1a: retrying", "Subnet burst-us-east-1a: deleted"]


def failing(_: Report) -> int:
    raise EngineError("the engine could not finish 'burst'")


def test_failed_deletion_names_what_is_in_the_way() -> None:
    with pytest.raises(BlockedError, match=r"i-1 \(m7i.large, stopped\)"):
        destroyed(failing, lambda: (FIRM,), "burst", ignore)
    with pytest.raises(EngineError, match="could not finish"):
        destroyed(failing, lambda: (ENDING,), "burst", ignore)
    with pytest.raises(EngineError, match="could not finish"):
        destroyed(failing, lambda: refuse(Fault.LOST), "burst", ignore)
