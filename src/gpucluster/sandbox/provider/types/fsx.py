"""FSx for Lustre file systems, and data repository associations with S3."""

import hashlib
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from gpucluster.engine.aws_account import code_of
from gpucluster.engine.values import UNKNOWN, Value, Values
from gpucluster.sandbox.provider.calls import await_gone, await_state
from gpucluster.sandbox.provider.cloud import Cloud, only
from gpucluster.sandbox.provider.schema import (
    TAG_PROPERTIES,
    Call,
    Property,
    ResourceType,
    computed,
    replaces,
    updates,
)
from gpucluster.sandbox.provider.shapes import FLAG, NUMBER, TEXT, TEXTS, Field, Many, One, Record

Seen = Mapping[str, Value] | None

_YOUNG_RULES_S = 60.0  # new security group rules may not be visible yet (T45)
_BAD = frozenset({"FAILED", "MISCONFIGURED", "MISCONFIGURED_UNAVAILABLE", "DELETING"})


def _retag(call: Call, seen: Seen) -> None:
    arn = (seen or {}).get("ResourceARN")
    gone = call.lost_tags()
    if gone:
        call.cloud.fsx.untag_resource(ResourceARN=arn, TagKeys=gone)
    if call.tags:
        call.cloud.fsx.tag_resource(ResourceARN=arn, Tags=call.tags)


def _token(call: Call) -> str:
    """Return an idempotency token: a repeated request must not create a second file system."""
    return hashlib.sha256(repr(sorted(call.inputs.items())).encode()).hexdigest()[:63]


# --- file system -----------------------------------------------------------------------------
def _shrinks(olds: Values, news: Values) -> bool:
    """Check the capacity: it can only grow, and SCRATCH_1 cannot change (T45)."""
    if news.get("deploymentType") == "SCRATCH_1":
        return True
    return _less(news.get("storageCapacity"), olds.get("storageCapacity"))


def _fewer_operations(olds: Values, news: Values) -> bool:
    want, had = news.get("metadataConfiguration"), olds.get("metadataConfiguration")
    if not isinstance(want, dict) or not isinstance(had, dict):
        return False
    return _less(want.get("iops"), had.get("iops"))  # pyright: ignore[reportUnknownMemberType]


def _less(new: Value, old: Value) -> bool:
    if new is UNKNOWN or old is UNKNOWN:
        return False
    return new is not None and old is not None and new < old


_LOG = Record(
    {
        "level": Field("Level", TEXT, default="WARN_ERROR"),
        "destination": Field("Destination", TEXT, from_cloud=True),
    }
)
_SQUASH = Record({"rootSquash": Field("RootSquash", TEXT), "noSquashNids": Field("NoSquashNids", Many(TEXT))})
_METADATA = Record(
    {"mode": Field("Mode", TEXT, default="AUTOMATIC"), "iops": Field("Iops", NUMBER, from_cloud=True)}
)
_TOP: Mapping[str, Property] = {
    "storageCapacity": updates("StorageCapacity", NUMBER, anew_when=_shrinks),
    "storageType": replaces("StorageType", default="SSD"),
    "subnetIds": replaces("SubnetIds", One(TEXT)),
    "kmsKeyId": replaces("KmsKeyId", from_cloud=True),
    "fileSystemTypeVersion": replaces("FileSystemTypeVersion", from_cloud=True),
}
_LUSTRE: Mapping[str, Property] = {
    "deploymentType": replaces("DeploymentType", default="SCRATCH_1"),
    "copyTagsToBackups": replaces("CopyTagsToBackups", FLAG, from_cloud=True),
    "driveCacheType": replaces("DriveCacheType"),
    "efaEnabled": replaces("EfaEnabled", FLAG, from_cloud=True),
    "importPath": replaces("ImportPath"),
    "exportPath": replaces("ExportPath", from_cloud=True),
    "importedFileChunkSize": replaces("ImportedFileChunkSize", NUMBER, from_cloud=True),
    "perUnitStorageThroughput": updates("PerUnitStorageThroughput", NUMBER),
    "autoImportPolicy": updates("AutoImportPolicy", from_cloud=True),
    "automaticBackupRetentionDays": updates("AutomaticBackupRetentionDays", NUMBER, from_cloud=True),
    "dailyAutomaticBackupStartTime": updates("DailyAutomaticBackupStartTime", from_cloud=True),
    "dataCompressionType": updates("DataCompressionType", default="NONE"),
    "logConfiguration": updates("LogConfiguration", _LOG, from_cloud=True),
    "rootSquashConfiguration": updates("RootSquashConfiguration", _SQUASH),
    "metadataConfiguration": updates(
        "MetadataConfiguration", _METADATA, from_cloud=True, anew_when=_fewer_operations
    ),
    "weeklyMaintenanceStartTime": updates("WeeklyMaintenanceStartTime", from_cloud=True),
}


def _create_lustre(call: Call) -> str:
    arguments = {
        **call.api(*_TOP),
        "FileSystemType": "LUSTRE",
        "ClientRequestToken": _token(call),
        "LustreConfiguration": call.api(*_LUSTRE),
        "SecurityGroupIds": call.inputs.get("securityGroupIds") or [],
        "Tags": call.tags,
    }
    answer = call.cloud.retry(
        min(call.seconds, _YOUNG_RULES_S),
        _young_rules,
        lambda: call.cloud.fsx.create_file_system(**arguments),
    )
    return answer["FileSystem"]["FileSystemId"]


def _young_rules(error: ClientError) -> bool:
    return code_of(error) == "InvalidNetworkSettings"


def _complete_lustre(call: Call) -> None:
    await_state(call, lambda: _lifecycle(_describe(call.cloud, call.id)), "AVAILABLE", _BAD)


def _describe(cloud: Cloud, identifier: str) -> dict[str, Any] | None:
    return only(cloud.fsx.describe_file_systems(FileSystemIds=[identifier])["FileSystems"])


def _lifecycle(seen: Mapping[str, Any] | None) -> tuple[str, str]:
    found = seen or {}
    return found.get("Lifecycle", "unknown"), found.get("FailureDetails", {}).get("Message", "")


def _read_lustre(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = _describe(cloud, identifier)
    if seen is None:
        return None
    lustre = seen.get("LustreConfiguration", {})
    repository = lustre.get("DataRepositoryConfiguration", {})
    return {**repository, **lustre, **seen}


def _update_lustre(call: Call, changed: frozenset[str]) -> None:
    asked: dict[str, Any] = {}
    if "storageCapacity" in changed:
        asked |= call.api("storageCapacity")
    lustre = call.api(*(name for name in _LUSTRE if name in changed)) if changed & _LUSTRE.keys() else {}
    if "rootSquashConfiguration" in changed:
        lustre.setdefault("RootSquashConfiguration", {})  # an empty value removes it
    if lustre:
        asked["LustreConfiguration"] = lustre
    if asked:
        call.cloud.fsx.update_file_system(FileSystemId=call.id, **asked)
        call.cloud.wait(f"{call.id} changed", call.seconds, lambda: _is_done(call))
    _retag(call, _describe(call.cloud, call.id))


def _is_done(call: Call) -> bool:
    """Grow the file system. It stays usable, so background optimisation is not awaited."""
    seen = _describe(call.cloud, call.id) or {}
    every: list[dict[str, Any]] = seen.get("AdministrativeActions", [])
    mine = [a for a in every if a.get("AdministrativeActionType") == "FILE_SYSTEM_UPDATE"]
    failed = only([a for a in mine[:1] if a.get("Status") == "FAILED"])
    if failed:
        raise RuntimeError(
            f"{call.id}: {failed.get('FailureDetails', {}).get('Message', 'the change failed')}"
        )
    under_way = any(a.get("Status") in ("PENDING", "IN_PROGRESS") for a in mine)
    return not under_way and seen.get("Lifecycle") == "AVAILABLE"


def _delete_lustre(call: Call) -> None:
    """Skip backup settings for scratch file systems: AWS rejects them."""
    how: dict[str, Any] = {}
    if str(call.inputs.get("deploymentType", "")).startswith("PERSISTENT"):
        how = {"LustreConfiguration": {"SkipFinalBackup": bool(call.inputs.get("skipFinalBackup", True))}}
    call.cloud.fsx.delete_file_system(FileSystemId=call.id, **how)
    await_gone(call)


LUSTRE = ResourceType(
    name="aws:fsx/lustreFileSystem:LustreFileSystem",
    properties={
        **_TOP,
        **_LUSTRE,
        "securityGroupIds": replaces(None, TEXTS),  # no API call returns them
        "skipFinalBackup": updates(None, FLAG, default=True),
        "arn": computed("ResourceARN"),
        "dnsName": computed("DNSName"),
        "mountName": computed("MountName"),
        "networkInterfaceIds": computed("NetworkInterfaceIds", TEXTS),
        "ownerId": computed("OwnerId"),
        "vpcId": computed("VpcId"),
        **TAG_PROPERTIES,
    },
    create=_create_lustre,
    complete=_complete_lustre,
    read=_read_lustre,
    update=_update_lustre,
    delete=_delete_lustre,
    create_minutes=30,
    update_minutes=30,
    delete_minutes=30,
)


# --- association -----------------------------------------------------------------------------
_EVENTS = Record({"events": Field("Events", TEXTS)})
_S3 = Record(
    {
        "autoImportPolicy": Field("AutoImportPolicy", _EVENTS),
        "autoExportPolicy": Field("AutoExportPolicy", _EVENTS),
    }
)
_LINK = (
    "fileSystemId",
    "fileSystemPath",
    "dataRepositoryPath",
    "batchImportMetaDataOnCreate",
    "importedFileChunkSize",
    "s3",
)


def _link(call: Call) -> str:
    answer = call.cloud.fsx.create_data_repository_association(
        **call.api(*_LINK), ClientRequestToken=_token(call), Tags=call.tags
    )
    return answer["Association"]["AssociationId"]


def _complete_link(call: Call) -> None:
    await_state(call, lambda: _lifecycle(_read_link(call.cloud, call.id, {})), "AVAILABLE", _BAD)


def _read_link(cloud: Cloud, identifier: str, _: Values) -> Seen:
    answer = cloud.fsx.describe_data_repository_associations(AssociationIds=[identifier])
    return only(answer["Associations"])


def _update_link(call: Call, changed: frozenset[str]) -> None:
    asked: dict[str, Any] = call.api("importedFileChunkSize") if "importedFileChunkSize" in changed else {}
    if "s3" in changed:
        none: dict[str, Any] = {"Events": []}
        asked["S3"] = {"AutoImportPolicy": none, "AutoExportPolicy": none, **call.api("s3").get("S3", {})}
    if asked:
        call.cloud.fsx.update_data_repository_association(AssociationId=call.id, **asked)
        _complete_link(call)
    _retag(call, _read_link(call.cloud, call.id, {}))


def _unlink(call: Call) -> None:
    """Delete the association. Data stays in the file system unless requested; S3 is never changed."""
    call.cloud.fsx.delete_data_repository_association(
        AssociationId=call.id,
        DeleteDataInFileSystem=bool(call.inputs.get("deleteDataInFilesystem")),
    )
    await_gone(call)


DATA_REPOSITORY_ASSOCIATION = ResourceType(
    name="aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
    properties={
        "fileSystemId": replaces("FileSystemId"),
        "fileSystemPath": replaces("FileSystemPath"),
        "dataRepositoryPath": replaces("DataRepositoryPath"),
        "batchImportMetaDataOnCreate": replaces("BatchImportMetaDataOnCreate", FLAG, from_cloud=True),
        "importedFileChunkSize": updates("ImportedFileChunkSize", NUMBER, from_cloud=True),
        "deleteDataInFilesystem": updates(None, FLAG),
        "s3": updates("S3", _S3, from_cloud=True),
        "arn": computed("ResourceARN"),
        "associationId": computed("AssociationId"),
        **TAG_PROPERTIES,
    },
    create=_link,
    complete=_complete_link,
    read=_read_link,
    update=_update_link,
    delete=_unlink,
)

ROWS = (LUSTRE, DATA_REPOSITORY_ASSOCIATION)
