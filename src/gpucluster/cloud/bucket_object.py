"""One object of the cluster's bucket over S3. Each write names the version that was read (T39)."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gpucluster.cloud.aws import CONNECT_S, boto3_client, client_config, translated
from gpucluster.cloud.port import CloudError, StampedBody

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_RACED = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"})
_MOST = 1024 * 1024  # bytes that are read; a longer object does not parse
_VERSIONS = 100
ATTEMPTS = 3
READ_S = 10
# The longest call of one attempt: urllib3 tries each address of the name, and S3 answers with up to eight; then the first
# byte and the body. Before it: the name (two rounds of 5 s, also with the search domain) and credentials of the metadata
# service (three requests of 1 s).
ADDRESSES, NAME_S, CREDENTIALS_S = 8, 20, 3
ONE_ATTEMPT_S = NAME_S + CREDENTIALS_S + ADDRESSES * CONNECT_S + 2 * READ_S


class BucketObject:
    """The ObjectPort over S3. `client` creates the S3 client at the first call; the default is boto3's."""

    def __init__(
        self,
        region: str,
        bucket: str,
        key: str,
        client: "Callable[[], S3Client] | None" = None,
        *,
        attempts: int = ATTEMPTS,
        before: Callable[[], object] = lambda: None,
    ) -> None:
        """`before` is called before each request, in the thread of the caller."""
        self._region, self._bucket, self._key = region, bucket, key
        self._attempts, self._before = attempts, before
        self._make = client or self._boto3_client
        self._s3: S3Client | None = None

    @property
    def name(self) -> str:
        return f"s3://{self._bucket}/{self._key}"

    def read(self, version: str | None = None) -> StampedBody:
        """See ObjectPort. `version`: that one, and not the last."""
        of_version: dict[str, Any] = {} if version is None else {"VersionId": version}
        try:
            with translated():
                answer = self._client().get_object(Bucket=self._bucket, Key=self._key, **of_version)
                return StampedBody(body=answer["Body"].read(_MOST), etag=answer["ETag"])
        except CloudError as error:
            if error.code == "NoSuchKey":
                return StampedBody()
            raise

    def write(self, body: bytes, etag: str | None) -> str | None:
        """See ObjectPort. After a conflict (409) the caller reads the version again, as after 412."""
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

    def versions(self) -> Iterator[StampedBody]:
        """Yield the versions that the bucket keeps, the newest first; at most 100."""
        with translated():
            listed = self._client().list_object_versions(Bucket=self._bucket, Prefix=self._key)
        for version in listed.get("Versions", ())[:_VERSIONS]:
            if version.get("Key") == self._key:
                yield self.read(version.get("VersionId"))

    def _client(self) -> "S3Client":
        self._before()
        if self._s3 is None:
            self._s3 = self._make()
        return self._s3

    def _boto3_client(self) -> "S3Client":
        return boto3_client("s3", self._region, client_config(attempts=self._attempts, read_timeout_s=READ_S))
