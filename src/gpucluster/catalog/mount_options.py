"""The mount options that each helper takes, by the type of the file system. Sources are in `data/mount-options.json`."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

# The plain machines of the sandbox have a copy of this file and its data without the package, so it imports nothing of it.
_DATA = Path(__file__).parent / "data" / "mount-options.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Helper:
    """One mount helper: its options without a value, those with a value, and its message for any other option."""

    program: str
    flags: frozenset[str]
    values: frozenset[str]
    message: str  # with {source}, {target} and {name}, the last part of the source

    def refusal(self, source: str, target: str) -> str:
        """Return the text that the helper prints for an option that it does not take."""
        return self.message.format(source=source, target=target, name=source.rpartition(":/")[2])


def helper(file_system: str) -> Helper | None:
    """Return the helper of a file system type; None: the catalog does not know the type."""
    return _helpers().get(file_system)


def passed_on(options: Iterable[str]) -> tuple[str, ...]:
    """Return the options that mount(8) passes to a helper, in their order."""
    stripped = _table()["stripped"]
    return tuple(
        option
        for option in options
        if _name(option) not in stripped["flags"] and not option.startswith(tuple(stripped["prefixes"]))
    )


def refused(file_system: str, options: Iterable[str]) -> tuple[str, ...]:
    """Return the options that the helper of the type does not take. A type without a known helper refuses none."""
    found = helper(file_system)
    if found is None:
        return ()
    return tuple(option for option in passed_on(options) if not _takes(found, option))


def _takes(found: Helper, option: str) -> bool:
    name, separator, _ = option.partition("=")
    return name in (found.values if separator else found.flags)


def _name(option: str) -> str:
    return option.partition("=")[0]


@cache
def _helpers() -> Mapping[str, Helper]:
    return {
        name: Helper(
            program=row["program"],
            flags=frozenset(row["flags"]),
            values=frozenset(row["values"]),
            message=row["refuses"],
        )
        for name, row in _table()["helpers"].items()
    }


@cache
def _table() -> dict[str, Any]:
    return json.loads(_DATA.read_text(encoding="utf-8"))
