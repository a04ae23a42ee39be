"""Compare the statements of policies, and what is attached to roles. Names that only the cloud knows are placeholders."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from gpucluster.engine.offline.model import Planned, Resource
from gpucluster.gitops.model import Kind, PropertyChange, ResourceChange, RightChange
from gpucluster.json_text import parse_json
from gpucluster.spec import UpdateClass

Statements = tuple[str, ...]

_DOCUMENTS: Mapping[str, str] = {  # type -> its property with a policy document
    "aws:efs/fileSystemPolicy:FileSystemPolicy": "policy",
    "aws:iam/role:Role": "assumeRolePolicy",
    "aws:iam/rolePolicy:RolePolicy": "policy",
    "aws:s3/bucketPolicy:BucketPolicy": "policy",
    "aws:sqs/queuePolicy:QueuePolicy": "policy",
}
_ATTACHED = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
_SCOPES = (("Resource", "on"), ("NotResource", "on all except"), ("Principal", "for"))


def compare_rights(old: Planned, new: Planned) -> tuple[RightChange, ...]:
    """Return each policy whose statements differ, by type and name. Both programs ran with placeholders."""
    before, after = _rights(old), _rights(new)
    return tuple(
        _change(key, before.get(key), after.get(key))
        for key in sorted(before.keys() | after.keys())
        if set(before.get(key, ())) != set(after.get(key, ()))
    )


def with_rights(
    resources: tuple[ResourceChange, ...], rights: tuple[RightChange, ...]
) -> tuple[ResourceChange, ...]:
    """Add the policies whose text is not known before the deployment: their resources look unchanged."""
    known = {(one.type, one.name) for one in resources}
    return (*resources, *(_changed(one) for one in rights if (one.type, one.name) not in known))


def _changed(one: RightChange) -> ResourceChange:
    name = _DOCUMENTS.get(one.type, "policyArn")
    property_change = PropertyChange(name=name, before=None, after=None, replaces=False)
    return ResourceChange(
        type=one.type,
        name=one.name,
        kind=Kind.CHANGED,
        update=UpdateClass.LIVE,
        properties=(property_change,),
        why="its statements change",
    )


def _change(key: tuple[str, str], old: Statements | None, new: Statements | None) -> RightChange:
    kind = Kind.ADDED if old is None else Kind.REMOVED if new is None else Kind.CHANGED
    was, now = old or (), new or ()
    return RightChange(
        type=key[0],
        name=key[1],
        kind=kind,
        removed=tuple(one for one in was if one not in now),
        added=tuple(one for one in now if one not in was),
    )


def _rights(planned: Planned) -> dict[tuple[str, str], Statements]:
    return {
        (one.type, one.name): tuple(_statements(one))
        for one in planned.resources
        if one.type in _DOCUMENTS or one.type == _ATTACHED
    }


def _statements(resource: Resource) -> Iterator[str]:
    if resource.type == _ATTACHED:
        yield f"attached {resource.properties.get('policyArn')}"
        return
    text = resource.properties.get(_DOCUMENTS[resource.type])
    found = _parsed(text)
    if not found:
        yield f"a text that cannot be read: {text}"
    yield from map(_sentence, found)


def _parsed(text: object) -> list[Mapping[str, Any]]:
    try:
        found: object = parse_json(text)["Statement"] if isinstance(text, str) else []
    except (ValueError, KeyError, TypeError):
        return []
    return cast("list[Mapping[str, Any]]", found if isinstance(found, list) else [found])


def _sentence(one: Mapping[str, Any]) -> str:
    """Return `Allow s3:GetObject, s3:PutObject on arn:aws:s3:::example/* if {...}`."""
    words = [str(one.get("Effect")), _words(one.get("Action", ()))]
    if "NotAction" in one:
        words.append(f"everything except {_words(one['NotAction'])}")
    words += [f"{word} {_words(one[key])}" for key, word in _SCOPES if key in one]
    if "Condition" in one:
        words.append(f"if {json.dumps(one['Condition'], sort_keys=True)}")
    return " ".join(word for word in words if word)


def _words(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(sorted(map(str, cast("list[object]", value))))
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
