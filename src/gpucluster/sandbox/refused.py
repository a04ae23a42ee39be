"""What IAM, Secrets Manager and S3 refuse and moto takes: too much of a role's policies, a secret that leaves, a
condition that S3 has not (T37, T38, T39)."""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from gpucluster.cloud.model import Refusal
from gpucluster.sandbox import wire
from gpucluster.sandbox.backends import Moto
from gpucluster.sandbox.signature import SignedRequest

_INLINE = 10240  # characters of a role's inline policies together, white space apart


def check(moto: Moto, service: str, operation: str, request: SignedRequest) -> None:
    """Refuse it in the service's words."""
    if (service, operation) == ("iam", "PutRolePolicy"):
        _inline(moto, wire.query_fields(request.target, request.body))
    elif (service, operation) == ("secretsmanager", "PutSecretValue"):
        _leaving(moto, request.body)
    elif (service, operation) == ("s3", "PutObject") and request.headers.get("if-none-match", "*") != "*":
        raise Refusal(
            "NotImplemented",
            "A header you provided implies functionality that is not implemented",
            status=501,
        )


def _inline(moto: Moto, fields: Mapping[str, str]) -> None:
    role, name = fields.get("RoleName", ""), fields.get("PolicyName", "")
    texts = {**moto.inline_policies(role), name: fields.get("PolicyDocument", "")}
    if sum(len(re.sub(r"\s", "", text)) for text in texts.values()) > _INLINE:
        raise Refusal(
            "LimitExceeded", f"Maximum policy size of {_INLINE} bytes exceeded for role {role}", status=409
        )


def _leaving(moto: Moto, body: bytes) -> None:
    asked = cast(dict[str, Any], json.loads(body or b"{}"))  # its shape was checked before
    if moto.secret_leaves(str(asked.get("SecretId", ""))):
        raise Refusal(
            "InvalidRequestException",
            "You can't perform this operation on the secret because it was marked for deletion.",
        )
