"""Every action that makes or deletes something refused once, all in one stack: `up` and `down` go on to the same end."""

import gc
import logging
import re
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path

import boto3
import pytest
from stacked import Cluster, a_cluster, a_place

from gpucluster.catalog import load as load_catalog
from gpucluster.cli.down import empty
from gpucluster.engine import offline, run
from gpucluster.engine.run import EngineError
from gpucluster.plan.model import ClusterPlan
from gpucluster.plan.resolve import resolve
from gpucluster.spec import load as load_spec

# many rounds of the engine, each as deep as resources hang on one another
pytestmark = [
    pytest.mark.timeout(900),
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
ROUNDS = 20
# S3's, which the sandbox names as IAM does
OF_BUCKETS = ("PutBucketPublicAccessBlock", "PutEncryptionConfiguration")
EFS = "aws:efs/fileSystem:FileSystem"
TYPE = re.compile(r"\b(aws:\w+/\w+:\w+)")


@cache
def research() -> ClusterPlan:
    return resolve(load_spec(STACKS / "research.yaml"), load_catalog())


@cache
def actions(words: tuple[str, ...]) -> tuple[str, ...]:
    """The operations of the services in use that begin so, by botocore's own models."""
    session = boto3.Session("k", "s", region_name="us-east-1")
    models = [session.client(service).meta.service_model for service in SERVICES]  # pyright: ignore[reportCallIssue,reportArgumentType]
    return tuple(sorted({one for model in models for one in model.operation_names if one.startswith(words)}))


@pytest.fixture
def whole(tmp_path: Path, pulumi: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Cluster]:
    monkeypatch.setattr(logging.getLogger("grpc._server"), "disabled", True)  # its records hold what failed
    with a_cluster(tmp_path / "state", pulumi, research()) as made:
        made.client("s3").create_bucket(Bucket="example-data")  # the site's, which its Lustre reads
        yield made
    gc.collect()  # coroutines and sockets of the programs that failed, while their warnings are ours


def standing(cluster: Cluster) -> set[tuple[str, str]]:
    return {(one.type, one.name) for one in run.standing(cluster.target)}


def through_all(cluster: Cluster, words: tuple[str, ...], work: Callable[[], object]) -> str:
    """Refuse each action once, and repeat until it is done; all that was said."""
    for action in (*actions(words), *OF_BUCKETS):
        cluster.api.model.faults.next_error(action, "UnauthorizedOperation")
    said: list[str] = []
    for _ in range(ROUNDS):
        try:
            work()
        except EngineError as error:
            said.append(str(error))
        else:
            return "\n".join(said)
    raise AssertionError("\n".join(["it does not come to its end", *said[-2:]]))


def test_up_goes_on_whichever_type_was_refused(whole: Cluster) -> None:
    again: list[str] = []

    def up() -> None:
        """EFS and FSx have one name for it: once more, when the first of them is through."""
        if not again and EFS in {kind for kind, _ in standing(whole)}:
            again.append("CreateFileSystem")
            whole.api.model.faults.next_error(again[0], "UnauthorizedOperation")
        whole.up()

    said = through_all(whole, MAKES, up)
    planned = offline.run("gpucluster.aws.program:declare", whole.plan).resources
    wanted = {(one.type, one.name) for one in planned if one.type.startswith("aws:")}
    assert standing(whole) == wanted
    assert {kind for kind, _ in wanted} - set(TYPE.findall(said)) == set(), "each was refused, and named"
    assert [c for c in whole.preview().changes if not c.follows] == []


def test_down_goes_on_whichever_type_was_refused(whole: Cluster) -> None:
    whole.up()
    made = {kind for kind, _ in standing(whole)}
    said = through_all(whole, DELETES, lambda: empty(a_place(whole), "research", delete_data=True))
    assert standing(whole) == set()
    assert len(made & set(TYPE.findall(said))) > len(made) / 2, "some have no deletion of their own"
    vpcs = whole.client("ec2").describe_vpcs()["Vpcs"]
    assert [one for one in vpcs if one["CidrBlock"] == "10.50.0.0/16"] == []
