"""One object of the cluster's bucket over S3, for the copy of the orders. Each write names the version that was read (T39)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpucluster.cloud.aws import boto3_client, client_config, translated
from gpucluster.cloud.port import CloudError, StampedBody

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_RACED = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"})
_MOST = 1024 * 1024  # bytes that are read; a longer object does not parse


class BucketObject:
    """The ObjectPort over S3. `client` creates the S3 client at the first call; the default is boto3's."""

    def __init__(
        self, region: str, bucket: str, key: str, client: "Callable[[], S3Client] | None" = None
    ) -> None:
        self._region, self._bucket, self._key = region, bucket, key
        self._make = client or self._boto3_client
        self._s3: S3Client | None = None

    def read(self) -> StampedBody:
        """See ObjectPort."""
        try:
            with translated():
                answer = self._client().get_object(Bucket=self._bucket, Key=self._key)
                return StampedBody(body=answer["Body"].read(_MOST), etag=answer["ETag"])
        except CloudError as error:
            if error.code == "NoSuchKey":
                return StampedBody()
            raise

    def write(self, body: bytes, etag: str | None) -> str | None:
        """See ObjectPort."""
        condition: dict[str, Any] = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            with translated():
                answer = self._client().put_object(
                    Bucket=self._bucket, Key=self._key, Body=body, ContentType="application/json", **condition
                )
        except CloudError as error:
            if error.code in _RACED:
                return None
            raise
        return answer["ETag"]

    def _client(self) -> "S3Client":
        if self._s3 is None:
            self._s3 = self._make()
        return self._s3

    def _boto3_client(self) -> "S3Client":
        # One attempt and a short wait: the daemon's start waits for the first read.
        return boto3_client("s3", self._region, client_config(attempts=1, read_timeout_s=5))
