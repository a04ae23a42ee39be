"""Check: reject unknown properties; fill in names, defaults and default tags. Pure."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from gpucluster.engine.values import UNKNOWN, Value, Values
from gpucluster.sandbox.provider.schema import Autoname, Change, ResourceType
from gpucluster.sandbox.provider.shapes import empty

DEFAULTED = "__defaults"  # names of the inputs that Check filled in; the key is that of the upstream bridge


@dataclass(frozen=True, slots=True)
class Failure:
    """An invalid property and the reason."""

    property: str
    reason: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The complete inputs of the resource, and the problems."""

    inputs: Values
    failures: tuple[Failure, ...]


def check(
    kind: ResourceType,
    news: Mapping[str, Value],
    olds: Mapping[str, Value],
    *,
    name: str,
    seed: bytes,
    default_tags: Mapping[str, str],
) -> Checked:
    """Return complete inputs. `olds` are the previous inputs; a generated name is copied from them."""
    inputs = {k: v for k, v in news.items() if not k.startswith("__")}
    failures = tuple(_failures(kind, inputs))
    defaulted = set[str]()
    for key, value in _defaults(kind, olds, name, seed):
        if empty(inputs.get(key)):
            inputs[key] = value
            defaulted.add(key)
    if kind.tagged:
        inputs["tagsAll"] = merged_tags(inputs.get("tags"), default_tags)
    inputs[DEFAULTED] = sorted(defaulted)
    return Checked(inputs, failures)


def merged_tags(tags: Value, default_tags: Mapping[str, str]) -> Value:
    """Merge the provider's default tags with the resource's own tags, which have priority."""
    return UNKNOWN if tags is UNKNOWN else {**default_tags, **cast(Values, tags or {})}


def _failures(kind: ResourceType, inputs: Mapping[str, Value]) -> Iterator[Failure]:
    for key, value in sorted(inputs.items()):
        row = kind.properties.get(key)
        if row is None or key == "tagsAll":
            yield Failure(key, f"the stand-in for AWS does not know {key!r} of {kind.name}")
        elif row.change is Change.COMPUTED:
            yield Failure(key, f"{key!r} of {kind.name} is an output")
        elif not empty(value):
            for problem in row.shape.problems(value, key):
                yield Failure(key, problem)


def _defaults(
    kind: ResourceType, olds: Mapping[str, Value], name: str, seed: bytes
) -> Iterator[tuple[str, Value]]:
    if kind.autoname is not None:
        old = olds.get(kind.autoname.property)
        yield kind.autoname.property, old or _drawn(kind.autoname, name, seed)
    for key, row in kind.properties.items():
        if row.default is not None:
            yield key, row.default


def _drawn(autoname: Autoname, name: str, seed: bytes) -> str:
    suffix = hashlib.sha256(seed).hexdigest()[:7]
    return f"{name[: autoname.longest - 8]}-{suffix}"
