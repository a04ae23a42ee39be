"""Read the deployed resources from a stack's state, and which of them `destroy --exclude-protected` retains."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedResource:
    """One resource of the state. Components and providers are not included."""

    type: str
    name: str
    id: str
    protected: bool = False
    retained: bool = False  # protected, or a dependency of a protected resource
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


def parse(deployment: Mapping[str, Any]) -> tuple[DeployedResource, ...]:
    """Read the deployment that `pulumi stack export` prints."""
    resources: list[dict[str, Any]] = deployment.get("resources") or []
    retained = _retained_urns({str(one["urn"]): one for one in resources})
    return tuple(
        _resource(one, str(one["urn"]) in retained)
        for one in resources
        if one.get("custom") and not str(one["type"]).startswith("pulumi:")
    )


def unprotected(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the deployment without `protect` and `retainOnDelete`."""
    resources: list[dict[str, Any]] = deployment.get("resources") or []
    bare = [{k: v for k, v in one.items() if k not in ("protect", "retainOnDelete")} for one in resources]
    return {**deployment, "resources": bare}


def one(found: tuple[DeployedResource, ...], kind: str) -> DeployedResource | None:
    """Return the only resource of a type; None if there is none."""
    return next((resource for resource in found if resource.type == kind), None)


def _retained_urns(resources: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Apply the engine's rule: a protected resource and all of its dependencies are retained."""
    found: set[str] = set()
    waiting = [urn for urn, one in resources.items() if one.get("protect")]
    while waiting:
        urn = waiting.pop()
        if urn in resources and urn not in found:
            found.add(urn)
            waiting.extend(_dependencies(resources[urn]))
    return found


def _dependencies(resource: Mapping[str, Any]) -> Iterator[str]:
    yield from resource.get("dependencies") or ()
    by_property: Mapping[str, list[str] | None] = resource.get("propertyDependencies") or {}
    for urns in by_property.values():
        yield from urns or ()
    for word in ("parent", "deletedWith"):
        if resource.get(word):
            yield str(resource[word])
    if resource.get("provider"):
        yield str(resource["provider"]).rpartition("::")[0]  # URN::ID


def _resource(resource: Mapping[str, Any], retained: bool) -> DeployedResource:
    return DeployedResource(
        type=resource["type"],
        name=str(resource["urn"]).rpartition("::")[2],
        id=resource.get("id", ""),
        protected=bool(resource.get("protect")),
        retained=retained,
        outputs=resource.get("outputs") or {},
    )
