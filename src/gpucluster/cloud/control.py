"""The control object in the bucket: which daemon may act, and whether it may launch. Each write names the version that was read (T39)."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gpucluster.cloud.bucket_object import ATTEMPTS, BucketObject
from gpucluster.cloud.port import (
    NEVER_READABLE,
    CloudError,
    Control,
    Fault,
    Scaling,
    Stamped,
    StampedBody,
    malformed,
)
from gpucluster.json_text import parse_json
from gpucluster.plan import names
from gpucluster.plan.codec import dumps, from_json

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_REQUIRED = frozenset({"scaling", "epoch", "by"})  # keys that each version of this program has written
_MOST_EPOCH = 2**53  # far above any count of holders; the journal's file holds 64 bits
DOWN = "gpucluster down"  # begins `by` while `down` destroys the cluster
DOWN_ENDED = ", which ended before the cluster was deleted"  # ends it afterwards
_TRIES = 8  # two writers conflict only a few times; more conflicts are a fault of this program


class S3Control:
    """The ControlPort over S3; the arguments are those of BucketObject."""

    def __init__(
        self,
        region: str,
        bucket: str,
        client: "Callable[[], S3Client] | None" = None,
        *,
        attempts: int = ATTEMPTS,
        before: Callable[[], object] = lambda: None,
    ) -> None:
        self._object = BucketObject(
            region, bucket, names.CONTROL_KEY, client, attempts=attempts, before=before
        )

    def read(self) -> Control:
        """See ControlPort. Without an answer the caller must not launch: it treats CloudError as STOP."""
        return self._readable().control

    def last_readable(self) -> Control | None:
        """See ControlPort. The bucket keeps old versions, so a stop that came just before the damage counts."""
        last = None
        for version in map(self._parsed, self._object.versions()):
            if version.etag is not None and not version.malformed:
                return version.control
            last = NEVER_READABLE
        return last

    def scale(self, scaling: Scaling, by: str) -> Control:
        """See ControlPort."""
        for _ in range(_TRIES):
            seen = self._readable()
            if seen.etag is not None and (seen.control.scaling, seen.control.by) == (scaling, by):
                return seen.control
            if self.write(replace(seen.control, scaling=scaling, by=by), seen.etag) is not None:
                return seen.control
        words = f"{self._object.name} is written by others all the time"
        raise CloudError(Fault.LOST, "ConditionalRequestConflict", words)

    def stamped(self) -> Stamped:
        """See ControlPort."""
        return self._parsed(self._object.read())

    def write(self, control: Control, etag: str | None) -> str | None:
        """See ControlPort."""
        return self._object.write(dumps(control).encode(), etag)

    def _readable(self) -> Stamped:
        seen = self.stamped()
        if seen.malformed:
            raise malformed(seen.malformed)
        return seen

    def _parsed(self, found: StampedBody) -> Stamped:
        if found.body is None:
            return Stamped(control=Control(), etag=None)
        try:
            return Stamped(control=_control(found.body), etag=found.etag)
        except ValueError as error:
            words = f"{self._object.name}: {error}"
            return Stamped(control=Control(scaling=Scaling.STOP), etag=found.etag, malformed=words)


def _control(body: bytes) -> Control:
    """Parse the object. ValueError: it does not fit. A missing key is no default: `{}` would permit launches after a stop."""
    found = parse_json(body)
    control = from_json(Control, found)
    if missing := _REQUIRED - found.keys():
        raise ValueError(f"without {', '.join(sorted(missing))}")
    if not 0 <= control.epoch <= _MOST_EPOCH:
        raise ValueError(f"epoch {control.epoch} is out of range")
    return control
