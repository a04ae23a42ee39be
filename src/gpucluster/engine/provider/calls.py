"""How the rows speak to the cloud: clients from the environment, waiting, and what to repeat."""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from gpucluster.engine.provider.schema import ResourceType
from gpucluster.engine.provider.shapes import empty
from gpucluster.engine.provider.values import Value, Values

T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0

# What holds a deletion up for a while (aws-traps.md T27, T37, T42, T43, T44).
IN_USE = frozenset(
    {
        "DeleteConflict",
        "DependencyViolation",
        "FileSystemInUse",
        "InvalidGroup.InUse",
        "InvalidIPAddress.InUse",
        "InvalidPlacementGroup.InUse",
        "VolumeInUse",
    }
)
# What a fresh identity or group answers until it is known everywhere (T36): code -> part of the text.
NOT_YET = (
    ("InvalidParameterValue", "Instance Profile"),
    ("InvalidParameterValue", "IAM Role"),
    ("InvalidParameterValue", "iamInstanceProfile"),
    ("MalformedPolicyDocument", "Invalid principal"),
    ("InvalidGroup.NotFound", ""),
    ("InvalidLaunchTemplateId.NotFound", ""),
    ("InvalidNatGatewayID.NotFound", ""),
    ("NatGatewayNotFound", ""),
    ("IncorrectFileSystemLifeCycleState", ""),  # EFS: no target while the file system is still made
    ("OperationAborted", ""),  # S3: another change of the same bucket, or its deletion, is under way
    ("InvalidRequestException", "scheduled for deletion"),  # a forced deletion of a secret ends later (T38)
    ("ConflictException", ""),
    ("QueueDeletedRecently", ""),  # a name is taken for a minute after its queue (T41)
    ("AWS.SimpleQueueService.QueueDeletedRecently", ""),
)
# Codes of what is gone, beside all that end in `.NotFound`.
ABSENT = frozenset(
    {
        "404",
        "InvalidPlacementGroup.Unknown",
        "NoSuchBucket",
        "NoSuchBucketPolicy",
        "NoSuchEntity",
        "NoSuchKey",
        "NoSuchPublicAccessBlockConfiguration",
        "NoSuchTagSet",
        "AWS.SimpleQueueService.NonExistentQueue",
        "QueueDoesNotExist",
        "NotFoundException",
        "ResourceNotFoundException",
        "ServerSideEncryptionConfigurationNotFoundError",
    }
)


class StoppedError(Exception):
    """The engine asked us to stop waiting."""


class FailedError(Exception):
    """The cloud gave the resource up: it will never be what was asked."""


class TooLateError(Exception):
    """What was waited for did not come about in time."""


@dataclass(frozen=True)
class Cloud:
    """The account, as the environment's keys and endpoint reach it."""

    region: str
    stopped: threading.Event = field(default_factory=threading.Event)
    _clients: dict[str, Any] = field(default_factory=dict[str, Any])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def client(self, service: str) -> Any:
        """Return the boto3 client of a service, made once."""
        with self._lock:
            if service not in self._clients:
                config = Config(retries={"mode": "standard", "max_attempts": 8}, max_pool_connections=32)
                self._clients[service] = boto3.client(service, region_name=self.region, config=config)  # pyright: ignore[reportUnknownMemberType, reportCallIssue, reportArgumentType]
            return self._clients[service]

    @property
    def ec2(self) -> Any:
        return self.client("ec2")

    @property
    def iam(self) -> Any:
        return self.client("iam")

    @property
    def s3(self) -> Any:
        return self.client("s3")

    @property
    def secrets(self) -> Any:
        return self.client("secretsmanager")

    @property
    def sqs(self) -> Any:
        return self.client("sqs")

    @property
    def events(self) -> Any:
        return self.client("events")

    @property
    def efs(self) -> Any:
        return self.client("efs")

    @property
    def fsx(self) -> Any:
        return self.client("fsx")

    @property
    def budgets(self) -> Any:
        return self.client("budgets")

    @cached_property
    def account(self) -> str:
        return self.client("sts").get_caller_identity()["Account"]

    def ec2_arn(self, kind: str, identifier: str) -> str:
        return f"arn:aws:ec2:{self.region}:{self.account}:{kind}/{identifier}"

    def wait(self, what: str, seconds: float, done: Callable[[], bool]) -> None:
        """Ask again with growing pauses until `done`; TooLateError names what was waited for."""
        for _ in self._pauses(seconds):
            if done():
                return
        raise TooLateError(f"{what}: not so after {seconds:g} s")

    def retry(self, seconds: float, again: Callable[[ClientError], bool], attempt: Callable[[], T]) -> T:
        """Repeat `attempt` while it fails in a way that passes; then its own error."""
        last: ClientError | None = None
        for _ in self._pauses(seconds):
            try:
                return attempt()
            except ClientError as error:
                if not again(error):
                    raise
                last = error
        raise last or TooLateError(f"not done after {seconds:g} s")

    def _pauses(self, seconds: float) -> Iterator[None]:
        deadline, pause = time.monotonic() + seconds, FIRST_PAUSE_S
        while True:
            yield
            if time.monotonic() + pause > deadline:
                return
            if self.stopped.wait(pause):
                raise StoppedError
            pause = min(pause * 1.6, LONGEST_PAUSE_S)


def nobody_hears(_: str) -> None:
    """No engine listens."""


@dataclass(frozen=True, slots=True)
class Call:
    """One create, update or delete: the row, the id (empty before it is known), and the checked inputs."""

    cloud: Cloud
    kind: ResourceType
    id: str
    inputs: Values
    seconds: float
    olds: Mapping[str, Value] = field(default_factory=dict[str, Value])  # update: the inputs before
    tell: Callable[[str], None] = nobody_hears  # a line for people, where a wait is long

    def api(self, *names: str) -> dict[str, Any]:
        """The named inputs (all that the API knows, if none is named), in the API's words; unset ones left out."""
        wanted = names or tuple(self.kind.properties)
        rows = {n: self.kind.properties[n] for n in wanted}
        return {
            row.api: row.shape.to_api(self.inputs[n])
            for n, row in rows.items()
            if row.api is not None and n != "tagsAll" and not empty(self.inputs.get(n))
        }

    def tag_specifications(self, resource: str) -> dict[str, Any]:
        """EC2's way to tag at birth (T17); nothing when there is no tag."""
        return {"TagSpecifications": [{"ResourceType": resource, "Tags": self.tags}]} if self.tags else {}

    @property
    def tags(self) -> list[dict[str, str]]:
        """The tags as most APIs take them."""
        return tag_list(self.inputs.get("tagsAll"))

    def lost_tags(self, name: str = "tagsAll") -> list[str]:
        """Keys that stood in the old inputs and stand no more."""
        olds: Values = self.olds.get(name) or {}
        news: Values = self.inputs.get(name) or {}
        return sorted(olds.keys() - news.keys())


def code_of(error: ClientError) -> str:
    """The cloud's own word for the failure."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_absent(error: ClientError) -> bool:
    """Whether the error says that what was named is not there."""
    code = code_of(error)
    return code in ABSENT or code.endswith(("NotFound", ".NotFoundException"))


def is_in_use(error: ClientError) -> bool:
    """Whether a deletion may succeed later."""
    return code_of(error) in IN_USE


def is_not_yet(error: ClientError) -> bool:
    """Whether a creation may succeed later, because what it names is young."""
    code, text = code_of(error), str(error)
    return any(code == known and part in text for known, part in NOT_YET)


@contextmanager
def absent_is_fine() -> Generator[None]:
    """For deletions: what is gone is deleted."""
    try:
        yield
    except ClientError as error:
        if not is_absent(error):
            raise


def tag_list(tags: Values | None) -> list[dict[str, str]]:
    """A map of tags as the APIs take it."""
    return [{"Key": k, "Value": v} for k, v in sorted((tags or {}).items())]


def retag_ec2(call: Call) -> None:
    """Make the EC2 tags of `call.id` those of its inputs."""
    gone = call.lost_tags()
    if gone:
        call.cloud.ec2.delete_tags(Resources=[call.id], Tags=[{"Key": k} for k in gone])
    if call.tags:
        call.cloud.ec2.create_tags(Resources=[call.id], Tags=call.tags)


def await_gone(call: Call) -> None:
    """Wait until the row's own `read` finds nothing."""

    def gone() -> bool:
        try:
            return call.kind.read(call.cloud, call.id, call.inputs) is None
        except ClientError as error:
            if is_absent(error):
                return True
            raise

    call.cloud.wait(f"{call.id} gone", call.seconds, gone)


def await_state(call: Call, state: Callable[[], tuple[str, str]], good: str, bad: frozenset[str]) -> None:
    """Wait until the first of `state()` is `good`; a bad one ends it with the second, the cloud's own reason."""

    def there() -> bool:
        word, why = state()
        if word in bad:
            raise FailedError(f"{call.id} is {word}: {why or 'no reason given'}")
        return word == good

    call.cloud.wait(f"{call.id} {good}", call.seconds, there)


def only(items: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The one item of a describe answer, or None."""
    return items[0] if items else None
