"""The control object over S3: conditional writes, races, and what cannot be read."""

from collections.abc import Generator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from support.clouds import RunningCloud, running_cloud

from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import NEVER_READABLE, CloudError, Control, Fault, Scaling, Stamped
from gpucluster.plan import names
from gpucluster.plan.codec import dumps

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


def test_missing_object_is_the_default(s3: Any, bucket: str):
    assert S3Control("us-east-1", bucket, lambda: s3).read() == Control()


def test_stop_is_read_by_another_client(s3: Any, bucket: str):
    S3Control("us-east-1", bucket, lambda: s3).scale(Scaling.STOP, "gpucluster down")
    read = S3Control("us-east-1", bucket, lambda: s3).read()
    assert (read.scaling, read.by) == (Scaling.STOP, "gpucluster down")


def test_same_stop_twice_writes_once(s3: Any, bucket: str):
    control = S3Control("us-east-1", bucket, lambda: s3)
    control.scale(Scaling.STOP, "first")
    version = control.stamped().etag
    control.scale(Scaling.STOP, "first")
    assert control.stamped().etag == version


def test_writer_gets_what_was_there_and_can_put_it_back(s3: Any, bucket: str):
    control = S3Control("us-east-1", bucket, lambda: s3)
    control.scale(Scaling.STOP, "an operator")
    before = control.scale(Scaling.STOP, "gpucluster down")
    assert (before.scaling, before.by) == (Scaling.STOP, "an operator")
    assert control.read().by == "gpucluster down"
    control.scale(before.scaling, before.by)
    assert control.read().by == "an operator"


def test_stop_and_start_leave_the_holder_its_lease(s3: Any, bucket: str):
    control = S3Control("us-east-1", bucket, lambda: s3)
    held = Control(holder="head/boot/7.1/n", epoch=3, beat=5, held_until=1.5)
    assert control.write(held, None)
    control.scale(Scaling.STOP, "down")
    assert control.read() == replace(held, scaling=Scaling.STOP, by="down")
    control.scale(Scaling.RUN, "up")
    assert control.read() == replace(held, scaling=Scaling.RUN, by="up")


def test_write_replaces_only_the_version_that_was_read(s3: Any, bucket: str):
    control = S3Control("us-east-1", bucket, lambda: s3)
    first = control.write(Control(beat=1), None)
    assert control.write(Control(beat=2), None) is None, "it is there already"
    second = control.write(Control(beat=2), first)
    assert second
    assert control.write(Control(beat=3), first) is None, "another was faster"
    assert control.stamped() == Stamped(control=Control(beat=2), etag=second)
    s3.delete_object(Bucket=bucket, Key=names.CONTROL_KEY)
    assert control.write(Control(beat=3), second) is None, "it is gone"


def test_object_of_an_older_version_is_read(s3: Any, bucket: str):
    s3.put_object(Bucket=bucket, Key=names.CONTROL_KEY, Body=b'{"scaling": "stop", "epoch": 2, "by": "me"}')
    read = S3Control("us-east-1", bucket, lambda: s3).read()
    assert read == Control(scaling=Scaling.STOP, epoch=2, by="me")


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "PreconditionFailed"])
def test_t39_a_race_is_repeated(cloud: RunningCloud, s3: Any, bucket: str, code: str):
    cloud.model.faults.next_error("PutObject", code, times=3)
    S3Control("us-east-1", bucket, lambda: s3).scale(Scaling.STOP, "down")
    assert S3Control("us-east-1", bucket, lambda: s3).read().scaling is Scaling.STOP


def test_endless_conflict_is_an_error(cloud: RunningCloud, s3: Any, bucket: str):
    cloud.model.faults.next_error("PutObject", "ConditionalRequestConflict", times=50)
    with pytest.raises(CloudError, match="written by others"):
        S3Control("us-east-1", bucket, lambda: s3).scale(Scaling.STOP, "down")
    cloud.model.faults.clear()


def test_concurrent_write_is_not_overwritten(s3: Any, bucket: str):
    class Slow:
        """Reads, and lets another write before it writes."""

        raced = False

        def get_object(self, **asked: Any) -> Any:
            try:
                return s3.get_object(**asked)
            finally:
                if not self.raced:
                    self.raced = True
                    S3Control("us-east-1", bucket, lambda: s3).scale(Scaling.RUN, "other")

        def put_object(self, **asked: Any) -> Any:
            return s3.put_object(**asked)

    slow: Any = Slow
    S3Control("us-east-1", bucket, slow).scale(Scaling.STOP, "me")
    read = S3Control("us-east-1", bucket, lambda: s3).read()
    assert (read.scaling, read.by) == (Scaling.STOP, "me")


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"[]", b'{"unknown": 1}', b"\xff\xfe", b"[" * 60_000),
        *(b"{}", b'{"scaling": "run"}', b'{"scaling": "run", "epoch": 3}', b'{"epoch": 3, "by": "me"}'),
        *(
            b'{"scaling": "%s", "epoch": %d, "by": ""}' % pair
            for pair in ((b"maybe", 1), (b"run", -1), (b"run", 2**63 - 1))
        ),
    ],
)
def test_invalid_object_permits_no_launch(s3: Any, bucket: str, text: bytes):
    s3.put_object(Bucket=bucket, Key=names.CONTROL_KEY, Body=text)
    with pytest.raises(CloudError) as caught:
        S3Control("us-east-1", bucket, lambda: s3).read()
    assert caught.value.fault is Fault.CONFIGURATION
    assert "the daemon replaces it" in str(caught.value)
    with pytest.raises(CloudError, match="MalformedControl"):
        S3Control("us-east-1", bucket, lambda: s3).scale(Scaling.STOP, "down")


def test_scaling_of_a_damaged_object_is_that_of_its_last_readable_version(s3: Any, bucket: str):
    control = S3Control("us-east-1", bucket, lambda: s3)
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for scaling in (Scaling.STOP, Scaling.RUN):
        s3.put_object(Bucket=bucket, Key=names.CONTROL_KEY, Body=dumps(Control(scaling=scaling)).encode())
        s3.put_object(Bucket=bucket, Key=f"{names.CONTROL_KEY}.old", Body=b"another object")
        for garbage in (b"{", b"[]"):
            s3.put_object(Bucket=bucket, Key=names.CONTROL_KEY, Body=garbage)
        assert control.last_readable() == Control(scaling=scaling)


def test_scaling_of_a_deleted_object_is_that_of_its_last_readable_version(s3: Any, bucket: str):
    """A deleted object let the next daemon launch, after a stop."""
    control = S3Control("us-east-1", bucket, lambda: s3)
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    assert control.last_readable() is None
    control.scale(Scaling.STOP, "down")
    s3.put_object(Bucket=bucket, Key=names.CONTROL_KEY, Body=b"{}")
    s3.delete_object(Bucket=bucket, Key=names.CONTROL_KEY)
    assert control.read() == Control()
    assert control.last_readable() == Control(scaling=Scaling.STOP, by="down")


def test_object_that_was_never_readable_is_a_stop_by_the_daemon(s3: Any, bucket: str):
    s3.put_object(Bucket=bucket, Key=names.CONTROL_KEY, Body=b"{")
    assert S3Control("us-east-1", bucket, lambda: s3).last_readable() == NEVER_READABLE


def test_missing_bucket_is_an_error(s3: Any):
    with pytest.raises(CloudError) as caught:
        S3Control("us-east-1", "control-gone", lambda: s3).read()
    assert caught.value.code == "NoSuchBucket"
