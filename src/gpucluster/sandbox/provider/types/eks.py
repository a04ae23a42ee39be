"""Clusters of EKS."""

from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from gpucluster.engine.aws_account import code_of
from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.calls import await_gone, await_state
from gpucluster.sandbox.provider.cloud import Cloud
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Autoname,
    Call,
    ResourceType,
    computed,
    moving,
    replaces,
    updates,
)
from gpucluster.sandbox.provider.shapes import (
    FLAG,
    READ_ONLY,
    TEXT,
    TEXTS,
    Field,
    Many,
    One,
    Record,
)
from gpucluster.sandbox.provider.types.eks_tags import Seen, retag, tagged, tags_of


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


# --- cluster ---------------------------------------------------------------------------------
_CLUSTER_INPUTS = (
    *("name", "version", "roleArn", "accessConfig", "bootstrapSelfManagedAddons", "enabledClusterLogTypes"),
    *("encryptionConfig", "vpcConfig"),
)


def _create_cluster(call: Call) -> str:
    """Create it; the crud of the provider tries again while its role is new (NOT_YET)."""
    answer = call.cloud.client("eks").create_cluster(**call.api(*_CLUSTER_INPUTS), **tags_of(call))
    return answer["cluster"]["name"]


def _active(call: Call) -> None:
    def state() -> tuple[str, str]:
        seen = _read_cluster(call.cloud, call.id, {}) or {}
        return str(seen.get("status", "")), ""

    await_state(call, state, "ACTIVE", frozenset({"FAILED"}))


def _read_cluster(cloud: Cloud, identifier: str, inputs: Values) -> Seen:
    """Read it. EKS does not repeat whether it installs add-ons itself, so upstream keeps what the program says."""
    seen = tagged(cloud.client("eks").describe_cluster(name=identifier)["cluster"])
    own = inputs.get("bootstrapSelfManagedAddons")
    return seen if own is None else {**seen, "bootstrapSelfManagedAddons": own}


def _update_cluster(call: Call, changed: frozenset[str]) -> None:
    """Make one change after the other: EKS takes no second update while one runs."""
    eks = call.cloud.client("eks")
    if "version" in changed:
        eks.update_cluster_version(name=call.id, version=call.inputs["version"])
        _active(call)
    for name in ("accessConfig", "enabledClusterLogTypes"):
        if name in changed:
            given = call.api(name)
            if name == "accessConfig":
                given["accessConfig"].pop("bootstrapClusterCreatorAdminPermissions", None)
            eks.update_cluster_config(name=call.id, **given)
            _active(call)
    if "vpcConfig" in changed:
        _update_vpc(call)
    # Upstream passes over another key in silence (internal/service/eks/cluster.go, `resourceClusterUpdate`).
    if "encryptionConfig" in changed and not call.olds.get("encryptionConfig"):
        eks.associate_encryption_config(clusterName=call.id, **call.api("encryptionConfig"))
        _active(call)
    retag(call, (_read_cluster(call.cloud, call.id, {}) or {})["arn"])


# The parts of `vpcConfig` that upstream changes in one call. EKS refuses two kinds of change in one.
_VPC_UPDATES = (
    ("endpointPrivateAccess", "endpointPublicAccess", "publicAccessCidrs"),
    ("subnetIds",),
    ("securityGroupIds",),
)


def _update_vpc(call: Call) -> None:
    old: Values = call.olds.get("vpcConfig") or {}
    new: Values = call.inputs.get("vpcConfig") or {}
    whole = call.api("vpcConfig")["resourcesVpcConfig"]
    for names in _VPC_UPDATES:
        if any(old.get(name) != new.get(name) for name in names):
            part = {name: whole[name] for name in names if name in whole}
            call.cloud.client("eks").update_cluster_config(name=call.id, resourcesVpcConfig=part)
            _active(call)


def _delete_cluster(call: Call) -> None:
    """Delete it; an update that still runs is waited for, as upstream does."""
    delete = partial(call.cloud.client("eks").delete_cluster, name=call.id)
    call.cloud.retry(call.seconds, _is_in_progress, delete)
    await_gone(call)


def _is_in_progress(error: ClientError) -> bool:
    return code_of(error) == "ResourceInUseException" and "in progress" in str(error)


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

ROWS = (CLUSTER,)
