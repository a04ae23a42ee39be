"""Instances for the head. The elastic daemon launches nodes from templates."""

import base64
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.address_wait import ENDED, once_free
from gpucluster.sandbox.provider.calls import retag_ec2
from gpucluster.sandbox.provider.cloud import Cloud, only, tag_list
from gpucluster.sandbox.provider.schema import TAG_PROPERTIES, Call, ResourceType, computed, replaces, updates
from gpucluster.sandbox.provider.shapes import FLAG, NUMBER, TAGS, TEXT, TEXTS, Field, Record
from gpucluster.sandbox.provider.types.templates import METADATA

Seen = Mapping[str, Value] | None

_ROOT = Record(
    {
        "encrypted": Field("Encrypted", FLAG, from_cloud=True),
        "deleteOnTermination": Field("DeleteOnTermination", FLAG, default=True),
        "volumeSize": Field("VolumeSize", NUMBER, from_cloud=True),
        "volumeType": Field("VolumeType", TEXT, from_cloud=True),
        "kmsKeyId": Field("KmsKeyId", TEXT, from_cloud=True),
        "iops": Field("Iops", NUMBER, from_cloud=True),
        "throughput": Field("Throughput", NUMBER, from_cloud=True),
        "tags": Field("Tags", TAGS, from_cloud=True),
    }
)
_TOP = ("ami", "instanceType", "metadataOptions", "keyName", "disableApiTermination")
_PLACED = ("subnetId", "privateIp", "vpcSecurityGroupIds")


def _run_instance(call: Call) -> str:
    arguments: dict[str, Any] = call.api(*_TOP, "instanceInitiatedShutdownBehavior") | _placed(call)
    if call.inputs.get("iamInstanceProfile"):
        arguments["IamInstanceProfile"] = {"Name": call.inputs["iamInstanceProfile"]}
    if call.inputs.get("userDataBase64"):
        arguments["UserData"] = _decoded(call.inputs["userDataBase64"])
    if call.inputs.get("rootBlockDevice"):
        arguments["BlockDeviceMappings"] = [_root_mapping(call)]
    tagged = [*_creation_tags(call)]
    run = partial(call.cloud.ec2.run_instances, MinCount=1, MaxCount=1, TagSpecifications=tagged)
    answer: dict[str, Any] = once_free(call, lambda: run(**arguments))
    return answer["Instances"][0]["InstanceId"]


def _placed(call: Call) -> dict[str, Any]:
    """A public address needs an explicit network interface; all network settings then belong to it (T31)."""
    named = call.api(*_PLACED)
    public = call.inputs.get("associatePublicIpAddress")
    if public is None:
        return named
    groups = {"Groups": named.pop("SecurityGroupIds")} if "SecurityGroupIds" in named else {}
    one = {"DeviceIndex": 0, "AssociatePublicIpAddress": public, "DeleteOnTermination": True}
    return {"NetworkInterfaces": [one | named | groups]}


def _decoded(text: str) -> bytes:
    """Return raw user data: boto3 encodes it for RunInstances."""
    return base64.b64decode(text)


def _root_mapping(call: Call) -> dict[str, Any]:
    """Return the root volume. An unset size is the image's size; AWS derives it, but moto needs it."""
    image = only(call.cloud.ec2.describe_images(ImageIds=[call.inputs["ami"]])["Images"]) or {}
    name = image.get("RootDeviceName", "/dev/xvda")
    own = only([m for m in image.get("BlockDeviceMappings", []) if m.get("DeviceName") == name]) or {}
    size = own.get("Ebs", {}).get("VolumeSize")
    root: dict[str, Any] = call.kind.properties["rootBlockDevice"].shape.to_api(
        call.inputs["rootBlockDevice"]
    )
    root.pop("Tags", None)  # set by a separate call after the launch
    return {"DeviceName": name, "Ebs": ({"VolumeSize": size} if size else {}) | root}


def _creation_tags(call: Call) -> list[dict[str, Any]]:
    """Tag the volumes as upstream does since 5.39: default tags and `volumeTags`, never the instance's own tags (T17)."""
    every = call.tag_specifications("instance").get("TagSpecifications", [])
    own: Mapping[str, str] = call.inputs.get("volumeTags") or {}
    volume = {**call.cloud.default_tags, **own}
    return [*every, {"ResourceType": "volume", "Tags": tag_list(volume)}] if volume else every


def _root(inputs: Mapping[str, Value]) -> Values:
    return inputs.get("rootBlockDevice") or {}


def _await_running(call: Call) -> None:
    def running() -> bool:
        seen = _describe(call.cloud, call.id)
        state = seen["State"]["Name"] if seen else "unknown"  # a new id may not be visible yet (T20)
        if state in ENDED:
            reason = (seen or {}).get("StateReason", {}).get("Message", "no reason given")
            raise RuntimeError(f"{call.id} is {state}: {reason}")
        return state == "running"

    call.cloud.wait(f"{call.id} running", call.seconds, running)
    _retag(_root_volumes(call), call, {}, _root(call.inputs).get("tags") or {})


def _describe(cloud: Cloud, identifier: str) -> dict[str, Any] | None:
    named = {"Filters": [{"Name": "instance-id", "Values": [identifier]}]}  # no error for an unknown id (T21)
    found = [i for r in cloud.ec2.describe_instances(**named)["Reservations"] for i in r["Instances"]]
    return only(found)


def _read_instance(cloud: Cloud, identifier: str, inputs: Values) -> Seen:
    seen = _describe(cloud, identifier)
    if seen is None or seen["State"]["Name"] in ENDED:
        return None
    groups = [g["GroupId"] for g in seen.get("SecurityGroups", [])]
    profile = seen.get("IamInstanceProfile", {}).get("Arn", "").rpartition("/")[2]
    return seen | {
        "Arn": cloud.ec2_arn("instance", identifier),
        "SecurityGroupIds": groups,
        "ProfileName": profile,
        "UserData": _attribute(cloud, identifier, "userData"),
        **{
            name[0].upper() + name[1:]: _attribute(cloud, identifier, name)
            for name in ("instanceInitiatedShutdownBehavior", "disableApiTermination")
        },
        "AssociatePublicIpAddress": bool(seen.get("PublicIpAddress")),
        **(_root_volume(cloud, seen) if inputs.get("rootBlockDevice") else {}),
        # upstream reads them only for a program that sets them, and no tags of single volumes
        **({"VolumeTags": _volume_tags(cloud, identifier)} if _one_set(inputs) else {}),
    }


def _one_set(inputs: Values) -> bool:
    return bool(inputs.get("volumeTags")) and not _root(inputs).get("tags")


def _attribute(cloud: Cloud, identifier: str, name: str) -> str | None:
    answer = cloud.ec2.describe_instance_attribute(InstanceId=identifier, Attribute=name)
    return answer.get(name[0].upper() + name[1:], {}).get("Value")


def _root_volume(cloud: Cloud, seen: Mapping[str, Any]) -> dict[str, Any]:
    root = seen.get("RootDeviceName")
    mapping = only([m for m in seen.get("BlockDeviceMappings", []) if m["DeviceName"] == root])
    if mapping is None:
        return {}
    ebs = mapping["Ebs"]
    volume = cloud.ec2.describe_volumes(VolumeIds=[ebs["VolumeId"]])["Volumes"][0]
    device = {
        "Encrypted": volume["Encrypted"],
        "DeleteOnTermination": ebs["DeleteOnTermination"],
        "VolumeSize": volume["Size"],
        "VolumeType": volume["VolumeType"],
        **{name: volume.get(name) for name in ("KmsKeyId", "Iops", "Throughput")},
    }
    return {"Root": device | {"Tags": _without_defaults(cloud, volume.get("Tags", []))}}


def _volume_tags(cloud: Cloud, identifier: str) -> list[dict[str, str]]:
    """Merge the tags of all attached volumes, without default tags, as upstream's `readVolumeTags` does."""
    ids = _attached_volumes(cloud, identifier)
    answer = cloud.ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": ids}])
    merged = {t["Key"]: t["Value"] for t in answer["Tags"]}
    return _without_defaults(cloud, tag_list(merged))


def _without_defaults(cloud: Cloud, tags: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Remove pairs that equal a default tag, also those that the program writes (upstream's `RemoveDefaultConfig`)."""
    return [t for t in tags if cloud.default_tags.get(t["Key"]) != t["Value"]]


def _update_instance(call: Call, changed: frozenset[str]) -> None:
    stop = changed & {"instanceType", "userDataBase64"}
    if stop:
        call.cloud.ec2.stop_instances(InstanceIds=[call.id])
        call.cloud.wait(f"{call.id} stopped", call.seconds, lambda: _state(call) == "stopped")
    for name, arguments in _modifications(call).items():
        if name in changed:
            call.cloud.ec2.modify_instance_attribute(InstanceId=call.id, **arguments)
    if stop:
        call.cloud.ec2.start_instances(InstanceIds=[call.id])
        _await_running(call)
    if "metadataOptions" in changed:
        options = call.api("metadataOptions")["MetadataOptions"]
        call.cloud.ec2.modify_instance_metadata_options(InstanceId=call.id, **options)
    if "iamInstanceProfile" in changed:
        _replace_profile(call)
    if "rootBlockDevice" in changed:
        _modify_root(call)
    if "volumeTags" in changed:
        _tag_volumes(call)
    retag_ec2(call)


def _modifications(call: Call) -> dict[str, dict[str, Any]]:
    return {
        "instanceType": {"InstanceType": {"Value": call.inputs["instanceType"]}},
        "userDataBase64": {"UserData": {"Value": _decoded(call.inputs.get("userDataBase64") or "")}},
        "vpcSecurityGroupIds": {"Groups": call.inputs.get("vpcSecurityGroupIds") or []},
        "instanceInitiatedShutdownBehavior": {
            "InstanceInitiatedShutdownBehavior": {
                "Value": call.inputs.get("instanceInitiatedShutdownBehavior") or "stop"
            }
        },
        "disableApiTermination": {
            "DisableApiTermination": {"Value": bool(call.inputs.get("disableApiTermination"))}
        },
    }


def _replace_profile(call: Call) -> None:
    ec2, here = call.cloud.ec2, [{"Name": "instance-id", "Values": [call.id]}]
    for had in ec2.describe_iam_instance_profile_associations(Filters=here)["IamInstanceProfileAssociations"]:
        ec2.disassociate_iam_instance_profile(AssociationId=had["AssociationId"])
    if call.inputs.get("iamInstanceProfile"):
        profile = {"Name": call.inputs["iamInstanceProfile"]}
        ec2.associate_iam_instance_profile(InstanceId=call.id, IamInstanceProfile=profile)


def _modify_root(call: Call) -> None:
    """Change size, type and speed of the volume while the machine runs. AWS rejects a smaller size."""
    want, had = _root(call.inputs), _root(call.olds)
    names = {"Size": "volumeSize", "VolumeType": "volumeType", "Iops": "iops", "Throughput": "throughput"}
    asked = {api: want[name] for api, name in names.items() if want.get(name)}
    if {n: want.get(n) for n in names.values()} != {n: had.get(n) for n in names.values()} and asked:
        for volume in _root_volumes(call):
            call.cloud.ec2.modify_volume(VolumeId=volume, **asked)
    _retag(_root_volumes(call), call, had.get("tags") or {}, want.get("tags") or {})


def _tag_volumes(call: Call) -> None:
    """Tag every attached volume, also the data disks of other resources (hashicorp/terraform-provider-aws#36448)."""
    volumes = _attached_volumes(call.cloud, call.id)
    _retag(volumes, call, call.olds.get("volumeTags") or {}, call.inputs.get("volumeTags") or {})


def _retag(volumes: Sequence[str], call: Call, had: Values, want: Values) -> None:
    gone = sorted(had.keys() - want.keys())
    if volumes and gone:
        call.cloud.ec2.delete_tags(Resources=volumes, Tags=[{"Key": k} for k in gone])
    if volumes and want:
        call.cloud.ec2.create_tags(Resources=volumes, Tags=tag_list(want))


def _root_volumes(call: Call) -> list[str]:
    seen = _describe(call.cloud, call.id) or {}
    every = seen.get("BlockDeviceMappings", [])
    return [m["Ebs"]["VolumeId"] for m in every if m["DeviceName"] == seen.get("RootDeviceName")]


def _attached_volumes(cloud: Cloud, instance: str) -> list[str]:
    """Return every attached volume: the root, and data disks of other resources."""
    where = [{"Name": "attachment.instance-id", "Values": [instance]}]
    return [v["VolumeId"] for v in cloud.ec2.describe_volumes(Filters=where)["Volumes"]]


def _state(call: Call) -> str:
    seen = _describe(call.cloud, call.id)
    return seen["State"]["Name"] if seen else "gone"


def _terminate(call: Call) -> None:
    call.cloud.ec2.terminate_instances(InstanceIds=[call.id])
    call.cloud.wait(f"{call.id} ended", call.seconds, lambda: _state(call) in ("terminated", "gone"))


INSTANCE = ResourceType(
    name="aws:ec2/instance:Instance",
    properties={
        "ami": replaces("ImageId"),
        "instanceType": updates("InstanceType"),
        "subnetId": replaces("SubnetId"),
        "privateIp": replaces("PrivateIpAddress", from_cloud=True),
        "keyName": replaces("KeyName"),
        "vpcSecurityGroupIds": updates("SecurityGroupIds", TEXTS, from_cloud=True),
        "iamInstanceProfile": updates("ProfileName"),
        "userDataBase64": updates("UserData"),
        "metadataOptions": updates("MetadataOptions", METADATA, from_cloud=True),
        "rootBlockDevice": updates("Root", _ROOT, from_cloud=True, anew=frozenset({"encrypted", "kmsKeyId"})),
        "volumeTags": updates("VolumeTags", TAGS, from_cloud=True),
        "instanceInitiatedShutdownBehavior": updates("InstanceInitiatedShutdownBehavior", from_cloud=True),
        "associatePublicIpAddress": replaces("AssociatePublicIpAddress", FLAG, from_cloud=True),
        "disableApiTermination": updates("DisableApiTermination", FLAG, from_cloud=True),
        "arn": computed("Arn"),
        "publicIp": computed("PublicIpAddress"),
        **TAG_PROPERTIES,
    },
    create=_run_instance,
    complete=_await_running,
    read=_read_instance,
    update=_update_instance,
    delete=_terminate,
    delete_minutes=20,
)

ROWS = (INSTANCE,)
