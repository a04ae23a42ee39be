"""What S3 refuses and moto accepts: a condition that PutObject does not have (T39)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl
from xml.etree import ElementTree

from gpucluster.sandbox.aws import protocols
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.iam.policies import Need
from gpucluster.sandbox.aws.kms import keys
from gpucluster.sandbox.aws.moto_state import Moto
from gpucluster.sandbox.aws.rights import ApiRequest, need
from gpucluster.sandbox.aws.signature import SignedRequest


def check(_moto: Any, operation: str, request: SignedRequest) -> None:
    """Refuse `If-None-Match` with another value than `*`."""
    if operation == "PutObject" and request.headers.get("if-none-match", "*") != "*":
        text = "A header you provided implies functionality that is not implemented"
        raise Refusal("NotImplemented", text, status=501)


# The right of a deletion that is the right to change (service authorization reference)
_RIGHT_OF: Mapping[str, str] = {
    "DeleteBucketPublicAccessBlock": "PutBucketPublicAccessBlock",
    "DeleteBucketTagging": "PutBucketTagging",
    "DeleteEncryptionConfiguration": "PutEncryptionConfiguration",
    "DeleteLifecycleConfiguration": "PutLifecycleConfiguration",
}


def rights(request: ApiRequest, moto: Moto) -> Iterable[Need]:
    """The action on the object or the bucket, with the listed prefix; and those on the bucket's KMS key."""
    query = dict(parse_qsl(request.target.partition("?")[2], keep_blank_values=True))
    context = {"s3:prefix": (query["prefix"],)} if "prefix" in query else {}
    resource = protocols.s3_resource(request.target)
    bucket, _ = protocols.s3_place(request.target)
    if request.operation == "DeleteObjects":
        yield from _deletions(request, bucket)
        return
    right = _RIGHT_OF.get(request.operation, request.operation)
    yield need(replace(request, operation=right), resource, context)
    if request.operation == "PutObject" and request.tagged:
        yield need(replace(request, operation="PutObjectTagging"), resource, {})
    yield from keys.object_needs(request.operation, moto.bucket_key(bucket), moto)


def _deletions(request: ApiRequest, bucket: str) -> Iterable[Need]:
    """The right on each object of a DeleteObjects. AWS refuses single objects inside a 200; the sandbox refuses the whole call."""
    try:
        document = ElementTree.fromstring(request.body)  # noqa: S314  the request is signed by a known key
    except ElementTree.ParseError as error:
        raise Refusal("MalformedXML", "The XML you provided was not well-formed") from error
    for one in (found for found in document if found.tag.rpartition("}")[2] == "Object"):
        parts = {part.tag.rpartition("}")[2]: part.text or "" for part in one}
        right = "DeleteObjectVersion" if "VersionId" in parts else "DeleteObject"
        yield need(replace(request, operation=right), f"arn:aws:s3:::{bucket}/{parts.get('Key', '')}", {})
