"""The control object over S3: conditional writes, races, and what cannot be read."""

from collections.abc import Generator
from itertools import count
from typing import Any

import pytest
from clouds import RunningCloud, running_cloud

from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import CloudError, Control, Fault, Scaling
from gpucluster.plan import names

pytestmark = pytest.mark.loopback
_BUCKETS = count(1)


@pytest.fixture(scope="module")
def cloud() -> Generator[RunningCloud, None, None]:
    with running_cloud() as running:
        yield running


@pytest.fixture
def s3(cloud: RunningCloud) -> Any:
    return cloud.client("s3")


@pytest.fixture
def bucket(s3: Any) -> str:
    name = f"control-{next(_BUCKETS)}"
    s3.create_bucket(Bucket=name)
    return name


def test_a_missing_object_is_the_default(s3: Any, bucket: str):
    assert S3Control("us-east-1", bucket, lambda: s3).read() == Control()


def test_stop_is_written_and_read_by_another(s3: Any, bucket: str):
    S3Control("us-east-1", bucket, lambda: s3).stop("gpucluster down")
    read = S3Control("us-east-1", bucket, lambda: s3).read()
    assert (read.scaling, read.by) == (Scaling.STOP, "gpucluster down")


def test_stop_twice_writes_once(s3: Any, bucket: str):
    control = S3Control("us-east-1", bucket, lambda: s3)
    control.stop("first")
    control.stop("second")
    assert control.read().by == "first"


def test_resume_raises_the_epoch(s3: Any, bucket: str):
    control = S3Control("us-east-1", bucket, lambda: s3)
    control.stop("down")
    control.resume("up")
    assert (control.read().scaling, control.read().epoch) == (Scaling.RUN, 1)


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "PreconditionFailed"])
def test_a_race_is_repeated(cloud: RunningCloud, s3: Any, bucket: str, code: str):
    cloud.model.faults.next_error("PutObject", code, times=3)
    S3Control("us-east-1", bucket, lambda: s3).stop("down")
    assert S3Control("us-east-1", bucket, lambda: s3).read().scaling is Scaling.STOP


def test_an_endless_race_is_told(cloud: RunningCloud, s3: Any, bucket: str):
    cloud.model.faults.next_error("PutObject", "ConditionalRequestConflict", times=50)
    with pytest.raises(CloudError, match="written by others"):
        S3Control("us-east-1", bucket, lambda: s3).stop("down")
    cloud.model.faults.clear()


def test_what_another_wrote_between_is_not_overwritten(s3: Any, bucket: str):
    class Slow:
        """Reads, and lets another write before it writes."""

        raced = False

        def get_object(self, **asked: Any) -> Any:
            try:
                return s3.get_object(**asked)
            finally:
                if not self.raced:
                    self.raced = True
                    S3Control("us-east-1", bucket, lambda: s3).resume("other")

        def put_object(self, **asked: Any) -> Any:
            return s3.put_object(**asked)

    slow: Any = Slow
    S3Control("us-east-1", bucket, slow).stop("me")
    read = S3Control("us-east-1", bucket, lambda: s3).read()
    assert (read.scaling, read.epoch, read.by) == (Scaling.STOP, 1, "me")


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"scaling": "maybe"}', b'{"unknown": 1}', b"\xff\xfe"])
def test_an_object_that_makes_no_sense_is_no_licence_to_launch(s3: Any, bucket: str, text: bytes):
    s3.put_object(Bucket=bucket, Key=names.CONTROL_KEY, Body=text)
    with pytest.raises(CloudError) as caught:
        S3Control("us-east-1", bucket, lambda: s3).read()
    assert caught.value.fault is Fault.CONFIGURATION


def test_a_bucket_that_is_gone_is_told(s3: Any):
    with pytest.raises(CloudError) as caught:
        S3Control("us-east-1", "control-gone", lambda: s3).read()
    assert caught.value.code == "NoSuchBucket"
