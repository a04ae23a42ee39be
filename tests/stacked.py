"""A stack for tests: the real engine over the sandbox's API on loopback; no root, no capsule, no machine."""

import random
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import boto3
from builders import a_plan
from moto.moto_api._internal.models import moto_api_backend

from gpucluster.aws.program import declare
from gpucluster.cli.down import Place
from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.model import CloudModel, Timing
from gpucluster.engine import run
from gpucluster.engine.events import Outcome
from gpucluster.engine.target import Target
from gpucluster.plan.model import ClusterPlan, there
from gpucluster.sandbox.api import Api, Listener, start

OPERATOR = ("AKIAOPERATORKEY00001", "operator-secret-of-the-test")
REGION = "us-east-2"


@dataclass(frozen=True)
class Cluster:
    """One stack, the API that it stands in, and the verbs over both."""

    target: Target
    api: Api
    plan: ClusterPlan

    @property
    def program(self) -> Callable[[], None]:
        return partial(declare, self.plan)

    def client(self, service: str) -> Any:
        session: Any = boto3.Session(*OPERATOR, region_name=there(self.plan.aws).region)
        return session.client(service, endpoint_url=self.target.environment["AWS_ENDPOINT_URL"])

    def up(self) -> Outcome:
        return run.up(self.target, self.program)

    def preview(self) -> Outcome:
        return run.preview(self.target, self.program)

    def refresh(self) -> Outcome:
        return run.refresh(self.target, self.program)

    def destroy(self) -> Outcome:
        return run.destroy(self.target)


def a_place(cluster: Cluster) -> Place:
    """Where `gpucluster down` acts."""
    return Place(
        standing=lambda: run.standing(cluster.target),
        destroy=lambda report: run.destroy(cluster.target, report=report),
        release=lambda: run.release(cluster.target),
        cloud=lambda region: AwsCloud(region, lambda _: cluster.client("ec2")),
        control=lambda region, bucket: S3Control(region, bucket, lambda: cluster.client("s3")),
        region=None,
    )


@contextmanager
def a_cluster(state_dir: Path, pulumi: Path, plan: ClusterPlan | None = None) -> Generator[Cluster]:
    """The cloud is up and empty; nothing is declared yet. Without a plan it is burst's."""
    plan = plan or a_plan()
    region = there(plan.aws).region
    moto_api_backend.reset()  # moto's state is the process's
    timing = Timing(
        pending_s=0.1, ending_s=0.1, linger_s=0.5, gateway_s=0.2, system_s=0.1,
        target_s=0.2, lustre_s=0.3, link_s=0.2, rules_s=0.5, secret_s=0.5,
    )  # fmt: skip
    model = CloudModel(random.Random(1), timing=timing, region=region)  # noqa: S311
    with socket.create_server(("127.0.0.1", 0), backlog=64) as bound:
        api = start(
            model,
            [Listener(bound)],
            None,
            clock=time.time,
            images=[there(there(there(plan.aws).image).name)],
            operator=OPERATOR,
        )
        environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{bound.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": OPERATOR[0],
            "AWS_SECRET_ACCESS_KEY": OPERATOR[1],
        }
        target = Target(stack=plan.name, state_dir=state_dir, pulumi=pulumi, environment=environment)
        try:
            yield Cluster(target, api, plan)
        finally:
            api.close()
