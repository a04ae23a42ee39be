"""AWS access of the provider: waiting, and retries of temporary errors."""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from gpucluster.engine.aws_account import AwsAccount, code_of, is_absent
from gpucluster.engine.values import Values

T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0

# Errors of deletions that are temporary (T27, T37, T42, T43, T44).
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
# Errors for a new identity or group until all services know it (T36): code -> part of the text.
NOT_YET = (
    ("InvalidParameterValue", "Instance Profile"),
    ("InvalidParameterValue", "IAM Role"),
    ("InvalidParameterValue", "iamInstanceProfile"),
    ("MalformedPolicyDocument", "Invalid principal"),
    ("InvalidGroup.NotFound", ""),
    ("InvalidLaunchTemplateId.NotFound", ""),
    ("InvalidNatGatewayID.NotFound", ""),
    ("NatGatewayNotFound", ""),
    (
        "IncorrectFileSystemLifeCycleState",
        "",
    ),  # EFS: no mount target while the file system is still being created
    ("OperationAborted", ""),  # S3: another change of the same bucket, or its deletion, is running
    (
        "InvalidRequestException",
        "scheduled for deletion",
    ),  # a forced deletion of a secret takes effect later (T38)
    ("ConflictException", ""),
    # EKS: new roles and principals, as `internal/service/eks` of the upstream provider tries them again
    ("InvalidParameterException", "does not exist"),
    ("InvalidParameterException", "the trusted entity is not correct"),
    ("InvalidParameterException", "doesn't have the Amazon EKS Managed Policies"),
    ("InvalidParameterException", "invalid principal"),
    ("QueueDeletedRecently", ""),  # a queue's name stays reserved for a minute after its deletion (T41)
    ("AWS.SimpleQueueService.QueueDeletedRecently", ""),
)


class StoppedError(Exception):
    """The engine cancelled the operation."""


class FailedError(Exception):
    """The resource failed permanently and cannot reach its expected state."""


class TooLateError(Exception):
    """The awaited state did not occur in time."""


@dataclass(frozen=True)
class Cloud(AwsAccount):
    """An AWS account with waiting and retries, and the provider's default tags."""

    default_tags: Mapping[str, str] = field(default_factory=dict[str, str])
    stopped: threading.Event = field(default_factory=threading.Event)

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
    def budgets(self) -> Any:
        return self.client("budgets")

    def wait(self, what: str, seconds: float, done: Callable[[], bool]) -> None:
        """Poll with growing pauses until `done`. TooLateError names the awaited state."""
        for _ in self._pauses(seconds):
            if done():
                return
        raise TooLateError(f"{what}: not so after {seconds:g} s")

    def retry(self, seconds: float, again: Callable[[ClientError], bool], attempt: Callable[[], T]) -> T:
        """Repeat `attempt` while its error is temporary. Then raise that error."""
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


def is_in_use(error: ClientError) -> bool:
    """Return whether a deletion may succeed later."""
    return code_of(error) in IN_USE


def is_not_yet(error: ClientError) -> bool:
    """Return whether a creation may succeed later, because a resource it refers to is new."""
    code, text = code_of(error), str(error)
    return any(code == known and part in text for known, part in NOT_YET)


@contextmanager
def absent_is_fine() -> Generator[None]:
    """For deletions: treat a missing resource as deleted."""
    try:
        yield
    except ClientError as error:
        if not is_absent(error):
            raise


def tag_list(tags: Values | None) -> list[dict[str, str]]:
    """Return tags in the form of the APIs."""
    return [{"Key": k, "Value": v} for k, v in sorted((tags or {}).items())]


def only(items: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the only item of a describe response, or None."""
    return items[0] if items else None
