"""AWS Signature Version 4: verification of requests with botocore's own signer."""

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

from gpucluster.sandbox.aws.credentials import Key, KeyRing

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,\s]+)/(?P<day>\d{8})/(?P<region>[\w-]+)/(?P<service>[\w.-]+)"
    r"/aws4_request,\s*SignedHeaders=(?P<signed>[\w;-]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)
_SKEW_S = 300.0  # AWS allows five minutes
_RIGHT: Mapping[str, float] = {}  # no clock is off
_UNHASHED = ("UNSIGNED-PAYLOAD", "STREAMING-")


class Flaw(StrEnum):
    """What is wrong with the identity of a request."""

    MISSING = "missing"
    UNKNOWN = "unknown"
    WRONG = "wrong"
    EXPIRED = "expired"
    LATE = "late"  # the caller's clock is behind
    EARLY = "early"  # the caller's clock is ahead


class BadSignature(Exception):  # noqa: N818 - a finding about a request, answered in its protocol
    """The identity of the request is wrong."""

    def __init__(self, flaw: Flaw) -> None:
        super().__init__(flaw.value)
        self.flaw = flaw


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """A request as received; header names are in lower case, `target` is the raw path and query."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The content of the Authorization header."""

    access_key: str
    region: str
    service: str
    signed: tuple[str, ...]
    signature: str


def scope(headers: Mapping[str, str]) -> Scope | None:
    """Return the scope of a signed request; None if it has no signature of version 4."""
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


def verify(
    request: SignedRequest, ring: KeyRing, *, now: float, wall: float, clocks: Mapping[str, float] = _RIGHT
) -> Key:
    """Return the key that signed `request`; raise BadSignature.

    `now` is the API's clock, by which sessions expire; `wall` is the real one, by which clients sign.
    The clocks of the machines of the roles in `clocks` are that many seconds ahead of it.
    """
    credential = scope(request.headers)
    if credential is None:
        raise BadSignature(Flaw.MISSING)
    key = ring.find(credential.access_key)
    if key is None:
        raise BadSignature(Flaw.UNKNOWN)
    stamp = request.headers.get("x-amz-date", "")
    _check_time(stamp, wall - clocks.get(key.principal.role or "", 0.0))
    _check_body(request)
    if not hmac.compare_digest(signature(request, credential, key, stamp), credential.signature):
        raise BadSignature(Flaw.WRONG)
    if key.token and not hmac.compare_digest(request.headers.get("x-amz-security-token", ""), key.token):
        raise BadSignature(Flaw.UNKNOWN)
    if key.expires is not None and key.expires <= now:
        raise BadSignature(Flaw.EXPIRED)
    return key


class _HeadersAsSigned:
    """Sign the headers that the client named, instead of the signer's choice."""

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


def signature(request: SignedRequest, credential: Scope, key: Key, stamp: str) -> str:
    """Return the signature that `key` gives to the request at the time `stamp` of the client."""
    kind: Any = _S3 if credential.service == "s3" else _Plain
    signer: Any = kind(Credentials(key.access_key, key.secret), credential.service, credential.region)
    signer.signed = credential.signed
    made: Any = AWSRequest(
        method=request.method,
        url="http://host" + request.target,  # over https botocore does not hash the body
        headers=dict(request.headers),
        data=request.body,
    )
    made.context["timestamp"] = stamp
    return signer.signature(signer.string_to_sign(made, signer.canonical_request(made)), made)


def signed_at(stamp: str) -> float:
    """Return the time of a client's stamp, in seconds since the epoch; BadSignature for another text."""
    try:
        return calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        raise BadSignature(Flaw.WRONG) from None


def _check_time(stamp: str, wall: float) -> None:
    behind = wall - signed_at(stamp)
    if abs(behind) > _SKEW_S:
        raise BadSignature(Flaw.LATE if behind > 0 else Flaw.EARLY)


def _check_body(request: SignedRequest) -> None:
    declared_hash = request.headers.get("x-amz-content-sha256")
    if declared_hash is None or declared_hash.startswith(_UNHASHED):
        return
    if not hmac.compare_digest(hashlib.sha256(request.body).hexdigest(), declared_hash):
        raise BadSignature(Flaw.WRONG)
