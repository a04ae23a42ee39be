"""What a stack's state says is there, without running anything, and what of it `destroy --exclude-protected` leaves."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One resource of the state. Components and providers are not among them."""

    type: str
    name: str
    id: str
    protected: bool = False
    kept: bool = False  # protected, or what something protected hangs on
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


def parse(deployment: Mapping[str, Any]) -> tuple[Standing, ...]:
    """Read the deployment of `pulumi stack export`."""
    resources: list[dict[str, Any]] = deployment.get("resources") or []
    kept = _kept({str(one["urn"]): one for one in resources})
    return tuple(
        _standing(one, str(one["urn"]) in kept)
        for one in resources
        if one.get("custom") and not str(one["type"]).startswith("pulumi:")
    )


def unprotected(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """The same deployment, in which nothing is protected, nor kept when it is deleted."""
    resources: list[dict[str, Any]] = deployment.get("resources") or []
    bare = [{k: v for k, v in one.items() if k not in ("protect", "retainOnDelete")} for one in resources]
    return {**deployment, "resources": bare}


def one(found: tuple[Standing, ...], kind: str) -> Standing | None:
    """The one resource of a type; None when there is none."""
    return next((resource for resource in found if resource.type == kind), None)


def _kept(resources: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The engine's own rule: what is protected, and all that it hangs on."""
    found: set[str] = set()
    waiting = [urn for urn, one in resources.items() if one.get("protect")]
    while waiting:
        urn = waiting.pop()
        if urn in resources and urn not in found:
            found.add(urn)
            waiting.extend(_hangs_on(resources[urn]))
    return found


def _hangs_on(resource: Mapping[str, Any]) -> Iterator[str]:
    yield from resource.get("dependencies") or ()
    by_property: Mapping[str, list[str] | None] = resource.get("propertyDependencies") or {}
    for urns in by_property.values():
        yield from urns or ()
    for word in ("parent", "deletedWith"):
        if resource.get(word):
            yield str(resource[word])
    if resource.get("provider"):
        yield str(resource["provider"]).rpartition("::")[0]  # URN::ID


def _standing(resource: Mapping[str, Any], kept: bool) -> Standing:
    return Standing(
        type=resource["type"],
        name=str(resource["urn"]).rpartition("::")[2],
        id=resource.get("id", ""),
        protected=bool(resource.get("protect")),
        kept=kept,
        outputs=resource.get("outputs") or {},
    )
