"""Record the declarations of a running program. Several threads call it, so one lock serialises the calls."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pulumi.runtime.proto import alias_pb2, callback_pb2, resource_pb2

from gpucluster.engine.offline.lookups import STACK_REFERENCE
from gpucluster.engine.offline.model import STACK_TYPE, Lookup, Planned, Resource, Timeouts, Value
from gpucluster.engine.offline.urns import (
    Former,
    StackIdentity,
    former_urn,
    inherited_alias,
    name_of,
    type_of,
    urn_of,
)
from gpucluster.engine.offline.wire import shown
from gpucluster.plan.codec import dumps

Callbacks = tuple[callback_pb2.Callback, ...]


class RefusedError(Exception):
    """The program made an invalid call. The text has the reason and, if known, the line."""


class Registry:
    """Resources by URN, the stack's exports, and the look-ups."""

    def __init__(self, place: StackIdentity) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._resources: dict[str, Resource] = {}
        self._transforms: dict[str, Callbacks] = {}
        self._stack_transforms: list[callback_pb2.Callback] = []
        self._lookups: dict[str, Lookup] = {}
        self.last = ""  # URN

    def planned(self) -> Planned:
        """Return all declarations, sorted. The stack itself is not included."""
        stacks = [r for r in self._resources.values() if r.type == STACK_TYPE]
        urns = {r.urn for r in stacks}
        found = [replace(r, parent=None) if r.parent in urns else r for r in self._resources.values()]
        return Planned(
            project=self._place.project,
            stack=self._place.stack,
            resources=tuple(sorted((r for r in found if r.urn not in urns), key=lambda r: r.urn)),
            outputs=stacks[0].outputs if stacks else {},
            lookups=tuple(self._lookups[key] for key in sorted(self._lookups)),
        )

    def count(self) -> int:
        """Return the number of declared resources without the stack."""
        with self._lock:
            return sum(r.type != STACK_TYPE for r in self._resources.values())

    def region_of(self, provider: str) -> str | None:
        """Return the region of a provider that the program declared; `provider` is URN::ID."""
        with self._lock:
            found = self._resources.get(provider_urn(provider) or "")
        region = found.properties.get("region") if found is not None else None
        return region if isinstance(region, str) else None

    def urn(self, request: resource_pb2.RegisterResourceRequest | resource_pb2.ReadResourceRequest) -> str:
        """Return the URN of the request's resource."""
        return urn_of(self._place, type=request.type, name=request.name, parent=request.parent)

    def add(self, resource: Resource, transforms: Iterable[callback_pb2.Callback] = ()) -> None:
        """Add one resource. Raise RefusedError if its name exists."""
        with self._lock:
            if resource.urn in self._resources:
                raise RefusedError(
                    f"two resources have the same name: {type_of(resource.urn)} {name_of(resource.urn)!r}"
                    f" ({resource.urn}); give one of them another"
                )
            if resource.parent is not None and resource.parent not in self._resources:
                raise RefusedError(f"the parent of {resource.urn} was never declared: {resource.parent}")
            self._resources[resource.urn] = resource
            self._transforms[resource.urn] = tuple(transforms)
            self.last = resource.urn

    def add_outputs(self, urn: str, outputs: Mapping[str, Value]) -> None:
        """Set the outputs of a component or of the stack."""
        with self._lock:
            if urn not in self._resources:
                raise RefusedError(f"outputs for a resource that was never declared: {urn}")
            self._resources[urn] = replace(self._resources[urn], outputs=outputs)

    def add_lookup(self, lookup: Lookup) -> None:
        """Add a look-up. Equal look-ups are recorded once."""
        with self._lock:
            self._lookups.setdefault(dumps(lookup), lookup)

    def add_transform(self, callback: callback_pb2.Callback) -> None:
        """Add a transform of the whole stack. It applies to later declarations."""
        with self._lock:
            self._stack_transforms.append(callback)

    def transforms_for(self, request: resource_pb2.RegisterResourceRequest) -> Callbacks:
        """Return transforms in the engine's order: the resource's own, its parents' from the nearest up, the stack's."""
        with self._lock:
            found, above = [*own_transforms(request)], request.parent
            while above in self._resources:
                found += self._transforms[above]
                above = self._resources[above].parent or ""
            return (*found, *self._stack_transforms)

    def aliases_of(self, request: resource_pb2.RegisterResourceRequest) -> tuple[str, ...]:
        """Return earlier URNs: the resource's own aliases, and one for each alias of its parent."""
        own = [*request.aliasURNs, *(self._alias(alias, request) for alias in _aliases(request))]
        now = self.urn(request)
        with self._lock:
            parent = self._resources.get(request.parent)
        inherited = (
            inherited_alias(self._place, child, parent=request.parent, was=former)
            for former in (parent.aliases if parent else ())
            for child in (now, *own)
        )
        return tuple(sorted({*own, *inherited} - {now}))

    def _alias(self, alias: alias_pb2.Alias, request: resource_pb2.RegisterResourceRequest) -> str:
        if not alias.HasField("spec"):
            return alias.urn
        spec = alias.spec
        former = Former(
            name=spec.name, type=spec.type, stack=spec.stack, project=spec.project,
            parent=spec.parentUrn, no_parent=spec.noParent,
        )  # fmt: skip
        return former_urn(self._place, former, type=request.type, name=request.name, parent=request.parent)


def own_transforms(request: Any) -> Callbacks:
    """Return the aliases of the request, with the type that the SDK's stubs lose."""
    return tuple(request.transforms)


def registered(urn: str, request: resource_pb2.RegisterResourceRequest, aliases: tuple[str, ...]) -> Resource:
    """Convert the request to a resource."""
    return Resource(
        urn=urn,
        type=request.type,
        name=request.name,
        custom=request.custom,
        parent=request.parent or None,
        dependencies=tuple(sorted(set(request.dependencies))),
        property_dependencies={
            name: tuple(sorted(set(one.urns)))
            for name, one in sorted(request.propertyDependencies.items())
            if one.urns
        },
        provider=provider_urn(request.provider),
        import_id=request.importId,
        protect=request.protect,
        retain_on_delete=request.retainOnDelete,
        delete_before_replace=request.deleteBeforeReplace,
        deleted_with=request.deletedWith or None,
        aliases=aliases,
        ignore_changes=tuple(sorted(request.ignoreChanges)),
        replace_on_changes=tuple(sorted(request.replaceOnChanges)),
        replace_with=tuple(sorted(request.replace_with)),
        hide_diffs=tuple(sorted(request.hideDiffs)),
        secret_outputs=tuple(sorted(request.additionalSecretOutputs)),
        timeouts=Timeouts(
            create=request.customTimeouts.create,
            update=request.customTimeouts.update,
            delete=request.customTimeouts.delete,
        ),
        version=request.version,
        properties=shown(request.object, secret=request.additionalSecretOutputs),
    )


def read(urn: str, request: resource_pb2.ReadResourceRequest) -> Resource:
    """Convert a resource that is only read. Another owner manages it."""
    return Resource(
        urn=urn,
        type=request.type,
        name=request.name,
        custom=True,
        external=True,
        parent=request.parent or None,
        dependencies=tuple(sorted(set(request.dependencies))),
        provider=provider_urn(request.provider),
        import_id=request.id,
        secret_outputs=tuple(sorted(request.additionalSecretOutputs)),
        version=request.version,
        properties=shown(request.properties, secret=request.additionalSecretOutputs),
    )


def reference(request: resource_pb2.ReadResourceRequest) -> Lookup:
    """Return the look-up of a StackReference: its outputs are in another state file."""
    return Lookup(token=STACK_REFERENCE, arguments={"name": request.id}, answered=False)


def provider_urn(reference: str) -> str | None:
    """Return the URN of `URN::ID`."""
    return reference.rpartition("::")[0] or None


def _aliases(request: Any) -> tuple[alias_pb2.Alias, ...]:
    return tuple(request.aliases)
