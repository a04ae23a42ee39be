"""Refuse every create and delete action once in one stack: `up` and `down` still complete."""

import gc
import logging
import re
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import cache
from pathlib import Path

import boto3
import pytest
from pulumi import automation as auto
from support.builders import on_aws
from support.downs import emptied
from support.engine_stack import Cluster, a_cluster, a_place

from gpucluster.catalog import load as load_catalog
from gpucluster.engine import offline, run
from gpucluster.engine.events import EventCollector, Outcome
from gpucluster.engine.process import EngineProcess, clean_environment
from gpucluster.engine.run import EngineError
from gpucluster.plan.model import SlurmOnAws
from gpucluster.plan.resolve import resolve
from gpucluster.spec import load as load_spec

# many runs of the engine, each as deep as the dependencies of the resources
pytestmark = [
    pytest.mark.timeout(3000),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

STACKS = Path(__file__).parents[2] / "stacks"
SERVICES = ("budgets", "ec2", "efs", "events", "fsx", "iam", "s3", "secretsmanager", "sqs")
MAKES = (
    "Add",
    "Allocate",
    "Associate",
    "Attach",
    "Authorize",
    "Create",
    "Modify",
    "Put",
    "Run",
    "Set",
    "Tag",
)
DELETES = ("Delete", "Detach", "Disassociate", "Release", "Remove", "Revoke", "Terminate")
# S3 actions, which the sandbox names as IAM does
OF_BUCKETS = ("PutBucketPublicAccessBlock", "PutEncryptionConfiguration")
EFS = "aws:efs/fileSystem:FileSystem"
TYPE = re.compile(r"\b(aws:\w+/\w+:\w+)")


@cache
def research() -> SlurmOnAws:
    return on_aws(resolve(load_spec(STACKS / "research.yaml"), load_catalog()))


@cache
def actions(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the create and delete operations of the used services, by botocore's models."""
    session = boto3.Session("k", "s", region_name="us-east-1")
    models = [session.client(service).meta.service_model for service in SERVICES]  # pyright: ignore[reportCallIssue,reportArgumentType]
    return tuple(sorted({one for model in models for one in model.operation_names if one.startswith(words)}))


@pytest.fixture
def whole(tmp_path: Path, pulumi: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Cluster]:
    monkeypatch.setattr(logging.getLogger("grpc._server"), "disabled", True)  # its records describe failures
    with a_cluster(tmp_path / "state", pulumi, research()) as made:
        made.client("s3").create_bucket(Bucket="example-data")  # the site's bucket, which its Lustre reads
        yield made
    gc.collect()  # coroutines and sockets of failed programs, while warnings are errors


def go_on(cluster: Cluster, verb: run.Verb) -> Outcome:
    """Run a verb that continues with other resources after an error: fewer runs meet all refusals."""
    run.prepare(cluster.target)
    process = EngineProcess(cluster.target.pulumi, clean_environment())
    events = EventCollector(run.silent)
    return run.drive(
        cluster.target.stack,
        process,
        lambda: run._stack(cluster.target, cluster.program, process),
        verb,
        events,
    )


def destroy(stack: auto.Stack, on_event: Callable[[auto.EngineEvent], None]) -> None:
    stack.destroy(on_event=on_event, exclude_protected=True, run_program=False, continue_on_error=True)


def deployed_resources(cluster: Cluster) -> set[tuple[str, str]]:
    return {(one.type, one.name) for one in run.deployed_resources(cluster.target)}


def through_all(cluster: Cluster, words: tuple[str, ...], work: Callable[[], object]) -> str:
    """Refuse each action once and repeat `work` until it succeeds. Return all error messages.

    The number of refusals in one run depends on the engine's parallel order. The bound: each failed run uses at least one
    refusal.
    """
    faults = cluster.api.model.faults
    for action in (*actions(words), *OF_BUCKETS):
        faults.next_error(action, "UnauthorizedOperation")
    messages: list[str] = []
    while True:
        before = faults.raised
        try:
            work()
        except EngineError as error:
            messages.append(str(error))
            if faults.raised == before:
                pytest.fail(f"a round failed without a refusal: {error}")
        else:
            return "\n".join(messages)


def test_up_completes_after_every_refusal(whole: Cluster) -> None:
    again: list[str] = []

    def up() -> None:
        """EFS and FSx share an action name: refuse it again after the first of them succeeds."""
        if not again and EFS in {kind for kind, _ in deployed_resources(whole)}:
            again.append("CreateFileSystem")
            whole.api.model.faults.next_error(again[0], "UnauthorizedOperation")
        go_on(whole, lambda stack, on_event: stack.up(on_event=on_event, continue_on_error=True))

    messages = through_all(whole, MAKES, up)
    planned = offline.run("gpucluster.aws.program:declare", whole.plan).resources
    wanted = {(one.type, one.name) for one in planned if one.type.startswith("aws:")}
    assert deployed_resources(whole) == wanted
    assert {kind for kind, _ in wanted} - set(TYPE.findall(messages)) == set(), "each was refused, and named"
    assert [c for c in whole.preview().changes if not c.follows] == []


def test_down_completes_after_every_refusal(whole: Cluster) -> None:
    whole.up()
    made = {kind for kind, _ in deployed_resources(whole)}
    place = replace(a_place(whole), destroy=lambda _: go_on(whole, destroy))
    messages = through_all(whole, DELETES, lambda: emptied(place, delete_data=True))
    assert deployed_resources(whole) == set()
    assert len(made & set(TYPE.findall(messages))) > len(made) / 2, "some have no deletion of their own"
    vpcs = whole.client("ec2").describe_vpcs()["Vpcs"]
    assert [one for one in vpcs if one["CidrBlock"] == "10.50.0.0/16"] == []
