"""Provide clients for one AWS account and region. Keys and endpoint come from the environment.

The clients are botocore's: boto3 adds transfers of files, which nothing here uses, and half of the time of its import.
"""

import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError

# Error codes for a missing resource, in addition to all codes that end in `NotFound`.
ABSENT: Final = frozenset(
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


@dataclass(frozen=True)
class AwsAccount:
    """One AWS account in one region."""

    region: str
    _clients: dict[str, Any] = field(default_factory=dict[str, Any])
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _session: Any = field(default_factory=botocore.session.get_session)

    def client(self, service: str) -> Any:
        """Return the client of a service. Each client is made once."""
        with self._lock:
            if service not in self._clients:
                config = Config(retries={"mode": "standard", "max_attempts": 8}, max_pool_connections=32)
                self._clients[service] = self._session.create_client(
                    service, region_name=self.region, config=config
                )
            return self._clients[service]

    @property
    def ec2(self) -> Any:
        return self.client("ec2")

    @property
    def efs(self) -> Any:
        return self.client("efs")

    @property
    def fsx(self) -> Any:
        return self.client("fsx")

    @cached_property
    def account(self) -> str:
        return self.client("sts").get_caller_identity()["Account"]

    def ec2_arn(self, kind: str, identifier: str, owner: str = "") -> str:
        """Return the ARN of a resource of this account, or of its owner: a shared VPC has another (T50)."""
        return f"arn:aws:ec2:{self.region}:{owner or self.account}:{kind}/{identifier}"


def code_of(error: ClientError) -> str:
    """Return the AWS error code."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_absent(error: ClientError) -> bool:
    """Return whether the error means that the named resource does not exist."""
    code = code_of(error)
    return code in ABSENT or code.endswith(("NotFound", ".NotFoundException"))
