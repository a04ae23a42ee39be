"""The calls of STS: caller identity, and AssumeRole if the trust policy and the caller's own policies both allow it."""

import datetime
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpucluster.sandbox.aws import protocols, shapes
from gpucluster.sandbox.aws.credentials import KeyRing, Principal
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.iam import policies
from gpucluster.sandbox.aws.iam.policies import Need
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto, Role

_SESSION = re.compile(r"[A-Za-z0-9_+=,.@-]{2,64}")
_KNOWN = frozenset({"RoleArn", "RoleSessionName", "DurationSeconds"})
_CHAINED_S = 3600  # seconds of a session of a chained role
Allow = Callable[[Iterable[Need]], None]


def answer(
    principal: Principal, fields: Mapping[str, str], number: str, *,
    moto: Moto, ring: KeyRing, now: float, allow: Allow,
) -> protocols.Answer:  # fmt: skip
    """GetCallerIdentity or AssumeRole. `allow` raises if the caller's policies do not allow it."""
    operation = fields.get("Action", "")
    if operation == "GetCallerIdentity":
        return protocols.sts_identity(principal.arn, principal.user_id, ACCOUNT, number)
    if operation != "AssumeRole":
        message = f"the sandbox has no sts:{operation}: keys come from its metadata service, or of a role that is taken on"
        raise Refusal("InvalidAction", message)
    asked = shapes.query_parameters("sts", operation, fields)
    role = _role(principal, asked, moto, allow)
    key = ring.assumed(role.name, role.id, str(asked["RoleSessionName"]), now, _seconds(principal, asked))
    until = datetime.datetime.fromtimestamp(key.expires or now, datetime.UTC)
    credentials = {
        "AccessKeyId": key.access_key,
        "SecretAccessKey": key.secret,
        "SessionToken": key.token,
        "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    user = {"AssumedRoleId": key.principal.user_id, "Arn": key.principal.arn}
    return protocols.sts_assumed(credentials, user, number)


def _role(principal: Principal, asked: Mapping[str, Any], moto: Moto, allow: Allow) -> Role:
    """The role, if its trust policy allows the caller. An unknown role gets the same refusal."""
    unknown = sorted(asked.keys() - _KNOWN)
    if unknown:
        raise Refusal("UnsupportedOperation", f"the sandbox's AssumeRole takes no {unknown[0]}")
    name, arn = str(asked["RoleSessionName"]), str(asked["RoleArn"])
    if not _SESSION.fullmatch(name):
        message = f"Value '{name}' at 'roleSessionName' failed to satisfy constraint: [\\w+=,.@-]*"
        raise Refusal("ValidationError", message)
    need = Need(action="sts:AssumeRole", resource=arn, context=_context(principal, moto))
    allow([need])
    role = moto.role(arn)
    if role is None or not policies.allows_account(policies.parse(role.trust), ACCOUNT, need):
        who = f"User: {principal.arn} is not authorized to perform: sts:AssumeRole on resource: {arn}"
        raise Refusal("AccessDenied", who, status=403)
    return role


def _context(principal: Principal, moto: Moto) -> policies.Context:
    """A session counts with the ARN of its role."""
    arn = principal.arn if principal.role is None else moto.role_arn(principal.role)
    return {"aws:principalarn": (arn,)}


def _seconds(principal: Principal, asked: Mapping[str, Any]) -> int:
    wanted = int(asked.get("DurationSeconds", _CHAINED_S))
    if wanted > _CHAINED_S:  # also the default limit of a role; ours have no other
        chained = " for roles assumed by role chaining" if principal.role else " set for this role"
        message = f"The requested DurationSeconds exceeds the 1 hour session limit{chained}."
        raise Refusal("ValidationError", message)
    return wanted
