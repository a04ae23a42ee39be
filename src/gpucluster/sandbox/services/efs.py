"""EFS in its own words (T44)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from gpucluster.cloud.model import CloudModel, Refusal
from gpucluster.cloud.model.efs import AccessPoint, FileSystem, Target
from gpucluster.sandbox.backends import ACCOUNT, Moto
from gpucluster.sandbox.ec2 import views
from gpucluster.sandbox.services.shapes import Call, Calls

Result = dict[str, Any]
_KEPT = ("PerformanceMode", "Encrypted", "KmsKeyId", "ThroughputMode", "ProvisionedThroughputInMibps",
         "AvailabilityZoneName")  # fmt: skip
_SIZE = {"Value": 6144, "ValueInIA": 0, "ValueInStandard": 6144}  # of an empty one


def calls(model: CloudModel, moto: Moto) -> Calls:
    """The calls of this module by name."""
    here = _Efs(model, moto)
    return {
        "CreateFileSystem": here.create,
        "DescribeFileSystems": here.describe,
        "UpdateFileSystem": here.update,
        "UpdateFileSystemProtection": here.protect,
        "DeleteFileSystem": here.delete,
        "PutLifecycleConfiguration": here.put_lifecycle,
        "DescribeLifecycleConfiguration": here.lifecycle,
        "PutFileSystemPolicy": here.put_policy,
        "DescribeFileSystemPolicy": here.policy,
        "DeleteFileSystemPolicy": here.delete_policy,
        "PutBackupPolicy": here.put_backup,
        "DescribeBackupPolicy": here.backup,
        "CreateMountTarget": here.mount,
        "DescribeMountTargets": here.targets,
        "DescribeMountTargetSecurityGroups": here.groups,
        "ModifyMountTargetSecurityGroups": here.regroup,
        "DeleteMountTarget": here.unmount,
        "CreateAccessPoint": here.open,
        "DescribeAccessPoints": here.points,
        "DeleteAccessPoint": here.close,
        "TagResource": here.tag,
        "UntagResource": here.untag,
        "ListTagsForResource": here.tags,
    }


class _Efs:
    def __init__(self, model: CloudModel, moto: Moto) -> None:
        self._model, self._moto, self._efs = model, moto, model.efs

    # --- file systems -----------------------------------------------------------------------------

    def create(self, call: Call) -> Result:
        asked = call.asked
        zone = asked.get("AvailabilityZoneName")
        if zone is not None and zone not in self._moto.zones():
            raise Refusal("UnsupportedAvailabilityZone", f"There is no Availability Zone {zone}.")
        options = {"PerformanceMode": "generalPurpose", "ThroughputMode": "bursting", "Encrypted": False}
        options |= {k: asked[k] for k in _KEPT if k in asked}
        _check_throughput(options)
        made = self._efs.create(str(asked["CreationToken"]), options, _tags(asked), call.now)
        return self._system(made, call.now)

    def describe(self, call: Call) -> Result:
        found = self._efs.systems(call.asked.get("FileSystemId"), call.asked.get("CreationToken"))
        return {"FileSystems": [self._system(s, call.now) for s in found]}

    def update(self, call: Call) -> Result:
        system = self._efs.system(str(call.asked["FileSystemId"]))
        named = ("ThroughputMode", "ProvisionedThroughputInMibps")
        options = {**system.options, **{k: call.asked[k] for k in named if k in call.asked}}
        if options["ThroughputMode"] != "provisioned":
            options.pop("ProvisionedThroughputInMibps", None)
        _check_throughput(options)
        return self._system(self._efs.put(replace(system, options=options)), call.now)

    def protect(self, call: Call) -> Result:
        system = self._efs.system(str(call.asked["FileSystemId"]))
        word = str(call.asked.get("ReplicationOverwriteProtection") or system.protection)
        self._efs.put(replace(system, protection=word))
        return {"ReplicationOverwriteProtection": word}

    def delete(self, call: Call) -> Result:
        self._efs.remove(str(call.asked["FileSystemId"]), call.now)
        return {}

    def put_lifecycle(self, call: Call) -> Result:
        system = self._efs.system(str(call.asked["FileSystemId"]))
        self._efs.put(replace(system, lifecycle=tuple(call.asked["LifecyclePolicies"])))
        return {"LifecyclePolicies": call.asked["LifecyclePolicies"]}

    def lifecycle(self, call: Call) -> Result:
        return {"LifecyclePolicies": list(self._efs.system(str(call.asked["FileSystemId"])).lifecycle)}

    def put_policy(self, call: Call) -> Result:
        system = self._efs.system(str(call.asked["FileSystemId"]))
        self._efs.put(replace(system, policy=str(call.asked["Policy"])))
        return self.policy(call)

    def policy(self, call: Call) -> Result:
        system = self._efs.system(str(call.asked["FileSystemId"]))
        if system.policy is None:
            raise Refusal("PolicyNotFound", f"{system.id} has no policy.", status=404)
        return {"FileSystemId": system.id, "Policy": system.policy}

    def delete_policy(self, call: Call) -> Result:
        self._efs.put(replace(self._efs.system(str(call.asked["FileSystemId"])), policy=None))
        return {}

    def put_backup(self, call: Call) -> Result:
        system = self._efs.system(str(call.asked["FileSystemId"]))
        word = str(call.asked["BackupPolicy"]["Status"])
        self._efs.put(replace(system, backup=word))
        return {"BackupPolicy": {"Status": word}}

    def backup(self, call: Call) -> Result:
        return {"BackupPolicy": {"Status": self._efs.system(str(call.asked["FileSystemId"])).backup}}

    # --- mount targets ----------------------------------------------------------------------------

    def mount(self, call: Call) -> Result:
        asked = call.asked
        try:
            subnet = self._moto.subnet(str(asked["SubnetId"]))
        except Refusal as refusal:
            raise Refusal("SubnetNotFound", refusal.message) from refusal
        groups = cast(Sequence[str], asked.get("SecurityGroups") or ())
        default = self._moto.default_group(subnet.vpc)  # where none is named
        self._check_groups(groups, subnet.vpc)
        made = self._efs.mount(
            str(asked["FileSystemId"]),
            subnet,
            asked.get("IpAddress"),
            groups or (() if default is None else (default,)),
            call.now,
        )
        return _target(made, call.now)

    def targets(self, call: Call) -> Result:
        asked = call.asked
        if asked.get("MountTargetId"):
            found: Iterable[Target] = (self._efs.target(str(asked["MountTargetId"]), call.now),)
        elif asked.get("FileSystemId"):
            found = self._efs.targets(call.now, system=self._efs.system(str(asked["FileSystemId"])).id)
        elif asked.get("AccessPointId"):
            found = self._efs.targets(call.now, system=self._efs.point(str(asked["AccessPointId"])).system)
        else:
            raise Refusal("BadRequest", "One of FileSystemId, MountTargetId, AccessPointId must be given.")
        return {"MountTargets": [_target(t, call.now) for t in found]}

    def groups(self, call: Call) -> Result:
        return {"SecurityGroups": list(self._efs.target(str(call.asked["MountTargetId"]), call.now).groups)}

    def regroup(self, call: Call) -> Result:
        target = self._efs.target(str(call.asked["MountTargetId"]), call.now)
        groups = cast(Sequence[str], call.asked.get("SecurityGroups") or ())
        self._check_groups(groups, target.subnet.vpc)
        self._efs.regroup(target.id, groups, call.now)
        return {}

    def unmount(self, call: Call) -> Result:
        self._efs.unmount(str(call.asked["MountTargetId"]), call.now)
        return {}

    def _check_groups(self, groups: Sequence[str], vpc: str) -> None:
        known = self._moto.groups()
        for one in groups:
            if one not in known or known[one].vpc != vpc:
                raise Refusal("SecurityGroupNotFound", f"The security group '{one}' does not exist in {vpc}.")

    # --- access points ----------------------------------------------------------------------------

    def open(self, call: Call) -> Result:
        options = {k: call.asked[k] for k in ("PosixUser", "RootDirectory") if k in call.asked}
        made = self._efs.open(
            str(call.asked["FileSystemId"]),
            str(call.asked["ClientToken"]),
            options,
            _tags(call.asked),
            call.now,
        )
        return self._point(made)

    def points(self, call: Call) -> Result:
        if call.asked.get("AccessPointId"):
            return {"AccessPoints": [self._point(self._efs.point(str(call.asked["AccessPointId"])))]}
        return {"AccessPoints": [self._point(p) for p in self._efs.points(call.asked.get("FileSystemId"))]}

    def close(self, call: Call) -> Result:
        self._efs.close(str(call.asked["AccessPointId"]))
        return {}

    # --- tags -------------------------------------------------------------------------------------

    def tag(self, call: Call) -> Result:
        self._retag(str(call.asked["ResourceId"]), _tags(call.asked), ())
        return {}

    def untag(self, call: Call) -> Result:
        self._retag(str(call.asked["ResourceId"]), {}, cast(Sequence[str], call.asked["TagKeys"]))
        return {}

    def tags(self, call: Call) -> Result:
        return {"Tags": views.tag_list(self._tagged(str(call.asked["ResourceId"])).tags)}

    def _tagged(self, resource: str) -> FileSystem | AccessPoint:
        name = resource.rpartition("/")[2]
        return self._efs.point(name) if name.startswith("fsap-") else self._efs.system(name)

    def _retag(self, resource: str, tags: Mapping[str, str], gone: Iterable[str]) -> None:
        found = self._tagged(resource)
        left = {k: v for k, v in found.tags.items() if k not in set(gone)} | dict(tags)
        if isinstance(found, AccessPoint):
            self._efs.put_point(replace(found, tags=left))
        else:
            self._efs.put(replace(found, tags=left))

    # --- shapes -----------------------------------------------------------------------------------

    def _arn(self, kind: str, name: str) -> str:
        return f"arn:aws:elasticfilesystem:{self._model.region}:{ACCOUNT}:{kind}/{name}"

    def _system(self, one: FileSystem, now: float) -> Result:
        return {
            "FileSystemId": one.id,
            "FileSystemArn": self._arn("file-system", one.id),
            "OwnerId": ACCOUNT,
            "CreationToken": one.token,
            "CreationTime": views.when(one.created_at),
            "LifeCycleState": one.state(now),
            "NumberOfMountTargets": len(self._efs.targets(now, system=one.id)),
            "SizeInBytes": _SIZE,
            **one.options,
            "Name": one.tags.get("Name"),
            "Tags": views.tag_list(one.tags),
            "FileSystemProtection": {"ReplicationOverwriteProtection": one.protection},
        }

    def _point(self, one: AccessPoint) -> Result:
        return {
            "AccessPointId": one.id,
            "AccessPointArn": self._arn("access-point", one.id),
            "FileSystemId": one.system,
            "ClientToken": one.token,
            "OwnerId": ACCOUNT,
            "LifeCycleState": "available",
            "RootDirectory": {"Path": "/"},
            **one.options,
            "Name": one.tags.get("Name"),
            "Tags": views.tag_list(one.tags),
        }


def _target(one: Target, now: float) -> Result:
    return {
        "MountTargetId": one.id,
        "FileSystemId": one.system,
        "OwnerId": ACCOUNT,
        "SubnetId": one.subnet.id,
        "VpcId": one.subnet.vpc,
        "AvailabilityZoneName": one.subnet.zone,
        "IpAddress": one.address,
        "NetworkInterfaceId": one.interface,
        "LifeCycleState": one.state(now),
    }


def _check_throughput(options: Mapping[str, Any]) -> None:
    provisioned = options["ThroughputMode"] == "provisioned"
    if provisioned != ("ProvisionedThroughputInMibps" in options):
        raise Refusal(
            "BadRequest", "ProvisionedThroughputInMibps goes with the throughput mode `provisioned`."
        )


def _tags(asked: Mapping[str, Any]) -> dict[str, str]:
    return {str(t["Key"]): str(t["Value"]) for t in asked.get("Tags") or ()}
