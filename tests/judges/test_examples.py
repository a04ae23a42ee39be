"""botocore's own example requests of every service of the sandbox: each is answered, or refused by a code of AWS."""

import gzip
import json
import logging
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import botocore
import pytest
from botocore import xform_name
from botocore.exceptions import ClientError, ParamValidationError
from support.clouds import RunningCloud, running_cloud

from gpucluster.sandbox.aws import protocols, shapes

_DATA = Path(botocore.__file__).parent / "data"
# (service, operation) of examples that botocore's own validator refuses: a number is written as text, or a name is empty
INVALID = {
    ("ec2", "CreateImage"),
    ("s3", "CompleteMultipartUpload"),
    ("s3", "ListMultipartUploads"),
    ("s3", "ListObjects"),
    ("s3", "ListObjectsV2"),
    ("s3", "PutBucketCors"),
    ("s3", "UploadPart"),
    ("s3", "UploadPartCopy"),
}
_NO_BODY = ("HeadBucket", "HeadObject")  # the answer to HEAD has no body, so its code is the status
_CODE = re.compile(r"[A-Z][A-Za-z0-9]+(\.[A-Z][A-Za-z0-9]*)*")


def services() -> list[str]:
    """The services of the sandbox by botocore's names."""
    return sorted(shapes.botocore_name(one) for one in protocols.SERVICES)


def examples(service: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(operation, parameters) of the newest version of a service."""
    newest = max((_DATA / service).iterdir())
    for path in sorted(newest.glob("examples-1.json*")):
        data = path.read_bytes()
        found = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        for operation, listed in found["examples"].items():
            yield from ((operation, one.get("input") or {}) for one in listed)


@pytest.fixture(scope="module")
def cloud() -> Generator[RunningCloud]:
    with running_cloud() as made:
        yield made


def outcome(cloud: RunningCloud, service: str, operation: str, asked: dict[str, Any]) -> str:
    """`answered`, `invalid`, `refused`, or what is wrong."""
    call = getattr(cloud.client(service), xform_name(operation), None)
    if call is None:
        return "botocore lacks the operation"
    try:
        call(**asked)
    except ParamValidationError:
        return "invalid"
    except ClientError as error:
        return _refusal(operation, error)
    return "answered"


def _refusal(operation: str, error: Any) -> str:
    code, text = str(error.response["Error"]["Code"]), str(error.response["Error"].get("Message", ""))
    status = int(error.response["ResponseMetadata"]["HTTPStatusCode"])
    if operation in _NO_BODY and status == 404:
        return "refused"
    if status >= 500 or not _CODE.fullmatch(code) or "Internal" in code:
        return f"{status} {code}: {text[:200]}"
    if code == "UnsupportedOperation" and operation not in text and "the sandbox" not in text:
        return f"it does not name what the sandbox lacks: {text[:200]}"
    return "refused"


def test_each_example_is_answered_or_refused_by_name(
    cloud: RunningCloud, caplog: pytest.LogCaptureFixture
) -> None:
    """A 500, a code that is a number, an answer that cannot be parsed and a traceback in the log are faults."""
    counts = {"answered": 0, "refused": 0, "invalid": 0}
    invalid: set[tuple[str, str]] = set()
    wrong: list[tuple[str, str, str]] = []
    with caplog.at_level(logging.ERROR, logger="gpucluster"):
        for service in services():
            for operation, asked in examples(service):
                found = outcome(cloud, service, operation, asked)
                if found not in counts:
                    wrong.append((service, operation, found))
                    continue
                counts[found] += 1
                if found == "invalid":
                    invalid.add((service, operation))
    assert wrong == []
    assert [record.getMessage() for record in caplog.records] == []
    assert invalid == INVALID
    assert counts["answered"] >= 80, counts
    assert sum(counts.values()) >= 350, counts
