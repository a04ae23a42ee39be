"""Look up resources in an AWS account, in the form of Pulumi's data sources. All calls only read.

`plan --resources --live` and the rehearsal's provider use the same table.
"""

from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from gpucluster.engine.aws_account import AwsAccount, is_absent
from gpucluster.engine.values import Value, Values


class LookupRefusedError(Exception):
    """The look-up has no answer. The text has the reason."""


def look_up(account: AwsAccount, token: str, arguments: Values) -> Values:
    """Return the outputs of a data source; LookupRefusedError gives the reason when there are none."""
    source = SOURCES.get(token)
    if source is None:
        raise LookupRefusedError(
            f"unknown data source {token!r}, expected one of {', '.join(sorted(SOURCES))}"
        )
    return source(account, arguments)


def read(account: AwsAccount, token: str, identifier: str) -> Values:
    """Return the outputs of a resource that a program reads by id, because AWS's provider has no data source for it."""
    reader = READERS.get(token)
    if reader is None:
        raise LookupRefusedError(f"{token} cannot be read here: write its answer into the file of look-ups")
    return reader(account, identifier)


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


def _get_ami(account: AwsAccount, arguments: Values) -> Values:
    unknown = sorted(arguments.keys() - _IMAGE_ARGUMENTS)
    if unknown:
        raise LookupRefusedError(
            f"getAmi: unknown arguments {', '.join(unknown)}, expected {', '.join(sorted(_IMAGE_ARGUMENTS))}"
        )
    filters = [{"Name": f["name"], "Values": f["values"]} for f in _filters(arguments)]
    asked: dict[str, Any] = {"Filters": filters} if filters else {}
    owners = {"Owners": arguments["owners"]} if arguments.get("owners") else {}
    images = sorted(account.ec2.describe_images(**asked, **owners)["Images"], key=_age)
    if not images:
        raise LookupRefusedError(f"no machine image fits {_criteria(arguments)} in {account.region}")
    if len(images) > 1 and not arguments.get("mostRecent"):
        raise LookupRefusedError(
            f"{len(images)} machine images fit {_criteria(arguments)} in {account.region}; one expected"
        )
    image = images[-1]
    found: Values = {name: image.get(api) for name, api in _IMAGE_ANSWERS.items()}
    tags = {t["Key"]: t["Value"] for t in image.get("Tags", [])}
    return {**arguments, **found, "id": image["ImageId"], "tags": tags, "region": account.region}


def _filters(arguments: Values) -> list[Values]:
    return arguments.get("filters") or []


def _age(image: Mapping[str, Value]) -> tuple[str, str]:
    return str(image.get("CreationDate", "")), str(image["ImageId"])


def _criteria(arguments: Values) -> str:
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
_LUSTRE_ANSWERS: Mapping[str, str] = {
    "arn": "ResourceARN",
    "dnsName": "DNSName",
    "mountName": "MountName",
    "ownerId": "OwnerId",
    "storageCapacity": "StorageCapacity",
    "storageType": "StorageType",
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


def _get_vpc(account: AwsAccount, arguments: Values) -> Values:
    identifier = _by_id(arguments, "getVpc", "id")
    vpc = _one(account, identifier, lambda: account.ec2.describe_vpcs(VpcIds=[identifier])["Vpcs"])
    names = {"enableDnsSupport": "EnableDnsSupport", "enableDnsHostnames": "EnableDnsHostnames"}
    attributes = {
        name: account.ec2.describe_vpc_attribute(VpcId=identifier, Attribute=name)[api]["Value"]
        for name, api in names.items()
    }
    return (
        _answered(account, vpc, _VPC_ANSWERS)
        | attributes
        | {"id": identifier, "arn": account.ec2_arn("vpc", identifier, vpc.get("OwnerId", ""))}
    )


def _get_subnet(account: AwsAccount, arguments: Values) -> Values:
    identifier = _by_id(arguments, "getSubnet", "id")
    subnet = _one(
        account, identifier, lambda: account.ec2.describe_subnets(SubnetIds=[identifier])["Subnets"]
    )
    own = {"id": identifier, "arn": account.ec2_arn("subnet", identifier, subnet.get("OwnerId", ""))}
    return _answered(account, subnet, _SUBNET_ANSWERS) | own


def _get_file_system(account: AwsAccount, arguments: Values) -> Values:
    identifier = _by_id(arguments, "getFileSystem", "fileSystemId")

    def found() -> list[dict[str, Any]]:
        return account.efs.describe_file_systems(FileSystemId=identifier)["FileSystems"]

    own = {"id": identifier, "fileSystemId": identifier}
    own["dnsName"] = f"{identifier}.efs.{account.region}.amazonaws.com"
    return _answered(account, _one(account, identifier, found), _FILE_SYSTEM_ANSWERS) | own


def _get_caller_identity(account: AwsAccount, arguments: Values) -> Values:
    """Return the account alone: the caller's name differs by person, and the file of look-ups is shared."""
    if arguments:
        raise LookupRefusedError(
            f"getCallerIdentity: expected no argument, found {', '.join(sorted(arguments))}"
        )
    return {"accountId": account.account, "id": account.account}


_KEY_ANSWERS: Mapping[str, str] = {
    "arn": "Arn",
    "enabled": "Enabled",
    "keyManager": "KeyManager",
    "keySpec": "KeySpec",
    "keyState": "KeyState",
    "keyUsage": "KeyUsage",
    "multiRegion": "MultiRegion",
}


def _get_key(account: AwsAccount, arguments: Values) -> Values:
    """Return the key of an alias or an ARN. The ARN in the answer is the key's own, also for an alias."""
    named = _by_id(arguments, "getKey", "keyId")

    def found() -> list[dict[str, Any]]:
        return [account.client("kms").describe_key(KeyId=named)["KeyMetadata"]]

    key = _one(account, named, found)
    answer = _answered(account, key, _KEY_ANSWERS)
    del answer["tags"]  # KMS has another call for tags
    return {**answer, "id": key["KeyId"], "keyId": named}


def _read_lustre(account: AwsAccount, identifier: str) -> Values:
    def found() -> list[dict[str, Any]]:
        return account.fsx.describe_file_systems(FileSystemIds=[identifier])["FileSystems"]

    seen = _one(account, identifier, found)
    return _answered(account, {**seen.get("LustreConfiguration", {}), **seen}, _LUSTRE_ANSWERS)


def _by_id(arguments: Values, source: str, name: str) -> str:
    """Return the only argument that our programs use."""
    if arguments.keys() != {name}:
        more = ", ".join(sorted(arguments.keys() - {name})) or "nothing"
        raise LookupRefusedError(f"{source}: expected the argument {name!r} alone, found {more}")
    return str(arguments[name])


def _one(account: AwsAccount, identifier: str, ask: Callable[[], list[dict[str, Any]]]) -> dict[str, Any]:
    try:
        found = ask()
    except ClientError as error:
        if not is_absent(error):
            raise
        found = []
    if not found:
        raise LookupRefusedError(f"there is no {identifier} in {account.region} for these credentials")
    return found[0]


def _answered(account: AwsAccount, seen: Mapping[str, Value], names: Mapping[str, str]) -> Values:
    tags = {t["Key"]: t["Value"] for t in seen.get("Tags", [])}
    found = {name: seen[api] for name, api in names.items() if seen.get(api) is not None}
    return {**found, "tags": tags, "region": account.region}


SOURCES: Mapping[str, Callable[[AwsAccount, Values], Values]] = {
    "aws:ec2/getAmi:getAmi": _get_ami,
    "aws:ec2/getSubnet:getSubnet": _get_subnet,
    "aws:ec2/getVpc:getVpc": _get_vpc,
    "aws:efs/getFileSystem:getFileSystem": _get_file_system,
    "aws:index/getCallerIdentity:getCallerIdentity": _get_caller_identity,
    "aws:kms/getKey:getKey": _get_key,
}
READERS: Mapping[str, Callable[[AwsAccount, str], Values]] = {
    "aws:fsx/lustreFileSystem:LustreFileSystem": _read_lustre,
}
