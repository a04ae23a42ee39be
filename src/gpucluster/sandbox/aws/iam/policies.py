"""Evaluation of a role's policies. An unknown part of a policy is refused by name, never treated as true.

Known: Effect, Action/NotAction, Resource/NotResource, Condition with the operators and keys below. An
explicit Deny wins; without an Allow nothing is allowed.
"""

import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

Context = Mapping[str, tuple[str, ...]]


class UnknownPolicyPart(Exception):  # noqa: N818 - named to the author of the policy
    """The policy has a part that the sandbox cannot evaluate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One right that a request needs: an action on a resource, with condition keys.

    Condition keys are in lower case; a key that the request does not have is absent.
    """

    action: str
    resource: str
    context: Context = field(default_factory=dict[str, tuple[str, ...]])


def allows(documents: Iterable[Mapping[str, Any]], need: Need) -> bool:
    """Whether the documents together allow `need`; UnknownPolicyPart for a part that cannot be evaluated."""
    verdicts = [_verdict(statement, need) for document in documents for statement in _statements(document)]
    return "Deny" not in verdicts and "Allow" in verdicts


def check(document: Mapping[str, Any]) -> None:
    """Raise UnknownPolicyPart for a part that `allows` cannot evaluate. Called when a policy is written."""
    for statement in _statements(document):
        unknown = sorted(statement.keys() - _PARTS)
        if unknown:
            raise UnknownPolicyPart(f"policy element {unknown[0]!r}")
        for text in _strings(statement.get("Action", statement.get("NotAction", ()))):
            _no_variable(text)
        for text in _strings(statement.get("Resource", statement.get("NotResource", ()))):
            _no_variable(text)
        for operator, wanted in _conditions(statement):
            _parse_operator(operator)
            for key, values in wanted.items():
                _check_key(key)
                for value in values:
                    _no_variable(value)


_PARTS = frozenset({"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"})

_KEYS = frozenset(
    {
        "aws:tagkeys",
        "aws:requestedregion",
        "aws:sourcearn",
        "aws:principalarn",
        "aws:securetransport",
        "elasticfilesystem:accessedviamounttarget",
        "elasticfilesystem:accesspointarn",
        "ec2:launchtemplate",
        "ec2:islaunchtemplateresource",
        "ec2:createaction",
        "ec2:instancetype",
        "ec2:owner",
        "ec2:instancemarkettype",
        "ec2:instanceprofile",
        "ec2:subnet",
        "ec2:vpc",
        "ec2:region",
        "ec2:metadatahttptokens",
        "elasticfilesystem:createaction",
        "iam:awsservicename",
        "iam:passedtoservice",
        "iam:permissionsboundary",
        "iam:policyarn",
        "kms:resourcealiases",
        "kms:grantisforawsresource",
        "kms:viaservice",
        "s3:prefix",
    }
)
_TAG_KEYS = ("aws:resourcetag/", "aws:requesttag/", "ec2:resourcetag/", "ssm:resourcetag/")


def _statements(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: Any = document.get("Statement", [])
    return cast(list[Mapping[str, Any]], [found] if isinstance(found, Mapping) else list(found))


def _verdict(statement: Mapping[str, Any], need: Need) -> str:
    """`Allow`, `Deny`, or "" for a statement that does not match `need`."""
    check({"Statement": statement})
    if not _speaks_of(statement, "Action", need.action, lower=True):
        return ""
    if not _speaks_of(statement, "Resource", need.resource, lower=False):
        return ""
    for operator, wanted in _conditions(statement):
        if not all(_holds(operator, key, values, need.context) for key, values in wanted.items()):
            return ""
    return str(statement.get("Effect"))


def _speaks_of(statement: Mapping[str, Any], part: str, text: str, *, lower: bool) -> bool:
    if part in statement:
        return any(_like(text, pattern, lower=lower) for pattern in _strings(statement[part]))
    negated = statement.get(f"Not{part}")
    if negated is None:
        return False
    return not any(_like(text, pattern, lower=lower) for pattern in _strings(negated))


def _like(text: str, pattern: str, *, lower: bool = False) -> bool:
    if lower:
        text, pattern = text.lower(), pattern.lower()
    # only * and ? are wildcards in policies; brackets are plain characters
    return re.fullmatch(fnmatch.translate(pattern.replace("[", "[[]")), text) is not None


def _conditions(statement: Mapping[str, Any]) -> list[tuple[str, dict[str, tuple[str, ...]]]]:
    block = cast(Mapping[str, Mapping[str, Any]], statement.get("Condition", {}))
    return [(op, {key: _strings(values) for key, values in wanted.items()}) for op, wanted in block.items()]


def _strings(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, bool):
        return ("true" if value else "false",)
    return tuple(str(item) for item in cast(Sequence[object], value))


def _equal(have: str, want: str) -> bool:
    return have == want


def _equal_any_case(have: str, want: str) -> bool:
    return have.lower() == want.lower()


# name -> (test of a value against a policy value, whether it is negated)
_OPERATORS: Mapping[str, tuple[Callable[[str, str], bool], bool]] = {
    "StringEquals": (_equal, False),
    "StringNotEquals": (_equal, True),
    "StringEqualsIgnoreCase": (_equal_any_case, False),
    "StringLike": (_like, False),
    "StringNotLike": (_like, True),
    "ArnEquals": (_like, False),
    "ArnLike": (_like, False),
    "Bool": (_equal_any_case, False),
}


@dataclass(frozen=True, slots=True)
class _Operator:
    test: Callable[[str, str], bool]
    negated: bool
    if_exists: bool
    quantifier: str  # "", ForAllValues or ForAnyValue


def _parse_operator(text: str) -> _Operator:
    quantifier, _, rest = text.rpartition(":")
    name = rest.removesuffix("IfExists")
    known = _OPERATORS.get(name)
    if known is None or quantifier not in ("", "ForAllValues", "ForAnyValue"):
        if text == "Null":
            return _Operator(_equal, negated=False, if_exists=False, quantifier="Null")
        raise UnknownPolicyPart(f"condition operator {text!r}")
    return _Operator(known[0], known[1], rest != name, quantifier)


def _holds(text: str, key: str, wanted: Sequence[str], context: Context) -> bool:
    operator = _parse_operator(text)
    have = context.get(_folded(key))
    if operator.quantifier == "Null":
        return (have is None) == (wanted[0].lower() == "true")
    if have is None:
        # an absent key: ForAllValues, negated tests and IfExists are true
        return operator.if_exists or operator.negated or operator.quantifier == "ForAllValues"
    results = [any(operator.test(value, want) for want in wanted) != operator.negated for value in have]
    return all(results) if operator.quantifier == "ForAllValues" or operator.negated else any(results)


def _check_key(key: str) -> None:
    folded = key.lower()
    if folded not in _KEYS and not folded.startswith(_TAG_KEYS):
        raise UnknownPolicyPart(f"condition key {key!r}")


def _folded(key: str) -> str:
    """Condition keys have no case, except the tag's name in one."""
    prefix, slash, tag = key.partition("/")
    return prefix.lower() + slash + tag


def _no_variable(text: str) -> None:
    if "${" in text:
        raise UnknownPolicyPart(f"policy variable in {text!r}")


def allows_service(document: Mapping[str, Any], service: str, need: Need) -> bool:
    """Whether a resource policy allows a service of AWS to do `need`; statements for other principals do not count."""
    ours: list[Mapping[str, Any]] = []
    for statement in _statements(document):
        principal: Any = statement.get("Principal")
        named = principal == "*" or (
            isinstance(principal, Mapping)
            and service in _strings(cast(Mapping[str, Any], principal).get("Service", ()))
        )
        if named:
            ours.append({k: v for k, v in statement.items() if k != "Principal"})
    return allows([{"Statement": ours}], need)


def for_everyone(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the statements of a resource policy that name every principal; UnknownPolicyPart for any other principal."""
    found: list[Mapping[str, Any]] = []
    for statement in _statements(document):
        if statement.get("Principal") not in ("*", {"AWS": "*"}):
            raise UnknownPolicyPart(f"principal {statement.get('Principal')!r}")
        found.append({k: v for k, v in statement.items() if k != "Principal"})
    return {"Statement": found}


def allows_account(document: Mapping[str, Any], account: str, need: Need) -> bool:
    """Whether a trust policy allows a principal of the account to do `need`. The resource is the role itself."""
    whole = (account, f"arn:aws:iam::{account}:root", "*")
    ours: list[Mapping[str, Any]] = []
    for statement in _statements(document):
        principal: Any = statement.get("Principal")
        named = _strings(principal.get("AWS", ()) if isinstance(principal, Mapping) else principal or ())  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        if any(one in whole for one in named):
            rest = {k: v for k, v in statement.items() if k != "Principal"}
            ours.append({**rest, "Resource": need.resource})
    return allows([{"Statement": ours}], need)


def parse(text: str) -> Mapping[str, Any]:
    """Parse a policy document."""
    return cast(Mapping[str, Any], json.loads(text))
