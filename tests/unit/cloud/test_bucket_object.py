"""One object of the bucket, over the sandbox's S3: a write replaces only the version that was read."""

from collections.abc import Generator
from typing import Any

import pytest
from support.clouds import RunningCloud, running_cloud

from gpucluster.cloud.bucket_object import BucketObject
from gpucluster.cloud.port import CloudError, StampedBody

pytestmark = pytest.mark.loopback
BUCKET, KEY = "orders-bucket", "orders.json"


@pytest.fixture(scope="module")
def cloud() -> Generator[RunningCloud, None, None]:
    with running_cloud() as running:
        running.client("s3").create_bucket(Bucket=BUCKET)
        yield running


@pytest.fixture
def s3(cloud: RunningCloud) -> Any:
    client = cloud.client("s3")
    client.delete_object(Bucket=BUCKET, Key=KEY)
    return client


def test_missing_object_has_no_body(s3: Any) -> None:
    assert BucketObject("us-east-1", BUCKET, KEY, lambda: s3).read() == StampedBody()


def test_write_replaces_only_the_version_that_was_read(s3: Any) -> None:
    one = BucketObject("us-east-1", BUCKET, KEY, lambda: s3)
    first = one.write(b"1", None)
    assert one.write(b"2", None) is None, "it is there already"
    second = one.write(b"2", first)
    assert second
    assert one.write(b"3", first) is None, "another was faster"
    assert one.read() == StampedBody(body=b"2", etag=second)
    s3.delete_object(Bucket=BUCKET, Key=KEY)
    assert one.write(b"3", second) is None, "it is gone"


def test_bucket_that_is_not_there_is_an_error(s3: Any) -> None:
    with pytest.raises(CloudError, match="NoSuchBucket"):
        BucketObject("us-east-1", "no-such-bucket", KEY, lambda: s3).read()
