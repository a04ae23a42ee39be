"""The protocols of the APIs: operation and fields of a request, form of answers and refusals. Source: botocore's models."""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import parse_qsl, quote, unquote
from xml.sax.saxutils import escape

from gpucluster.sandbox.aws import shapes
from gpucluster.sandbox.aws.signature import Flaw

# The services of the sandbox and their protocols as botocore names them. Another service is refused by name.
SERVICES: Mapping[str, str] = {
    "ec2": "ec2",
    "iam": "query",
    "sts": "query",
    "s3": "s3",
    "secretsmanager": "json",
    "ssm": "json",
    "kms": "json",
    "logs": "json",
    "sqs": "json",
    "events": "json",
    "elasticfilesystem": "rest-json",
    "eks": "rest-json",
    "fsx": "json",
    "budgets": "json",
    "servicequotas": "json",
}

# Services that the sandbox lacks and that answer in XML without an Action; other REST services answer in JSON.
_REST_XML = frozenset({"cloudfront", "route53"})

_EC2_XML = "http://ec2.amazonaws.com/doc/2016-11-15/"

_FLAWS: Mapping[str, Mapping[Flaw, tuple[str, int]]] = {
    "ec2": {
        Flaw.MISSING: ("MissingAuthenticationToken", 401),
        Flaw.UNKNOWN: ("AuthFailure", 401),
        Flaw.WRONG: ("AuthFailure", 401),
        Flaw.EXPIRED: ("RequestExpired", 400),
        Flaw.LATE: ("RequestExpired", 400),
        Flaw.EARLY: ("AuthFailure", 401),  # aws/aws-sdk-java 519
    },
    "query": {
        Flaw.MISSING: ("MissingAuthenticationToken", 403),
        Flaw.UNKNOWN: ("InvalidClientTokenId", 403),
        Flaw.WRONG: ("SignatureDoesNotMatch", 403),
        Flaw.EXPIRED: ("ExpiredToken", 403),
        Flaw.LATE: ("RequestExpired", 400),
        Flaw.EARLY: ("SignatureDoesNotMatch", 403),
    },
    "s3": {
        Flaw.MISSING: ("AccessDenied", 403),
        Flaw.UNKNOWN: ("InvalidAccessKeyId", 403),
        Flaw.WRONG: ("SignatureDoesNotMatch", 403),
        Flaw.EXPIRED: ("ExpiredToken", 400),
        Flaw.LATE: ("RequestTimeTooSkewed", 403),
        Flaw.EARLY: ("RequestTimeTooSkewed", 403),
    },
    "json": {
        Flaw.MISSING: ("MissingAuthenticationTokenException", 400),
        Flaw.UNKNOWN: ("UnrecognizedClientException", 400),
        Flaw.WRONG: ("InvalidSignatureException", 400),
        Flaw.EXPIRED: ("ExpiredTokenException", 400),
        Flaw.LATE: ("InvalidSignatureException", 400),
        Flaw.EARLY: ("InvalidSignatureException", 400),
    },
}
_FLAW_TEXT: Mapping[Flaw, str] = {
    Flaw.MISSING: "Request is missing Authentication Token",
    Flaw.UNKNOWN: "The security token included in the request is invalid: this API knows only keys that it handed out",
    Flaw.WRONG: "The request signature we calculated does not match the signature you provided.",
    Flaw.EXPIRED: "The security token included in the request is expired",
    Flaw.LATE: "Signature expired: the caller's clock is more than 5 minutes behind",
    Flaw.EARLY: "Signature not yet current: the caller's clock is more than 5 minutes ahead",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes
    content_type: str = "text/xml;charset=UTF-8"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def operation_of(service: str, method: str, target: str, headers: Mapping[str, str], body: bytes) -> str:
    """The name of the requested operation, as IAM and botocore spell it."""
    protocol = SERVICES[service]
    if protocol == "json":
        return headers.get("x-amz-target", "").rpartition(".")[2]
    if protocol == "rest-json":
        return shapes.rest_operation(service, method, target)
    if protocol == "s3":
        return _s3_operation(method, target, headers)
    return query_fields(target, body).get("Action", "")


def query_fields(target: str, body: bytes) -> dict[str, str]:
    """The fields of a query-protocol request, from its body or its query string."""
    text = body.decode("utf-8", errors="replace") if body else target.partition("?")[2]
    return dict(parse_qsl(text, keep_blank_values=True))


def s3_place(target: str) -> tuple[str, str]:
    """Bucket and key of a path-style S3 request; either may be empty."""
    bucket, _, key = unquote(target.partition("?")[0]).lstrip("/").partition("/")
    return bucket, key


def ec2_answer(operation: str, result: Mapping[str, Any], request_id: str) -> Answer:
    """The answer of an EC2 call by botocore's model; KeyError for a member that EC2 does not have."""
    shape: Any = ec2_operation(operation).output_shape
    parts = [f'<?xml version="1.0" encoding="UTF-8"?>\n<{operation}Response xmlns="{_EC2_XML}">']
    parts.append(f"<requestId>{request_id}</requestId>")
    if shape is None:
        parts.append("<return>true</return>")
    else:
        _write_members(parts, shape, result)
    parts.append(f"</{operation}Response>")
    return Answer(status=200, body="".join(parts).encode())


def _write_members(parts: list[str], shape: Any, value: Mapping[str, Any]) -> None:
    """Serialize by the value instead of the shape: it takes a tenth of the time of a general serializer."""
    members: Any = shape.members
    for key, item in value.items():
        if item is not None:
            member = members[key]
            _write(parts, member.serialization.get("name", key), member, item)


def _write(parts: list[str], name: str, shape: Any, value: Any) -> None:
    parts.append(f"<{name}>")
    kind = shape.type_name
    if kind == "structure":
        _write_members(parts, shape, value)
    elif kind == "list":
        inner = shape.member.serialization.get("name", "item")
        for item in value:
            _write(parts, inner, shape.member, item)
    elif kind == "boolean":
        parts.append("true" if value else "false")
    elif kind == "timestamp":
        parts.append(value.strftime("%Y-%m-%dT%H:%M:%S.000Z"))
    else:
        parts.append(escape(str(value)))
    parts.append(f"</{name}>")


def ec2_result(operation: str, body: bytes) -> dict[str, Any]:
    """The result of an EC2 answer, parsed as a client does."""
    from botocore.parsers import EC2QueryParser  # noqa: PLC0415

    parser: Any = EC2QueryParser()
    shape: Any = ec2_operation(operation).output_shape
    parsed = cast(dict[str, Any], parser.parse({"status_code": 200, "headers": {}, "body": body}, shape))
    parsed.pop("ResponseMetadata", None)
    return parsed


@functools.cache
def ec2_operation(name: str) -> Any:
    """botocore's model of one EC2 operation; ValueError for an unknown name."""
    from botocore.model import OperationNotFoundError  # noqa: PLC0415
    from moto.core.utils import get_service_model  # noqa: PLC0415

    try:
        return get_service_model("ec2").operation_model(name)
    except OperationNotFoundError as error:
        raise ValueError(f"EC2 has no operation {name!r}") from error


def sts_identity(arn: str, user_id: str, account: str, request_id: str) -> Answer:
    """The answer of GetCallerIdentity."""
    return _sts("GetCallerIdentity", _plain({"Arn": arn, "UserId": user_id, "Account": account}), request_id)


def sts_assumed(credentials: Mapping[str, str], user: Mapping[str, str], request_id: str) -> Answer:
    """The answer of AssumeRole."""
    result = (
        f"<AssumedRoleUser>{_plain(user)}</AssumedRoleUser><Credentials>{_plain(credentials)}</Credentials>"
    )
    return _sts("AssumeRole", result, request_id)


def _sts(operation: str, result: str, request_id: str) -> Answer:
    body = (
        f'<{operation}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{operation}Result>{result}'
        f"</{operation}Result><ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
        f"</{operation}Response>"
    )
    return Answer(status=200, body=body.encode())


def _plain(values: Mapping[str, str]) -> str:
    return "".join(f"<{name}>{escape(text)}</{name}>" for name, text in values.items())


def protocol_of(service: str, target: str, headers: Mapping[str, str], body: bytes) -> str:
    """The protocol of a request. That of a service that the sandbox lacks is read from the request."""
    known = SERVICES.get(service)
    if known is not None:
        return known
    if headers.get("smithy-protocol") == "rpc-v2-cbor":
        return "cbor"
    if "x-amz-target" in headers:
        return "json"
    if service in _REST_XML or "Action" in query_fields(target, body if len(body) < 65536 else b""):
        return "query"
    return "rest-json"


def refusal(protocol: str, code: str, message: str, status: int, request_id: str) -> Answer:
    """A refusal in the form of the protocol."""
    if protocol == "cbor":
        return Answer(
            status=status,
            body=b"\xa2" + b"".join(map(_cbor_text, ("__type", code, "message", message))),  # a map of two
            content_type="application/cbor",
            headers={"smithy-protocol": "rpc-v2-cbor"},
        )
    if protocol in ("json", "rest-json"):
        body = json.dumps({"__type": code, "message": message}).encode()
        return Answer(
            status=status,
            body=body,
            content_type="application/x-amz-json-1.1",
            headers={"x-amzn-ErrorType": code, "x-amzn-RequestId": request_id},
        )
    code, message = escape(code), escape(message)
    if protocol == "ec2":
        text = (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
            f"<RequestID>{request_id}</RequestID></Response>"
        )
    elif protocol == "s3":
        text = f"<Error><Code>{code}</Code><Message>{message}</Message><RequestId>{request_id}</RequestId></Error>"
    else:
        sender = "Sender" if status < 500 else "Receiver"
        text = (
            f"<ErrorResponse><Error><Type>{sender}</Type><Code>{code}</Code><Message>{message}</Message></Error>"
            f"<RequestId>{request_id}</RequestId></ErrorResponse>"
        )
    return Answer(status=status, body=('<?xml version="1.0" encoding="UTF-8"?>\n' + text).encode())


def _cbor_text(text: str) -> bytes:
    """A text as RFC 8949 writes it: major type 3 with a length of two bytes."""
    encoded = text.encode()[:65535]
    return b"\x79" + len(encoded).to_bytes(2, "big") + encoded


def identity_refusal(protocol: str, flaw: Flaw, request_id: str) -> Answer:
    """The refusal of a request with a wrong identity."""
    code, status = _FLAWS["json" if protocol in ("cbor", "rest-json") else protocol][flaw]
    return refusal(protocol, code, _FLAW_TEXT[flaw], status, request_id)


def service_guess(target: str, headers: Mapping[str, str], body: bytes) -> str:
    """The service of an unsigned request, only to refuse it in its protocol."""
    if target.startswith("/2015-02-01/"):
        return "elasticfilesystem"
    meant = headers.get("x-amz-target", "").partition(".")[0].lower()
    if meant:
        return meant if meant in SERVICES else "secretsmanager"
    fields = query_fields(target, body if len(body) < 65536 else b"")
    if "Action" not in fields:
        return "s3"
    return "ec2" if fields.get("Version", "") == "2016-11-15" else "iam"


def request_id(number: int) -> str:
    """The id of a request: its number in this sandbox, in AWS's form."""
    digits = hashlib.sha256(str(number).encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


# (method, sub-resource in the query string) -> (bucket operation, object operation)
_S3_SUB: Mapping[str, tuple[str, str]] = {
    "versioning": ("BucketVersioning", ""),
    "encryption": ("EncryptionConfiguration", ""),
    "policy": ("BucketPolicy", ""),
    "publicAccessBlock": ("BucketPublicAccessBlock", ""),
    "ownershipControls": ("BucketOwnershipControls", ""),
    "tagging": ("BucketTagging", "ObjectTagging"),
    "acl": ("BucketAcl", "ObjectAcl"),
    "lifecycle": ("LifecycleConfiguration", ""),
    "location": ("BucketLocation", ""),
}


def _s3_operation(method: str, target: str, headers: Mapping[str, str]) -> str:
    bucket, key = s3_place(target)
    query = {name for name, _ in parse_qsl(target.partition("?")[2], keep_blank_values=True)}
    verb = {"PUT": "Put", "DELETE": "Delete"}.get(method, "Get")
    for sub, (on_bucket, on_object) in _S3_SUB.items():
        if sub in query:
            return verb + (on_object if key else on_bucket)
    if not bucket:
        return "ListAllMyBuckets"
    if key:
        return _object_operation(method, query, headers)
    return _bucket_operation(method, query)


def _object_operation(method: str, query: set[str], headers: Mapping[str, str]) -> str:
    if method in ("GET", "HEAD"):
        return "GetObjectVersion" if "versionId" in query else "GetObject"
    if method == "DELETE" and "uploadId" in query:
        return "AbortMultipartUpload"
    if method == "DELETE":
        return "DeleteObjectVersion" if "versionId" in query else "DeleteObject"
    if "x-amz-copy-source" in headers:
        return "CopyObject"  # no role of ours needs these reads and writes, so none may do them
    return "PutObject"


def _bucket_operation(method: str, query: set[str]) -> str:
    if "versions" in query:
        return "ListBucketVersions"
    if "delete" in query:
        return "DeleteObjects"
    return {"PUT": "CreateBucket", "DELETE": "DeleteBucket"}.get(method, "ListBucket")


def s3_resource(target: str) -> str:
    """The ARN of the bucket or object of a request."""
    bucket, key = s3_place(target)
    if not bucket:
        return "*"
    return f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}"


def quoted(fields: Mapping[str, str]) -> bytes:
    """Encode fields as a form body."""
    return "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in fields.items()).encode()
