"""Add-ons and pod identities of EKS."""

from collections.abc import Mapping
from typing import Any

from gpucluster.engine.values import Values
from gpucluster.sandbox.provider.calls import await_gone, await_state
from gpucluster.sandbox.provider.cloud import Cloud
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Call,
    ResourceType,
    computed,
    replaces,
    updates,
)
from gpucluster.sandbox.provider.shapes import (
    DOCUMENT,
    TEXT,
    Field,
    Many,
    Record,
)
from gpucluster.sandbox.provider.types.eks_tags import Seen, retag, tagged, tags_of

# --- add-on ----------------------------------------------------------------------------------
_IDENTITY = Record({"roleArn": Field("roleArn", TEXT), "serviceAccount": Field("serviceAccount", TEXT)})
_OF_ADDON = ("addonVersion", "configurationValues", "podIdentityAssociations")


def _addon(identifier: str) -> dict[str, str]:
    cluster, name = (*identifier.split(":", 1), "")[:2]
    return {"clusterName": cluster, "addonName": name}


def _conflicts(call: Call, when: str) -> dict[str, str]:
    how = call.inputs.get(f"resolveConflictsOn{when}")
    return {} if how is None else {"resolveConflicts": how}


def _create_addon(call: Call) -> str:
    given = call.api("clusterName", "addonName", *_OF_ADDON)
    call.cloud.client("eks").create_addon(**given, **_conflicts(call, "Create"), **tags_of(call))
    return f"{call.inputs['clusterName']}:{call.inputs['addonName']}"


def _addon_active(call: Call) -> None:
    def state() -> tuple[str, str]:
        seen = _seen_addon(call.cloud, call.id)
        health: Mapping[str, Any] = seen.get("health") or {}
        issues: list[dict[str, str]] = health.get("issues", [])
        return str(seen.get("status", "")), "; ".join(one.get("message", "") for one in issues)

    await_state(call, state, "ACTIVE", frozenset({"CREATE_FAILED", "UPDATE_FAILED", "DELETE_FAILED"}))


def _seen_addon(cloud: Cloud, identifier: str) -> Mapping[str, Any]:
    return cloud.client("eks").describe_addon(**_addon(identifier))["addon"]


def _read_addon(cloud: Cloud, identifier: str, _: Values) -> Seen:
    """Read each pod identity by its id: the add-on names only their ARNs."""
    seen = _seen_addon(cloud, identifier)
    found: list[Mapping[str, str]] = []
    arns: list[str] = seen.get("podIdentityAssociations") or []
    for arn in arns:
        known = {"clusterName": _addon(identifier)["clusterName"], "associationId": arn.rpartition("/")[2]}
        found.append(cloud.client("eks").describe_pod_identity_association(**known)["association"])
    return {**tagged(seen), "podIdentityAssociations": found}


def _update_addon(call: Call, changed: frozenset[str]) -> None:
    wanted = sorted(changed & {*_OF_ADDON})
    if wanted:
        update = call.cloud.client("eks").update_addon
        update(**_addon(call.id), **call.api(*wanted), **_conflicts(call, "Update"))
        _addon_active(call)
    retag(call, _seen_addon(call.cloud, call.id)["addonArn"])


def _delete_addon(call: Call) -> None:
    call.cloud.client("eks").delete_addon(**_addon(call.id))
    await_gone(call)


ADDON = ResourceType(
    name="aws:eks/addon:Addon",
    properties={
        "clusterName": replaces("clusterName"),
        "addonName": replaces("addonName"),
        "addonVersion": updates("addonVersion", from_cloud=True),
        "configurationValues": updates("configurationValues", DOCUMENT, from_cloud=True),
        "podIdentityAssociations": updates("podIdentityAssociations", Many(_IDENTITY)),
        "resolveConflictsOnCreate": updates(None),
        "resolveConflictsOnUpdate": updates(None),
        "arn": computed("addonArn"),
        **TAG_PROPERTIES,
    },
    create=_create_addon,
    complete=_addon_active,
    read=_read_addon,
    update=_update_addon,
    delete=_delete_addon,
    keeps_failed=True,
    create_minutes=20,
    update_minutes=20,
    delete_minutes=40,
)


# --- pod identity ------------------------------------------------------------------------------
def _create_identity(call: Call) -> str:
    given = call.api("clusterName", "namespace", "serviceAccount", "roleArn")
    made = call.cloud.client("eks").create_pod_identity_association(**given, **tags_of(call))
    return made["association"]["associationId"]


def _identity(identifier: str, inputs: Values) -> dict[str, str]:
    return {"clusterName": str(inputs["clusterName"]), "associationId": identifier}


def _read_identity(cloud: Cloud, identifier: str, inputs: Values) -> Seen:
    names = _identity(identifier, inputs)
    return tagged(cloud.client("eks").describe_pod_identity_association(**names)["association"])


def _update_identity(call: Call, changed: frozenset[str]) -> None:
    names = _identity(call.id, call.inputs)
    if "roleArn" in changed:
        call.cloud.client("eks").update_pod_identity_association(**names, **call.api("roleArn"))
    retag(call, (_read_identity(call.cloud, call.id, call.inputs) or {})["associationArn"])


def _delete_identity(call: Call) -> None:
    call.cloud.client("eks").delete_pod_identity_association(**_identity(call.id, call.inputs))


POD_IDENTITY = ResourceType(
    name="aws:eks/podIdentityAssociation:PodIdentityAssociation",
    properties={
        "clusterName": replaces("clusterName"),
        "namespace": replaces("namespace"),
        "serviceAccount": replaces("serviceAccount"),
        "roleArn": updates("roleArn"),
        "associationId": computed("associationId"),
        "associationArn": computed("associationArn"),
        **TAG_PROPERTIES,
    },
    create=_create_identity,
    read=_read_identity,
    update=_update_identity,
    delete=_delete_identity,
)

ROWS = (ADDON, POD_IDENTITY)
