"""Read properties in a rule. Values can be unknown, and providers return a block as a list with one item."""

from collections.abc import Iterator, Mapping
from typing import cast

from gpucluster.engine.offline.model import SECRET, UNKNOWN, Resource, Value


def is_unreadable(value: Value) -> bool:
    """Return whether the value cannot be read: unknown or secret."""
    return isinstance(value, str) and value in (UNKNOWN, SECRET)


def at(value: Value, *path: str) -> Value:
    """Return the value below `path`; None if it is not set, UNKNOWN if a value on the way is unknown."""
    for step in path:
        value = _block(value)
        if is_unreadable(value):
            return UNKNOWN
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, Value]", value).get(step)
    return _block(value)


def each(value: Value) -> Iterator[tuple[int, Value]]:
    """Yield the blocks of a list with their indexes. A single block has index 0."""
    if value is None:
        return
    if isinstance(value, list):
        yield from enumerate(cast("list[Value]", value))
    else:
        yield 0, value


def linked(resource: Resource, name: str, other: Resource) -> bool:
    """Return whether the property refers to `other`, by a dependency of the program or by its id."""
    if other.urn in resource.property_dependencies.get(name, ()):
        return True
    given, own = resource.properties.get(name), other.properties.get("id")
    return given is not None and not is_unreadable(given) and given == own


def _block(value: Value) -> Value:
    """Return the only item of a list with one block."""
    if not isinstance(value, list):
        return value
    found = cast("list[Value]", value)
    alone: Value = found[0] if len(found) == 1 else None
    return cast(Value, alone) if isinstance(alone, dict) else found
