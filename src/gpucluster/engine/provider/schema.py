"""What a row of the table is: a resource type, its properties, and its calls."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from gpucluster.engine.provider.shapes import TAGS, TEXT, Shape
from gpucluster.engine.provider.values import Value, Values

if TYPE_CHECKING:
    from gpucluster.engine.provider.calls import Call, Cloud


class Change(StrEnum):
    """What a changed property does to its resource (`aws-traps.md` §2)."""

    UPDATE = "update"
    REPLACE = "replace"
    COMPUTED = "computed"  # an output: a program may not set it


@dataclass(frozen=True, slots=True)
class Property:
    """One property. `api` is its name in what `read` answers; None: only we know it, the cloud does not."""

    api: str | None
    change: Change
    shape: Shape = TEXT
    default: Value = None  # what Check fills in
    from_cloud: bool = False  # unset: the cloud chooses, and its choice is no difference
    moves: bool = False  # an output that changes with any update, so a preview does not know it
    # fields of a record that changes in place, whose change replaces all the same
    anew: frozenset[str] = frozenset()
    anew_when: Callable[[Values, Values], bool] | None = None  # (old inputs, new ones): this way it replaces


def updates(
    api: str | None,
    shape: Shape = TEXT,
    *,
    default: Value = None,
    from_cloud: bool = False,
    anew: frozenset[str] = frozenset(),
    anew_when: Callable[[Values, Values], bool] | None = None,
) -> Property:
    """A property that changes in place, but for the fields `anew` and the direction `anew_when`."""
    return Property(api, Change.UPDATE, shape, default, from_cloud, anew=anew, anew_when=anew_when)


def replaces(
    api: str | None, shape: Shape = TEXT, *, default: Value = None, from_cloud: bool = False
) -> Property:
    """A property whose change makes a new resource."""
    return Property(api, Change.REPLACE, shape, default, from_cloud)


def computed(api: str, shape: Shape = TEXT) -> Property:
    """An output that stays as it is."""
    return Property(api, Change.COMPUTED, shape)


def moving(api: str, shape: Shape = TEXT) -> Property:
    """An output that any update changes."""
    return Property(api, Change.COMPUTED, shape, moves=True)


TAG_PROPERTIES: Mapping[str, Property] = {
    "tags": Property(None, Change.UPDATE, TAGS),
    "tagsAll": Property("Tags", Change.UPDATE, TAGS),  # tags and the provider's default tags, merged in Check
}


@dataclass(frozen=True, slots=True)
class Autoname:
    """The property that Check names when the program did not, and how long a name may be."""

    property: str
    longest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """A row. `create` returns the id; `settle` does what must follow once there is one (attributes, waiting)."""

    name: str  # `aws:ec2/vpc:Vpc`
    properties: Mapping[str, Property]
    create: Callable[["Call"], str]
    read: Callable[["Cloud", str, Values], Mapping[str, Value] | None]  # None: it is not there any more
    delete: Callable[["Call"], None]
    settle: Callable[["Call"], None] | None = None
    update: Callable[["Call", frozenset[str]], None] | None = None
    autoname: Autoname | None = None
    delete_first: bool = False  # exclusive without a name: create-first would collide
    create_minutes: float = 10  # the upstream provider's own patience
    update_minutes: float = 10
    delete_minutes: float = 15

    @property
    def tagged(self) -> bool:
        return "tagsAll" in self.properties
