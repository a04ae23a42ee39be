"""S3, Secrets Manager and STS with the machine's own role. boto3 is imported at the first call: it costs 0.3 s."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from gpucluster.artifacts import MAX_BUNDLE_BYTES
from gpucluster.node.machine import Fetched, Lent, NotYetError

if TYPE_CHECKING:
    from botocore.config import Config
    from types_boto3_s3 import S3Client
    from types_boto3_secretsmanager import SecretsManagerClient

REFUSED_S = 180.0  # a new role's rights take a while to be known everywhere
REFUSALS = ("AccessDenied", "AccessDeniedException", "UnrecognizedClientException", "InvalidAccessKeyId")
UNCHANGED = ("304", "NotModified")


class RoleStore:
    """machine.Store over boto3; each call tries once, the walk repeats."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._s3: S3Client | None = None
        self._secrets: SecretsManagerClient | None = None
        self._sts: Any = None

    def get(self, bucket: str, key: str, *, unless: str | None) -> Fetched | None:
        with _faults(f"s3://{bucket}/{key}", self._forget):
            from botocore.exceptions import ClientError  # noqa: PLC0415 - lazy, see above

            client = self._bucket()
            try:
                if unless is None:
                    answer = client.get_object(Bucket=bucket, Key=key)
                else:
                    answer = client.get_object(Bucket=bucket, Key=key, IfNoneMatch=unless)
            except ClientError as error:
                if _code(error) in UNCHANGED:
                    return None
                raise
            return Fetched(answer["Body"].read(MAX_BUNDLE_BYTES + 1), answer["ETag"])

    def put(self, bucket: str, key: str, body: bytes) -> None:
        with _faults(f"s3://{bucket}/{key}", self._forget):
            self._bucket().put_object(Bucket=bucket, Key=key, Body=body, ContentType="application/json")

    def secret(self, arn: str) -> bytes | None:
        with _faults("the cluster's secret", self._forget):
            client = self._vault()
            try:
                answer = client.get_secret_value(SecretId=arn)
            except client.exceptions.ResourceNotFoundException:
                return None  # also what a secret without a value answers
            return answer.get("SecretBinary") or answer.get("SecretString", "").encode() or None

    def offer_secret(self, arn: str, value: bytes, *, token: str) -> None:
        with _faults("the cluster's secret", self._forget):
            client = self._vault()
            try:
                client.put_secret_value(SecretId=arn, SecretBinary=value, ClientRequestToken=token)
            except client.exceptions.ResourceExistsException:
                return  # the token was spent on another value: that one stands

    def assume(self, role: str, session: str, seconds: int) -> Lent:
        with _faults("the role for jobs", self._forget):
            told = self._tokens().assume_role(RoleArn=role, RoleSessionName=session, DurationSeconds=seconds)[
                "Credentials"
            ]
        until = told["Expiration"]
        return Lent(
            access_key=told["AccessKeyId"],
            secret=told["SecretAccessKey"],
            token=told["SessionToken"],
            expiration=until.strftime("%Y-%m-%dT%H:%M:%SZ"),
            until=until.timestamp(),
        )

    def _tokens(self) -> Any:  # without types: a client for one call
        if self._sts is None:
            import boto3  # noqa: PLC0415 - lazy, see above

            self._sts = cast(Any, boto3).client("sts", region_name=self._region, config=_config())
        return self._sts

    def _bucket(self) -> S3Client:
        if self._s3 is None:
            import boto3  # noqa: PLC0415 - lazy, see above

            self._s3 = boto3.client("s3", region_name=self._region, config=_config())  # pyright: ignore[reportUnknownMemberType]
        return self._s3

    def _vault(self) -> SecretsManagerClient:
        if self._secrets is None:
            import boto3  # noqa: PLC0415 - lazy, see above

            self._secrets = boto3.client(  # pyright: ignore[reportUnknownMemberType]
                "secretsmanager", region_name=self._region, config=_config()
            )
        return self._secrets

    def _forget(self) -> None:
        """A session that found no credentials does not look again."""
        import boto3  # noqa: PLC0415 - lazy, see above

        self._s3 = self._secrets = self._sts = boto3.DEFAULT_SESSION = None


def _config() -> Config:
    from botocore.config import Config  # noqa: PLC0415 - lazy, see above

    return Config(connect_timeout=3, read_timeout=15, retries={"mode": "standard", "total_max_attempts": 1})


@contextmanager
def _faults(what: str, forget: Callable[[], None]) -> Generator[None]:
    """Every fault of botocore as NotYetError, in one line; only a refusal has an end to its patience."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # noqa: PLC0415

    try:
        yield
    except ClientError as error:
        refused = _code(error) in REFUSALS
        raise NotYetError(f"{what}: {error}", limit_s=REFUSED_S if refused else None) from error
    except NoCredentialsError as error:
        forget()
        raise NotYetError(f"{what}: the machine has no role's credentials yet") from error
    except BotoCoreError as error:
        raise NotYetError(f"{what}: {error}") from error


def _code(error: Exception) -> str:
    response = getattr(error, "response", {})
    return str(response.get("Error", {}).get("Code", ""))
