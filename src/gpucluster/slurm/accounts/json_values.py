"""Values in the JSON of sacctmgr: a missing or a strange one is empty. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, cast


def at(record: Mapping[str, Any], *keys: str) -> Any:
    """The value at a path of keys; None if there is none."""
    found: Any = record
    for key in keys:
        found = cast("dict[str, Any]", found).get(key) if isinstance(found, dict) else None
    return found


def text(record: Mapping[str, Any], *keys: str) -> str:
    found = at(record, *keys)
    return found if isinstance(found, str) else ""


def words(value: Any) -> Sequence[str]:
    """The strings of a list."""
    return (
        [word for word in cast("list[Any]", value) if isinstance(word, str)]
        if isinstance(value, list)
        else []
    )


def objects(value: Any) -> Sequence[Mapping[str, Any]]:
    """The objects of a list."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def real(value: Any) -> float | None:
    """A number, or Slurm's `{"set": true, "number": 3}`; None if it is not set."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        value = fields.get("number") if fields.get("set") and not fields.get("infinite") else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def number(value: Any) -> int | None:
    """A whole number, as `real` reads it."""
    found = real(value)
    return None if found is None else int(found)


def tres(record: Mapping[str, Any], *keys: str) -> dict[str, int]:
    """The limits on TRES, by sacctmgr's names: `gres/gpu`."""
    found = dict[str, int]()
    for fields in objects(at(record, *keys)):
        name = "/".join(part for part in (text(fields, "type"), text(fields, "name")) if part)
        count = number(fields.get("count"))
        if name and count is not None and count >= 0:
            found[name] = count
    return found


def shown(limits: Mapping[str, int]) -> str:
    """As sacctmgr writes limits on TRES: `cpu=5,gres/gpu=8`."""
    return ",".join(f"{name}={count}" for name, count in limits.items())
