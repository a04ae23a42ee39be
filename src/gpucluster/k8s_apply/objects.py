"""References to objects, and whose they are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpucluster.k8s.manifest import Manifest
from gpucluster.plan import names

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "gpucluster"  # the value of MANAGED_BY
DATA = ("Namespace", "PersistentVolume", "PersistentVolumeClaim")  # kinds that hold data: --prune leaves them


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """The identity of an object."""

    api_version: str
    kind: str
    namespace: str  # empty: of the cluster
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in (self.namespace, self.kind, self.name) if part)

    @property
    def type(self) -> tuple[str, str]:
        """Return apiVersion and kind."""
        return self.api_version, self.kind

    def manifest(self) -> Manifest:
        """Return the smallest manifest that names the object."""
        place = {"namespace": self.namespace} if self.namespace else {}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": self.name, **place}}


def section(one: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a mapping inside an object; empty if the object has none."""
    return one.get(key) or {}


def rows(one: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return a list inside an object; empty if the object has none."""
    return one.get(key) or []


def ref_of(one: Manifest) -> Ref:
    metadata = section(one, "metadata")
    return Ref(one["apiVersion"], one["kind"], metadata.get("namespace", ""), metadata["name"])


def labels(one: Manifest) -> Mapping[str, str]:
    return section(one["metadata"], "labels")


def selector(cluster: str) -> str:
    """Return the label selector of the objects that a spec makes."""
    return f"{names.LABEL_CLUSTER}={cluster},{MANAGED_BY}={MANAGER}"


def is_written_by(one: Manifest, manager: str) -> bool:
    """Return whether a field manager has set fields of the object, which was read with `managers`."""
    return any(row.get("manager") == manager for row in rows(one["metadata"], "managedFields"))


def is_ending(one: Manifest) -> bool:
    """Return whether the object is being deleted. Nothing stops that: it goes when its finalizers allow it."""
    return bool(one["metadata"].get("deletionTimestamp"))


def top_level(found: Iterable[Manifest]) -> list[Manifest]:
    """Return objects without an owner: those of controllers carry our labels, too."""
    return [one for one in found if not one["metadata"].get("ownerReferences")]


def foreign_objects(found: Iterable[Manifest], cluster: str) -> list[tuple[Ref, str]]:
    """Return the objects that are not of this cluster, each with what says so."""
    owners = ((ref_of(one), labels(one).get(names.LABEL_CLUSTER)) for one in found)
    return [(ref, _whose(owner)) for ref, owner in sorted(owners, key=lambda row: row[0]) if owner != cluster]


def set_fields(one: Manifest) -> Manifest:
    """Return what people set: the object without its status and without what the server counts."""
    counted = ("generation", "managedFields", "resourceVersion")
    metadata = {key: value for key, value in one["metadata"].items() if key not in counted}
    return {**{key: value for key, value in one.items() if key != "status"}, "metadata": metadata}


_NOTHING: Mapping[str, Any] = {}


def condition(one: Manifest, name: str) -> Mapping[str, Any]:
    """Return a condition of the status; empty if the object has none of this type."""
    found = rows(section(one, "status"), "conditions")
    return next((row for row in found if row.get("type") == name), _NOTHING)


def is_true(one: Manifest, name: str) -> bool:
    """Return whether the object has the condition, and it is true."""
    return condition(one, name).get("status") == "True"


def _whose(owner: str | None) -> str:
    return f"has no label {names.LABEL_CLUSTER}" if owner is None else f"is of the cluster {owner}"
