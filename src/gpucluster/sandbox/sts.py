"""STS: who somebody is, and the keys of a role that he takes on, if the role's trust and his own policies both say so."""

import datetime
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpucluster.cloud.model import Refusal
from gpucluster.sandbox import policies, wire
from gpucluster.sandbox.backends import ACCOUNT, Moto, Role
from gpucluster.sandbox.keys import KeyRing, Principal
from gpucluster.sandbox.policies import Need
from gpucluster.sandbox.services import shapes

_SESSION = re.compile(r"[A-Za-z0-9_+=,.@-]{2,64}")
_KNOWN = frozenset({"RoleArn", "RoleSessionName", "DurationSeconds"})
_CHAINED_S = 3600  # of a role that is taken on by one that was itself taken on
Allow = Callable[[Iterable[Need]], None]


def answer(
    principal: Principal, fields: Mapping[str, str], number: str, *,
    moto: Moto, ring: KeyRing, now: float, allow: Allow,
) -> wire.Answer:  # fmt: skip
    """GetCallerIdentity or AssumeRole. `allow` raises what the caller's own policies do not allow."""
    operation = fields.get("Action", "")
    if operation == "GetCallerIdentity":
        return wire.sts_identity(principal.arn, principal.user_id, ACCOUNT, number)
    if operation != "AssumeRole":
        says = f"the sandbox has no sts:{operation}: keys come from its metadata service, or of a role that is taken on"
        raise Refusal("InvalidAction", says)
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
    return wire.sts_assumed(credentials, user, number)


def _role(principal: Principal, asked: Mapping[str, Any], moto: Moto, allow: Allow) -> Role:
    """The role, if both sides agree. One that is not there is refused in the same words."""
    unknown = sorted(asked.keys() - _KNOWN)
    if unknown:
        raise Refusal("UnsupportedOperation", f"the sandbox's AssumeRole takes no {unknown[0]}")
    name, arn = str(asked["RoleSessionName"]), str(asked["RoleArn"])
    if not _SESSION.fullmatch(name):
        says = f"Value '{name}' at 'roleSessionName' failed to satisfy constraint: [\\w+=,.@-]*"
        raise Refusal("ValidationError", says)
    need = Need(action="sts:AssumeRole", resource=arn, context=_context(principal, moto))
    allow([need])
    role = moto.role(arn)
    if role is None or not policies.allows_account(policies.parse(role.trust), ACCOUNT, need):
        who = f"User: {principal.arn} is not authorized to perform: sts:AssumeRole on resource: {arn}"
        raise Refusal("AccessDenied", who, status=403)
    return role


def _context(principal: Principal, moto: Moto) -> policies.Context:
    """A session is known by its role's ARN, not by its own."""
    arn = principal.arn if principal.role is None else moto.role_arn(principal.role)
    return {"aws:principalarn": (arn,)}


def _seconds(principal: Principal, asked: Mapping[str, Any]) -> int:
    wanted = int(asked.get("DurationSeconds", _CHAINED_S))
    if wanted > _CHAINED_S:  # also the most that a role gives unless it is told otherwise; ours are not
        chained = " for roles assumed by role chaining" if principal.role else " set for this role"
        says = f"The requested DurationSeconds exceeds the 1 hour session limit{chained}."
        raise Refusal("ValidationError", says)
    return wanted
