"""The port over EC2, also over the EC2 API of the sandbox. The client is created at the first call."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpucluster.catalog.image import System
from gpucluster.cloud.aws import boto3_client, client_config, reason_of, translated
from gpucluster.cloud.port import CloudError, Fault, InstanceState
from gpucluster.image.port import BaseImage, Builder, BuilderLaunch, BuilderSubnet, ImageState, MadeImage
from gpucluster.plan import names

_BUILD_HOST_TAG = f"{names.TAG_BUILDER}-desk"
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
        """See the port. Owner and name must match, because any account may publish an image of any name."""
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
        """See the port. The search is by name, because an image without its tag still occupies the name."""
        found = self._images(["self"], {"name": [name, f"{name}-*"]}, deprecated=True)
        return tuple(sorted(map(_image, found), key=lambda i: i.created, reverse=True))

    def image(self, image_id: str) -> MadeImage | None:
        """See the port. A filter does not fail for an id that EC2 does not show yet."""
        found = self._images(["self"], {"image-id": image_id}, deprecated=True)
        return _image(found[0]) if found else None

    def builders(self, name: str) -> tuple[Builder, ...]:
        """See the port."""
        wanted = {f"tag:{names.TAG_BUILDER}": name, "instance-state-name": _NOT_ENDED}
        return tuple(map(_builder, self._instances(wanted)))

    def builder(self, instance: str) -> Builder | None:
        """See the port."""
        return next(map(_builder, self._instances({"instance-id": instance})), None)

    def subnet(self, subnet: str | None) -> BuilderSubnet | None:
        """See the port."""
        wanted = {"default-for-az": "true"} if subnet is None else {"subnet-id": subnet}
        with translated():
            found = self._ec2.describe_subnets(Filters=_filters(wanted))["Subnets"]
        first = min(found, key=lambda s: str(s["AvailabilityZone"]), default=None)
        if first is None:
            return None
        return BuilderSubnet(subnet=first["SubnetId"], vpc=first["VpcId"], zone=first["AvailabilityZone"])

    def create_group(self, name: str, vpc: str, ssh_from: Sequence[str], tags: Mapping[str, str]) -> str:
        """See the port."""
        with translated():
            group = self._ec2.create_security_group(
                GroupName=name,
                Description="gpucluster image build, for its time only",
                VpcId=vpc,
                TagSpecifications=[{"ResourceType": "security-group", "Tags": _tags(tags)}],
            )["GroupId"]
            if ssh_from:
                ranges = [{"CidrIp": cidr, "Description": "the machine that builds"} for cidr in ssh_from]
                self._ec2.authorize_security_group_ingress(
                    GroupId=group,
                    IpPermissions=[
                        {"IpProtocol": "tcp", "FromPort": _SSH, "ToPort": _SSH, "IpRanges": ranges}
                    ],
                )
        return str(group)

    def groups(self, name: str) -> tuple[str, ...]:
        """See the port."""
        with translated():
            found = self._ec2.describe_security_groups(Filters=_filters({f"tag:{names.TAG_BUILDER}": name}))
        return tuple(sorted(g["GroupId"] for g in found["SecurityGroups"]))

    def delete_group(self, group: str) -> None:
        """See the port."""
        _ignore_missing(lambda: self._ec2.delete_security_group(GroupId=group))

    def launch(self, launch: BuilderLaunch) -> str:
        """See the port. A shutdown from inside terminates the builder and deletes its volume."""
        disk = {
            "VolumeSize": launch.root_gib,
            "VolumeType": "gp3",
            "Encrypted": True,
            "DeleteOnTermination": True,
        }
        arguments: dict[str, Any] = {
            "ImageId": launch.image,
            "InstanceType": launch.machine,
            "MinCount": 1,
            "MaxCount": 1,
            "SubnetId": launch.subnet,
            "SecurityGroupIds": list(launch.groups),
            "UserData": launch.user_data,
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            "BlockDeviceMappings": [{"DeviceName": launch.root_device, "Ebs": disk}],
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": _tags(launch.tags)} for kind in ("instance", "volume")
            ],
        }
        if launch.profile is not None:
            arguments["IamInstanceProfile"] = {"Name": launch.profile}
        with translated():
            made = self._ec2.run_instances(**arguments)
        return str(made["Instances"][0]["InstanceId"])

    def console_output(self, instance: str) -> str:
        """See the port, with the latest output, which Nitro machines return at once."""
        with translated():
            text = self._ec2.get_console_output(InstanceId=instance, Latest=True).get("Output") or ""
        return _text(text)

    def stop(self, instance: str) -> None:
        """See the port."""
        with translated():
            self._ec2.stop_instances(InstanceIds=[instance])

    def terminate(self, instances: Sequence[str]) -> None:
        """See the port, one by one: one unknown id would fail the call for all (T23)."""
        for instance in instances:
            _ignore_missing(lambda one=instance: self._ec2.terminate_instances(InstanceIds=[one]))

    def create_image(self, instance: str, name: str, tags: Mapping[str, str]) -> str:
        """See the port."""
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

    def delete_image(self, image: MadeImage) -> None:
        """See the port. EC2 deletes a snapshot only after its image is deregistered."""
        _ignore_missing(lambda: self._ec2.deregister_image(ImageId=image.id))
        for snapshot in image.snapshots:
            _ignore_missing(lambda one=snapshot: self._ec2.delete_snapshot(SnapshotId=one))

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


def _ignore_missing(call: Callable[[], Any]) -> None:
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
        build_host=_tags_of(row).get(_BUILD_HOST_TAG, "unknown"),
        launched_at=row["LaunchTime"].timestamp(),
        address=row.get("PublicIpAddress") or row.get("PrivateIpAddress"),
        reason=reason_of(row),
    )


def _text(text: str) -> str:
    """Decode base64 if it is still encoded: boto3 decodes it, the sandbox may not."""
    try:
        return base64.b64decode(text, validate=True).decode(errors="replace")
    except ValueError:
        return text
