"""The declared resources of a program as plain values. Reviews read them; `plan.codec` reads and writes them as JSON.

A secret property is "[secret]". A property that is known only after the deployment is "[unknown]". An equal text from
the program itself cannot be distinguished.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Value = Any  # plain JSON: None | bool | int | float | str | list[Value] | dict[str, Value]

SECRET: Final = "[secret]"  # noqa: S105  the mask, not the secret
UNKNOWN: Final = "[unknown]"
STACK_TYPE: Final = "pulumi:pulumi:Stack"
PROVIDER_PREFIX: Final = "pulumi:providers:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """The timeouts of cloud operations in Pulumi's form (`60m`). Empty means the provider's default."""

    create: str = ""
    update: str = ""
    delete: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One declared resource. Every list without a meaningful order is sorted."""

    urn: str
    type: str
    name: str
    custom: bool  # False: a component, which does not exist in the cloud
    parent: str | None = None  # URN; None: the stack itself
    dependencies: tuple[str, ...] = ()  # URNs, those of each property included
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    provider: str | None = None  # URN
    external: bool = False  # only read: another owner manages it
    import_id: str = ""  # the id of an existing resource that is adopted
    protect: bool = False
    retain_on_delete: bool = False
    delete_before_replace: bool = False
    deleted_with: str | None = None  # URN
    aliases: tuple[str, ...] = ()  # earlier URNs
    ignore_changes: tuple[str, ...] = ()
    replace_on_changes: tuple[str, ...] = ()
    replace_with: tuple[str, ...] = ()  # URNs
    hide_diffs: tuple[str, ...] = ()
    secret_outputs: tuple[str, ...] = ()
    timeouts: Timeouts = field(default_factory=Timeouts)
    version: str = ""  # version of the provider's package
    properties: Mapping[str, Value] = field(default_factory=dict[str, Value])  # inputs from the program
    outputs: Mapping[str, Value] = field(
        default_factory=dict[str, Value]
    )  # outputs that a component registered


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """A query to the cloud by the program. A query without a recorded answer runs at `pulumi up`."""

    token: str  # aws:ec2/getAmi:getAmi
    arguments: Mapping[str, Value]
    answered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """All declared resources, sorted by URN, without the stack itself."""

    project: str
    stack: str
    resources: tuple[Resource, ...]
    outputs: Mapping[str, Value] = field(default_factory=dict[str, Value])  # the stack's exports
    lookups: tuple[Lookup, ...] = ()  # sorted by token and arguments


def is_provider(resource: Resource) -> bool:
    """Return whether the resource is a provider, which does not exist in the cloud."""
    return resource.type.startswith(PROVIDER_PREFIX)
