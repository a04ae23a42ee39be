"""Types of the resource table: a resource type, its properties, and its calls."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.cloud import Cloud, tag_list
from gpucluster.sandbox.provider.shapes import TAGS, TEXT, Shape, empty


class Change(StrEnum):
    """The effect of a changed property."""

    UPDATE = "update"
    REPLACE = "replace"
    COMPUTED = "computed"  # an output: a program may not set it


@dataclass(frozen=True, slots=True)
class Property:
    """One property. `api` is its name in the result of `read`; None: the cloud does not return it."""

    api: str | None
    change: Change
    shape: Shape = TEXT
    default: Value = None  # the default that Check fills in
    from_cloud: bool = False  # unset: the cloud chooses a value, which is no difference
    moves: bool = False  # an output that every update can change, so a preview does not know it
    # fields of an updatable record that replace the resource
    anew: frozenset[str] = frozenset()
    anew_when: Callable[[Values, Values], bool] | None = (
        None  # (old inputs, new inputs): whether this change replaces the resource
    )


def updates(
    api: str | None,
    shape: Shape = TEXT,
    *,
    default: Value = None,
    from_cloud: bool = False,
    anew: frozenset[str] = frozenset(),
    anew_when: Callable[[Values, Values], bool] | None = None,
) -> Property:
    """A property that updates in place, except for the fields `anew` and the direction `anew_when`."""
    return Property(api, Change.UPDATE, shape, default, from_cloud, anew=anew, anew_when=anew_when)


def replaces(
    api: str | None, shape: Shape = TEXT, *, default: Value = None, from_cloud: bool = False
) -> Property:
    """A property whose change replaces the resource."""
    return Property(api, Change.REPLACE, shape, default, from_cloud)


def computed(api: str, shape: Shape = TEXT) -> Property:
    """An output that never changes."""
    return Property(api, Change.COMPUTED, shape)


def moving(api: str, shape: Shape = TEXT) -> Property:
    """An output that every update can change."""
    return Property(api, Change.COMPUTED, shape, moves=True)


TAG_PROPERTIES: Mapping[str, Property] = {
    "tags": Property(None, Change.UPDATE, TAGS),
    "tagsAll": Property("Tags", Change.UPDATE, TAGS),  # tags and the provider's default tags, merged in Check
}


@dataclass(frozen=True, slots=True)
class Autoname:
    """The property that Check generates if the program does not set it, and its maximum length."""

    property: str
    longest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """A row of the table. `create` returns the id; `complete` finishes the resource (attributes, waiting)."""

    name: str  # `aws:ec2/vpc:Vpc`
    properties: Mapping[str, Property]
    create: Callable[["Call"], str]
    read: Callable[["Cloud", str, Values], Mapping[str, Value] | None]  # None: it no longer exists
    delete: Callable[["Call"], None]
    complete: Callable[["Call"], None] | None = None
    update: Callable[["Call", frozenset[str]], None] | None = None
    autoname: Autoname | None = None
    delete_first: bool = False  # exclusive without a name: creating first would conflict
    keeps_failed: bool = False  # one that fails stays in the cloud and in the state, as upstream leaves it
    create_minutes: float = 10  # the upstream provider's timeout
    update_minutes: float = 10
    delete_minutes: float = 15

    @property
    def tagged(self) -> bool:
        return "tagsAll" in self.properties


def no_progress(_: str) -> None:
    """Ignore progress: no engine is connected."""


@dataclass(frozen=True, slots=True)
class Call:
    """One create, update or delete: the row, the id (empty before creation), and the checked inputs."""

    cloud: Cloud
    kind: ResourceType
    id: str
    inputs: Values
    seconds: float
    olds: Mapping[str, Value] = field(default_factory=dict[str, Value])  # update: the previous inputs
    report_progress: Callable[[str], None] = no_progress  # sends progress of a long wait

    def api(self, *names: str) -> dict[str, Any]:
        """Return the named inputs (default: all with an API name) under their API names, without unset ones."""
        wanted = names or tuple(self.kind.properties)
        rows = {n: self.kind.properties[n] for n in wanted}
        return {
            row.api: row.shape.to_api(self.inputs[n])
            for n, row in rows.items()
            if row.api is not None and n != "tagsAll" and not empty(self.inputs.get(n))
        }

    def tag_specifications(self, resource: str) -> dict[str, Any]:
        """Return EC2's tag specification for creation (T17); nothing without tags."""
        return {"TagSpecifications": [{"ResourceType": resource, "Tags": self.tags}]} if self.tags else {}

    @property
    def tags(self) -> list[dict[str, str]]:
        """Return the tags as most APIs accept them."""
        return tag_list(self.inputs.get("tagsAll"))

    def lost_tags(self, name: str = "tagsAll") -> list[str]:
        """Return tag keys that were removed."""
        olds: Values = self.olds.get(name) or {}
        news: Values = self.inputs.get(name) or {}
        return sorted(olds.keys() - news.keys())
