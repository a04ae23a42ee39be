"""The port over EC2, and over the sandbox's face of it. A client is made at the first call."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpucluster.catalog.image import System
from gpucluster.cloud.aws import boto3_client, client_config, translated
from gpucluster.cloud.port import CloudError, Fault, InstanceState
from gpucluster.image.port import BaseImage, Builder, Ground, ImageState, MadeImage, Order
from gpucluster.plan import names

_DESK = f"{names.TAG_BUILDER}-desk"
_STATES = {"pending": ImageState.PENDING, "available": ImageState.AVAILABLE, "failed": ImageState.FAILED,
           "error": ImageState.FAILED, "invalid": ImageState.FAILED}  # fmt: skip
_NOT_ENDED = ["pending", "running", "stopping", "stopped", "shutting-down"]
_SSH = 22


class Ec2Account:
    """EC2 of one region. `client` is for tests and the sandbox; the default is boto3's."""

    def __init__(self, region: str, client: Callable[[], Any] | None = None) -> None:
        self._make = client or (
            lambda: boto3_client("ec2", region, client_config(attempts=5, read_timeout_s=30))
        )
        self._made: Any = None

    def base(self, system: System) -> BaseImage | None:
        """As the port says; owner and name both, for anyone may publish a name."""
        found = self._images(
            [system.owner],
            {"name": system.pattern, "architecture": system.architecture, "state": "available"},
        )
        newest = max(found, key=lambda i: str(i.get("CreationDate", "")), default=None)
        if newest is None:
            return None
        device = newest.get("RootDeviceName") or "/dev/sda1"
        return BaseImage(id=newest["ImageId"], name=newest.get("Name", ""), root_device=device)

    def images(self, name: str) -> tuple[MadeImage, ...]:
        """As the port says: by name, for a tag may be lost, and one that has none still holds the name."""
        found = self._images(["self"], {"name": [name, f"{name}-*"]}, deprecated=True)
        return tuple(sorted(map(_image, found), key=lambda i: i.created, reverse=True))

    def image(self, image_id: str) -> MadeImage | None:
        """As the port says; by filter, so that a young id does not fail the call."""
        found = self._images(["self"], {"image-id": image_id}, deprecated=True)
        return _image(found[0]) if found else None

    def builders(self, name: str) -> tuple[Builder, ...]:
        """As the port says."""
        wanted = {f"tag:{names.TAG_BUILDER}": name, "instance-state-name": _NOT_ENDED}
        return tuple(map(_builder, self._instances(wanted)))

    def builder(self, instance: str) -> Builder | None:
        """As the port says."""
        return next(map(_builder, self._instances({"instance-id": instance})), None)

    def ground(self, subnet: str | None) -> Ground | None:
        """As the port says."""
        wanted = {"default-for-az": "true"} if subnet is None else {"subnet-id": subnet}
        with translated():
            found = self._ec2.describe_subnets(Filters=_filters(wanted))["Subnets"]
        first = min(found, key=lambda s: str(s["AvailabilityZone"]), default=None)
        if first is None:
            return None
        return Ground(subnet=first["SubnetId"], vpc=first["VpcId"], zone=first["AvailabilityZone"])

    def open_group(self, name: str, vpc: str, ssh_from: Sequence[str], tags: Mapping[str, str]) -> str:
        """As the port says."""
        with translated():
            group = self._ec2.create_security_group(
                GroupName=name,
                Description="gpucluster image build, for its time only",
                VpcId=vpc,
                TagSpecifications=[{"ResourceType": "security-group", "Tags": _tags(tags)}],
            )["GroupId"]
            if ssh_from:
                ranges = [{"CidrIp": cidr, "Description": "the desk that builds"} for cidr in ssh_from]
                self._ec2.authorize_security_group_ingress(
                    GroupId=group,
                    IpPermissions=[
                        {"IpProtocol": "tcp", "FromPort": _SSH, "ToPort": _SSH, "IpRanges": ranges}
                    ],
                )
        return str(group)

    def groups(self, name: str) -> tuple[str, ...]:
        """As the port says."""
        with translated():
            found = self._ec2.describe_security_groups(Filters=_filters({f"tag:{names.TAG_BUILDER}": name}))
        return tuple(sorted(g["GroupId"] for g in found["SecurityGroups"]))

    def delete_group(self, group: str) -> None:
        """As the port says."""
        _gone_is_done(lambda: self._ec2.delete_security_group(GroupId=group))

    def launch(self, order: Order) -> str:
        """As the port says: a shutdown from inside is its end, and its volume goes with it."""
        disk = {
            "VolumeSize": order.root_gib,
            "VolumeType": "gp3",
            "Encrypted": True,
            "DeleteOnTermination": True,
        }
        arguments: dict[str, Any] = {
            "ImageId": order.image,
            "InstanceType": order.machine,
            "MinCount": 1,
            "MaxCount": 1,
            "SubnetId": order.subnet,
            "SecurityGroupIds": list(order.groups),
            "UserData": order.user_data,
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            "BlockDeviceMappings": [{"DeviceName": order.root_device, "Ebs": disk}],
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": _tags(order.tags)} for kind in ("instance", "volume")
            ],
        }
        if order.profile is not None:
            arguments["IamInstanceProfile"] = {"Name": order.profile}
        with translated():
            made = self._ec2.run_instances(**arguments)
        return str(made["Instances"][0]["InstanceId"])

    def console(self, instance: str) -> str:
        """As the port says; the newest, which Nitro machines give at once."""
        with translated():
            said = self._ec2.get_console_output(InstanceId=instance, Latest=True).get("Output") or ""
        return _text(said)

    def stop(self, instance: str) -> None:
        """As the port says."""
        with translated():
            self._ec2.stop_instances(InstanceIds=[instance])

    def terminate(self, instances: Sequence[str]) -> None:
        """As the port says: each alone, for one unknown id spares them all (T23)."""
        for instance in instances:
            _gone_is_done(lambda one=instance: self._ec2.terminate_instances(InstanceIds=[one]))

    def create_image(self, instance: str, name: str, tags: Mapping[str, str]) -> str:
        """As the port says."""
        with translated():
            made = self._ec2.create_image(
                InstanceId=instance,
                Name=name,
                Description="made by gpucluster image build",
                TagSpecifications=[
                    {"ResourceType": kind, "Tags": _tags(tags)} for kind in ("image", "snapshot")
                ],
            )
        return str(made["ImageId"])

    def discard(self, image: MadeImage) -> None:
        """As the port says; a snapshot can go only after its image."""
        _gone_is_done(lambda: self._ec2.deregister_image(ImageId=image.id))
        for snapshot in image.snapshots:
            _gone_is_done(lambda one=snapshot: self._ec2.delete_snapshot(SnapshotId=one))

    @property
    def _ec2(self) -> Any:
        if self._made is None:
            with translated():
                self._made = self._make()
        return self._made

    def _images(
        self, owners: list[str], wanted: Mapping[str, str | list[str]], *, deprecated: bool = False
    ) -> list[Any]:
        with translated():
            pages = self._ec2.get_paginator("describe_images").paginate(
                Owners=owners, Filters=_filters(wanted), IncludeDeprecated=deprecated
            )
            return [image for page in pages for image in page["Images"]]

    def _instances(self, wanted: Mapping[str, str | list[str]]) -> Iterator[Any]:
        with translated():
            pages = list(self._ec2.get_paginator("describe_instances").paginate(Filters=_filters(wanted)))
        return (i for page in pages for r in page["Reservations"] for i in r["Instances"])


def _gone_is_done(call: Callable[[], Any]) -> None:
    try:
        with translated():
            call()
    except CloudError as error:
        if error.fault is not Fault.GONE:
            raise


def _filters(wanted: Mapping[str, str | list[str]]) -> list[dict[str, Any]]:
    return [{"Name": n, "Values": [v] if isinstance(v, str) else v} for n, v in wanted.items()]


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def _tags_of(row: Any) -> dict[str, str]:
    return {str(t["Key"]): str(t["Value"]) for t in row.get("Tags") or ()}


def _image(row: Any) -> MadeImage:
    disks: list[Any] = [d.get("Ebs") for d in row.get("BlockDeviceMappings") or ()]
    why: Any = row.get("StateReason") or {"Message": ""}
    return MadeImage(
        id=str(row["ImageId"]),
        name=str(row.get("Name", "")),
        state=_STATES.get(str(row.get("State")), ImageState.OTHER),
        digest=_tags_of(row).get(names.TAG_IMAGE_DIGEST),
        created=str(row.get("CreationDate", "")),
        reason=str(why.get("Message", "")),
        snapshots=tuple(str(d["SnapshotId"]) for d in disks if d and d.get("SnapshotId")),
    )


def _builder(row: Any) -> Builder:
    return Builder(
        id=str(row["InstanceId"]),
        state=InstanceState(row["State"]["Name"]),
        desk=_tags_of(row).get(_DESK, "unknown"),
        launched_at=row["LaunchTime"].timestamp(),
        address=row.get("PublicIpAddress") or row.get("PrivateIpAddress"),
    )


def _text(said: str) -> str:
    """boto3 decodes it; a stand-in may leave it as it was sent."""
    try:
        return base64.b64decode(said, validate=True).decode(errors="replace")
    except ValueError:
        return said
