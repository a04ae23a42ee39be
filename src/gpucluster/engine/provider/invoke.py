"""The data sources that programs of ours ask for."""

from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from gpucluster.engine.provider.calls import Cloud, is_absent
from gpucluster.engine.provider.values import Value, Values


class RefusedError(Exception):
    """The question cannot be answered; the text says why."""


def invoke(cloud: Cloud, token: str, arguments: Values) -> Values:
    """Answer a data source; RefusedError names what is not known."""
    ask = SOURCES.get(token)
    if ask is None:
        raise RefusedError(f"the stand-in for AWS does not know the data source {token!r}")
    return ask(cloud, arguments)


_IMAGE_ARGUMENTS = frozenset({"filters", "owners", "mostRecent"})
_IMAGE_ANSWERS: Mapping[str, str] = {
    "architecture": "Architecture",
    "creationDate": "CreationDate",
    "description": "Description",
    "imageId": "ImageId",
    "name": "Name",
    "ownerId": "OwnerId",
    "rootDeviceName": "RootDeviceName",
    "rootDeviceType": "RootDeviceType",
    "state": "State",
}


def _get_ami(cloud: Cloud, arguments: Values) -> Values:
    unknown = sorted(arguments.keys() - _IMAGE_ARGUMENTS)
    if unknown:
        raise RefusedError(f"the stand-in for AWS does not know {', '.join(unknown)} of getAmi")
    filters = [{"Name": f["name"], "Values": f["values"]} for f in _filters(arguments)]
    asked: dict[str, Any] = {"Filters": filters} if filters else {}
    owners = {"Owners": arguments["owners"]} if arguments.get("owners") else {}
    images = sorted(cloud.ec2.describe_images(**asked, **owners)["Images"], key=_age)
    if not images:
        raise RefusedError(f"no machine image fits {_said(arguments)} in {cloud.region}")
    if len(images) > 1 and not arguments.get("mostRecent"):
        raise RefusedError(
            f"{len(images)} machine images fit {_said(arguments)} in {cloud.region}; one expected"
        )
    image = images[-1]
    found: Values = {name: image.get(api) for name, api in _IMAGE_ANSWERS.items()}
    tags = {t["Key"]: t["Value"] for t in image.get("Tags", [])}
    return {**arguments, **found, "id": image["ImageId"], "tags": tags, "region": cloud.region}


def _filters(arguments: Values) -> list[Values]:
    return arguments.get("filters") or []


def _age(image: Mapping[str, Value]) -> tuple[str, str]:
    return str(image.get("CreationDate", "")), str(image["ImageId"])


def _said(arguments: Values) -> str:
    filters = (f"{f['name']}={','.join(f['values'])}" for f in _filters(arguments))
    owners: list[str] = arguments.get("owners") or []
    return " ".join([*filters, f"owners={','.join(owners)}"])


_VPC_ANSWERS: Mapping[str, str] = {
    "cidrBlock": "CidrBlock",
    "default": "IsDefault",
    "dhcpOptionsId": "DhcpOptionsId",
    "instanceTenancy": "InstanceTenancy",
    "ownerId": "OwnerId",
    "state": "State",
}
_SUBNET_ANSWERS: Mapping[str, str] = {
    "availabilityZone": "AvailabilityZone",
    "availabilityZoneId": "AvailabilityZoneId",
    "availableIpAddressCount": "AvailableIpAddressCount",
    "cidrBlock": "CidrBlock",
    "defaultForAz": "DefaultForAz",
    "mapPublicIpOnLaunch": "MapPublicIpOnLaunch",
    "ownerId": "OwnerId",
    "state": "State",
    "vpcId": "VpcId",
}
_FILE_SYSTEM_ANSWERS: Mapping[str, str] = {
    "arn": "FileSystemArn",
    "availabilityZoneId": "AvailabilityZoneId",
    "availabilityZoneName": "AvailabilityZoneName",
    "creationToken": "CreationToken",
    "encrypted": "Encrypted",
    "kmsKeyId": "KmsKeyId",
    "name": "Name",
    "performanceMode": "PerformanceMode",
    "throughputMode": "ThroughputMode",
}


def _get_vpc(cloud: Cloud, arguments: Values) -> Values:
    identifier = _by_id(arguments, "getVpc", "id")
    vpc = _one(cloud, identifier, lambda: cloud.ec2.describe_vpcs(VpcIds=[identifier])["Vpcs"])
    names = {"enableDnsSupport": "EnableDnsSupport", "enableDnsHostnames": "EnableDnsHostnames"}
    said = {
        name: cloud.ec2.describe_vpc_attribute(VpcId=identifier, Attribute=name)[api]["Value"]
        for name, api in names.items()
    }
    return (
        _answered(cloud, vpc, _VPC_ANSWERS)
        | said
        | {"id": identifier, "arn": cloud.ec2_arn("vpc", identifier)}
    )


def _get_subnet(cloud: Cloud, arguments: Values) -> Values:
    identifier = _by_id(arguments, "getSubnet", "id")
    subnet = _one(cloud, identifier, lambda: cloud.ec2.describe_subnets(SubnetIds=[identifier])["Subnets"])
    own = {"id": identifier, "arn": cloud.ec2_arn("subnet", identifier)}
    return _answered(cloud, subnet, _SUBNET_ANSWERS) | own


def _get_file_system(cloud: Cloud, arguments: Values) -> Values:
    identifier = _by_id(arguments, "getFileSystem", "fileSystemId")

    def ask() -> list[dict[str, Any]]:
        return cloud.efs.describe_file_systems(FileSystemId=identifier)["FileSystems"]

    own = {"id": identifier, "fileSystemId": identifier}
    own["dnsName"] = f"{identifier}.efs.{cloud.region}.amazonaws.com"
    return _answered(cloud, _one(cloud, identifier, ask), _FILE_SYSTEM_ANSWERS) | own


def _by_id(arguments: Values, source: str, name: str) -> str:
    """The one argument that our programs give."""
    if arguments.keys() != {name}:
        more = ", ".join(sorted(arguments.keys() - {name})) or "nothing"
        raise RefusedError(f"the stand-in for AWS answers {source} by {name!r} alone, found {more}")
    return str(arguments[name])


def _one(cloud: Cloud, identifier: str, ask: Callable[[], list[dict[str, Any]]]) -> dict[str, Any]:
    try:
        found = ask()
    except ClientError as error:
        if not is_absent(error):
            raise
        found = []
    if not found:
        raise RefusedError(f"there is no {identifier} in {cloud.region} for these credentials")
    return found[0]


def _answered(cloud: Cloud, seen: Mapping[str, Value], names: Mapping[str, str]) -> Values:
    tags = {t["Key"]: t["Value"] for t in seen.get("Tags", [])}
    found = {name: seen[api] for name, api in names.items() if seen.get(api) is not None}
    return {**found, "tags": tags, "region": cloud.region}


SOURCES: Mapping[str, Callable[[Cloud, Values], Values]] = {
    "aws:ec2/getAmi:getAmi": _get_ami,
    "aws:ec2/getSubnet:getSubnet": _get_subnet,
    "aws:ec2/getVpc:getVpc": _get_vpc,
    "aws:efs/getFileSystem:getFileSystem": _get_file_system,
}
