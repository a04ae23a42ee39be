"""A stack for tests: the real engine with the sandbox's API on loopback; no root, no capsule, no machine."""

import random
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic

import boto3
from moto.moto_api._internal.models import moto_api_backend
from typing_extensions import TypeVar

from gpucluster.aws.program import declare
from gpucluster.cli.down_jobs import Jobs
from gpucluster.cli.down_world import ClusterAccess, Stack, World
from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.identity import caller_account
from gpucluster.cloud.network_interfaces import AwsOccupants
from gpucluster.engine import run
from gpucluster.engine.events import Outcome
from gpucluster.engine.target import PROJECT, Target
from gpucluster.plan.model import AwsPlan, SlurmOnAws
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Timing
from gpucluster.sandbox.cloud import Api, Listener, start
from gpucluster.sandbox.state_dir import ENGINE_PLUGINS
from support.builders import a_plan, image_name_of
from support.waiting import BOUND_S

OPERATOR = ("AKIAOPERATORKEY00001", "operator-secret-of-the-test")
REGION = "us-east-2"
P = TypeVar("P", bound=AwsPlan, default=SlurmOnAws)


@dataclass(frozen=True)
class Cluster(Generic[P]):
    """One stack, its API, and the commands on both."""

    target: Target
    api: Api
    plan: P

    @property
    def program(self) -> Callable[[], None]:
        return partial(declare, self.plan)

    def client(self, service: str) -> Any:
        session: Any = boto3.Session(*OPERATOR, region_name=self.plan.aws.region)
        return session.client(service, endpoint_url=self.target.environment["AWS_ENDPOINT_URL"])

    def up(self) -> Outcome:
        return run.up(self.target, self.program)

    def preview(self) -> Outcome:
        return run.preview(self.target, self.program)

    def refresh(self) -> Outcome:
        return run.refresh(self.target, self.program)

    def destroy(self) -> Outcome:
        return run.destroy(self.target)

    @contextmanager
    def unfinished(self) -> Generator[None]:
        """An `up` does not complete during the block: the cloud answers no DescribeSecret."""
        faults, over = self.api.model.faults, threading.Event()
        raise_next = faults.raise_next

        def held(action: str) -> None:
            if action == "DescribeSecret":
                over.wait(BOUND_S)
            raise_next(action)

        vars(faults)["raise_next"] = held
        try:
            yield
        finally:
            over.set()
            del vars(faults)["raise_next"]


def a_place(cluster: Cluster) -> ClusterAccess:
    """Where `gpucluster down` acts."""
    return ClusterAccess(
        stack=Stack(world=World.SANDBOX, name=cluster.target.stack, project=PROJECT),
        account=lambda region: caller_account(region, lambda: cluster.client("sts")),
        jobs=lambda _: Jobs(running={}, waiting={}, unknown="no machine runs"),
        resources=lambda: run.deployed_resources(cluster.target),
        destroy=lambda report: run.destroy(cluster.target, report=report),
        release=lambda: run.release(cluster.target),
        cloud=lambda region: AwsCloud(region, lambda _: cluster.client("ec2")),
        occupants=lambda region: AwsOccupants(region, lambda: cluster.client("ec2")),
        launched=lambda _: frozenset(),
        control=lambda region, bucket: S3Control(region, bucket, lambda: cluster.client("s3")),
        region=None,
    )


@contextmanager
def a_cluster(state_dir: Path, pulumi: Path, plan: SlurmOnAws | None = None) -> Generator[Cluster]:
    """The cloud runs and is empty; nothing is declared yet. Without a plan it is burst's."""
    with cluster_of(plan or a_plan(), state_dir, pulumi) as made:
        yield made


@contextmanager
def cluster_of(plan: P, state_dir: Path, pulumi: Path) -> Generator[Cluster[P]]:
    """The same for any plan on AWS."""
    region = plan.aws.region
    moto_api_backend.reset()  # moto's state belongs to the process
    timing = Timing(
        pending_s=0.1, ending_s=0.1, linger_s=0.5, gateway_s=0.2, system_s=0.1,
        target_s=0.2, lustre_s=0.3, link_s=0.2, rules_s=0.5, secret_s=0.5,
        cluster_s=0.5, nodegroup_s=0.5, addon_s=0.2, update_s=0.3,
    )  # fmt: skip
    model = CloudModel(random.Random(1), timing=timing, region=region)  # noqa: S311
    with socket.create_server(("127.0.0.1", 0), backlog=64) as bound:
        api = start(
            model,
            [Listener(bound)],
            None,
            clock=time.time,
            images=[image_name_of(plan)] if isinstance(plan, SlurmOnAws) else [],
            operator=OPERATOR,
        )
        if plan.aws.kms_key is not None:
            api.moto.make_key(plan.aws.kms_key)
        environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{bound.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": OPERATOR[0],
            "AWS_SECRET_ACCESS_KEY": OPERATOR[1],
        }
        target = Target(
            stack=plan.name,
            state_dir=state_dir,
            pulumi=pulumi,
            environment=environment,
            plugins=ENGINE_PLUGINS,
        )
        try:
            yield Cluster(target, api, plan)
        finally:
            api.close()
