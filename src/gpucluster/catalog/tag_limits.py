"""How many tags a resource of each AWS service takes, and how long they may be. Sources are in `data/tag-limits.json`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from gpucluster.catalog.data_files import read_data

S3_OBJECT = "s3 object"


@dataclass(frozen=True, slots=True, kw_only=True)
class TagLimit:
    """The limits of one service. `key` and `value` are lengths in characters; `code` and `message` are of the refusal."""

    service: str
    most: int
    key: int
    value: int
    code: str
    message: str

    def refusal(self, tags: Mapping[str, str]) -> str | None:
        """Return why the service refuses these tags; None if it takes them."""
        if len(tags) > self.most:
            return self.message
        for key, value in sorted(tags.items()):
            if key.lower().startswith(reserved()):
                return f"Tag keys starting with '{reserved()}' are reserved for internal use"
            if not 1 <= len(key) <= self.key or len(value) > self.value:
                return f"The tag {key[:20]}... is too long: {self.key} characters for a key, {self.value} for a value"
        return None


@cache
def tag_limits() -> Mapping[str, TagLimit]:
    """Return the limits by the service's name in signatures; S3 has `s3 bucket` and `s3 object`."""
    names = ("service", "most", "key", "value", "code", "message")
    rows = _table()["rows"]
    return {row["service"]: TagLimit(**{name: row[name] for name in names}) for row in rows}


def reserved() -> str:
    """Return the prefix of keys that AWS reserves, in any case."""
    return _table()["reserved"]


def most_on_every_resource() -> int:
    """Return how many tags each service takes on a resource. S3 objects are left out: they get no tags of the site."""
    return min(limit.most for limit in tag_limits().values() if limit.service != S3_OBJECT)


@cache
def _table() -> dict[str, Any]:
    return read_data("tag-limits.json")
