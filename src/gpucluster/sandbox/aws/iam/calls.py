"""What IAM refuses and moto accepts: keys of users, too long inline policies, policy parts that the sandbox cannot evaluate (T37)."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpucluster.sandbox.aws import protocols
from gpucluster.sandbox.aws.credentials import Principal
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.iam import policies
from gpucluster.sandbox.aws.iam.policies import Need, UnknownPolicyPart
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.rights import ApiRequest, need, request_tags
from gpucluster.sandbox.aws.signature import SignedRequest

_INLINE_MAX = 10240  # characters of all inline policies of a role, without white space
_PUTS_POLICY = frozenset({"PutRolePolicy", "CreatePolicy", "CreatePolicyVersion"})
_OF_CALLER = frozenset({"GetUser", "ListAccessKeys"})
_MAKES_KEYS = frozenset({"CreateAccessKey", "CreateLoginProfile"})


def check_caller(operation: str, fields: Mapping[str, str], principal: Principal) -> None:
    """Refuse a call that means the caller's own user if the caller is a role."""
    if operation in _OF_CALLER and not fields.get("UserName") and principal.role is not None:
        raise Refusal("ValidationError", "Must specify userName when calling with non-User credentials")


def check_document(operation: str, fields: Mapping[str, str]) -> None:
    """Refuse keys that the sandbox did not issue, and policies that it cannot evaluate."""
    if operation in _MAKES_KEYS:
        text = f"the sandbox has no iam:{operation}: it knows only keys that it issues"
        raise Refusal("AccessDenied", text, status=403)
    if operation not in _PUTS_POLICY:
        return
    try:
        policies.check(policies.parse(fields.get("PolicyDocument", "")))
    except json.JSONDecodeError as error:
        raise Refusal("MalformedPolicyDocument", f"The policy is no JSON: {error}") from error
    except UnknownPolicyPart as part:
        raise Refusal("MalformedPolicyDocument", f"the sandbox cannot evaluate {part}") from part


def rights(request: ApiRequest, moto: Moto) -> Iterable[Need]:
    """The action on role or instance profile, with the boundary of the role; tags at creation, and PassRole (T36)."""
    fields = protocols.query_fields(request.target, request.body)
    role, profile = fields.get("RoleName", ""), fields.get("InstanceProfileName", "")
    arn = moto.role_arn(role) if role else ""
    if role and request.operation == "CreateRole":
        arn = f"arn:aws:iam::{ACCOUNT}:role{fields.get('Path', '/')}{role}"
    if profile:  # of a call that names both, the reference has only the profile
        arn = f"arn:aws:iam::{ACCOUNT}:instance-profile/{profile}"
    tags = {fields[f"Tags.member.{n}.Key"]: fields.get(f"Tags.member.{n}.Value", "") for n in range(1, 51) if f"Tags.member.{n}.Key" in fields}  # fmt: skip
    bound = fields.get("PermissionsBoundary") or (None if profile or not role else _bound(moto, role))
    context = {**request_tags(tags), **({"iam:permissionsboundary": (bound,)} if bound else {})}
    if named := fields.get("PolicyArn"):
        context["iam:policyarn"] = (named,)
    yield need(request, arn or "*", context)
    kinds = {"CreateRole": "TagRole", "CreateInstanceProfile": "TagInstanceProfile"}
    if tags and request.operation in kinds:
        yield need(replace(request, operation=kinds[request.operation]), arn, request_tags(tags))
    if request.operation == "AddRoleToInstanceProfile":
        passed = {"iam:passedtoservice": ("ec2.amazonaws.com",)}
        yield Need(action="iam:PassRole", resource=moto.role_arn(role), context=passed)


def _bound(moto: Moto, role: str) -> str | None:
    found = moto.role_boundary(role)
    return None if found is None else found[0]


def check(moto: Moto, operation: str, request: SignedRequest) -> None:
    """Refuse inline policies of a role that are too long together; let moto know a policy of AWS."""
    named = protocols.query_fields(request.target, request.body).get("PolicyArn", "")
    if named.startswith("arn:aws:iam::aws:policy/"):
        moto.know_policy(named)
    if operation != "PutRolePolicy":
        return
    fields = protocols.query_fields(request.target, request.body)
    role, name = fields.get("RoleName", ""), fields.get("PolicyName", "")
    texts = {**moto.inline_policies(role), name: fields.get("PolicyDocument", "")}
    if sum(len(re.sub(r"\s", "", text)) for text in texts.values()) > _INLINE_MAX:
        text = f"Maximum policy size of {_INLINE_MAX} bytes exceeded for role {role}"
        raise Refusal("LimitExceeded", text, status=409)
