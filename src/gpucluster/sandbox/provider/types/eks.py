"""EKS: clusters, node groups, add-ons, access entries and pod identities. Every id but that of a pod identity has its parts."""

from collections.abc import Mapping
from typing import Any

from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.calls import await_gone, await_state
from gpucluster.sandbox.provider.cloud import Cloud
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Autoname,
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
    READ_ONLY,
    TEXT,
    TEXTS,
    Field,
    Many,
    One,
    Record,
)

Seen = Mapping[str, Value] | None


class _LogTypes(Many):
    """A list of types in a program; in the API, setups that are on or off."""

    def to_api(self, value: Value) -> Value:
        return {"clusterLogging": [{"types": list(value), "enabled": True}]}

    def from_api(self, value: Value) -> Value:
        setups: list[dict[str, Any]] = value.get("clusterLogging", [])
        return sorted(kind for one in setups if one["enabled"] for kind in one["types"])


_LOG_TYPES = _LogTypes(TEXT)
_ACCESS = Record(
    {
        "authenticationMode": Field("authenticationMode", TEXT, from_cloud=True),
        "bootstrapClusterCreatorAdminPermissions": Field(
            "bootstrapClusterCreatorAdminPermissions", FLAG, True
        ),
    }
)
_PROVIDER = Record({"keyArn": Field("keyArn", TEXT)})
_ENCRYPTION = One(Record({"provider": Field("provider", _PROVIDER), "resources": Field("resources", TEXTS)}))
_VPC = Record(
    {
        "subnetIds": Field("subnetIds", TEXTS),
        "securityGroupIds": Field("securityGroupIds", TEXTS),
        "endpointPrivateAccess": Field("endpointPrivateAccess", FLAG, False),
        "endpointPublicAccess": Field("endpointPublicAccess", FLAG, True),
        "publicAccessCidrs": Field("publicAccessCidrs", TEXTS, from_cloud=True),
    }
)


def _tagged(seen: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the answer with its map of tags as a list, as most APIs answer."""
    tags: Mapping[str, str] = seen.get("tags") or {}
    return {**seen, "Tags": [{"Key": k, "Value": v} for k, v in sorted(tags.items())]}


def _tags(call: Call) -> dict[str, Any]:
    return {"tags": call.inputs["tagsAll"]} if call.inputs.get("tagsAll") else {}


def _retag(call: Call, arn: str) -> None:
    gone = call.lost_tags()
    if gone:
        call.cloud.client("eks").untag_resource(resourceArn=arn, tagKeys=gone)
    if call.tags:
        call.cloud.client("eks").tag_resource(resourceArn=arn, **_tags(call))


# --- cluster ---------------------------------------------------------------------------------
_CLUSTER_INPUTS = (
    *("name", "version", "roleArn", "accessConfig", "bootstrapSelfManagedAddons", "enabledClusterLogTypes"),
    *("encryptionConfig", "vpcConfig"),
)


def _create_cluster(call: Call) -> str:
    answer = call.cloud.client("eks").create_cluster(**call.api(*_CLUSTER_INPUTS), **_tags(call))
    return answer["cluster"]["name"]


def _active(call: Call) -> None:
    def state() -> tuple[str, str]:
        seen = _read_cluster(call.cloud, call.id, {}) or {}
        return str(seen.get("status", "")), ""

    await_state(call, state, "ACTIVE", frozenset({"FAILED"}))


def _read_cluster(cloud: Cloud, identifier: str, _: Values) -> Seen:
    return _tagged(cloud.client("eks").describe_cluster(name=identifier)["cluster"])


def _update_cluster(call: Call, changed: frozenset[str]) -> None:
    """Make one change after the other: EKS takes no second update while one runs."""
    eks = call.cloud.client("eks")
    if "version" in changed:
        eks.update_cluster_version(name=call.id, version=call.inputs["version"])
        _active(call)
    for name in ("accessConfig", "enabledClusterLogTypes", "vpcConfig"):
        if name in changed:
            given = call.api(name)
            if name == "accessConfig":
                given["accessConfig"].pop("bootstrapClusterCreatorAdminPermissions", None)
            eks.update_cluster_config(name=call.id, **given)
            _active(call)
    if "encryptionConfig" in changed:
        eks.associate_encryption_config(clusterName=call.id, **call.api("encryptionConfig"))
        _active(call)
    _retag(call, (_read_cluster(call.cloud, call.id, {}) or {})["arn"])


def _delete_cluster(call: Call) -> None:
    call.cloud.client("eks").delete_cluster(name=call.id)
    await_gone(call)


def _without_key(_old: Values, new: Values) -> bool:
    """No call removes the key of the secrets."""
    return not new.get("encryptionConfig")


CLUSTER = ResourceType(
    name="aws:eks/cluster:Cluster",
    properties={
        "name": replaces("name"),
        "version": updates("version", from_cloud=True),
        "roleArn": replaces("roleArn"),
        "accessConfig": updates(
            "accessConfig", _ACCESS, anew=frozenset({"bootstrapClusterCreatorAdminPermissions"})
        ),
        "bootstrapSelfManagedAddons": replaces("bootstrapSelfManagedAddons", FLAG, from_cloud=True),
        "enabledClusterLogTypes": updates("logging", _LOG_TYPES),
        "encryptionConfig": updates("encryptionConfig", _ENCRYPTION, anew_when=_without_key),
        "vpcConfig": updates("resourcesVpcConfig", _VPC),
        "endpoint": computed("endpoint"),
        "certificateAuthority": computed("certificateAuthority", READ_ONLY),
        "platformVersion": moving("platformVersion"),
        "status": moving("status"),
        "arn": computed("arn"),
        **TAG_PROPERTIES,
    },
    create=_create_cluster,
    complete=_active,
    read=_read_cluster,
    update=_update_cluster,
    delete=_delete_cluster,
    autoname=Autoname("name", 100),
    create_minutes=30,
    update_minutes=60,
)


# --- parts of a cluster ------------------------------------------------------------------------


def _entry(identifier: str, _: Values) -> dict[str, str]:
    cluster, principal = (*identifier.split(":", 1), "")[:2]
    return {"clusterName": cluster, "principalArn": principal}


def _create_entry(call: Call) -> str:
    given = call.api("clusterName", "principalArn", "kubernetesGroups", "type")
    call.cloud.client("eks").create_access_entry(**given, **_tags(call))
    return f"{call.inputs['clusterName']}:{call.inputs['principalArn']}"


def _read_entry(cloud: Cloud, identifier: str, inputs: Values) -> Seen:
    return _tagged(cloud.client("eks").describe_access_entry(**_entry(identifier, inputs))["accessEntry"])


def _update_entry(call: Call, changed: frozenset[str]) -> None:
    names = _entry(call.id, call.inputs)
    if "kubernetesGroups" in changed:
        groups: list[str] = call.inputs.get("kubernetesGroups") or []
        call.cloud.client("eks").update_access_entry(**names, kubernetesGroups=groups)
    _retag(call, (_read_entry(call.cloud, call.id, call.inputs) or {})["accessEntryArn"])


def _delete_entry(call: Call) -> None:
    call.cloud.client("eks").delete_access_entry(**_entry(call.id, call.inputs))


ACCESS_ENTRY = ResourceType(
    name="aws:eks/accessEntry:AccessEntry",
    properties={
        "clusterName": replaces("clusterName"),
        "principalArn": replaces("principalArn"),
        "kubernetesGroups": updates("kubernetesGroups", TEXTS, from_cloud=True),
        "type": replaces("type", default="STANDARD"),
        "accessEntryArn": computed("accessEntryArn"),
        **TAG_PROPERTIES,
    },
    create=_create_entry,
    read=_read_entry,
    update=_update_entry,
    delete=_delete_entry,
)


def _create_policy(call: Call) -> str:
    given = call.api("clusterName", "principalArn", "policyArn", "accessScope")
    call.cloud.client("eks").associate_access_policy(**given)
    return "#".join(call.inputs[name] for name in ("clusterName", "principalArn", "policyArn"))


def _policy(identifier: str) -> dict[str, str]:
    cluster, principal, policy = (*identifier.split("#"), "", "")[:3]
    return {"clusterName": cluster, "principalArn": principal, "policyArn": policy}


def _read_policy(cloud: Cloud, identifier: str, _: Values) -> Seen:
    names = _policy(identifier)
    policy = names.pop("policyArn")
    found = cloud.client("eks").list_associated_access_policies(**names)["associatedAccessPolicies"]
    seen = next((one for one in found if one["policyArn"] == policy), None)
    return None if seen is None else {**seen, **names}


def _delete_policy(call: Call) -> None:
    call.cloud.client("eks").disassociate_access_policy(**_policy(call.id))


ACCESS_POLICY = ResourceType(
    name="aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
    properties={
        "clusterName": replaces("clusterName"),
        "principalArn": replaces("principalArn"),
        "policyArn": replaces("policyArn"),
        "accessScope": replaces(
            "accessScope", Record({"type": Field("type", TEXT), "namespaces": Field("namespaces", TEXTS)})
        ),
    },
    create=_create_policy,
    read=_read_policy,
    delete=_delete_policy,
)

# --- node group ------------------------------------------------------------------------------
_TEMPLATE = Record({"id": Field("id", TEXT), "version": Field("version", TEXT)})
_SCALING = Record(
    {
        "minSize": Field("minSize", NUMBER),
        "desiredSize": Field("desiredSize", NUMBER),
        "maxSize": Field("maxSize", NUMBER),
    }
)
_TAINT = Record({"key": Field("key", TEXT), "value": Field("value", TEXT), "effect": Field("effect", TEXT)})
_UPDATE = Record({"maxUnavailable": Field("maxUnavailable", NUMBER, from_cloud=True)})
_REPAIR = Record({"enabled": Field("enabled", FLAG, False)})
_VERSIONS = ("launchTemplate", "releaseVersion", "version")


def _group(identifier: str) -> dict[str, str]:
    cluster, name = (*identifier.split(":", 1), "")[:2]
    return {"clusterName": cluster, "nodegroupName": name}


def _create_group(call: Call) -> str:
    inputs = [name for name in NODE_GROUP.properties if name not in TAG_PROPERTIES]
    settable = [name for name in inputs if NODE_GROUP.properties[name].change is not Change.COMPUTED]
    call.cloud.client("eks").create_nodegroup(**call.api(*settable), **_tags(call))
    return f"{call.inputs['clusterName']}:{call.inputs['nodeGroupName']}"


def _group_active(call: Call) -> None:
    def state() -> tuple[str, str]:
        seen = _read_group(call.cloud, call.id, {}) or {}
        health: Mapping[str, Any] = seen.get("health") or {}
        issues: list[dict[str, str]] = health.get("issues", [])
        return str(seen.get("status", "")), "; ".join(one.get("message", "") for one in issues)

    await_state(call, state, "ACTIVE", frozenset({"CREATE_FAILED", "DELETE_FAILED", "DEGRADED"}))


def _read_group(cloud: Cloud, identifier: str, _: Values) -> Seen:
    return _tagged(cloud.client("eks").describe_nodegroup(**_group(identifier))["nodegroup"])


def _update_group(call: Call, changed: frozenset[str]) -> None:
    """Change versions first, as upstream does; then what needs no new node."""
    eks, names = call.cloud.client("eks"), _group(call.id)
    if changed & {*_VERSIONS}:
        eks.update_nodegroup_version(**names, **call.api(*sorted(changed & {*_VERSIONS})))
        _group_active(call)
    if changed & {"labels", "taints", "scalingConfig", "updateConfig", "nodeRepairConfig"}:
        eks.update_nodegroup_config(**names, **_config(call, changed))
        _group_active(call)
    _retag(call, (_read_group(call.cloud, call.id, {}) or {})["nodegroupArn"])


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
    create_minutes=60,
    update_minutes=60,
    delete_minutes=60,
)

ROWS = (CLUSTER, ACCESS_ENTRY, ACCESS_POLICY, NODE_GROUP)
