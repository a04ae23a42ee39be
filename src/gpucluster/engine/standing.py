"""What a stack's state says is there, without running anything."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One resource of the state. Components and providers are not among them."""

    type: str
    name: str
    id: str
    protected: bool = False
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


def parse(deployment: Mapping[str, Any]) -> tuple[Standing, ...]:
    """Read the deployment of `pulumi stack export`."""
    resources: list[dict[str, Any]] = deployment.get("resources") or []
    return tuple(
        _standing(one)
        for one in resources
        if one.get("custom") and not str(one["type"]).startswith("pulumi:")
    )


def one(found: tuple[Standing, ...], kind: str) -> Standing | None:
    """The one resource of a type; None when there is none."""
    return next((resource for resource in found if resource.type == kind), None)


def _standing(resource: Mapping[str, Any]) -> Standing:
    return Standing(
        type=resource["type"],
        name=str(resource["urn"]).rpartition("::")[2],
        id=resource.get("id", ""),
        protected=bool(resource.get("protect")),
        outputs=resource.get("outputs") or {},
    )
