"""Access to parsed YAML of any shape. An unexpected value reads as empty; the schema check reports it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

Path = tuple[str | int, ...]


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: Any) -> Sequence[Any]:
    """Return the value if it is a list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return the value if it is text, else an empty one."""
    return value if isinstance(value, str) else ""


def texts(value: Any) -> dict[str, str]:
    """Return the entries of a mapping whose value is text."""
    return {key: entry for key, entry in mapping(value).items() if isinstance(entry, str)}


def at(value: Any, *path: str) -> Any:
    """Return the value below some keys, or None."""
    for key in path:
        value = mapping(value).get(key)
    return value


def below(value: Any, path: Path) -> Any:
    """Return the value below some keys and positions of lists, or None. A position must exist."""
    for key in path:
        value = items(value)[key] if isinstance(key, int) else mapping(value).get(key)
    return value


def is_there(value: Any, path: Path) -> bool:
    """Return whether all positions of lists along a path exist."""
    for key in path:
        if isinstance(key, int) and key >= len(items(value)):
            return False
        value = items(value)[key] if isinstance(key, int) else mapping(value).get(key)
    return True


def entries(value: Any, *path: str) -> Iterator[tuple[Path, Any]]:
    """Yield each entry of a list below some keys, with its path."""
    for number, entry in enumerate(items(at(value, *path))):
        yield (*path, number), entry


def along(value: Any, keys: Sequence[str]) -> Iterator[tuple[Path, Any]]:
    """Yield all values along a path; `*` is each entry. Missing and null values are skipped."""
    if not keys:
        yield (), value
    elif keys[0] == "*":
        for number, entry in enumerate(items(value)):
            for where, found in along(entry, keys[1:]):
                yield (number, *where), found
    elif (inner := mapping(value).get(keys[0])) is not None:
        for where, found in along(inner, keys[1:]):
            yield (keys[0], *where), found


def depth_of(value: Any, limit: int) -> int:
    """Return how deep lists and mappings are nested, counted up to `limit`. It does not recurse."""
    level, depth = [value], 0
    while level and depth < limit:
        inner = [child for parent in level for child in (*mapping(parent).values(), *items(parent))]
        level, depth = inner, depth + 1
    return depth


def shown(path: Path) -> str:
    """Return a path for people: `spec.containers[0].resources.limits[nvidia.com/gpu]`."""
    text = ""
    for part in path:
        plain = isinstance(part, str) and part.isidentifier()
        text += f".{part}" if plain else f"[{part}]"
    return text.removeprefix(".")
