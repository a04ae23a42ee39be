"""Refuse tags that a service does not take: too many, too long, or with AWS's prefix. EC2 checks its own calls (T17)."""

from collections.abc import Iterable, Mapping
from typing import Any, cast
from urllib.parse import parse_qsl
from xml.etree import ElementTree

from gpucluster.catalog.tag_limits import S3_OBJECT, tag_limits
from gpucluster.sandbox.aws import protocols
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.rights import json_body
from gpucluster.sandbox.aws.signature import SignedRequest

_LISTS = ("Tags", "tags", "ResourceTags")
_PREFIXES = ("", "Tag")  # of Key and Value; KMS has TagKey


def check(service: str, operation: str, request: SignedRequest) -> None:
    """Refuse the request if its tags break the limits of the service."""
    name, tags = _requested(service, operation, request)
    limit = tag_limits().get(name)
    text = None if limit is None else limit.refusal(tags)
    if limit is not None and text is not None:
        raise Refusal(limit.code, text)


def _requested(service: str, operation: str, request: SignedRequest) -> tuple[str, dict[str, str]]:
    """Return the row of the limits and the tags of the request."""
    if service == "s3":
        kind = "s3 bucket" if operation == "PutBucketTagging" else S3_OBJECT
        return kind, _of_s3(operation, request)
    if protocols.SERVICES.get(service) == "query":
        return service, _of_query(protocols.query_fields(request.target, request.body))
    body = json_body(request.body)
    return service, _of_list(next((body[one] for one in _LISTS if body.get(one)), ()))


def _of_s3(operation: str, request: SignedRequest) -> dict[str, str]:
    if operation in ("PutObject", "CopyObject", "CreateMultipartUpload"):
        return dict(parse_qsl(request.headers.get("x-amz-tagging", ""), keep_blank_values=True))
    if operation not in ("PutObjectTagging", "PutBucketTagging"):
        return {}
    try:
        document = ElementTree.fromstring(request.body)  # noqa: S314  the request is signed by a known key
    except ElementTree.ParseError as error:
        raise Refusal("MalformedXML", "The XML you provided was not well-formed") from error
    found = [one for one in document.iter() if one.tag.rpartition("}")[2] == "Tag"]
    pairs = [{part.tag.rpartition("}")[2]: part.text or "" for part in one} for one in found]
    return {pair.get("Key", ""): pair.get("Value", "") for pair in pairs}


def _of_query(fields: Mapping[str, str]) -> dict[str, str]:
    keys = {k: v for k, v in fields.items() if k.startswith("Tags.") and k.endswith(".Key")}
    return {key: fields.get(f"{name.removesuffix('.Key')}.Value", "") for name, key in keys.items()}


def _of_list(given: Any) -> dict[str, str]:
    if isinstance(given, Mapping):
        return {str(k): str(v) for k, v in cast(Mapping[str, Any], given).items()}
    rows = [cast(Mapping[str, Any], one) for one in cast(Iterable[Any], given) if isinstance(one, Mapping)]
    pairs = ((one.get(f"{prefix}Key"), one.get(f"{prefix}Value")) for one in rows for prefix in _PREFIXES)
    return {str(key): str(value or "") for key, value in pairs if key is not None}
