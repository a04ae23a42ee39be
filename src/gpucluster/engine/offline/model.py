"""What a program declares, as plain values: read by reviews, written and read as JSON by `plan.codec`.

A property that is secret is "[secret]", one that only the deployment will tell is "[unknown]"; a text of the program
itself that looks like one of the two is not told apart.
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
    """How long the engine waits for the cloud, as Pulumi writes it (`60m`); empty is the provider's own."""

    create: str = ""
    update: str = ""
    delete: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One declared resource. Every list that has no order of its own is sorted."""

    urn: str
    type: str
    name: str
    custom: bool  # False: a component, which is nothing in the cloud
    parent: str | None = None  # urn; None: the stack itself
    dependencies: tuple[str, ...] = ()  # urns, those of each property included
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    provider: str | None = None  # urn
    external: bool = False  # only read: it belongs to somebody else
    import_id: str = ""  # the id of what is there already and is adopted
    protect: bool = False
    retain_on_delete: bool = False
    delete_before_replace: bool = False
    deleted_with: str | None = None  # urn
    aliases: tuple[str, ...] = ()  # urns that it had
    ignore_changes: tuple[str, ...] = ()
    replace_on_changes: tuple[str, ...] = ()
    replace_with: tuple[str, ...] = ()  # urns
    hide_diffs: tuple[str, ...] = ()
    secret_outputs: tuple[str, ...] = ()
    timeouts: Timeouts = field(default_factory=Timeouts)
    version: str = ""  # of the provider's package
    properties: Mapping[str, Value] = field(
        default_factory=dict[str, Value]
    )  # inputs, as the program gave them
    outputs: Mapping[str, Value] = field(default_factory=dict[str, Value])  # what a component registered


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """A question to the cloud that the program asked; without an answer it is asked at `pulumi up`."""

    token: str  # aws:ec2/getAmi:getAmi
    arguments: Mapping[str, Value]
    answered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """All that a program declares: resources sorted by urn, without the stack itself."""

    project: str
    stack: str
    resources: tuple[Resource, ...]
    outputs: Mapping[str, Value] = field(default_factory=dict[str, Value])  # the stack's exports
    lookups: tuple[Lookup, ...] = ()  # sorted by token and arguments


def is_provider(resource: Resource) -> bool:
    """Whether it is a provider, which is nothing in the cloud."""
    return resource.type.startswith(PROVIDER_PREFIX)
