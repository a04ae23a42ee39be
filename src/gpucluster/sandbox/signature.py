"""AWS Signature Version 4, checked with botocore's own signer: the other side of what clients do."""

import calendar
import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials

from gpucluster.sandbox.keys import Key, KeyRing

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,\s]+)/(?P<day>\d{8})/(?P<region>[\w-]+)/(?P<service>[\w.-]+)"
    r"/aws4_request,\s*SignedHeaders=(?P<signed>[\w;-]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)
_SKEW_S = 300.0  # AWS allows five minutes
_UNHASHED = ("UNSIGNED-PAYLOAD", "STREAMING-")


class Flaw(StrEnum):
    """What is wrong with a request's identity."""

    MISSING = "missing"
    UNKNOWN = "unknown"
    WRONG = "wrong"
    EXPIRED = "expired"
    SKEWED = "skewed"


class BadSignature(Exception):  # noqa: N818 - a finding about a request, answered in its protocol
    """The request does not come from whom it says."""

    def __init__(self, flaw: Flaw) -> None:
        super().__init__(flaw.value)
        self.flaw = flaw


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """A request as it came over the wire; header names in lower case, `target` is path and query, raw."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What the Authorization header says of the call."""

    access_key: str
    region: str
    service: str
    signed: tuple[str, ...]
    signature: str


def scope(headers: Mapping[str, str]) -> Scope | None:
    """Return the scope of a signed request; None if it is not signed in our way."""
    match = _AUTHORIZATION.fullmatch(headers.get("authorization", "").strip())
    if match is None:
        return None
    return Scope(
        access_key=match["key"],
        region=match["region"],
        service=match["service"],
        signed=tuple(match["signed"].split(";")),
        signature=match["signature"],
    )


def verify(request: SignedRequest, ring: KeyRing, *, now: float, wall: float) -> Key:
    """Return the key that signed `request`; raise BadSignature.

    `now` is the API's clock, by which sessions expire; `wall` is the real one, by which clients sign.
    """
    said = scope(request.headers)
    if said is None:
        raise BadSignature(Flaw.MISSING)
    key = ring.find(said.access_key)
    if key is None:
        raise BadSignature(Flaw.UNKNOWN)
    _check_time(request.headers.get("x-amz-date", ""), wall)
    _check_body(request)
    if not hmac.compare_digest(_signature(request, said, key), said.signature):
        raise BadSignature(Flaw.WRONG)
    if key.token and not hmac.compare_digest(request.headers.get("x-amz-security-token", ""), key.token):
        raise BadSignature(Flaw.UNKNOWN)
    if key.expires is not None and key.expires <= now:
        raise BadSignature(Flaw.EXPIRED)
    return key


class _HeadersAsSigned:
    """Takes the headers that the client named, not those that a signer would choose."""

    signed: tuple[str, ...] = ()

    def headers_to_sign(self, request: Any) -> Any:
        chosen: Any = HTTPHeaders()
        for name in self.signed:
            chosen[name] = request.headers.get(name, "")
        return chosen


class _Plain(_HeadersAsSigned, SigV4Auth):
    pass


class _S3(_HeadersAsSigned, S3SigV4Auth):
    pass


def _signature(request: SignedRequest, said: Scope, key: Key) -> str:
    kind: Any = _S3 if said.service == "s3" else _Plain
    signer: Any = kind(Credentials(key.access_key, key.secret), said.service, said.region)
    signer.signed = said.signed
    made: Any = AWSRequest(
        method=request.method,
        url="http://host" + request.target,  # over https botocore would not hash the body
        headers=dict(request.headers),
        data=request.body,
    )
    made.context["timestamp"] = request.headers.get("x-amz-date", "")
    return signer.signature(signer.string_to_sign(made, signer.canonical_request(made)), made)


def _check_time(stamp: str, wall: float) -> None:
    try:
        signed_at = calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        raise BadSignature(Flaw.WRONG) from None
    if abs(wall - signed_at) > _SKEW_S:
        raise BadSignature(Flaw.SKEWED)


def _check_body(request: SignedRequest) -> None:
    said = request.headers.get("x-amz-content-sha256")
    if said is None or said.startswith(_UNHASHED):
        return
    if not hmac.compare_digest(hashlib.sha256(request.body).hexdigest(), said):
        raise BadSignature(Flaw.WRONG)
