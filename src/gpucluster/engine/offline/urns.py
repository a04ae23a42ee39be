"""Make and parse resource names: `urn:pulumi:STACK::PROJECT::[PARENT'S TYPES$]TYPE::NAME`."""

from dataclasses import dataclass

from gpucluster.engine.offline.model import STACK_TYPE


@dataclass(frozen=True, slots=True)
class StackIdentity:
    """The project and the stack of a planned program."""

    project: str
    stack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """An alias in the program's form. An empty field means: unchanged."""

    name: str = ""
    type: str = ""
    stack: str = ""
    project: str = ""
    parent: str = ""  # URN
    no_parent: bool = False


def urn_of(place: StackIdentity, *, type: str, name: str, parent: str = "") -> str:  # noqa: A002  the trade's word
    """Return the URN. A child's type includes the types of its parents, except the stack's."""
    above = types_of(parent) if parent else ""
    chain = "" if above in {"", STACK_TYPE} else f"{above}$"
    return f"urn:pulumi:{place.stack}::{place.project}::{chain}{type}::{name}"


def types_of(urn: str) -> str:
    """Return the types of a resource and its parents, joined by `$`."""
    return _parts(urn)[2]


def type_of(urn: str) -> str:
    """Return the resource's own type."""
    return types_of(urn).rpartition("$")[2]


def name_of(urn: str) -> str:
    """Return the resource's name, which can contain `::`."""
    return _parts(urn)[3]


def former_urn(place: StackIdentity, former: Former, *, type: str, name: str, parent: str) -> str:  # noqa: A002
    """Return the URN of an alias."""
    then = StackIdentity(former.project or place.project, former.stack or place.stack)
    above = "" if former.no_parent else former.parent or parent
    return urn_of(then, type=former.type or type, name=former.name or name, parent=above)


def inherited_alias(place: StackIdentity, child: str, *, parent: str, was: str) -> str:
    """Return the URN of `child` under its parent's earlier URN `was`. A name with the parent's name as prefix changes, too."""
    name, now = name_of(child), name_of(parent)
    then = name_of(was) + name.removeprefix(now) if name.startswith(now) else name
    return urn_of(place, type=type_of(child), name=then, parent=was)


def _parts(urn: str) -> list[str]:
    parts = urn.split("::", 3)
    if len(parts) != 4 or not urn.startswith("urn:pulumi:"):
        raise ValueError(f"{urn!r} is no urn: expected urn:pulumi:STACK::PROJECT::TYPE::NAME")
    return parts
