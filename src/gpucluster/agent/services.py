"""The machine's access to S3, Secrets Manager and STS, and a local folder that replaces S3 on an existing host.

boto3 is imported at the first call, because the import takes 0.3 s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gpucluster.agent.machine import NotYetError, StepError, StoredObject, TemporaryCredentials
from gpucluster.artifacts import MAX_BUNDLE_BYTES
from gpucluster.text import utc

if TYPE_CHECKING:
    from botocore.config import Config
    from types_boto3_s3 import S3Client
    from types_boto3_secretsmanager import SecretsManagerClient

REFUSED_S = 180.0  # seconds; a new role gets its permissions only after some time
REFUSALS = ("AccessDenied", "AccessDeniedException", "UnrecognizedClientException", "InvalidAccessKeyId")
UNCHANGED = ("304", "NotModified")
MISSING_S = 30.0  # Ansible copies before it starts the agent


class AwsServices:
    """`machine.Services` over boto3. Each call tries once; the step runner repeats."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._s3: S3Client | None = None
        self._secrets: SecretsManagerClient | None = None
        self._sts: Any = None

    def get_object(self, bucket: str, key: str, *, if_none_match: str | None) -> StoredObject | None:
        with _faults(f"s3://{bucket}/{key}", self._forget_credentials):
            from botocore.exceptions import ClientError  # noqa: PLC0415 - lazy, see above

            client = self._s3_client()
            try:
                if if_none_match is None:
                    answer = client.get_object(Bucket=bucket, Key=key)
                else:
                    answer = client.get_object(Bucket=bucket, Key=key, IfNoneMatch=if_none_match)
            except ClientError as error:
                if _code(error) in UNCHANGED:
                    return None
                raise
            return StoredObject(answer["Body"].read(MAX_BUNDLE_BYTES + 1), answer["ETag"])

    def put_object(self, bucket: str, key: str, body: bytes) -> None:
        with _faults(f"s3://{bucket}/{key}", self._forget_credentials):
            self._s3_client().put_object(Bucket=bucket, Key=key, Body=body, ContentType="application/json")

    def get_secret(self, arn: str) -> bytes | None:
        return self.get_secret_version(arn)[0]

    def get_secret_version(self, arn: str) -> tuple[bytes | None, str]:
        with _faults("the cluster's secret", self._forget_credentials):
            client = self._secrets_client()
            try:
                answer = client.get_secret_value(SecretId=arn)
            except client.exceptions.ResourceNotFoundException:
                return None, ""  # AWS also returns this error for a secret without a value
            value = answer.get("SecretBinary") or answer.get("SecretString", "").encode() or None
            return value, answer.get("VersionId", "")

    def put_secret(self, arn: str, value: bytes, *, token: str) -> None:
        with _faults("the cluster's secret", self._forget_credentials):
            client = self._secrets_client()
            try:
                client.put_secret_value(SecretId=arn, SecretBinary=value, ClientRequestToken=token)
            except client.exceptions.ResourceExistsException:
                return  # the token was used with another value, which remains

    def assume_role(self, role: str, session: str, seconds: int) -> TemporaryCredentials:
        with _faults("the role for jobs", self._forget_credentials):
            answer = self._sts_client().assume_role(
                RoleArn=role, RoleSessionName=session, DurationSeconds=seconds
            )
        credentials = answer["Credentials"]
        until = credentials["Expiration"]
        return TemporaryCredentials(
            access_key=credentials["AccessKeyId"],
            secret=credentials["SecretAccessKey"],
            token=credentials["SessionToken"],
            expiration=utc(until.timestamp()),
            until=until.timestamp(),
        )

    def _sts_client(self) -> Any:  # without types: a client for one call
        if self._sts is None:
            import boto3  # noqa: PLC0415 - lazy, see above

            self._sts = cast(Any, boto3).client("sts", region_name=self._region, config=_config())
        return self._sts

    def _s3_client(self) -> S3Client:
        if self._s3 is None:
            import boto3  # noqa: PLC0415 - lazy, see above

            self._s3 = boto3.client("s3", region_name=self._region, config=_config())  # pyright: ignore[reportUnknownMemberType]
        return self._s3

    def _secrets_client(self) -> SecretsManagerClient:
        if self._secrets is None:
            import boto3  # noqa: PLC0415 - lazy, see above

            self._secrets = boto3.client(  # pyright: ignore[reportUnknownMemberType]
                "secretsmanager", region_name=self._region, config=_config()
            )
        return self._secrets

    def _forget_credentials(self) -> None:
        """Drop the session: boto3 does not search for credentials a second time."""
        import boto3  # noqa: PLC0415 - lazy, see above

        self._s3 = self._secrets = self._sts = boto3.DEFAULT_SESSION = None


class FolderServices:
    """`machine.Services` on an existing host: objects are files of a folder that Ansible fills. The folder holds no secret."""

    def get_object(self, bucket: str, key: str, *, if_none_match: str | None) -> StoredObject | None:
        try:
            with (Path(bucket) / key).open("rb") as file:
                body = file.read(MAX_BUNDLE_BYTES + 1)
        except OSError as error:
            raise NotYetError(f"{bucket}/{key}: {error.strerror}", limit_s=MISSING_S) from error
        etag = hashlib.sha256(body).hexdigest()
        return None if etag == if_none_match else StoredObject(body, etag)

    def put_object(self, bucket: str, key: str, body: bytes) -> None:
        target = Path(bucket) / key
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.new")
        fresh.write_bytes(body)
        fresh.replace(target)

    def get_secret(self, arn: str) -> bytes | None:
        raise StepError(f"an existing host has no Secrets Manager; the secret is {arn!r}")

    def get_secret_version(self, arn: str) -> tuple[bytes | None, str]:
        raise StepError(f"an existing host has no Secrets Manager; the secret is {arn!r}")

    def put_secret(self, arn: str, value: bytes, *, token: str) -> None:
        raise StepError(f"an existing host has no Secrets Manager; the secret is {arn!r}")

    def assume_role(self, role: str, session: str, seconds: int) -> TemporaryCredentials:
        raise StepError(f"an existing host has no AWS role; the role to assume is {role!r}")


def _config() -> Config:
    from botocore.config import Config  # noqa: PLC0415 - lazy, see above

    return Config(connect_timeout=3, read_timeout=15, retries={"mode": "standard", "total_max_attempts": 1})


@contextmanager
def _faults(what: str, forget: Callable[[], None]) -> Generator[None]:
    """Convert errors of botocore to NotYetError. Only a refusal has a limit: network errors are repeated until the deadline."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # noqa: PLC0415

    try:
        yield
    except ClientError as error:
        refused = _code(error) in REFUSALS
        raise NotYetError(f"{what}: {error}", limit_s=REFUSED_S if refused else None) from error
    except NoCredentialsError as error:
        forget()
        raise NotYetError(f"{what}: the machine has no credentials of its role yet") from error
    except BotoCoreError as error:
        raise NotYetError(f"{what}: {error}") from error


def _code(error: Exception) -> str:
    response = getattr(error, "response", {})
    return str(response.get("Error", {}).get("Code", ""))
