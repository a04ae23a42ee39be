"""The control object in the bucket: which daemon may act, and whether it may launch. Each write names the version that was read (T39)."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpucluster.cloud.aws import CONNECT_S, boto3_client, client_config, translated
from gpucluster.cloud.port import CloudError, Control, Fault, Scaling, Stamped, malformed
from gpucluster.plan import names
from gpucluster.plan.codec import dumps, loads

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_TRIES = 8  # two writers conflict only a few times; more conflicts are a fault of this program
_RACED = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"})
_VERSIONS = 100  # of the object, newest first; a renewal of the lease makes one each ten seconds
_LIMIT = 64 * 1024  # bytes; the object has fewer than 200
ATTEMPTS = 3
READ_S = 10
# The longest call of one attempt: urllib3 tries each address of the name, and S3 answers with up to eight; then the first
# byte and the body. Before it: the name (two rounds of 5 s, also with the search domain) and credentials of the metadata
# service (three requests of 1 s).
ADDRESSES, NAME_S, CREDENTIALS_S = 8, 20, 3
ONE_ATTEMPT_S = NAME_S + CREDENTIALS_S + ADDRESSES * CONNECT_S + 2 * READ_S


class S3Control:
    """The ControlPort over S3. `client` creates the S3 client at the first call; the default is boto3's."""

    def __init__(
        self,
        region: str,
        bucket: str,
        client: "Callable[[], S3Client] | None" = None,
        *,
        attempts: int = ATTEMPTS,
        before: Callable[[], object] = lambda: None,
    ) -> None:
        """`before` is called before each request, in the thread of the caller."""
        self._region = region
        self._bucket = bucket
        self._attempts, self._before = attempts, before
        self._make = client or self._boto3_client
        self._s3: S3Client | None = None

    def read(self) -> Control:
        """See ControlPort. Without an answer the caller must not launch: it treats CloudError as STOP."""
        seen = self.stamped()
        if seen.malformed:
            raise malformed(seen.malformed)
        return seen.control

    def last_scaling(self) -> Scaling:
        """See ControlPort. The bucket keeps old versions, so a stop that came just before the damage counts."""
        with translated():
            versions = self._client().list_object_versions(Bucket=self._bucket, Prefix=names.CONTROL_KEY)
        for version in versions.get("Versions", ())[:_VERSIONS]:  # the newest first
            if version.get("Key") == names.CONTROL_KEY:
                seen = self._stamped(version.get("VersionId"))
                if not seen.malformed:
                    return seen.control.scaling
        return Scaling.STOP

    def stop(self, by: str) -> None:
        """See ControlPort."""
        self._write(Scaling.STOP, by)

    def resume(self, by: str) -> None:
        """Allow launches again. The epoch stays, because it belongs to the holder."""
        self._write(Scaling.RUN, by)

    def stamped(self) -> Stamped:
        """See ControlPort."""
        return self._stamped()

    def _stamped(self, version: str | None = None) -> Stamped:
        of_version: dict[str, Any] = {} if version is None else {"VersionId": version}
        try:
            with translated():
                answer = self._client().get_object(Bucket=self._bucket, Key=names.CONTROL_KEY, **of_version)
                text = answer["Body"].read(_LIMIT)
        except CloudError as error:
            if error.code == "NoSuchKey":
                return Stamped(control=Control(), etag=None)
            raise
        try:
            return Stamped(control=loads(Control, text), etag=answer["ETag"])
        except (ValueError, RecursionError) as error:
            words = f"{self._name}: {error}"
            return Stamped(control=Control(scaling=Scaling.STOP), etag=answer["ETag"], malformed=words)

    def write(self, control: Control, etag: str | None) -> str | None:
        """See ControlPort. After a conflict (409) the caller reads the version again, as after 412."""
        condition: dict[str, Any] = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            with translated():
                answer = self._client().put_object(
                    Bucket=self._bucket,
                    Key=names.CONTROL_KEY,
                    Body=dumps(control).encode(),
                    ContentType="application/json",
                    **condition,
                )
        except CloudError as error:
            if error.code in _RACED:
                return None
            raise
        return answer["ETag"]

    def _write(self, scaling: Scaling, by: str) -> None:
        for _ in range(_TRIES):
            seen = self.stamped()
            if seen.malformed:
                raise malformed(seen.malformed)
            if seen.etag is not None and seen.control.scaling is scaling:
                return
            if self.write(replace(seen.control, scaling=scaling, by=by), seen.etag) is not None:
                return
        raise CloudError(
            Fault.LOST, "ConditionalRequestConflict", f"{self._name} is written by others all the time"
        )

    @property
    def _name(self) -> str:
        return f"s3://{self._bucket}/{names.CONTROL_KEY}"

    def _client(self) -> "S3Client":
        self._before()
        if self._s3 is None:
            self._s3 = self._make()
        return self._s3

    def _boto3_client(self) -> "S3Client":
        return boto3_client("s3", self._region, client_config(attempts=self._attempts, read_timeout_s=READ_S))
