"""The calls of EFS (T44)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from gpucluster.sandbox.aws import shapes
from gpucluster.sandbox.aws.ec2 import views
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.efs.state import AccessPoint, FileSystem, Target
from gpucluster.sandbox.aws.iam import policies
from gpucluster.sandbox.aws.iam.policies import Need
from gpucluster.sandbox.aws.kms import keys
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.rights import ApiRequest, linked_role, need, request_tags, resource_tags
from gpucluster.sandbox.aws.shapes import Calls, ServiceCall

Result = dict[str, Any]
_KEPT = ("PerformanceMode", "Encrypted", "KmsKeyId", "ThroughputMode", "ProvisionedThroughputInMibps",
         "AvailabilityZoneName")  # fmt: skip
_SIZE = {"Value": 6144, "ValueInIA": 0, "ValueInStandard": 6144}  # size of an empty file system


def calls(model: CloudModel, moto: Moto) -> Calls:
    """Calls of this module by operation name."""
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


def rights(request: ApiRequest, model: CloudModel, moto: Moto, now: float) -> Iterable[Need]:
    """The action on the file system or access point, tags at creation, and what EFS does with the caller's rights in EC2."""
    asked = shapes.parameters(request.service, request.operation, request.target, request.body)
    base = f"arn:aws:elasticfilesystem:{request.region}:{ACCOUNT}"
    requested = request_tags(_tags(asked))
    if request.operation == "CreateFileSystem":
        yield need(request, "*", requested)
        yield from linked_role("elasticfilesystem.amazonaws.com", "AWSServiceRoleForAmazonElasticFileSystem")
        yield from keys.system_needs("elasticfilesystem", asked.get("Encrypted"), asked.get("KmsKeyId"), moto)
    else:
        arn, tags = _named(asked, base, model, now)
        yield need(request, arn, {**resource_tags(tags), **requested})
    kind = {"CreateFileSystem": "file-system", "CreateAccessPoint": "access-point"}.get(request.operation)
    if kind is not None and requested:
        created = {**requested, "elasticfilesystem:createaction": (request.operation,)}
        yield need(replace(request, operation="TagResource"), f"{base}:{kind}/*", created)
    yield from _in_ec2(request, asked, moto)


def _named(
    asked: Mapping[str, Any], base: str, model: CloudModel, now: float
) -> tuple[str, Mapping[str, str]]:
    name = str(asked.get("ResourceId") or asked.get("AccessPointId") or asked.get("FileSystemId") or "")
    if "MountTargetId" in asked:
        name = model.efs.target(str(asked["MountTargetId"]), now).system
    if not name:
        return "*", {}
    if name.startswith("fsap-"):
        point = next((p for p in model.efs.points() if p.id == name), None)
        return f"{base}:access-point/{name}", {} if point is None else point.tags
    found = next((s for s in model.efs.systems() if s.id == name), None)
    return f"{base}:file-system/{name}", {} if found is None else found.tags


def _in_ec2(request: ApiRequest, asked: Mapping[str, Any], moto: Moto) -> Iterable[Need]:
    """EFS makes, changes and deletes the interface of a mount target with the rights of the caller (API reference of EFS)."""
    base = f"arn:aws:ec2:{request.region}:{ACCOUNT}"
    calls = {
        "CreateMountTarget": "ec2:CreateNetworkInterface",
        "DeleteMountTarget": "ec2:DeleteNetworkInterface",
        "ModifyMountTargetSecurityGroups": "ec2:ModifyNetworkInterfaceAttribute",
    }
    action = calls.get(request.operation)
    if action is None:
        return
    yield Need(action=action, resource=f"{base}:network-interface/*")
    for group in asked.get("SecurityGroups", ()):
        tags = resource_tags(moto.tags(group))
        yield Need(action=action, resource=f"{base}:security-group/{group}", context=tags)
    if request.operation == "CreateMountTarget":
        subnet = str(asked["SubnetId"])
        arn = f"arn:aws:ec2:{request.region}:{moto.owner_of(subnet)}:subnet/{subnet}"
        yield Need(action=action, resource=arn, context=resource_tags(moto.tags(subnet)))
        yield Need(action="ec2:DescribeSubnets", resource="*")
        yield Need(action="ec2:DescribeNetworkInterfaces", resource="*")


class _Efs:
    def __init__(self, model: CloudModel, moto: Moto) -> None:
        self._model, self._moto, self._efs = model, moto, model.efs

    # --- file systems -----------------------------------------------------------------------------

    def create(self, call: ServiceCall) -> Result:
        asked = call.asked
        zone = asked.get("AvailabilityZoneName")
        if zone is not None and zone not in self._moto.zones():
            raise Refusal("UnsupportedAvailabilityZone", f"There is no Availability Zone {zone}.")
        options = {"PerformanceMode": "generalPurpose", "ThroughputMode": "bursting", "Encrypted": False}
        options |= {k: asked[k] for k in _KEPT if k in asked}
        _check_throughput(options)
        made = self._efs.create(str(asked["CreationToken"]), options, _tags(asked), call.now)
        return self._system(made, call.now)

    def describe(self, call: ServiceCall) -> Result:
        found = self._efs.systems(call.asked.get("FileSystemId"), call.asked.get("CreationToken"))
        return {"FileSystems": [self._system(s, call.now) for s in found]}

    def update(self, call: ServiceCall) -> Result:
        system = self._efs.system(str(call.asked["FileSystemId"]))
        named = ("ThroughputMode", "ProvisionedThroughputInMibps")
        options = {**system.options, **{k: call.asked[k] for k in named if k in call.asked}}
        if options["ThroughputMode"] != "provisioned":
            options.pop("ProvisionedThroughputInMibps", None)
        _check_throughput(options)
        return self._system(self._efs.put(replace(system, options=options)), call.now)

    def protect(self, call: ServiceCall) -> Result:
        system = self._efs.system(str(call.asked["FileSystemId"]))
        word = str(call.asked.get("ReplicationOverwriteProtection") or system.protection)
        self._efs.put(replace(system, protection=word))
        return {"ReplicationOverwriteProtection": word}

    def delete(self, call: ServiceCall) -> Result:
        self._efs.remove(str(call.asked["FileSystemId"]), call.now)
        return {}

    def put_lifecycle(self, call: ServiceCall) -> Result:
        system = self._efs.system(str(call.asked["FileSystemId"]))
        self._efs.put(replace(system, lifecycle=tuple(call.asked["LifecyclePolicies"])))
        return {"LifecyclePolicies": call.asked["LifecyclePolicies"]}

    def lifecycle(self, call: ServiceCall) -> Result:
        return {"LifecyclePolicies": list(self._efs.system(str(call.asked["FileSystemId"])).lifecycle)}

    def put_policy(self, call: ServiceCall) -> Result:
        system = self._efs.system(str(call.asked["FileSystemId"]))
        text = str(call.asked["Policy"])
        try:
            policies.check(policies.for_everyone(policies.parse(text)))
        except (ValueError, policies.UnknownPolicyPart) as part:
            raise Refusal(
                "InvalidPolicyException", f"the sandbox does not know {part} in the policy"
            ) from part
        self._efs.put(replace(system, policy=text))
        return self.policy(call)

    def policy(self, call: ServiceCall) -> Result:
        system = self._efs.system(str(call.asked["FileSystemId"]))
        if system.policy is None:
            raise Refusal("PolicyNotFound", f"{system.id} has no policy.", status=404)
        return {"FileSystemId": system.id, "Policy": system.policy}

    def delete_policy(self, call: ServiceCall) -> Result:
        self._efs.put(replace(self._efs.system(str(call.asked["FileSystemId"])), policy=None))
        return {}

    def put_backup(self, call: ServiceCall) -> Result:
        system = self._efs.system(str(call.asked["FileSystemId"]))
        word = str(call.asked["BackupPolicy"]["Status"])
        self._efs.put(replace(system, backup=word))
        return {"BackupPolicy": {"Status": word}}

    def backup(self, call: ServiceCall) -> Result:
        return {"BackupPolicy": {"Status": self._efs.system(str(call.asked["FileSystemId"])).backup}}

    # --- mount targets ----------------------------------------------------------------------------

    def mount(self, call: ServiceCall) -> Result:
        asked = call.asked
        try:
            subnet = self._moto.subnet(str(asked["SubnetId"]))
        except Refusal as refusal:
            raise Refusal("SubnetNotFound", refusal.message) from refusal
        groups = cast(Sequence[str], asked.get("SecurityGroups") or ())
        default = self._moto.default_group(subnet.vpc)  # used when the request names none
        self._check_groups(groups, subnet.vpc)
        made = self._efs.mount(
            str(asked["FileSystemId"]),
            subnet,
            asked.get("IpAddress"),
            groups or (() if default is None else (default,)),
            call.now,
        )
        return _target(made, call.now)

    def targets(self, call: ServiceCall) -> Result:
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

    def groups(self, call: ServiceCall) -> Result:
        return {"SecurityGroups": list(self._efs.target(str(call.asked["MountTargetId"]), call.now).groups)}

    def regroup(self, call: ServiceCall) -> Result:
        target = self._efs.target(str(call.asked["MountTargetId"]), call.now)
        groups = cast(Sequence[str], call.asked.get("SecurityGroups") or ())
        self._check_groups(groups, target.subnet.vpc)
        self._efs.regroup(target.id, groups, call.now)
        return {}

    def unmount(self, call: ServiceCall) -> Result:
        self._efs.unmount(str(call.asked["MountTargetId"]), call.now)
        return {}

    def _check_groups(self, groups: Sequence[str], vpc: str) -> None:
        known = self._moto.groups()
        for one in groups:
            if one not in known or known[one].vpc != vpc:
                raise Refusal("SecurityGroupNotFound", f"The security group '{one}' does not exist in {vpc}.")

    # --- access points ----------------------------------------------------------------------------

    def open(self, call: ServiceCall) -> Result:
        options = {k: call.asked[k] for k in ("PosixUser", "RootDirectory") if k in call.asked}
        made = self._efs.open(
            str(call.asked["FileSystemId"]),
            str(call.asked["ClientToken"]),
            options,
            _tags(call.asked),
            call.now,
        )
        return self._point(made)

    def points(self, call: ServiceCall) -> Result:
        if call.asked.get("AccessPointId"):
            return {"AccessPoints": [self._point(self._efs.point(str(call.asked["AccessPointId"])))]}
        return {"AccessPoints": [self._point(p) for p in self._efs.points(call.asked.get("FileSystemId"))]}

    def close(self, call: ServiceCall) -> Result:
        self._efs.close(str(call.asked["AccessPointId"]))
        return {}

    # --- tags -------------------------------------------------------------------------------------

    def tag(self, call: ServiceCall) -> Result:
        self._retag(str(call.asked["ResourceId"]), _tags(call.asked), ())
        return {}

    def untag(self, call: ServiceCall) -> Result:
        self._retag(str(call.asked["ResourceId"]), {}, cast(Sequence[str], call.asked["TagKeys"]))
        return {}

    def tags(self, call: ServiceCall) -> Result:
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
