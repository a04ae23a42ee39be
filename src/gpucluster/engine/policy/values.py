"""Reading properties in a rule: unknowns are met everywhere, and providers answer a block as a list of one."""

from collections.abc import Iterator, Mapping
from typing import cast

from gpucluster.engine.offline.model import SECRET, UNKNOWN, Resource, Value


def untold(value: Value) -> bool:
    """Whether nobody can read it yet, or ever: unknown or secret."""
    return isinstance(value, str) and value in (UNKNOWN, SECRET)


def at(value: Value, *path: str) -> Value:
    """The value below `path`; None where it is not set, UNKNOWN where the way there is not told."""
    for step in path:
        value = _block(value)
        if untold(value):
            return UNKNOWN
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, Value]", value).get(step)
    return _block(value)


def each(value: Value) -> Iterator[tuple[int, Value]]:
    """The blocks of a list with their numbers; one block alone is the first."""
    if value is None:
        return
    if isinstance(value, list):
        yield from enumerate(cast("list[Value]", value))
    else:
        yield 0, value


def linked(resource: Resource, name: str, other: Resource) -> bool:
    """Whether the property refers to `other`: by what the program passed, or by its id."""
    if other.urn in resource.property_dependencies.get(name, ()):
        return True
    given, own = resource.properties.get(name), other.properties.get("id")
    return given is not None and not untold(given) and given == own


def _block(value: Value) -> Value:
    """The only element of a list of one block."""
    if not isinstance(value, list):
        return value
    found = cast("list[Value]", value)
    alone: Value = found[0] if len(found) == 1 else None
    return cast(Value, alone) if isinstance(alone, dict) else found
