"""The IAM actions that Pulumi's AWS provider needs, by resource type. Sources are in `docs/facts/aws-calls.md`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parent / "data" / "aws-calls.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeCalls:
    """The actions of one resource type by operation."""

    create: tuple[str, ...]
    read: tuple[str, ...]
    update: tuple[str, ...]
    delete: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """All facts. `kinds` has the resource types that an action takes; none: it takes only `*`."""

    types: Mapping[str, TypeCalls]
    lookups: Mapping[str, tuple[str, ...]]  # data source -> actions
    kinds: Mapping[str, tuple[str, ...]]
    inside: frozenset[str]  # actions that AWS checks inside another call


@cache
def call_facts() -> CallFacts:
    """Return the facts of `data/aws-calls.json`."""
    read = json.loads(_FILE.read_text(encoding="utf-8"))
    names = ("create", "read", "update", "delete")
    return CallFacts(
        types={
            token: TypeCalls(**{name: tuple(row[name]) for name in names})
            for token, row in read["types"].items()
        },
        lookups={token: tuple(actions) for token, actions in read["lookups"].items()},
        kinds={action: tuple(kinds) for action, kinds in read["actions"].items()},
        inside=frozenset(read["inside"]),
    )
