"""EBS volumes that outlive their machine, and their attachments."""

import hashlib
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from gpucluster.engine.aws_account import code_of
from gpucluster.engine.values import Value, Values
from gpucluster.sandbox.provider.address_wait import ENDED
from gpucluster.sandbox.provider.calls import await_gone, await_state, retag_ec2
from gpucluster.sandbox.provider.cloud import Cloud, absent_is_fine, only
from gpucluster.sandbox.provider.schema import TAG_PROPERTIES, Call, ResourceType, computed, replaces, updates
from gpucluster.sandbox.provider.shapes import FLAG, NUMBER

Seen = Mapping[str, Value] | None


# --- volume ----------------------------------------------------------------------------------
_GROWS = ("size", "type", "iops", "throughput")
_VOLUME = (*_GROWS, "availabilityZone", "encrypted", "kmsKeyId", "snapshotId", "multiAttachEnabled")


def _create_volume(call: Call) -> str:
    return call.cloud.ec2.create_volume(**call.api(*_VOLUME), **call.tag_specifications("volume"))["VolumeId"]


def _complete_volume(call: Call) -> None:
    def state() -> tuple[str, str]:
        seen = _read_volume(call.cloud, call.id, {}) or {}
        return seen.get("State", "unknown"), ""

    await_state(call, state, "available", frozenset({"error"}))


def _read_volume(cloud: Cloud, identifier: str, _: Values) -> Seen:
    seen = only(cloud.ec2.describe_volumes(VolumeIds=[identifier])["Volumes"])
    if seen is None or seen.get("State") in ("deleting", "deleted"):
        return None
    return seen | {"Arn": cloud.ec2_arn("volume", identifier)}


def _update_volume(call: Call, changed: frozenset[str]) -> None:
    """Change the volume while it is attached. AWS rejects a smaller size and a second change within 6 hours."""
    if changed & frozenset(_GROWS):
        call.cloud.ec2.modify_volume(VolumeId=call.id, **call.api(*_GROWS))
    retag_ec2(call)


def _delete_volume(call: Call) -> None:
    call.cloud.ec2.delete_volume(VolumeId=call.id)
    await_gone(call)


VOLUME = ResourceType(
    name="aws:ebs/volume:Volume",
    properties={
        "availabilityZone": replaces("AvailabilityZone"),
        "encrypted": replaces("Encrypted", FLAG, from_cloud=True),
        "kmsKeyId": replaces("KmsKeyId", from_cloud=True),
        "snapshotId": replaces("SnapshotId", from_cloud=True),
        "multiAttachEnabled": replaces("MultiAttachEnabled", FLAG, from_cloud=True),
        "size": updates("Size", NUMBER, from_cloud=True),
        "type": updates("VolumeType", from_cloud=True),
        "iops": updates("Iops", NUMBER, from_cloud=True),
        "throughput": updates("Throughput", NUMBER, from_cloud=True),
        "arn": computed("Arn"),
        **TAG_PROPERTIES,
    },
    create=_create_volume,
    complete=_complete_volume,
    read=_read_volume,
    update=_update_volume,
    delete=_delete_volume,
)


# --- attachment ------------------------------------------------------------------------------
_PLACE = ("deviceName", "instanceId", "volumeId")


def _attach(call: Call) -> str:
    """Wait until the volume is detached from its last machine."""

    def free() -> bool:
        seen = _volume(call.cloud, call.inputs["volumeId"])
        return seen.get("State") == "available" or _here(seen, call.inputs) is not None

    call.cloud.wait(f"{call.inputs['volumeId']} free", call.seconds, free)
    if _here(_volume(call.cloud, call.inputs["volumeId"]), call.inputs) is None:
        call.cloud.ec2.attach_volume(**call.api(*_PLACE))
    place = "-".join(str(call.inputs[name]) for name in _PLACE)
    return f"vai-{hashlib.sha256(place.encode()).hexdigest()[:10]}"


def _complete_attachment(call: Call) -> None:
    def state() -> tuple[str, str]:
        seen = _here(_volume(call.cloud, call.inputs["volumeId"]), call.inputs) or {}
        return seen.get("State", "detached"), ""

    await_state(call, state, "attached", frozenset())


def _volume(cloud: Cloud, identifier: str) -> dict[str, Any]:
    return only(cloud.ec2.describe_volumes(VolumeIds=[identifier])["Volumes"]) or {}


def _here(volume: Mapping[str, Any], inputs: Values) -> dict[str, Any] | None:
    every: list[dict[str, Any]] = volume.get("Attachments", [])
    return only([a for a in every if a.get("InstanceId") == inputs["instanceId"]])


def _read_attachment(cloud: Cloud, _: str, inputs: Values) -> Seen:
    seen = _here(_volume(cloud, inputs["volumeId"]), inputs)
    return seen and {
        "Device": seen["Device"],
        "InstanceId": seen["InstanceId"],
        "VolumeId": inputs["volumeId"],
    }


def _detach(call: Call) -> None:
    if call.inputs.get("skipDestroy"):
        return
    if call.inputs.get("stopInstanceBeforeDetaching"):
        _stop(call)
    force = {"Force": True} if call.inputs.get("forceDetach") else {}
    try:
        call.cloud.ec2.detach_volume(**call.api(*_PLACE), **force)
    except ClientError as error:  # a repeated deletion finds it detached
        if code_of(error) not in ("IncorrectState", "InvalidAttachment.NotFound"):
            raise
    await_gone(call)


def _stop(call: Call) -> None:
    """Stop the machine first, so that its shutdown unmounts the file system."""
    instance = call.inputs["instanceId"]
    where = [{"Name": "instance-id", "Values": [instance]}]

    def states() -> set[str]:
        answer = call.cloud.ec2.describe_instances(Filters=where)["Reservations"]
        return {i["State"]["Name"] for r in answer for i in r["Instances"]}

    with absent_is_fine():
        if not states() <= {"stopped", *ENDED}:  # AWS rejects a stop of a terminating instance
            call.cloud.ec2.stop_instances(InstanceIds=[instance])
    call.cloud.wait(f"{instance} stopped", call.seconds, lambda: states() <= {"stopped", "terminated"})


VOLUME_ATTACHMENT = ResourceType(
    name="aws:ec2/volumeAttachment:VolumeAttachment",
    properties={
        "deviceName": replaces("Device"),
        "instanceId": replaces("InstanceId"),
        "volumeId": replaces("VolumeId"),
        "forceDetach": updates(None, FLAG),
        "skipDestroy": updates(None, FLAG),
        "stopInstanceBeforeDetaching": updates(None, FLAG),
    },
    create=_attach,
    complete=_complete_attachment,
    read=_read_attachment,
    delete=_detach,
    create_minutes=5,
    delete_minutes=5,
)

ROWS = (VOLUME, VOLUME_ATTACHMENT)
