"""Node groups of EKS."""

from collections.abc import Mapping
from typing import Any

from gpucluster.engine.values import Values
from gpucluster.sandbox.provider.calls import await_gone, await_state
from gpucluster.sandbox.provider.cloud import Cloud
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Call,
    Change,
    ResourceType,
    computed,
    moving,
    replaces,
    updates,
)
from gpucluster.sandbox.provider.shapes import (
    FLAG,
    NUMBER,
    PAIRS,
    TEXT,
    TEXTS,
    Field,
    Many,
    Record,
)
from gpucluster.sandbox.provider.types.eks_tags import Seen, retag, tagged, tags_of

_TEMPLATE = Record({"id": Field("id", TEXT), "version": Field("version", TEXT)})
_SCALING = Record(
    {
        "minSize": Field("minSize", NUMBER),
        "desiredSize": Field("desiredSize", NUMBER),
        "maxSize": Field("maxSize", NUMBER),
    }
)
_TAINT = Record({"key": Field("key", TEXT), "value": Field("value", TEXT), "effect": Field("effect", TEXT)})
_UPDATE = Record(
    {
        "maxUnavailable": Field("maxUnavailable", NUMBER, from_cloud=True),
        "updateStrategy": Field("updateStrategy", TEXT, from_cloud=True),
    }
)
_REPAIR = Record({"enabled": Field("enabled", FLAG, False)})
_VERSIONS = ("launchTemplate", "releaseVersion", "version")


def _group(identifier: str) -> dict[str, str]:
    cluster, name = (*identifier.split(":", 1), "")[:2]
    return {"clusterName": cluster, "nodegroupName": name}


def _create_group(call: Call) -> str:
    inputs = [name for name in NODE_GROUP.properties if name not in TAG_PROPERTIES]
    settable = [name for name in inputs if NODE_GROUP.properties[name].change is not Change.COMPUTED]
    call.cloud.client("eks").create_nodegroup(**call.api(*settable), **tags_of(call))
    return f"{call.inputs['clusterName']}:{call.inputs['nodeGroupName']}"


def _group_active(call: Call) -> None:
    def state() -> tuple[str, str]:
        seen = _read_group(call.cloud, call.id, {}) or {}
        health: Mapping[str, Any] = seen.get("health") or {}
        issues: list[dict[str, str]] = health.get("issues", [])
        return str(seen.get("status", "")), "; ".join(one.get("message", "") for one in issues)

    await_state(call, state, "ACTIVE", frozenset({"CREATE_FAILED", "DELETE_FAILED", "DEGRADED"}))


def _read_group(cloud: Cloud, identifier: str, _: Values) -> Seen:
    return tagged(cloud.client("eks").describe_nodegroup(**_group(identifier))["nodegroup"])


def _update_group(call: Call, changed: frozenset[str]) -> None:
    """Change versions first, as upstream does; then what needs no new node."""
    eks, names = call.cloud.client("eks"), _group(call.id)
    if changed & {*_VERSIONS}:
        eks.update_nodegroup_version(**names, **call.api(*sorted(changed & {*_VERSIONS})))
        _group_active(call)
    if changed & {"labels", "taints", "scalingConfig", "updateConfig", "nodeRepairConfig"}:
        eks.update_nodegroup_config(**names, **_config(call, changed))
        _group_active(call)
    retag(call, (_read_group(call.cloud, call.id, {}) or {})["nodegroupArn"])


def _config(call: Call, changed: frozenset[str]) -> dict[str, Any]:
    """Return the changes: labels and taints by what is added and removed."""
    plain = sorted(changed & {"scalingConfig", "updateConfig", "nodeRepairConfig"})
    found = call.api(*plain) if plain else {}
    if "labels" in changed:
        olds: Values = call.olds.get("labels") or {}
        news: Values = call.inputs.get("labels") or {}
        gone = sorted(olds.keys() - news.keys())
        found["labels"] = {"addOrUpdateLabels": news, "removeLabels": gone}
    if "taints" in changed:
        before: list[Values] = call.olds.get("taints") or []
        after: list[Values] = call.inputs.get("taints") or []
        gone_taints = [one for one in before if one not in after]
        found["taints"] = {"addOrUpdateTaints": after, "removeTaints": gone_taints}
    return found


def _delete_group(call: Call) -> None:
    call.cloud.client("eks").delete_nodegroup(**_group(call.id))
    await_gone(call)


NODE_GROUP = ResourceType(
    name="aws:eks/nodeGroup:NodeGroup",
    properties={
        "clusterName": replaces("clusterName"),
        "nodeGroupName": replaces("nodegroupName"),
        "nodeRoleArn": replaces("nodeRole"),
        "subnetIds": replaces("subnets", TEXTS),
        "launchTemplate": updates("launchTemplate", _TEMPLATE, anew=frozenset({"id"})),
        "instanceTypes": replaces("instanceTypes", Many(TEXT, ordered=True), from_cloud=True),
        "capacityType": replaces("capacityType", from_cloud=True),
        "amiType": replaces("amiType", from_cloud=True),
        "version": updates("version", from_cloud=True),
        "releaseVersion": updates("releaseVersion", from_cloud=True),
        "scalingConfig": updates("scalingConfig", _SCALING),
        "updateConfig": updates("updateConfig", _UPDATE, from_cloud=True),
        "nodeRepairConfig": updates("nodeRepairConfig", _REPAIR, from_cloud=True),
        "labels": updates("labels", PAIRS),
        "taints": updates("taints", Many(_TAINT)),
        "status": moving("status"),
        "arn": computed("nodegroupArn"),
        **TAG_PROPERTIES,
    },
    create=_create_group,
    complete=_group_active,
    read=_read_group,
    update=_update_group,
    delete=_delete_group,
    keeps_failed=True,
    create_minutes=60,
    update_minutes=60,
    delete_minutes=60,
)

ROWS = (NODE_GROUP,)
