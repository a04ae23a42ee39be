"""Instances, volumes and interfaces as the Describe calls return them."""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from gpucluster.cloud.port import InstanceState
from gpucluster.plan import names
from gpucluster.plan.model import Market
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance, Interface, MaintenanceEvent
from gpucluster.sandbox.aws.ec2.state.volumes import Volume
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Group

STATE_CODES: Mapping[InstanceState, int] = {
    InstanceState.PENDING: 0,
    InstanceState.RUNNING: 16,
    InstanceState.SHUTTING_DOWN: 32,
    InstanceState.TERMINATED: 48,
    InstanceState.STOPPING: 64,
    InstanceState.STOPPED: 80,
}
ROOT_DEVICE = "/dev/xvda"
Shape = dict[str, Any]


def state(value: InstanceState) -> Shape:
    """A state as EC2 writes it."""
    return {"Code": STATE_CODES[value], "Name": value.value}


def when(seconds: float) -> datetime.datetime:
    """Seconds since the epoch in the serializer's type."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def tag_list(tags: Mapping[str, str]) -> list[Shape]:
    """Tags, sorted."""
    return [{"Key": k, "Value": v} for k, v in sorted(tags.items())]


def instance_tags(one: Ec2Instance) -> Mapping[str, str]:
    """The tags of an instance with those that EC2 itself sets on a launch from a template (T54)."""
    if one.spec.template is None:
        return one.tags
    template, version = one.spec.template
    return {**one.tags, names.TAG_TEMPLATE: template, names.TAG_TEMPLATE_VERSION: str(version)}


def reservation(
    instances: list[Ec2Instance], groups: Mapping[str, Group], profiles: Mapping[str, str]
) -> Shape:
    """The instances of one launch."""
    return {
        "ReservationId": instances[0].reservation,
        "OwnerId": ACCOUNT,
        "Groups": [],
        "Instances": [instance(i, groups, profiles) for i in instances],
    }


def instance(one: Ec2Instance, groups: Mapping[str, Group], profiles: Mapping[str, str]) -> Shape:
    """One instance; `profiles` are profile ids by ARN. A terminated one has no address and no network (T24)."""
    ended = one.state is InstanceState.TERMINATED
    spec = one.spec
    shape: Shape = {
        "InstanceId": one.id,
        "ImageId": spec.image,
        "State": state(one.state),
        "PrivateDnsName": _dns(one.address),
        "PublicDnsName": "",
        "StateTransitionReason": one.reason if one.reason_code.startswith("Client.User") else "",
        "AmiLaunchIndex": one.index,
        "ProductCodes": [],
        "InstanceType": spec.machine,
        "LaunchTime": when(one.launched_at),
        "Placement": {
            "AvailabilityZone": one.zone,
            "GroupName": spec.placement_group or "",
            "Tenancy": "default",
        },
        "Monitoring": {"State": "disabled"},
        "Architecture": "x86_64",
        "RootDeviceType": "ebs",
        "RootDeviceName": ROOT_DEVICE,
        "VirtualizationType": "hvm",
        "Hypervisor": "xen",
        "ClientToken": spec.token or "",
        "EbsOptimized": bool(spec.options.get("EbsOptimized", False)),
        "EnaSupport": True,
        "Tags": tag_list(instance_tags(one)),
        "BlockDeviceMappings": [] if ended else [_block_device(one)],
        "MetadataOptions": metadata(one),
        "NetworkInterfaces": [],
        "SecurityGroups": [],
    }
    if spec.key_name:
        shape["KeyName"] = spec.key_name
    if one.reason_code:
        shape["StateReason"] = {"Code": one.reason_code, "Message": one.reason}
    if spec.market in (Market.SPOT, Market.CAPACITY_BLOCK):  # absent for other markets (T14)
        shape["InstanceLifecycle"] = spec.market.value
    if one.reservation_id is not None:
        shape["CapacityReservationId"] = one.reservation_id
    if not ended:
        shape |= _network(one, groups)
        if spec.profile is not None:
            shape["IamInstanceProfile"] = {"Arn": spec.profile, "Id": profiles.get(spec.profile, "")}
    return shape


def status(one: Ec2Instance) -> Shape:
    """DescribeInstanceStatus of one instance with its scheduled events (T35)."""
    running = one.state is InstanceState.RUNNING
    summary: Shape = {"Status": "ok" if running else "not-applicable", "Details": []}
    return {
        "InstanceId": one.id,
        "AvailabilityZone": one.zone,
        "InstanceState": state(one.state),
        "InstanceStatus": summary,
        "SystemStatus": summary,
        "Events": [event(e) for e in one.events],
    }


def event(one: MaintenanceEvent) -> Shape:
    """A scheduled event."""
    shape: Shape = {
        "InstanceEventId": one.id,
        "Code": one.code,
        "Description": one.text,
        "NotBefore": when(one.not_before),
    }
    if one.deadline is not None:
        shape["NotBeforeDeadline"] = when(one.deadline)
    return shape


def volume(one: Ec2Instance) -> Shape:
    """The root volume of a living instance."""
    ebs = _root_ebs(one)
    return {
        "VolumeId": one.volume_id,
        "AvailabilityZone": one.zone,
        "CreateTime": when(one.launched_at),
        "Encrypted": bool(ebs.get("Encrypted", False)),
        "KmsKeyId": ebs.get("KmsKeyId"),
        "Size": int(ebs.get("VolumeSize", 8)),
        "VolumeType": str(ebs.get("VolumeType", "gp3")),
        "Iops": int(ebs.get("Iops", 3000)),
        "Throughput": int(ebs.get("Throughput", 125)),
        "State": "in-use",
        "SnapshotId": "",
        "MultiAttachEnabled": False,
        "Tags": tag_list(one.spec.volume_tags),
        "Attachments": [
            {
                "InstanceId": one.id,
                "VolumeId": one.volume_id,
                "Device": ROOT_DEVICE,
                "State": "attached",
                "AttachTime": when(one.launched_at),
                "DeleteOnTermination": True,
            }
        ],
    }


def interface(one: Interface, groups: Mapping[str, Group]) -> Shape:
    """An interface; a lingering one has no attachment (T42)."""
    shape: Shape = {
        "NetworkInterfaceId": one.id,
        "SubnetId": one.subnet.id,
        "VpcId": one.subnet.vpc,
        "AvailabilityZone": one.subnet.zone,
        "Description": one.service,
        "OwnerId": ACCOUNT,
        "MacAddress": one.mac,
        "PrivateIpAddress": one.address,
        "PrivateIpAddresses": _addresses(one),
        "Groups": _groups(one.groups, groups),
        "Status": "in-use" if one.gone_at is None else "available",
        "InterfaceType": one.nic.kind.value,
        "SourceDestCheck": True,
        "RequesterManaged": bool(one.service),
        "TagSet": tag_list(one.tags),
    }
    if one.gone_at is None:
        shape["Attachment"] = _attachment(one)
    return shape


def _attachment(one: Interface) -> Shape:
    return {
        "AttachmentId": one.id.replace("eni-", "eni-attach-"),
        "InstanceId": one.instance_id or None,
        "InstanceOwnerId": ACCOUNT if one.instance_id else "amazon-aws",
        "DeviceIndex": one.nic.device,
        "NetworkCardIndex": one.nic.card,
        "DeleteOnTermination": True,
        "Status": "attached",
    }


def _addresses(one: Interface) -> list[Shape]:
    return [{"Primary": True, "PrivateIpAddress": one.address}] if one.address else []


def metadata(one: Ec2Instance) -> Shape:
    """The instance's metadata options."""
    options: Shape = {"State": "applied", **one.spec.metadata}
    options["HttpPutResponseHopLimit"] = int(options.get("HttpPutResponseHopLimit", 1))
    return options


def tags(instances: Iterable[Ec2Instance], interfaces: Iterable[Interface]) -> list[dict[str, str]]:
    """Every tag of instances, their volumes and interfaces, as DescribeTags lists them."""
    named = [(e.id, "network-interface", e.tags) for e in interfaces]
    for one in instances:
        named.append((one.id, "instance", instance_tags(one)))
        if one.address is not None:
            named.append((one.volume_id, "volume", one.spec.volume_tags))
    return [
        {"ResourceId": resource, "ResourceType": kind, "Key": k, "Value": v}
        for resource, kind, found in named
        for k, v in sorted(found.items())
    ]


_KINDS = {
    "vol": "volume",
    "pg": "placement-group",
    "eipalloc": "elastic-ip",
    "nat": "natgateway",
    "cr": "capacity-reservation",
}


def holding_tags(holdings: Mapping[str, Mapping[str, str]]) -> list[dict[str, str]]:
    """Tags of stored resources other than instances."""
    return [
        {"ResourceId": name, "ResourceType": _KINDS[name.partition("-")[0]], "Key": k, "Value": v}
        for name, found in sorted(holdings.items())
        for k, v in sorted(found.items())
    ]


def _network(one: Ec2Instance, groups: Mapping[str, Group]) -> Shape:
    spec = one.spec
    named = _groups(spec.groups, groups)
    shape: Shape = {
        "SubnetId": spec.subnet.id,
        "VpcId": spec.subnet.vpc,
        "PrivateIpAddress": one.address,
        "SourceDestCheck": True,
        "SecurityGroups": named,
        "NetworkInterfaces": [_primary(one, named), *(_other(one, i, groups) for i in one.nics)],
    }
    if one.public_address is not None:
        shape["PublicIpAddress"] = one.public_address
    return shape


def _primary(one: Ec2Instance, named: list[Shape]) -> Shape:
    return {
        "NetworkInterfaceId": one.interface_id,
        "SubnetId": one.spec.subnet.id,
        "VpcId": one.spec.subnet.vpc,
        "MacAddress": one.mac,
        "OwnerId": ACCOUNT,
        "PrivateIpAddress": one.address,
        "PrivateIpAddresses": [{"Primary": True, "PrivateIpAddress": one.address}],
        "SourceDestCheck": True,
        "Status": "in-use",
        "Groups": named,
        "InterfaceType": one.spec.nic.kind.value,
        "Attachment": {
            "AttachmentId": one.interface_id.replace("eni-", "eni-attach-"),
            "DeleteOnTermination": True,
            "DeviceIndex": 0,
            "NetworkCardIndex": 0,
            "Status": "attached",
            "AttachTime": when(one.launched_at),
        },
    }


def _other(one: Ec2Instance, nic: Interface, groups: Mapping[str, Group]) -> Shape:
    attachment = {k: v for k, v in _attachment(nic).items() if not k.startswith("Instance")}
    return {
        "NetworkInterfaceId": nic.id,
        "SubnetId": nic.subnet.id,
        "VpcId": nic.subnet.vpc,
        "MacAddress": nic.mac,
        "OwnerId": ACCOUNT,
        "PrivateIpAddress": nic.address,
        "PrivateIpAddresses": _addresses(nic),
        "SourceDestCheck": True,
        "Status": "in-use",
        "Groups": _groups(nic.groups, groups),
        "InterfaceType": nic.nic.kind.value,
        "Attachment": {**attachment, "AttachTime": when(one.launched_at)},
    }


def _groups(ids: tuple[str, ...], groups: Mapping[str, Group]) -> list[Shape]:
    return [{"GroupId": g, "GroupName": groups[g].name if g in groups else ""} for g in ids]


def _block_device(one: Ec2Instance) -> Shape:
    return {
        "DeviceName": ROOT_DEVICE,
        "Ebs": {
            "VolumeId": one.volume_id,
            "Status": "attached",
            "DeleteOnTermination": True,
            "AttachTime": when(one.launched_at),
        },
    }


def own_volume(one: Volume) -> Shape:
    """A volume that outlives instances."""
    attached = one.instance is not None
    return {
        "VolumeId": one.id,
        "AvailabilityZone": one.zone,
        "CreateTime": when(one.created_at),
        "Encrypted": one.encrypted,
        "KmsKeyId": one.kms_key,
        "Size": one.size_gib,
        "VolumeType": one.kind,
        "Iops": one.iops,
        "Throughput": one.throughput,
        "State": one.state,
        "SnapshotId": "",
        "MultiAttachEnabled": False,
        "Tags": tag_list(one.tags),
        "Attachments": [volume_attachment(one)] if attached else [],
    }


def volume_attachment(one: Volume, state: str = "attached") -> Shape:
    """The attachments of a volume."""
    return {
        "InstanceId": one.instance,
        "VolumeId": one.id,
        "Device": one.device,
        "State": state,
        "AttachTime": when(one.attached_at),
        "DeleteOnTermination": False,
    }


def with_root_ebs(one: Ec2Instance, change: Mapping[str, Any]) -> Mapping[str, Any]:
    """The block devices of a launch with a changed root volume; a volume that no option names comes from the image."""
    root = {"DeviceName": ROOT_DEVICE, "Ebs": {**_root_ebs(one), **change}}
    return {**one.spec.options, "BlockDeviceMappings": [root]}


def _root_ebs(one: Ec2Instance) -> Mapping[str, Any]:
    for mapping in one.spec.options.get("BlockDeviceMappings", ()):
        if "Ebs" in mapping:
            return mapping["Ebs"]
    return {}


def _dns(address: str | None) -> str:
    return "" if address is None else f"ip-{address.replace('.', '-')}.ec2.internal"
