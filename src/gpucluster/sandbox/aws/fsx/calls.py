"""The calls of FSx for Lustre (T45)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from gpucluster.plan.names import LUSTRE_PORTS
from gpucluster.sandbox.aws import shapes
from gpucluster.sandbox.aws.ec2 import views
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Refusal
from gpucluster.sandbox.aws.fsx.state import Link, Lustre, check_shape
from gpucluster.sandbox.aws.iam.policies import Need
from gpucluster.sandbox.aws.kms import keys
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.rights import ApiRequest, linked_role, need, request_tags, resource_tags
from gpucluster.sandbox.aws.shapes import Calls, ServiceCall

Result = dict[str, Any]


def calls(model: CloudModel, moto: Moto) -> Calls:
    """Calls of this module by operation name."""
    here = _Fsx(model, moto)
    return {
        "CreateFileSystem": here.create,
        "DescribeFileSystems": here.describe,
        "UpdateFileSystem": here.update,
        "DeleteFileSystem": here.delete,
        "CreateDataRepositoryAssociation": here.link,
        "DescribeDataRepositoryAssociations": here.links,
        "UpdateDataRepositoryAssociation": here.update_link,
        "DeleteDataRepositoryAssociation": here.unlink,
        "TagResource": here.tag,
        "UntagResource": here.untag,
        "ListTagsForResource": here.tags,
    }


_LINKED_SERVICE = "s3.data-source.lustre.fsx.amazonaws.com"


def rights(request: ApiRequest, model: CloudModel, moto: Moto, now: float) -> Iterable[Need]:
    """The action on the file system or association, tags at creation, and the roles that FSx creates for the caller."""
    asked = shapes.parameters(request.service, request.operation, request.target, request.body)
    base = f"arn:aws:fsx:{request.region}:{ACCOUNT}"
    tags = {str(t["Key"]): str(t["Value"]) for t in asked.get("Tags") or ()}
    requested = request_tags(tags)
    if request.operation.startswith("Describe"):
        yield need(request, "*", {})
        return
    yield from (need(request, arn, {**resource_tags(own), **requested}) for arn, own in _named(asked, base, model, now))  # fmt: skip
    if request.operation == "CreateFileSystem":
        yield need(request, f"{base}:file-system/*", requested)
        yield from linked_role("fsx.amazonaws.com", "AWSServiceRoleForAmazonFSx")
        with suppress(Refusal):  # FSx itself refuses an unknown subnet
            vpc = moto.subnet(str(next(iter(asked["SubnetIds"]), ""))).vpc
            arn = f"arn:aws:ec2:{request.region}:{moto.owner_of(vpc)}:vpc/{vpc}"
            own = resource_tags(moto.tags(vpc))
            yield Need(action="ec2:GetSecurityGroupsForVpc", resource=arn, context=own)
        yield from keys.system_needs("fsx", True, asked.get("KmsKeyId"), moto)
    if request.operation == "CreateDataRepositoryAssociation":
        yield need(request, f"{base}:association/{asked['FileSystemId']}/*", requested)
        role = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/{_LINKED_SERVICE}/AWSServiceRoleForFSxS3Access_{asked['FileSystemId']}"
        yield from linked_role(_LINKED_SERVICE, role.rpartition("/")[2])
        yield from (Need(action=f"iam:{one}", resource=role) for one in ("AttachRolePolicy", "PutRolePolicy"))
    if tags and request.operation.startswith("Create"):
        kind = "file-system/*" if request.operation == "CreateFileSystem" else "association/*/*"
        yield need(replace(request, operation="TagResource"), f"{base}:{kind}", requested)


def _named(
    asked: Mapping[str, Any], base: str, model: CloudModel, now: float
) -> Iterable[tuple[str, Mapping[str, str]]]:
    """ARN and tags of each existing resource that the request names."""
    if "ResourceARN" in asked:
        name = str(asked["ResourceARN"]).rpartition("/")[2]
        asked = {"AssociationId": name} if name.startswith("dra-") else {"FileSystemId": name}
    if "FileSystemId" in asked:
        found = next((s for s in model.fsx.systems((), now) if s.id == asked["FileSystemId"]), None)
        yield f"{base}:file-system/{asked['FileSystemId']}", {} if found is None else found.tags
    if "AssociationId" in asked:
        link = next((one for one in model.fsx.links((), now) if one.id == asked["AssociationId"]), None)
        system = "*" if link is None else link.system
        yield f"{base}:association/{system}/{asked['AssociationId']}", {} if link is None else link.tags


class _Fsx:
    def __init__(self, model: CloudModel, moto: Moto) -> None:
        self._model, self._moto, self._fsx = model, moto, model.fsx

    # --- file systems -----------------------------------------------------------------------------

    def create(self, call: ServiceCall) -> Result:
        asked = call.asked
        if asked["FileSystemType"] != "LUSTRE":
            raise Refusal("UnsupportedOperation", f"the sandbox has no FSx of type {asked['FileSystemType']}")
        fingerprint = json.dumps(
            {k: v for k, v in asked.items() if k != "ClientRequestToken"}, sort_keys=True, default=str
        )
        token = str(asked.get("ClientRequestToken") or "")
        known = self._fsx.replayed(token, fingerprint)
        if known is not None:
            return {"FileSystem": self._system(known, call.now)}
        options = {
            "DeploymentType": "SCRATCH_1",
            "DataCompressionType": "NONE",
            **asked.get("LustreConfiguration", {}),
        }
        size, storage = int(asked.get("StorageCapacity") or 0), str(asked.get("StorageType") or "SSD")
        check_shape(size, storage, options)
        subnet = self._subnet(cast(Sequence[str], asked["SubnetIds"]))
        groups = self._groups(cast(Sequence[str], asked.get("SecurityGroupIds") or ()), subnet.vpc, call.now)
        wanted = Lustre(
            id=self._model.fresh_id("fs"),
            token=token,
            fingerprint=fingerprint,
            created_at=call.now,
            ready_at=call.now,
            subnet=subnet,
            interface="",
            size_gib=size,
            storage=storage,
            options=options,
            tags=_tags(asked),
            extra={k: asked[k] for k in ("KmsKeyId", "FileSystemTypeVersion") if k in asked},
        )
        return {"FileSystem": self._system(self._fsx.create(wanted, groups, call.now), call.now)}

    def describe(self, call: ServiceCall) -> Result:
        found = self._fsx.systems(cast(Sequence[str], call.asked.get("FileSystemIds") or ()), call.now)
        return {"FileSystems": [self._system(s, call.now) for s in found]}

    def update(self, call: ServiceCall) -> Result:
        """A change takes effect at once; a larger size takes the time of a link."""
        before = self._available(str(call.asked["FileSystemId"]), call.now)
        options = {**before.options, **call.asked.get("LustreConfiguration", {})}
        size = int(call.asked.get("StorageCapacity") or before.size_gib)
        check_shape(size, before.storage, options, before.size_gib if size != before.size_gib else 0)
        after = self._fsx.put(replace(before, options=options, size_gib=size, changed_at=call.now))
        return {"FileSystem": self._system(after, call.now)}

    def delete(self, call: ServiceCall) -> Result:
        gone = self._fsx.remove(str(call.asked["FileSystemId"]), call.now)
        return {"FileSystemId": gone.id, "Lifecycle": "DELETING"}

    # --- associations -----------------------------------------------------------------------------

    def link(self, call: ServiceCall) -> Result:
        asked = call.asked
        s3 = str(asked["DataRepositoryPath"])
        bucket = s3.removeprefix("s3://").partition("/")[0]
        if not s3.startswith("s3://") or not self._moto.bucket_known(bucket):
            raise Refusal("BadRequest", f"The data repository {s3} cannot be accessed.")
        named = ("BatchImportMetaDataOnCreate", "ImportedFileChunkSize", "S3")
        made = self._fsx.link(
            Link(
                id=self._model.fresh_id("dra"),
                system=str(asked["FileSystemId"]),
                path=str(asked.get("FileSystemPath") or "/"),
                s3=s3,
                created_at=call.now,
                ready_at=call.now,
                options={"ImportedFileChunkSize": 1024, **{k: asked[k] for k in named if k in asked}},
                tags=_tags(asked),
            ),
            call.now,
        )
        return {"Association": self._link(made, call.now)}

    def links(self, call: ServiceCall) -> Result:
        ids = cast(Sequence[str], call.asked.get("AssociationIds") or ())
        found = list(self._fsx.links(ids, call.now))
        for one in cast(Sequence[Mapping[str, Any]], call.asked.get("Filters") or ()):
            if one.get("Name") != "file-system-id":
                raise Refusal("BadRequest", f"the sandbox has no filter {one.get('Name')}")
            found = [link for link in found if link.system in (one.get("Values") or ())]
        return {"Associations": [self._link(x, call.now) for x in found]}

    def update_link(self, call: ServiceCall) -> Result:
        (before,) = self._fsx.links((str(call.asked["AssociationId"]),), call.now)
        named = ("ImportedFileChunkSize", "S3")
        options = {**before.options, **{k: call.asked[k] for k in named if k in call.asked}}
        return {"Association": self._link(self._fsx.put_link(replace(before, options=options)), call.now)}

    def unlink(self, call: ServiceCall) -> Result:
        gone = self._fsx.unlink(str(call.asked["AssociationId"]), call.now)
        data = call.asked.get("DeleteDataInFileSystem", False)
        return {"AssociationId": gone.id, "Lifecycle": "DELETING", "DeleteDataInFileSystem": data}

    # --- tags -------------------------------------------------------------------------------------

    def tag(self, call: ServiceCall) -> Result:
        self._retag(call, _tags(call.asked), ())
        return {}

    def untag(self, call: ServiceCall) -> Result:
        self._retag(call, {}, cast(Sequence[str], call.asked["TagKeys"]))
        return {}

    def tags(self, call: ServiceCall) -> Result:
        return {"Tags": views.tag_list(self._tagged(call).tags)}

    def _tagged(self, call: ServiceCall) -> Lustre | Link:
        name = str(call.asked["ResourceARN"]).rpartition("/")[2]
        return (
            self._fsx.links((name,), call.now)[0]
            if name.startswith("dra-")
            else self._fsx.system(name, call.now)
        )

    def _retag(self, call: ServiceCall, tags: Mapping[str, str], gone: Iterable[str]) -> None:
        found = self._tagged(call)
        left = {k: v for k, v in found.tags.items() if k not in set(gone)} | dict(tags)
        if isinstance(found, Link):
            self._fsx.put_link(replace(found, tags=left))
        else:
            self._fsx.put(replace(found, tags=left))

    # --- inside -----------------------------------------------------------------------------------

    def _available(self, system: str, now: float) -> Lustre:
        found = self._fsx.system(system, now)
        if found.state(now) != "AVAILABLE":
            raise Refusal("BadRequest", f"The file system {system} is {found.state(now)}.")
        return found

    def _subnet(self, ids: Sequence[str]) -> Any:
        if len(ids) != 1:
            raise Refusal("InvalidNetworkSettings", "A Lustre file system has exactly one subnet.")
        try:
            return self._moto.subnet(ids[0])
        except Refusal as refusal:
            raise Refusal("InvalidNetworkSettings", refusal.message) from refusal

    def _groups(self, wanted: Sequence[str], vpc: str, now: float) -> tuple[str, ...]:
        """Refuse groups whose rules do not allow Lustre's ports both ways, or are too young for FSx to see."""
        known = self._moto.groups()
        default = self._moto.default_group(vpc)
        groups = tuple(wanted) or (() if default is None else (default,))
        if any(g not in known or known[g].vpc != vpc for g in groups):
            raise Refusal(
                "InvalidNetworkSettings", f"A security group of {', '.join(groups)} is not in {vpc}."
            )
        young = [
            g for g in groups if now < self._model.rules_changed.get(g, 0.0) + self._model.timing.rules_s
        ]
        rules = [self._moto.open_ports(g) for g in groups if g not in young]
        for way in (0, 1):
            spans = [span for found in rules for span in found[way]]
            if not all(any(low <= a and b <= high for low, high in spans) for a, b in LUSTRE_PORTS):
                raise Refusal(
                    "InvalidNetworkSettings",
                    "The file system cannot be created because the security groups do not permit Lustre LNET network "
                    "traffic on port 988 and 1018-1023.",
                )
        return groups

    def _system(self, one: Lustre, now: float) -> Result:
        options = {**one.options, "MountName": one.mount_name}
        options.setdefault("WeeklyMaintenanceStartTime", "1:05:00")
        squash = options.get("RootSquashConfiguration")
        if not squash:
            options.pop("RootSquashConfiguration", None)
        repository = _repository(options)
        options = {k: v for k, v in options.items() if k not in _REPOSITORY}
        return {
            "OwnerId": ACCOUNT,
            "CreationTime": views.when(one.created_at),
            "FileSystemId": one.id,
            "FileSystemType": "LUSTRE",
            "Lifecycle": one.state(now),
            "StorageCapacity": one.size_gib,
            "StorageType": one.storage,
            "VpcId": one.subnet.vpc,
            "SubnetIds": [one.subnet.id],
            "NetworkInterfaceIds": [one.interface],
            "DNSName": f"{one.id}.fsx.{self._model.region}.amazonaws.com",
            "ResourceARN": self._arn(f"file-system/{one.id}"),
            "Tags": views.tag_list(one.tags),
            "FileSystemTypeVersion": "2.15",
            **one.extra,
            "LustreConfiguration": {**options, **repository},
            "AdministrativeActions": _actions(one, now, self._model.timing.link_s),
        }

    def _link(self, one: Link, now: float) -> Result:
        return {
            "AssociationId": one.id,
            "ResourceARN": self._arn(f"association/{one.system}/{one.id}"),
            "FileSystemId": one.system,
            "Lifecycle": one.state(now),
            "FileSystemPath": one.path,
            "DataRepositoryPath": one.s3,
            "CreationTime": views.when(one.created_at),
            **one.options,
            "Tags": views.tag_list(one.tags),
        }

    def _arn(self, what: str) -> str:
        return f"arn:aws:fsx:{self._model.region}:{ACCOUNT}:{what}"


_REPOSITORY = ("ImportPath", "ExportPath", "ImportedFileChunkSize", "AutoImportPolicy")


def _repository(options: Mapping[str, Any]) -> Result:
    found = {k: options[k] for k in _REPOSITORY if k in options}
    return {"DataRepositoryConfiguration": {"Lifecycle": "AVAILABLE", **found}} if found else {}


def _actions(one: Lustre, now: float, lasts_s: float) -> list[Result]:
    if one.changed_at is None:
        return []
    done = now >= one.changed_at + lasts_s
    return [
        {
            "AdministrativeActionType": "FILE_SYSTEM_UPDATE",
            "RequestTime": views.when(one.changed_at),
            "Status": "COMPLETED" if done else "IN_PROGRESS",
            "ProgressPercent": 100 if done else 50,
        }
    ]


def _tags(asked: Mapping[str, Any]) -> dict[str, str]:
    return {str(t["Key"]): str(t["Value"]) for t in asked.get("Tags") or ()}
