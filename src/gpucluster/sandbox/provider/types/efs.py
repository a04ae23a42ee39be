"""EFS: the file system, mount targets (one for each zone), and access points."""

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from gpucluster.engine.aws_account import code_of
from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.calls import await_gone, await_state
from gpucluster.sandbox.provider.cloud import Cloud, only
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Autoname,
    Call,
    ResourceType,
    computed,
    replaces,
    updates,
)
from gpucluster.sandbox.provider.shapes import (
    DOCUMENT,
    FLAG,
    FRACTION,
    NUMBER,
    TEXT,
    TEXTS,
    Field,
    Many,
    Record,
)

Seen = Mapping[str, Value] | None

_BAD = frozenset({"deleted", "deleting", "error"})


def _retag(call: Call) -> None:
    gone = call.lost_tags()
    if gone:
        call.cloud.efs.untag_resource(ResourceId=call.id, TagKeys=gone)
    if call.tags:
        call.cloud.efs.tag_resource(ResourceId=call.id, Tags=call.tags)


def _await_available(call: Call) -> None:
    def state() -> tuple[str, str]:
        seen = call.kind.read(call.cloud, call.id, call.inputs) or {}
        return str(seen.get("LifeCycleState", "unknown")), ""

    await_state(call, state, "available", _BAD)


# --- file system -----------------------------------------------------------------------------
_AT_CREATION = (
    "creationToken",
    "performanceMode",
    "encrypted",
    "kmsKeyId",
    "throughputMode",
    "provisionedThroughputInMibps",
    "availabilityZoneName",
)
_LIFECYCLE = Record(
    {
        "transitionToIa": Field("TransitionToIA", TEXT),
        "transitionToArchive": Field("TransitionToArchive", TEXT),
        "transitionToPrimaryStorageClass": Field("TransitionToPrimaryStorageClass", TEXT),
    }
)


def _create_file_system(call: Call) -> str:
    return call.cloud.efs.create_file_system(**call.api(*_AT_CREATION), Tags=call.tags)["FileSystemId"]


def _complete_file_system(call: Call) -> None:
    _await_available(call)
    if call.inputs.get("lifecyclePolicies"):
        _put_lifecycle(call)


def _put_lifecycle(call: Call) -> None:
    policies = call.api("lifecyclePolicies").get("LifecyclePolicies", [])
    call.cloud.efs.put_lifecycle_configuration(FileSystemId=call.id, LifecyclePolicies=policies)


def _read_file_system(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = only(cloud.efs.describe_file_systems(FileSystemId=identifier)["FileSystems"])
    if seen is None or seen["LifeCycleState"] == "deleted":
        return None
    lifecycle = cloud.efs.describe_lifecycle_configuration(FileSystemId=identifier)
    return seen | {
        "LifecyclePolicies": lifecycle["LifecyclePolicies"],
        "DnsName": f"{identifier}.efs.{cloud.region}.amazonaws.com",
    }


def _update_file_system(call: Call, changed: frozenset[str]) -> None:
    if changed & {"throughputMode", "provisionedThroughputInMibps"}:
        wanted = call.api("throughputMode", "provisionedThroughputInMibps")
        call.cloud.efs.update_file_system(FileSystemId=call.id, **wanted)
        _await_available(call)
    if "lifecyclePolicies" in changed:
        _put_lifecycle(call)
    _retag(call)


def _delete_file_system(call: Call) -> None:
    call.cloud.efs.delete_file_system(FileSystemId=call.id)
    await_gone(call)


FILE_SYSTEM = ResourceType(
    name="aws:efs/fileSystem:FileSystem",
    properties={
        "creationToken": replaces("CreationToken"),
        "performanceMode": replaces("PerformanceMode", from_cloud=True),
        "encrypted": replaces("Encrypted", FLAG, from_cloud=True),
        "kmsKeyId": replaces("KmsKeyId", from_cloud=True),
        "availabilityZoneName": replaces("AvailabilityZoneName", from_cloud=True),
        "throughputMode": updates("ThroughputMode", default="bursting"),
        "provisionedThroughputInMibps": updates("ProvisionedThroughputInMibps", FRACTION),
        "lifecyclePolicies": updates("LifecyclePolicies", Many(_LIFECYCLE)),
        "arn": computed("FileSystemArn"),
        "dnsName": computed("DnsName"),
        "ownerId": computed("OwnerId"),
        **TAG_PROPERTIES,
    },
    create=_create_file_system,
    complete=_complete_file_system,
    read=_read_file_system,
    update=_update_file_system,
    delete=_delete_file_system,
    autoname=Autoname("creationToken", 64),
)


# --- mount target ----------------------------------------------------------------------------
def _create_target(call: Call) -> str:
    wanted = call.api("fileSystemId", "subnetId", "ipAddress", "securityGroups")
    make = partial(call.cloud.efs.create_mount_target, **wanted)
    return call.cloud.retry(call.seconds, partial(_is_leaving, call), make)["MountTargetId"]


def _is_leaving(call: Call, error: ClientError) -> bool:
    """Return whether only deleted mount targets were in the way. Some are gone before this looks (T44)."""
    if code_of(error) != "MountTargetConflict":
        return False
    system, subnet = call.inputs["fileSystemId"], call.inputs["subnetId"]
    [place] = call.cloud.ec2.describe_subnets(SubnetIds=[subnet])["Subnets"]
    found = call.cloud.efs.describe_mount_targets(FileSystemId=system)["MountTargets"]
    return all(
        one["LifeCycleState"] in ("deleting", "deleted")
        for one in found
        if one["VpcId"] != place["VpcId"] or one["AvailabilityZoneName"] == place["AvailabilityZone"]
    )


def _read_target(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = only(cloud.efs.describe_mount_targets(MountTargetId=identifier)["MountTargets"])
    if seen is None or seen["LifeCycleState"] == "deleted":
        return None
    groups: Values = cloud.efs.describe_mount_target_security_groups(MountTargetId=identifier)
    file_system, zone = seen["FileSystemId"], seen.get("AvailabilityZoneName")
    dns_name = f"{file_system}.efs.{cloud.region}.amazonaws.com"
    return seen | {
        "SecurityGroups": groups["SecurityGroups"],
        "DnsName": dns_name,
        "MountTargetDnsName": f"{zone}.{dns_name}" if zone else None,
    }


def _update_target(call: Call, changed: frozenset[str]) -> None:
    if "securityGroups" in changed:
        groups: list[str] = call.inputs.get("securityGroups") or []
        call.cloud.efs.modify_mount_target_security_groups(MountTargetId=call.id, SecurityGroups=groups)


def _delete_target(call: Call) -> None:
    call.cloud.efs.delete_mount_target(MountTargetId=call.id)
    await_gone(call)


MOUNT_TARGET = ResourceType(
    name="aws:efs/mountTarget:MountTarget",
    properties={
        "fileSystemId": replaces("FileSystemId"),
        "subnetId": replaces("SubnetId"),
        "ipAddress": replaces("IpAddress", from_cloud=True),
        "securityGroups": updates("SecurityGroups", TEXTS, from_cloud=True),
        "dnsName": computed("DnsName"),
        "mountTargetDnsName": computed("MountTargetDnsName"),
        "networkInterfaceId": computed("NetworkInterfaceId"),
        "availabilityZoneName": computed("AvailabilityZoneName"),
    },
    create=_create_target,
    complete=_await_available,
    read=_read_target,
    update=_update_target,
    delete=_delete_target,
    delete_first=True,  # one for each zone (T44)
    create_minutes=30,
    delete_minutes=10,
)


# --- access point ----------------------------------------------------------------------------
_USER = Record(
    {
        "uid": Field("Uid", NUMBER),
        "gid": Field("Gid", NUMBER),
        "secondaryGids": Field("SecondaryGids", Many(NUMBER)),
    }
)
_CREATION = Record(
    {
        "ownerUid": Field("OwnerUid", NUMBER),
        "ownerGid": Field("OwnerGid", NUMBER),
        "permissions": Field("Permissions", TEXT),
    }
)
_ROOT = Record({"path": Field("Path", TEXT, default="/"), "creationInfo": Field("CreationInfo", _CREATION)})


def _create_access_point(call: Call) -> str:
    wanted: dict[str, Any] = call.api("fileSystemId", "posixUser", "rootDirectory")
    token = hashlib.sha256(repr(sorted(call.inputs.items())).encode()).hexdigest()
    return call.cloud.efs.create_access_point(ClientToken=token, **wanted, Tags=call.tags)["AccessPointId"]


def _read_access_point(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = only(cloud.efs.describe_access_points(AccessPointId=identifier)["AccessPoints"])
    return None if seen is None or seen["LifeCycleState"] == "deleted" else seen


def _delete_access_point(call: Call) -> None:
    call.cloud.efs.delete_access_point(AccessPointId=call.id)
    await_gone(call)


ACCESS_POINT = ResourceType(
    name="aws:efs/accessPoint:AccessPoint",
    properties={
        "fileSystemId": replaces("FileSystemId"),
        "posixUser": replaces("PosixUser", _USER),
        "rootDirectory": replaces("RootDirectory", _ROOT, from_cloud=True),
        "arn": computed("AccessPointArn"),
        "ownerId": computed("OwnerId"),
        **TAG_PROPERTIES,
    },
    create=_create_access_point,
    complete=_await_available,
    read=_read_access_point,
    update=lambda call, _: _retag(call),
    delete=_delete_access_point,
)


# --- file system policy ----------------------------------------------------------------------
def _put_policy(call: Call) -> str:
    wanted: dict[str, Any] = call.api("fileSystemId", "policy", "bypassPolicyLockoutSafetyCheck")
    return call.cloud.efs.put_file_system_policy(**wanted)["FileSystemId"]


def _update_policy(call: Call, _: frozenset[str]) -> None:
    _put_policy(call)


def _read_policy(cloud: Cloud, identifier: str, _: Values) -> Seen:
    try:
        found = cloud.efs.describe_file_system_policy(FileSystemId=identifier)
    except ClientError as error:
        if code_of(error) not in ("PolicyNotFound", "FileSystemNotFound"):
            raise
        return None
    return {"FileSystemId": identifier, "Policy": found["Policy"]}


FILE_SYSTEM_POLICY = ResourceType(
    name="aws:efs/fileSystemPolicy:FileSystemPolicy",
    properties={
        "fileSystemId": replaces("FileSystemId"),
        "policy": updates("Policy", DOCUMENT),
        "bypassPolicyLockoutSafetyCheck": updates("BypassPolicyLockoutSafetyCheck", FLAG),
    },
    create=_put_policy,
    read=_read_policy,
    update=_update_policy,
    delete=lambda call: call.cloud.efs.delete_file_system_policy(FileSystemId=call.id),
)

ROWS = (FILE_SYSTEM, FILE_SYSTEM_POLICY, MOUNT_TARGET, ACCESS_POINT)
