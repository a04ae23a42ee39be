"""Compare an IAM policy with the declared one, statement by statement. Pure."""

import re
from collections.abc import Mapping
from typing import cast

from gpucluster.json_text import parse_json
from gpucluster.text import short

UNKNOWN = "<unknown>"  # in a declared policy: a part of an id or an ARN that only the cloud knows
_ID = r"[A-Za-z0-9_.-]*"  # no `*`, so that a wildcard is no id


def loaded(policy: str) -> object:
    """The document; None if the text is none."""
    try:
        return parse_json(policy)
    except ValueError:
        return None


def differences(found: object, declared: object) -> list[str]:
    """What differs, by the ids of statements: `also has the statement Mine`, then `has a changed statement Key`, then `lacks the statement Key`."""
    rest = _statements(found)
    changed: list[str] = []
    missing: list[str] = []
    for one in _statements(declared):
        same = next((other for other in rest if _fits(other, one)), None)
        named = same or next((other for other in rest if other.get("Sid") == one.get("Sid")), None)
        if named is None:
            missing.append(f"lacks the {_name(one)}")
            continue
        rest.remove(named)
        if same is None:
            changed.append(f"has a changed {_name(one)}")
    return [*(f"also has the {_name(one)}" for one in rest), *changed, *missing]


def _statements(document: object) -> list[Mapping[str, object]]:
    """The statements: IAM takes one in place of a list of one."""
    if not isinstance(document, dict):
        return []
    found = _listed(cast("dict[str, object]", document).get("Statement", []))
    return [cast("Mapping[str, object]", one) for one in found if isinstance(one, dict)]


def _name(statement: Mapping[str, object]) -> str:
    sid = statement.get("Sid")
    return f"statement {short(sid, 60)}" if isinstance(sid, str) and sid else "statement without an id"


def _fits(found: object, want: object) -> bool:
    """Whether a value is the declared one. A list of one is its member, and order is free."""
    if isinstance(want, dict):
        if not isinstance(found, dict):
            return False
        mine, other = cast("dict[str, object]", want), cast("dict[str, object]", found)
        return mine.keys() == other.keys() and all(_fits(other[key], mine[key]) for key in mine)
    if isinstance(want, list) or isinstance(found, list):
        ours, theirs = _listed(cast("object", want)), _listed(cast("object", found))
        return all(any(_fits(one, other) for other in ours) for one in theirs) and all(
            any(_fits(other, one) for other in theirs) for one in ours
        )
    if isinstance(want, str) and isinstance(found, str):
        return _is_text(found, want)
    return found == want


def _is_text(found: str, want: str) -> bool:
    """IAM answers an account as principal by the ARN of its root user."""
    pattern = re.escape(want).replace(re.escape(UNKNOWN), _ID)
    return re.fullmatch(rf"{pattern}|arn:aws:iam::{pattern}:root", found) is not None


def _listed(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]
