"""A running cloud for tests: the sandbox's API over loopback, with a virtual clock, and clients of it."""

import random
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from moto.moto_api._internal.models import moto_api_backend

from gpucluster.catalog.read import SLURM_SUPPORTED
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Timing
from gpucluster.sandbox.aws.scenario_client import SandboxControl
from gpucluster.sandbox.aws.ssm.state import Agents, Outcome, Shell, no_machines, run_script
from gpucluster.sandbox.cloud import Api, Listener, start
from support.waiting import BOUND_S

REGION = "us-east-1"
SESSION: Any = boto3.Session()  # shared by all clients: it keeps each service's model, which takes 0.2 s to read; each client has its own keys
OPERATOR = ("AKIAOPERATORKEY00001", "operator-secret")


@dataclass
class Clock:
    """Seconds since the epoch, moved by the test. It begins at the real time, because signatures need it."""

    now: float = field(default_factory=time.time)

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class RunningCloud:
    """The API, its clock, and clients with the operator's key or another's."""

    api: Api
    clock: Clock
    endpoint: str
    clients: dict[str, Any] = field(default_factory=dict[str, Any])

    def fresh(self, *, buckets: bool = False) -> "RunningCloud":
        """Reset the cloud for the next test: days pass, so that no memory is left. moto keeps its networks."""
        self.model.clear()
        for instance in (*self.model.wanted(self.clock.now), *self.model.ending(self.clock.now)):
            self.model.mark_ended(instance.id, self.clock.now, code="Server.InternalError")
        for instance in self.model.describe((), self.clock.now):
            if instance.state.value == "stopped":
                self.model.terminate((instance.id,), self.clock.now)
        self.clock.move(3 * 86400)
        self.model.supply.reservations.clear()
        self.model.describe((), self.clock.now)
        self.model.buckets.enabled = buckets
        self.model.trail.clear()
        return self

    @property
    def model(self) -> CloudModel:
        return self.api.model

    def client(self, service: str, key: Any = None) -> Any:
        """A boto3 client with one attempt a call, as `key` (a sandbox Key), by default the operator."""
        who = key or self.api.operator
        name = f"{service}/{who.access_key}/{who.secret}"
        if name in self.clients:
            return self.clients[name]
        client = SESSION.client(
            service,
            region_name=REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id=who.access_key,
            aws_secret_access_key=who.secret,
            aws_session_token=who.token or None,
            config=Config(retries={"total_max_attempts": 1}),
        )
        self.clients[name] = client
        return client

    @property
    def control(self) -> SandboxControl:
        return SandboxControl(self.endpoint, *OPERATOR)


_LIVING: list[Api] = []


@contextmanager
def running_cloud(
    *, metadata: bool = False, timing: Timing | None = None, agents: Agents = no_machines
) -> Generator[RunningCloud, None, None]:
    """Start the API on a free loopback port; throttling is off until a row of T11 turns it on."""
    clock = Clock()
    model = CloudModel(random.Random(5), timing=timing or Timing(pending_s=0.0), region=REGION)  # noqa: S311
    model.buckets.enabled = False
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen(16)
    api = start(
        model,
        [Listener(bound, operator=True)],
        ("127.0.0.1", 0) if metadata else None,
        clock=clock,
        wall=time.time,
        images=tuple(f"gpucluster-ubuntu-24.04-slurm-{version}" for version in SLURM_SUPPORTED),
        operator=OPERATOR,
        session_s=1e9,  # the clock of tests moves in large steps
        console=lambda instance: f"console of {instance}\n".encode(),
        lookup=lambda _: next(iter(model.wanted(clock())), None),
        agents=agents,
    )
    _LIVING.append(api)
    try:
        yield RunningCloud(api, clock, f"http://127.0.0.1:{bound.getsockname()[1]}")
    finally:
        api.close()
        bound.close()
        _LIVING.remove(api)
        if not _LIVING:  # moto's state belongs to the process: another cloud may use it still
            moto_api_backend.reset()


def local_agent(_instance: str) -> Shell | None:
    """The agent of every instance: it runs scripts on this machine. Tests send harmless ones only."""

    def run(script: str, limit_s: float) -> Outcome:
        return run_script(["sh", "-c", script], limit_s)

    return run


def ask(url: str, method: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """Send one plain HTTP request; return status and body, also of a refusal."""
    made = urllib.request.Request(url, data=body, method=method, headers=dict(headers))  # noqa: S310
    try:
        with urllib.request.urlopen(made, timeout=BOUND_S) as answer:  # noqa: S310
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def error_of(call: Callable[..., object], **named: Any) -> Any:
    """Return the refusal of a boto3 call. A call that succeeds fails the test."""
    try:
        call(**named)
    except ClientError as error:
        return error
    raise AssertionError("it was not refused")


def code_of(call: Callable[..., object], **named: Any) -> str:
    """The refusal's code."""
    return error_of(call, **named).response["Error"]["Code"]


@dataclass
class Network:
    """A VPC with a subnet in zones a and b, a group, and a launch template."""

    vpc: str
    subnets: dict[str, str]
    group: str
    template: str
    image: str


def a_network(cloud: RunningCloud, **template: Any) -> Network:
    """Create one through the API, as the program does."""
    ec2 = cloud.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.42.0.0/16")["Vpc"]["VpcId"]
    subnets = {
        zone: ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for zone, cidr in (("us-east-1a", "10.42.0.0/24"), ("us-east-1b", "10.42.1.0/24"))
    }
    group = ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=vpc)["GroupId"]
    image = cloud.api.moto.register_image("gpucluster-ubuntu-24.04-slurm-24.11")
    content = {"ImageId": image, "InstanceType": "p5.48xlarge", "SecurityGroupIds": [group], **template}
    name = f"nodes-{vpc}"
    made = ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=content)
    return Network(vpc, subnets, group, made["LaunchTemplate"]["LaunchTemplateId"], image)
